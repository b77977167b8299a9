//! The OTP cases as a table: strategy × restart type × exit reason × position × moment, each row with what OTP's
//! `supervisor` does and where it says so. No actors: the plan is told what happens and says what it would do.

use super::tests::{Bench, reasons, spec};
use super::*;

const STRATEGIES: [Strategy; 3] = [Strategy::OneForOne, Strategy::OneForAll, Strategy::RestForOne];

fn restart(letter: &str) -> Restart {
    match letter {
        "p" => Restart::Permanent,
        "t" => Restart::Transient,
        "x" => Restart::Temporary,
        other => Restart::Delegated { to: other.into() },
    }
}

/// The whole product while everything runs: three children, one of them exits.
#[test]
fn every_strategy_restart_type_exit_reason_and_position() {
    for strategy in STRATEGIES {
        for kind in ["p", "t", "x", "other"] {
            for reason in reasons() {
                for (position, name) in ["a", "b", "c"].into_iter().enumerate() {
                    let specs = ["a", "b", "c"]
                        .map(|id| spec(id, if id == name { restart(kind) } else { Restart::Permanent }));
                    let mut bench = Bench::new(strategy, 1, &specs);
                    let restarted = match (strategy, name) {
                        // restart(one_for_one): the child alone.
                        (Strategy::OneForOne, name) => format!("start {name}2"),
                        // restart(rest_for_one): split_child, then terminate_children of those after it: none.
                        (Strategy::RestForOne, "c") => "start c2".to_owned(),
                        // restart(one_for_all): terminate_children, the last one first.
                        (Strategy::OneForAll, "c") => "stop b".to_owned(),
                        _ => "stop c".to_owned(),
                    };
                    let expected = match kind {
                        // do_restart: permanent, whatever the reason.
                        "p" => restarted,
                        // do_restart: transient is restarted but for normal, shutdown and {shutdown, _}.
                        "t" if reason.is_abnormal() => restarted,
                        "t" => String::new(),
                        // do_restart: temporary is reported and deleted.
                        "x" => format!("forget {name}"),
                        // Ours: its delegate is told.
                        _ => format!("tell exited {name}1"),
                    };
                    let actions = bench.exit(position, 1, reason.clone()).join(", ");
                    assert_eq!(actions, expected, "{strategy:?} {kind} {reason:?} {name}");
                }
            }
        }
    }
}

struct Row {
    /// What OTP does, and where it says so.
    otp: &'static str,
    strategy: Strategy,
    intensity: u32,
    /// A letter for each child, from `a` on: p(ermanent), t(ransient), x (temporary).
    children: &'static str,
    /// What happens, and what is done about it.
    script: &'static [(&'static str, &'static str)],
}

use Strategy::{OneForAll, OneForOne, RestForOne};

/// Moments: at rest, while others are stopped, while they are started, before a retry, at and after the shutdown.
const TABLE: &[Row] = &[
    Row {
        otp: "restart/1, one_for_all: terminate_children goes from the last to the first, start_children back",
        strategy: OneForAll,
        intensity: 1,
        children: "ppp",
        script: &[
            ("killed b1", "stop c"),
            ("shutdown c1", "stop a"),
            ("shutdown a1", "start a2"),
            ("started a2", "start b2"),
            ("started b2", "start c2"),
            ("started c2", ""),
        ],
    },
    Row {
        otp: "restart/1, rest_for_one: the children before it are not touched",
        strategy: RestForOne,
        intensity: 1,
        children: "ppp",
        script: &[("killed b1", "stop c"), ("shutdown c1", "start b2"), ("started b2", "start c2")],
    },
    Row {
        otp: "terminate_children: a temporary sibling is stopped with the others and does not come back",
        strategy: OneForAll,
        intensity: 1,
        children: "pxp",
        script: &[
            ("killed a1", "stop c"),
            ("shutdown c1", "stop b"),
            ("shutdown b1", "forget b, start a2"),
            ("started a2", "start c2"),
        ],
    },
    Row {
        otp: "restart/1, one_for_all: a transient sibling that had ended comes back with the others",
        strategy: OneForAll,
        intensity: 1,
        children: "pt",
        script: &[("normal b1", ""), ("killed a1", "start a2"), ("started a2", "start b2")],
    },
    Row {
        otp: "shutdown/1 takes the exit of a child that dies while its siblings are stopped: one restart",
        strategy: OneForAll,
        intensity: 1,
        children: "ppp",
        script: &[("killed a1", "stop c"), ("killed b1", ""), ("shutdown c1", "start a2")],
    },
    Row {
        otp: "add_restart: in one_for_one two deaths are two restarts",
        strategy: OneForOne,
        intensity: 1,
        children: "ppp",
        script: &[
            ("killed a1", "start a2"),
            ("killed b1", "stop c"),
            ("shutdown c1", ""),
            ("started a2", "stop a"),
        ],
    },
    Row {
        otp: "the exit of a fresh child is in the mailbox until its group has started, then it is one more restart",
        strategy: OneForAll,
        intensity: 2,
        children: "pp",
        script: &[
            ("killed b1", "stop a"),
            ("shutdown a1", "start a2"),
            ("started a2", "start b2"),
            ("killed a2", ""),
            ("started b2", "stop b"),
            ("shutdown b2", "start a3"),
        ],
    },
    Row {
        otp: "in rest_for_one the exit of an earlier child during the restart of a later one comes after it",
        strategy: RestForOne,
        intensity: 2,
        children: "ppp",
        script: &[
            ("killed c1", "start c2"),
            ("killed a1", ""),
            ("started c2", "stop c"),
            ("shutdown c2", "stop b"),
            ("shutdown b1", "start a2"),
        ],
    },
    Row {
        otp: "try_again_restart: a failed restart is a message to oneself, and each try is counted",
        strategy: OneForOne,
        intensity: 2,
        children: "p",
        script: &[
            ("killed a1", "start a2"),
            ("failed a2", "retry a"),
            ("retry a", "start a3"),
            ("failed a3", "retry a"),
            ("retry a", "fail: intensity"),
        ],
    },
    Row {
        otp: "try_again_restart in one_for_all: the group begins again",
        strategy: OneForAll,
        intensity: 9,
        children: "pp",
        script: &[
            ("killed a1", "stop b"),
            ("shutdown b1", "start a2"),
            ("started a2", "start b2"),
            ("failed b2", "retry b"),
            ("retry b", "stop a"),
            ("shutdown a2", "start a3"),
        ],
    },
    Row {
        otp: "an exit that was in the mailbox before a retry is handled before it",
        strategy: RestForOne,
        intensity: 9,
        children: "pp",
        script: &[
            ("killed b1", "start b2"),
            ("killed a1", ""),
            ("failed b2", "retry b, start a2"),
            ("retry b", ""),
            ("started a2", "start b3"),
        ],
    },
    Row {
        otp: "terminate_child while restarting: the child is undefined and the retry finds nothing to do",
        strategy: OneForOne,
        intensity: 9,
        children: "p",
        script: &[
            ("killed a1", "start a2"),
            ("failed a2", "retry a"),
            ("terminate a", "ok 1"),
            ("retry a", ""),
        ],
    },
    Row {
        otp: "terminate_child just after a crash: the restart that has begun is undone",
        strategy: OneForOne,
        intensity: 9,
        children: "p",
        script: &[
            ("killed a1", "start a2"),
            ("terminate a", ""),
            ("started a2", "stop a"),
            ("shutdown a2", "ok 1"),
        ],
    },
    Row {
        otp: "terminate_child of a temporary child deletes its spec",
        strategy: OneForOne,
        intensity: 1,
        children: "xp",
        script: &[("terminate a", "stop a"), ("shutdown a1", "ok 1, forget a")],
    },
    Row {
        otp: "restart_child of a child that restarts: {error, restarting}",
        strategy: OneForOne,
        intensity: 9,
        children: "p",
        script: &[
            ("killed a1", "start a2"),
            ("failed a2", "retry a"),
            ("restart a", "refuse 1: child a is being restarted"),
            ("delete a", "refuse 1: child a is being restarted"),
        ],
    },
    Row {
        otp: "restart_child and delete_child of a running child: {error, running}",
        strategy: OneForOne,
        intensity: 1,
        children: "p",
        script: &[
            ("restart a", "refuse 1: child a is running"),
            ("delete a", "refuse 1: child a is running"),
        ],
    },
    Row {
        otp: "restart_child is not counted",
        strategy: OneForOne,
        intensity: 0,
        children: "t",
        script: &[("normal a1", ""), ("restart a", "start a2"), ("started a2", "ok 1")],
    },
    Row {
        otp: "intensity 0: the first failure ends the supervisor, its children first, the last one first",
        strategy: OneForOne,
        intensity: 0,
        children: "ppp",
        script: &[("killed b1", "stop c"), ("shutdown c1", "stop a"), ("shutdown a1", "fail: intensity")],
    },
    Row {
        otp: "in_period: what is as old as the period still counts, what is older does not",
        strategy: OneForOne,
        intensity: 1,
        children: "p",
        script: &[
            ("killed a1", "start a2"),
            ("started a2", ""),
            ("wait 5001", ""),
            ("killed a2", "start a3"),
            ("started a3", ""),
            ("wait 5000", ""),
            ("killed a3", "fail: intensity"),
        ],
    },
    Row {
        otp: "terminate/2 stops in reverse; what exits meanwhile is not restarted",
        strategy: OneForOne,
        intensity: 9,
        children: "ppp",
        script: &[("end", "stop c"), ("killed a1", ""), ("shutdown c1", "stop b"), ("killed b1", "end")],
    },
    Row {
        otp: "shutdown/1 with a timeout: exit(Pid, kill), and its end is waited for",
        strategy: OneForOne,
        intensity: 9,
        children: "pp",
        script: &[("end", "stop b"), ("time", "kill b"), ("killed b1", "stop a"), ("killed a1", "end")],
    },
];

impl Row {
    fn check(&self) {
        let names: Vec<String> =
            (0..self.children.len()).map(|at| char::from(b'a' + at as u8).to_string()).collect();
        let kinds = self.children.split("").filter(|kind| !kind.is_empty());
        let specs: Vec<ChildSpec> =
            names.iter().zip(kinds).map(|(id, kind)| spec(id, restart(kind))).collect();
        let mut bench = Bench::new(self.strategy, self.intensity, &specs);
        for (event, expected) in self.script {
            let (verb, object) = event.split_once(' ').unwrap_or((event, ""));
            let at = object.bytes().next().unwrap_or_default().wrapping_sub(b'a') as usize;
            let incarnation = object.get(1..).and_then(|text| text.parse().ok()).unwrap_or_default();
            let done = match verb {
                "normal" => bench.exit(at, incarnation, ExitReason::Normal),
                "shutdown" => bench.exit(at, incarnation, ExitReason::Shutdown),
                "killed" => bench.exit(at, incarnation, ExitReason::Killed),
                "started" => bench.started(at, incarnation, Ok(())),
                "failed" => bench.started(at, incarnation, Err(ChildStartError::Cancelled)),
                "retry" => bench.feed(Input::Retry(bench.keys[at])),
                "terminate" => bench.request(1, Request::Terminate(object.into())),
                "restart" => bench.request(1, Request::Restart(object.into())),
                "delete" => bench.request(1, Request::Delete(object.into())),
                "end" => bench.feed(Input::Shutdown(None)),
                "wait" => {
                    bench.now += Duration::from_millis(object.parse().unwrap());
                    bench.feed(Input::Time)
                }
                _ => {
                    bench.now = bench.plan.deadline().unwrap();
                    bench.feed(Input::Time)
                }
            };
            assert_eq!(done.join(", "), *expected, "{}: {event}", self.otp);
        }
    }
}

#[test]
fn every_row_of_the_table() {
    TABLE.iter().for_each(Row::check);
}
