//! Paths of the plan, and its rules on random walks: the paths that real actors reach only by luck.

use super::*;
use crate::spec::{Backoff, Shutdown};
use ractor::ActorProcessingErr;

pub(super) fn spec(id: &str, restart: Restart) -> ChildSpec {
    let never = |_| async { Err(ActorProcessingErr::from("not started by the plan")) };
    match restart {
        Restart::Delegated { to } => ChildSpec::new(id, never).delegate_to(to, |_, _| {}),
        restart => ChildSpec::new(id, never).restart(restart),
    }
}

pub(super) fn flags(strategy: Strategy, max: u32) -> Flags {
    Flags {
        id: "s".into(),
        strategy,
        max,
        period: Duration::from_secs(5),
        auto_shutdown: AutoShutdown::Never,
        prepare: None,
        dynamic: None,
    }
}

pub(super) struct Bench {
    pub(super) plan: Plan,
    pub(super) keys: Vec<Key>,
    pub(super) now: Instant,
}

impl Bench {
    pub(super) fn new(strategy: Strategy, max: u32, specs: &[ChildSpec]) -> Bench {
        let now = Instant::now();
        let mut plan = Plan::new(flags(strategy, max));
        let keys = specs.iter().map(|spec| plan.adopt(spec, now)).collect();
        Bench { plan, keys, now }
    }

    pub(super) fn feed(&mut self, input: Input) -> Vec<String> {
        self.plan.handle(input, self.now).iter().filter_map(|action| self.show(action)).collect()
    }

    pub(super) fn exit(&mut self, child: usize, incarnation: u64, reason: ExitReason) -> Vec<String> {
        self.feed(Input::Exited { key: self.keys[child], incarnation, reason })
    }

    pub(super) fn started(
        &mut self,
        child: usize,
        incarnation: u64,
        result: Result<(), ChildStartError>,
    ) -> Vec<String> {
        self.feed(Input::Started { key: self.keys[child], incarnation, result })
    }

    pub(super) fn request(&mut self, token: u64, request: Request) -> Vec<String> {
        self.feed(Input::Request { token, request })
    }

    fn name(&self, key: Key) -> String {
        match self.keys.iter().position(|known| *known == key) {
            Some(index) => char::from(b'a' + index as u8).to_string(),
            None => format!("#{key}"),
        }
    }

    /// Actions as short text; events are left out but for those about the end.
    fn show(&self, action: &Action) -> Option<String> {
        Some(match action {
            Action::File(key, _) => format!("file {}", self.name(*key)),
            Action::Start { key, incarnation } => format!("start {}{incarnation}", self.name(*key)),
            Action::AbortStart(key) => format!("abort {}", self.name(*key)),
            Action::Stop { key, .. } => format!("stop {}", self.name(*key)),
            Action::Kill(key) => format!("kill {}", self.name(*key)),
            Action::Retry(key) => format!("retry {}", self.name(*key)),
            Action::Forget(key) => format!("forget {}", self.name(*key)),
            Action::Prepare { key, .. } => format!("prepare {}", self.name(*key)),
            Action::TellStarted { key, incarnation } => {
                format!("tell started {}{incarnation}", self.name(*key))
            }
            Action::TellExited { key, incarnation, .. } => {
                format!("tell exited {}{incarnation}", self.name(*key))
            }
            Action::Reply { token, result: Ok(_) } => format!("ok {token}"),
            Action::Reply { token, result: Err(error) } => format!("refuse {token}: {error}"),
            Action::End(None) => "end".to_owned(),
            Action::End(Some(SupervisorExit::ReachedMaxIntensity { .. })) => "fail: intensity".to_owned(),
            Action::End(Some(SupervisorExit::Unkillable { .. })) => "fail: unkillable".to_owned(),
            Action::Emit(_) => return None,
        })
    }
}

pub(super) fn reasons() -> [ExitReason; 6] {
    [
        ExitReason::Normal,
        ExitReason::Shutdown,
        ExitReason::Killed,
        ExitReason::Aborted,
        ExitReason::Panic("p".to_owned()),
        ExitReason::Error(Arc::new(ChildStartError::Cancelled)),
    ]
}

#[test]
fn a_stop_or_a_terminate_gets_in_before_a_retry() {
    let specs = ["a", "b"].map(|id| spec(id, Restart::Permanent));
    let mut bench = Bench::new(Strategy::OneForOne, 5, &specs);
    assert_eq!(bench.exit(0, 1, ExitReason::Killed), ["start a2"]);
    assert_eq!(bench.started(0, 2, Err(ChildStartError::Cancelled)), ["retry a"]);
    assert_eq!(bench.request(1, Request::Restart("a".into())), ["refuse 1: child a is being restarted"]);
    assert_eq!(bench.request(2, Request::Delete("a".into())), ["refuse 2: child a is being restarted"]);
    assert_eq!(bench.request(3, Request::Terminate("a".into())), ["ok 3"]);
    assert_eq!(bench.feed(Input::Retry(bench.keys[0])), [""; 0], "it does not come back");
    assert_eq!(bench.exit(1, 1, ExitReason::Killed), ["start b2"]);
    assert_eq!(bench.started(1, 2, Err(ChildStartError::Cancelled)), ["retry b"]);
    assert_eq!(bench.feed(Input::Shutdown(None)), ["end"]);
    assert_eq!(bench.feed(Input::Retry(bench.keys[1])), [""; 0]);
}

#[test]
fn stop_then_kill_then_unkillable() {
    let specs = [spec("a", Restart::Permanent), spec("b", Restart::Permanent)];
    let mut bench = Bench::new(Strategy::OneForOne, 1, &specs);
    assert_eq!(bench.request(1, Request::Terminate("b".into())), ["stop b"]);
    bench.now = bench.plan.deadline().unwrap();
    assert_eq!(bench.feed(Input::Time), ["kill b"]);
    bench.now = bench.plan.deadline().unwrap();
    assert_eq!(bench.feed(Input::Time), ["refuse 1: child b survived being killed", "stop a"]);
    assert_eq!(bench.exit(0, 1, ExitReason::Shutdown), ["fail: unkillable"]);
}

#[test]
fn an_unkillable_below_is_never_restarted() {
    let mut bench = Bench::new(Strategy::OneForOne, 9, &[spec("a", Restart::Permanent)]);
    let below = SupervisorExit::Unkillable { supervisor: "x".into(), child: "y".into(), cause: None };
    assert_eq!(bench.exit(0, 1, ExitReason::Error(Arc::new(below))), ["fail: unkillable"]);
}

#[test]
fn a_deadline_caps_a_stop_that_has_begun() {
    let long = spec("a", Restart::Permanent).shutdown(Shutdown::Infinity);
    let mut bench = Bench::new(Strategy::OneForOne, 1, &[long]);
    assert_eq!(bench.feed(Input::Shutdown(None)), ["stop a"]);
    assert_eq!(bench.plan.deadline(), None);
    let deadline = bench.now + Duration::from_secs(3);
    assert_eq!(bench.feed(Input::Shutdown(Some(deadline))), [""; 0]);
    assert_eq!(bench.plan.deadline(), Some(deadline));
    assert_eq!(bench.feed(Input::Shutdown(Some(deadline + Duration::from_secs(9)))), [""; 0]);
    assert_eq!(bench.plan.deadline(), Some(deadline), "never later");
    bench.now = deadline;
    assert_eq!(bench.feed(Input::Time), ["kill a"]);
    assert_eq!(bench.exit(0, 1, ExitReason::Killed), ["end"]);
}

#[test]
fn a_start_under_way_is_stopped_when_it_is_over() {
    let mut bench = Bench::new(Strategy::OneForOne, 9, &[spec("a", Restart::Permanent)]);
    assert_eq!(bench.exit(0, 1, ExitReason::Killed), ["start a2"]);
    assert_eq!(bench.feed(Input::Shutdown(None)), [""; 0]);
    assert_eq!(bench.started(0, 2, Ok(())), ["stop a"]);
    assert_eq!(bench.exit(0, 2, ExitReason::Shutdown), ["end"]);
}

#[test]
fn requests_wait_for_a_group_and_are_refused_by_a_shutdown() {
    let specs = ["a", "b"].map(|id| spec(id, Restart::Permanent));
    let mut bench = Bench::new(Strategy::OneForAll, 1, &specs);
    bench.exit(0, 1, ExitReason::Killed);
    assert_eq!(bench.request(1, Request::Terminate("a".into())), [""; 0]);
    assert_eq!(bench.exit(1, 1, ExitReason::Shutdown), ["start a2"]);
    bench.started(0, 2, Ok(()));
    assert_eq!(bench.started(1, 2, Ok(())), ["stop a"]);
    assert_eq!(bench.exit(0, 2, ExitReason::Shutdown), ["ok 1"]);
    assert_eq!(bench.feed(Input::Shutdown(None)), ["stop b"]);
    assert_eq!(bench.request(2, Request::Restart("a".into())), ["refuse 2: the supervisor is shutting down"]);
}

#[test]
fn delegated_children_go_with_their_group_but_not_on_their_own() {
    let specs = [spec("a", Restart::Delegated { to: "b".into() }), spec("b", Restart::Permanent)];
    let mut bench = Bench::new(Strategy::OneForAll, 1, &specs);
    assert_eq!(bench.exit(0, 1, ExitReason::Killed), ["tell exited a1"]);
    assert_eq!(bench.request(1, Request::Restart("a".into())), ["start a2"]);
    assert_eq!(bench.request(2, Request::Restart("a".into())), ["refuse 2: child a is being restarted"]);
    assert_eq!(bench.started(0, 2, Ok(())), ["tell started a2", "ok 1"]);
    assert_eq!(bench.request(3, Request::Restart("a".into())), ["refuse 3: child a is running"]);
    assert_eq!(bench.exit(1, 1, ExitReason::Killed), ["stop a"]);
    assert_eq!(bench.exit(0, 2, ExitReason::Shutdown), ["tell exited a2", "start a3"]);
    assert_eq!(bench.started(0, 3, Ok(())), ["tell started a3", "start b2"]);
    assert_eq!(bench.exit(0, 3, ExitReason::Killed), ["tell exited a3"]);
    assert!(bench.started(1, 2, Ok(())).is_empty());
    let failed = bench.request(4, Request::Restart("a".into()));
    assert_eq!(failed, ["start a4"]);
    let failed = bench.started(0, 4, Err(ChildStartError::Cancelled));
    assert_eq!(failed, ["tell exited a4", "refuse 4: child a did not start"]);
}

#[test]
fn start_child_and_delete_child() {
    let mut bench = Bench::new(Strategy::OneForOne, 1, &[spec("a", Restart::Permanent)]);
    let add = |id: &str| Request::Start(Box::new(spec(id, Restart::Permanent)));
    assert_eq!(bench.request(1, add("a")), ["refuse 1: child a is already started"]);
    assert_eq!(bench.request(2, add("b")), ["file #2", "start #21"]);
    let failed =
        bench.feed(Input::Started { key: 2, incarnation: 1, result: Err(ChildStartError::Cancelled) });
    assert_eq!(failed, ["refuse 2: child b did not start", "forget #2"]);
    assert_eq!(bench.request(3, Request::Delete("a".into())), ["refuse 3: child a is running"]);
    assert_eq!(bench.request(4, Request::Terminate("a".into())), ["stop a"]);
    assert_eq!(bench.request(5, Request::Terminate("a".into())), [""; 0]);
    assert_eq!(bench.exit(0, 1, ExitReason::Shutdown), ["ok 4", "ok 5"]);
    assert_eq!(bench.request(6, add("a")), ["refuse 6: child a is already present"]);
    assert_eq!(bench.request(7, Request::Delete("a".into())), ["forget a", "ok 7"]);
    assert_eq!(bench.request(8, Request::Delete("a".into())), ["refuse 8: there is no child a"]);
}

const SECOND: Duration = Duration::from_secs(1);

fn backed_off(id: &str) -> ChildSpec {
    spec(id, Restart::Permanent).backoff(Backoff::new(SECOND, 4 * SECOND))
}

#[test]
fn a_backoff_delays_a_restart_and_each_failed_try_is_counted_when_it_fails() {
    let mut bench = Bench::new(Strategy::OneForOne, 2, &[backed_off("a")]);
    assert_eq!(bench.exit(0, 1, ExitReason::Killed), [""; 0]);
    assert_eq!(bench.plan.deadline(), Some(bench.now + SECOND));
    assert!(bench.plan.children().iter().all(|child| bench.plan.is_restarting(child)));
    bench.now += SECOND;
    assert_eq!(bench.feed(Input::Time), ["start a2"]);
    assert_eq!(bench.started(0, 2, Err(ChildStartError::Cancelled)), [""; 0]);
    assert_eq!(bench.plan.deadline(), Some(bench.now + 2 * SECOND));
    bench.now += 2 * SECOND;
    assert_eq!(bench.feed(Input::Time), ["start a3"]);
    assert_eq!(bench.started(0, 3, Err(ChildStartError::Cancelled)), ["fail: intensity"]);
}

#[test]
fn a_shutdown_and_a_terminate_do_not_wait_for_a_backoff() {
    let mut bench = Bench::new(Strategy::OneForOne, 9, &[backed_off("a"), backed_off("b")]);
    assert_eq!(bench.exit(0, 1, ExitReason::Killed), [""; 0]);
    assert_eq!(bench.request(1, Request::Terminate("a".into())), ["ok 1"]);
    assert_eq!(bench.plan.deadline(), None, "it does not come back");
    assert_eq!(bench.request(2, Request::Restart("a".into())), ["start a2"]);
    assert_eq!(bench.started(0, 2, Ok(())), ["ok 2"]);
    assert_eq!(bench.exit(1, 1, ExitReason::Killed), [""; 0]);
    assert_eq!(bench.feed(Input::Shutdown(None)), ["stop a"]);
    assert_eq!(bench.exit(0, 2, ExitReason::Shutdown), ["end"]);
}

#[test]
fn the_backoff_of_one_delays_the_start_of_its_group() {
    let specs = [spec("a", Restart::Permanent), backed_off("b"), spec("c", Restart::Permanent)];
    let mut bench = Bench::new(Strategy::RestForOne, 9, &specs);
    assert_eq!(bench.exit(1, 1, ExitReason::Killed), ["stop c"]);
    assert_eq!(bench.exit(2, 1, ExitReason::Shutdown), [""; 0]);
    assert_eq!(bench.exit(0, 1, ExitReason::Killed), [""; 0], "takes the others over, and their delay");
    bench.now = bench.plan.deadline().unwrap();
    assert_eq!(bench.feed(Input::Time), ["start a2"]);
    assert_eq!(bench.started(0, 2, Ok(())), ["start b2"]);
    assert_eq!(bench.started(1, 2, Ok(())), ["start c2"]);
    assert!(bench.started(2, 2, Ok(())).is_empty());
}

fn with_auto_shutdown(auto_shutdown: AutoShutdown, kinds: [Restart; 3]) -> Bench {
    let mut bench = Bench::new(Strategy::OneForOne, 9, &[]);
    bench.plan = Plan::new(Flags { auto_shutdown, ..flags(Strategy::OneForOne, 9) });
    for (id, kind) in ["a", "b", "c"].into_iter().zip(kinds) {
        let significant = kind != Restart::Permanent;
        bench.keys.push(bench.plan.adopt(&spec(id, kind).significant(significant), bench.now));
    }
    bench
}

#[test]
fn the_end_of_significant_children_ends_the_supervisor_in_order() {
    let kinds = || [Restart::Permanent, Restart::Transient, Restart::Temporary];
    let mut any = with_auto_shutdown(AutoShutdown::AnySignificant, kinds());
    assert_eq!(any.exit(1, 1, ExitReason::Killed), ["start b2"], "it comes back");
    any.started(1, 2, Ok(()));
    assert_eq!(any.exit(1, 2, ExitReason::Normal), ["stop c"]);
    assert_eq!(any.exit(2, 1, ExitReason::Shutdown), ["stop a"]);
    assert_eq!(any.exit(0, 1, ExitReason::Shutdown), ["end"], "in order, not as a failure");
    let mut all = with_auto_shutdown(AutoShutdown::AllSignificant, kinds());
    assert_eq!(all.exit(2, 1, ExitReason::Killed), ["forget c"], "whatever its reason");
    assert_eq!(all.exit(1, 1, ExitReason::Shutdown), ["stop a"]);
    let mut asked = with_auto_shutdown(AutoShutdown::AnySignificant, kinds());
    assert_eq!(asked.request(1, Request::Terminate("b".into())), ["stop b"]);
    assert_eq!(asked.exit(1, 1, ExitReason::Shutdown), ["ok 1"], "terminate_child does not count");
}

#[test]
fn a_dynamic_supervisor_keeps_nothing_that_is_down_and_stops_all_at_once() {
    let mut bench = Bench::new(Strategy::OneForOne, 9, &[]);
    bench.plan = Plan::new(Flags { dynamic: Some(2), ..flags(Strategy::OneForOne, 9) });
    let add = |id: &str| Request::Start(Box::new(spec(id, Restart::Transient)));
    assert_eq!(bench.request(1, add("x")), ["file #1", "start #11"]);
    assert_eq!(bench.request(2, add("y")), ["file #2", "start #21"]);
    assert_eq!(bench.request(3, add("z")), ["refuse 3: there are already 2 children"]);
    for key in [1, 2] {
        bench.feed(Input::Started { key, incarnation: 1, result: Ok(()) });
    }
    let normal = Input::Exited { key: 1, incarnation: 1, reason: ExitReason::Normal };
    assert_eq!(bench.feed(normal), ["forget #1"]);
    let refused = "refuse 4: a dynamic supervisor has no children that are down";
    assert_eq!(bench.request(4, Request::Restart("y".into())), [refused]);
    assert_eq!(bench.request(5, add("z")), ["file #3", "start #31"]);
    bench.feed(Input::Started { key: 3, incarnation: 1, result: Ok(()) });
    assert_eq!(bench.feed(Input::Shutdown(None)), ["stop #2", "stop #3"]);
    for (key, then) in [(2, vec![]), (3, vec!["end"])] {
        let gone = Input::Exited { key, incarnation: 1, reason: ExitReason::Shutdown };
        assert_eq!(bench.feed(gone), then);
    }
}

/// A small seeded generator (splitmix64): the seed that fails is in the message.
pub(super) struct Dice(pub(super) u64);

impl Dice {
    pub(super) fn roll(&mut self, sides: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) % sides as u64) as usize
    }
}

/// What a naive world knows about the actors.
#[derive(Default)]
struct World {
    alive: std::collections::BTreeMap<Key, (u64, bool)>,
    starting: std::collections::BTreeMap<Key, u64>,
    retries: Vec<Key>,
    open: std::collections::BTreeSet<u64>,
    /// Asked to go by a request, which may be carried out at any time.
    terminated: std::collections::BTreeSet<String>,
    names: std::collections::BTreeMap<Key, String>,
    ended: bool,
    shutting_down: bool,
}

impl World {
    fn apply(&mut self, actions: Vec<Action>, seed: u64) {
        for action in actions {
            assert!(!self.ended, "seed {seed}: {action:?} after the end");
            match action {
                Action::File(key, spec) => {
                    self.names.insert(key, spec.id.to_string());
                }
                Action::Start { key, incarnation } => {
                    assert!(
                        !self.alive.contains_key(&key),
                        "seed {seed}: a second incarnation over a living one"
                    );
                    assert!(
                        self.starting.insert(key, incarnation).is_none(),
                        "seed {seed}: two starts at once"
                    );
                    assert!(!self.shutting_down, "seed {seed}: a start during the shutdown");
                }
                Action::Stop { key, .. } | Action::Kill(key) => {
                    let alive = self.alive.get_mut(&key);
                    let alive = alive.unwrap_or_else(|| panic!("seed {seed}: stopped what is not alive"));
                    let first = !std::mem::replace(&mut alive.1, true);
                    if self.shutting_down && first && !self.terminated.contains(&self.names[&key]) {
                        let later = self.alive.range(key + 1..).filter(|(_, (_, asked))| !asked).count();
                        assert_eq!(later, 0, "seed {seed}: stopped out of order");
                    }
                }
                Action::AbortStart(key) => assert!(self.starting.contains_key(&key), "seed {seed}"),
                Action::Retry(key) => self.retries.push(key),
                Action::Forget(key) => {
                    assert!(
                        !self.alive.contains_key(&key) && !self.starting.contains_key(&key),
                        "seed {seed}"
                    );
                }
                Action::Reply { token, .. } => {
                    assert!(self.open.remove(&token), "seed {seed}: answered twice")
                }
                Action::End(failure) => {
                    // Whoever takes longer than the grace after a kill is given up, and only then may be left.
                    let given_up = matches!(failure, Some(SupervisorExit::Unkillable { .. }));
                    let empty = self.alive.is_empty() && self.starting.is_empty();
                    assert!(given_up || empty, "seed {seed}: something is left");
                    self.ended = true;
                }
                _ => {}
            }
        }
    }
}

#[test]
fn no_walk_breaks_the_rules_and_every_walk_ends() {
    let restarts =
        [Restart::Permanent, Restart::Transient, Restart::Temporary, Restart::Delegated { to: "c0".into() }];
    for seed in 0..3000 {
        let mut dice = Dice(seed);
        let strategy = [Strategy::OneForOne, Strategy::OneForAll, Strategy::RestForOne][dice.roll(3)];
        let max = [0, 2, 50][dice.roll(3)];
        let prepare = (dice.roll(2) == 0).then(|| ("c1".into(), Duration::from_secs(1)));
        let auto_shutdown = [AutoShutdown::Never, AutoShutdown::AnySignificant][dice.roll(2)];
        let mut plan = Plan::new(Flags { auto_shutdown, prepare, ..flags(strategy, max) });
        let mut world = World::default();
        let random_spec = |dice: &mut Dice, id: usize| {
            let mut spec = spec(&format!("c{id}"), restarts[dice.roll(restarts.len())].clone());
            let owned = matches!(spec.restart, Restart::Permanent | Restart::Transient);
            if owned && dice.roll(3) == 0 {
                spec = spec.backoff(Backoff::new(Duration::from_millis(300), Duration::from_secs(2)));
            }
            let may = matches!(spec.restart, Restart::Transient | Restart::Temporary);
            spec.significant(may && dice.roll(9) == 0)
        };
        for id in 0..4 {
            let key = plan.adopt(&random_spec(&mut dice, id), Instant::now());
            world.alive.insert(key, (1, false));
            world.names.insert(key, format!("c{id}"));
        }
        let mut now = Instant::now();
        for step in 0..400u64 {
            if world.ended {
                break;
            }
            now += Duration::from_millis(dice.roll(400) as u64);
            let at = |dice: &mut Dice, length: usize| dice.roll(length.max(1));
            let closing = step > 200;
            let input = match dice.roll(if closing { 4 } else { 8 }) {
                0 if !world.starting.is_empty() => {
                    let index = at(&mut dice, world.starting.len());
                    let (key, incarnation) = world.starting.iter().nth(index).map(|(k, i)| (*k, *i)).unwrap();
                    world.starting.remove(&key);
                    let result = if dice.roll(3) == 0 { Err(ChildStartError::Cancelled) } else { Ok(()) };
                    if result.is_ok() {
                        world.alive.insert(key, (incarnation, false));
                    }
                    Input::Started { key, incarnation, result }
                }
                1 | 4 if !world.alive.is_empty() => {
                    let index = at(&mut dice, world.alive.len());
                    let (key, (incarnation, _)) =
                        world.alive.iter().nth(index).map(|(k, i)| (*k, *i)).unwrap();
                    world.alive.remove(&key);
                    Input::Exited { key, incarnation, reason: reasons()[dice.roll(6)].clone() }
                }
                2 if !world.retries.is_empty() => Input::Retry(world.retries.remove(0)),
                3 if closing && !world.shutting_down => {
                    world.shutting_down = true;
                    Input::Shutdown((dice.roll(2) == 0).then_some(now + Duration::from_secs(2)))
                }
                3 if dice.roll(3) == 0 => Input::Prepared,
                5.. => {
                    let id = ChildId::from(format!("c{}", dice.roll(6)));
                    world.open.insert(step);
                    let request = match dice.roll(4) {
                        0 => {
                            world.terminated.insert(id.to_string());
                            Request::Terminate(id)
                        }
                        1 => Request::Restart(id),
                        2 => Request::Delete(id),
                        _ => {
                            let child = dice.roll(6);
                            Request::Start(Box::new(random_spec(&mut dice, child)))
                        }
                    };
                    Input::Request { token: step, request }
                }
                _ if plan.deadline().is_some_and(|due| due <= now) && dice.roll(4) > 0 => {
                    // Whoever is killed when its time is up goes at once in this world.
                    let killed: Vec<Key> =
                        plan.handle(Input::Time, now).into_iter().fold(vec![], |mut keys, action| {
                            match action {
                                Action::Kill(key) => keys.push(key),
                                Action::AbortStart(key) => keys.push(key),
                                other => world.apply(vec![other], seed),
                            }
                            keys
                        });
                    for key in killed {
                        let input = match (world.alive.remove(&key), world.starting.remove(&key)) {
                            (Some((incarnation, _)), _) => {
                                Input::Exited { key, incarnation, reason: ExitReason::Killed }
                            }
                            (None, Some(incarnation)) => {
                                Input::Started { key, incarnation, result: Err(ChildStartError::Cancelled) }
                            }
                            (None, None) => panic!("seed {seed}: killed what is not there"),
                        };
                        let actions = plan.handle(input, now);
                        world.apply(actions, seed);
                    }
                    continue;
                }
                _ => continue,
            };
            let actions = plan.handle(input, now);
            world.apply(actions, seed);
        }
        assert!(world.ended, "seed {seed}: the walk does not end");
    }
}
