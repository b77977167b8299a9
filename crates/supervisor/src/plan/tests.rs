//! The decision as a table, and the paths that real actors reach only by luck.

use super::*;
use crate::spec::{ChildKind, Shutdown};
use ractor::ActorProcessingErr;

fn spec(id: &str, restart: Restart) -> ChildSpec {
    let never = |_| async { Err(ActorProcessingErr::from("not started by the plan")) };
    ChildSpec::new(id, never).restart(restart)
}

struct Bench {
    plan: Plan,
    keys: Vec<Key>,
    now: Instant,
}

impl Bench {
    fn new(strategy: Strategy, max: u32, specs: &[ChildSpec]) -> Bench {
        let mut plan = Plan::new("s".into(), strategy, max, Duration::from_secs(5), None);
        let keys = specs.iter().map(|spec| plan.adopt(spec)).collect();
        Bench { plan, keys, now: Instant::now() }
    }

    fn feed(&mut self, input: Input) -> Vec<String> {
        self.plan.handle(input, self.now).iter().filter_map(|action| self.show(action)).collect()
    }

    fn exit(&mut self, child: usize, incarnation: u64, reason: ExitReason) -> Vec<String> {
        self.feed(Input::Exited { key: self.keys[child], incarnation, reason })
    }

    fn started(
        &mut self,
        child: usize,
        incarnation: u64,
        result: Result<(), ChildStartError>,
    ) -> Vec<String> {
        self.feed(Input::Started { key: self.keys[child], incarnation, result })
    }

    fn request(&mut self, token: u64, request: Request) -> Vec<String> {
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

fn reasons() -> [ExitReason; 6] {
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
fn every_strategy_restart_type_and_exit_reason() {
    let delegated = Restart::Delegated { to: "a".into() };
    for strategy in [Strategy::OneForOne, Strategy::OneForAll, Strategy::RestForOne] {
        for restart in [Restart::Permanent, Restart::Transient, Restart::Temporary, delegated.clone()] {
            for reason in reasons() {
                let specs = ["a", "b", "c"]
                    .map(|id| spec(id, if id == "b" { restart.clone() } else { Restart::Permanent }));
                let mut bench = Bench::new(strategy, 1, &specs);
                let restarted: &[&str] = match strategy {
                    Strategy::OneForOne => &["start b2"],
                    // The others are stopped first, the last one first.
                    Strategy::OneForAll | Strategy::RestForOne => &["stop c"],
                };
                // OTP: supervisor.erl, do_restart/3.
                let expected: &[&str] = match restart {
                    Restart::Permanent => restarted,
                    Restart::Transient if reason.is_abnormal() => restarted,
                    Restart::Transient => &[],
                    Restart::Temporary => &["forget b"],
                    Restart::Delegated { .. } => &["tell exited b1"],
                };
                let actions = bench.exit(1, 1, reason.clone());
                assert_eq!(actions, expected, "{strategy:?} {restart:?} {reason:?}");
            }
        }
    }
}

#[test]
fn one_for_all_stops_in_reverse_and_starts_in_order_and_drops_temporary_children() {
    let mut temporary = spec("b", Restart::Temporary);
    temporary.kind = ChildKind::Worker;
    let specs = [spec("a", Restart::Permanent), temporary, spec("c", Restart::Permanent)];
    let mut bench = Bench::new(Strategy::OneForAll, 1, &specs);
    assert_eq!(bench.exit(0, 1, ExitReason::Killed), ["stop c"]);
    assert_eq!(bench.exit(2, 1, ExitReason::Shutdown), ["stop b"]);
    assert_eq!(bench.exit(1, 1, ExitReason::Shutdown), ["forget b", "start a2"]);
    assert_eq!(bench.started(0, 2, Ok(())), ["start c2"]);
    assert!(bench.started(2, 2, Ok(())).is_empty());
    assert_eq!(bench.exit(0, 1, ExitReason::Killed), [""; 0], "an old incarnation is an old story");
}

#[test]
fn rest_for_one_leaves_the_children_before_alone() {
    let specs = ["a", "b", "c"].map(|id| spec(id, Restart::Permanent));
    let mut bench = Bench::new(Strategy::RestForOne, 2, &specs);
    assert_eq!(bench.exit(1, 1, ExitReason::Killed), ["stop c"]);
    assert_eq!(bench.exit(0, 1, ExitReason::Killed), [""; 0], "waits until the group is done");
    assert_eq!(bench.exit(2, 1, ExitReason::Shutdown), ["start b2"]);
    assert_eq!(bench.started(1, 2, Ok(())), ["start c2"]);
    assert_eq!(bench.started(2, 2, Ok(())), ["stop c"], "now for a, which takes all with it");
}

#[test]
fn a_second_death_during_the_stops_of_one_for_all_is_not_counted() {
    let specs = ["a", "b", "c"].map(|id| spec(id, Restart::Permanent));
    let mut bench = Bench::new(Strategy::OneForAll, 1, &specs);
    assert_eq!(bench.exit(0, 1, ExitReason::Killed), ["stop c"]);
    assert_eq!(bench.exit(1, 1, ExitReason::Killed), [""; 0]);
    assert_eq!(bench.exit(2, 1, ExitReason::Shutdown), ["start a2"]);
}

#[test]
fn a_fresh_child_that_dies_while_the_group_starts_counts_again() {
    let specs = ["a", "b"].map(|id| spec(id, Restart::Permanent));
    let mut bench = Bench::new(Strategy::OneForAll, 1, &specs);
    bench.exit(0, 1, ExitReason::Killed);
    assert_eq!(bench.exit(1, 1, ExitReason::Shutdown), ["start a2"]);
    assert_eq!(bench.started(0, 2, Ok(())), ["start b2"]);
    assert_eq!(bench.exit(0, 2, ExitReason::Killed), [""; 0]);
    assert_eq!(bench.started(1, 2, Ok(())), ["stop b"], "the intensity is reached: b is stopped first");
    assert_eq!(bench.exit(1, 2, ExitReason::Shutdown), ["fail: intensity"]);
}

#[test]
fn a_failed_group_start_begins_the_group_again_and_counts() {
    let specs = ["a", "b"].map(|id| spec(id, Restart::Permanent));
    let mut bench = Bench::new(Strategy::OneForAll, 2, &specs);
    bench.exit(1, 1, ExitReason::Killed);
    assert_eq!(bench.exit(0, 1, ExitReason::Shutdown), ["start a2"]);
    assert_eq!(bench.started(0, 2, Ok(())), ["start b2"]);
    assert_eq!(bench.started(1, 2, Err(ChildStartError::Cancelled)), ["retry b"]);
    assert_eq!(bench.feed(Input::Retry(bench.keys[1])), ["stop a"]);
    assert_eq!(bench.exit(0, 2, ExitReason::Shutdown), ["start a3"]);
    assert_eq!(bench.started(0, 3, Ok(())), ["start b3"]);
    assert_eq!(bench.started(1, 3, Err(ChildStartError::Cancelled)), ["retry b"]);
    assert_eq!(bench.feed(Input::Retry(bench.keys[1])), ["stop a"], "the third try is one too many");
    assert_eq!(bench.exit(0, 3, ExitReason::Shutdown), ["fail: intensity"]);
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
