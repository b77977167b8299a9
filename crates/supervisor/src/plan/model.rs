//! The plan against a naive model: what one would write who reads OTP's documentation and has no mailbox, no
//! tasks and no time to lose. The model does everything at once, in a `Vec`, by scanning; the plan is driven step
//! by step by a world that answers each action. After every event both must have done the same to the same
//! children in the same order. `KOHORT_OTP_CASES` sets how many cases run.

use super::tests::{Dice, flags, reasons, spec};
use super::*;
use std::collections::VecDeque;

#[derive(Clone, Debug)]
struct Kid {
    id: String,
    restart: Restart,
    significant: bool,
    up: bool,
    starts: u64,
    /// It died and nobody has dealt with it.
    dead: bool,
}

/// OTP's supervisor, naively.
struct Naive {
    strategy: Strategy,
    max: usize,
    auto: AutoShutdown,
    kids: Vec<Kid>,
    restarts: Vec<u64>,
    /// Restarts that failed and are tried again when everything that was there before them is done.
    again: VecDeque<(String, Vec<String>)>,
    /// How many of the next starts fail.
    failing: u32,
    log: Vec<String>,
    ended: Option<bool>,
}

impl Naive {
    fn at(&self, id: &str) -> Option<usize> {
        self.kids.iter().position(|kid| kid.id == id)
    }

    fn start(&mut self, at: usize) -> bool {
        let kid = &mut self.kids[at];
        kid.starts += 1;
        kid.up = self.failing == 0;
        self.failing = self.failing.saturating_sub(1);
        self.log.push(format!("start {}{} {}", kid.id, kid.starts, kid.up));
        kid.up
    }

    fn stop(&mut self, at: usize) {
        self.kids[at].dead = false;
        if std::mem::replace(&mut self.kids[at].up, false) {
            self.log.push(format!("stop {}", self.kids[at].id));
        }
    }

    fn end(&mut self, failed: bool) {
        (0..self.kids.len()).rev().for_each(|at| self.stop(at));
        self.ended = Some(failed);
    }

    /// `terminate_child`, `restart_child`, `delete_child`, `start_child`: whether it was granted.
    fn request(&mut self, what: usize, new: Kid) -> bool {
        match (what, self.at(&new.id)) {
            (0, Some(at)) => {
                self.stop(at);
                if self.kids[at].restart == Restart::Temporary {
                    self.kids.remove(at);
                }
                true
            }
            (1, Some(at)) if !self.kids[at].up => self.start(at),
            (2, Some(at)) if !self.kids[at].up => {
                self.kids.remove(at);
                true
            }
            (3, None) => {
                self.kids.push(new);
                let started = self.start(self.kids.len() - 1);
                if !started {
                    self.kids.pop();
                }
                started
            }
            _ => false,
        }
    }

    /// Children that are found dead in this order, by themselves.
    fn exits(&mut self, dead: &[(String, ExitReason)], now: u64) {
        for (id, _) in dead {
            let at = self.at(id).unwrap();
            (self.kids[at].up, self.kids[at].dead) = (false, true);
        }
        for (id, reason) in dead {
            // A restart on behalf of one before it may have taken it along.
            let at = self.at(id).filter(|at| std::mem::take(&mut self.kids[*at].dead));
            if let (Some(at), None) = (at, self.ended) {
                self.exit(at, reason, now);
            }
        }
        while let (Some((id, _)), None) = (self.again.pop_front(), self.ended) {
            self.restart(id, now);
        }
    }

    fn exit(&mut self, at: usize, reason: &ExitReason, now: u64) {
        let kid = self.kids[at].clone();
        if kid.restart == Restart::Permanent || (kid.restart == Restart::Transient && reason.is_abnormal()) {
            return self.restart(kid.id, now);
        }
        if kid.restart == Restart::Temporary {
            self.kids.remove(at);
        }
        // Ours waits for children that a failed restart of their group will bring back; OTP does not.
        let back = |id: &String| self.again.iter().any(|(_, group)| group.contains(id));
        let active = |other: &Kid| other.up || other.dead || back(&other.id);
        let left = self.kids.iter().any(|other| other.significant && active(other));
        let all = self.auto == AutoShutdown::AllSignificant && !left;
        if kid.significant && (self.auto == AutoShutdown::AnySignificant || all) {
            self.end(false);
        }
    }

    fn restart(&mut self, id: String, now: u64) {
        self.restarts.push(now);
        if self.restarts.iter().filter(|then| now - **then <= 5_000).count() > self.max {
            return self.end(true);
        }
        let at = self.at(&id).unwrap();
        let group: Vec<String> = match self.strategy {
            Strategy::OneForOne => vec![id],
            Strategy::OneForAll => self.kids.iter().map(|kid| kid.id.clone()).collect(),
            Strategy::RestForOne => self.kids[at..].iter().map(|kid| kid.id.clone()).collect(),
        };
        self.again.retain(|(id, _)| !group.contains(id));
        for id in group.iter().rev() {
            self.stop(self.at(id).unwrap());
        }
        if self.strategy != Strategy::OneForOne {
            self.kids.retain(|kid| !(group.contains(&kid.id) && kid.restart == Restart::Temporary));
        }
        for id in group.clone() {
            if let Some(at) = self.at(&id)
                && !self.start(at)
            {
                return self.again.push_back((id, group));
            }
        }
    }
}

/// Drives the plan until nothing is left to do, answering as the naive world does.
struct Driven {
    plan: Plan,
    names: std::collections::HashMap<Key, String>,
    began: Instant,
    failing: u32,
    log: Vec<String>,
    granted: bool,
    ended: Option<bool>,
}

impl Driven {
    fn feed(&mut self, inputs: impl IntoIterator<Item = Input>, now: u64) {
        let now = self.began + Duration::from_millis(now);
        let mut queue: VecDeque<Input> = inputs.into_iter().collect();
        let gone = |input: &Input| match input {
            Input::Exited { key, incarnation, .. } => Some((*key, *incarnation)),
            _ => None,
        };
        let dead: Vec<(Key, u64)> = queue.iter().filter_map(gone).collect();
        while let Some(input) = queue.pop_front() {
            for action in self.plan.handle(input, now) {
                match action {
                    Action::File(key, spec) => {
                        self.names.insert(key, spec.id.to_string());
                    }
                    Action::Start { key, incarnation } => {
                        let up = self.failing == 0;
                        self.failing = self.failing.saturating_sub(1);
                        self.log.push(format!("start {}{incarnation} {up}", self.names[&key]));
                        let result = if up { Ok(()) } else { Err(ChildStartError::Cancelled) };
                        queue.push_back(Input::Started { key, incarnation, result });
                    }
                    Action::Stop { key, .. } => {
                        let incarnation = self.plan.children().get(key).unwrap().incarnation;
                        // One that is dead does not hear it; its exit is on its way.
                        if !dead.contains(&(key, incarnation)) {
                            self.log.push(format!("stop {}", self.names[&key]));
                            queue.push_back(Input::Exited { key, incarnation, reason: ExitReason::Shutdown });
                        }
                    }
                    Action::Retry(key) => queue.push_back(Input::Retry(key)),
                    Action::Reply { result, .. } => self.granted = result.is_ok(),
                    Action::End(failure) => self.ended = Some(failure.is_some()),
                    Action::Emit(_) | Action::Forget(_) => {}
                    other => panic!("{other:?} has no place in this world"),
                }
            }
        }
    }

    fn look(&self) -> Vec<(String, u64, bool)> {
        let look = |child: &Child| (child.id.to_string(), child.incarnation, child.state() == State::Running);
        self.plan.children().iter().map(look).collect()
    }
}

fn case(seed: u64) {
    let dice = &mut Dice(seed);
    let strategy = [Strategy::OneForOne, Strategy::OneForAll, Strategy::RestForOne][dice.roll(3)];
    let auto =
        [AutoShutdown::Never, AutoShutdown::AnySignificant, AutoShutdown::AllSignificant][dice.roll(3)];
    let max = [0, 1, 3, 8][dice.roll(4)];
    let kid = |dice: &mut Dice, id: usize, up| {
        let restart = [Restart::Permanent, Restart::Transient, Restart::Temporary][dice.roll(3)].clone();
        let may = auto != AutoShutdown::Never && restart != Restart::Permanent;
        Kid {
            id: format!("c{id}"),
            restart,
            significant: may && dice.roll(2) == 0,
            up,
            starts: u64::from(up),
            dead: false,
        }
    };
    let specified = |kid: &Kid| spec(&kid.id, kid.restart.clone()).significant(kid.significant);
    let kids: Vec<Kid> = (0..1 + dice.roll(5)).map(|id| kid(dice, id, true)).collect();
    let began = Instant::now();
    let mut plan = Plan::new(Flags { auto_shutdown: auto, ..flags(strategy, max) });
    let names = kids.iter().map(|kid| (plan.adopt(&specified(kid), began), kid.id.clone())).collect();
    let mut driven = Driven { plan, names, began, failing: 0, log: vec![], granted: false, ended: None };
    let (restarts, again, max) = (Vec::new(), VecDeque::new(), max as usize);
    let mut naive =
        Naive { strategy, max, auto, kids, restarts, again, failing: 0, log: vec![], ended: None };
    let mut now = 0;
    for step in 0..12 {
        now += [0, 1, 700, 2_500, 5_000][dice.roll(5)];
        if dice.roll(4) == 0 {
            (naive.failing, driven.failing) = (1, 1);
        }
        match dice.roll(8) {
            0 if step > 8 => {
                naive.end(false);
                driven.feed([Input::Shutdown(None)], now);
            }
            what @ 0..=3 => {
                let new = kid(dice, 0, false);
                let new = Kid { id: format!("c{}", dice.roll(7)), ..new };
                let id = ChildId::from(new.id.as_str());
                let request = match what {
                    0 => Request::Terminate(id),
                    1 => Request::Restart(id),
                    2 => Request::Delete(id),
                    _ => Request::Start(Box::new(specified(&new))),
                };
                let granted = naive.request(what, new);
                driven.feed([Input::Request { token: step, request }], now);
                assert_eq!(driven.granted, granted, "seed {seed}, step {step}: granted");
            }
            what => {
                let mut up: Vec<String> =
                    naive.kids.iter().filter(|kid| kid.up).map(|kid| kid.id.clone()).collect();
                let mut dead = Vec::new();
                // One child, or two at the same time.
                for _ in 0..what / 4 + what / 7 {
                    if !up.is_empty() {
                        dead.push((up.remove(dice.roll(up.len())), reasons()[dice.roll(6)].clone()));
                    }
                }
                let inputs: Vec<Input> = dead
                    .iter()
                    .map(|(id, reason)| {
                        let child = driven.plan.children().by_id(&id.as_str().into()).unwrap();
                        let (key, incarnation) = (child.key, child.incarnation);
                        Input::Exited { key, incarnation, reason: reason.clone() }
                    })
                    .collect();
                naive.exits(&dead, now);
                driven.feed(inputs, now);
            }
        }
        (naive.failing, driven.failing) = (0, 0);
        assert_eq!(driven.log, naive.log, "seed {seed}, step {step}: what was done");
        assert_eq!(driven.ended, naive.ended, "seed {seed}, step {step}: the end");
        if naive.ended.is_some() {
            return;
        }
        let expected: Vec<_> = naive.kids.iter().map(|kid| (kid.id.clone(), kid.starts, kid.up)).collect();
        assert_eq!(driven.look(), expected, "seed {seed}, step {step}: the children");
    }
}

#[test]
fn the_plan_does_what_the_naive_model_does() {
    let cases =
        std::env::var("KOHORT_OTP_CASES").ok().and_then(|cases| cases.parse().ok()).unwrap_or(100_000);
    for seed in 0..cases {
        case(seed);
    }
}
