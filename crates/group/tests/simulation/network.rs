//! The network: questions, beats and their answers are delayed, lost on the way there or back, and answered twice;
//! who asks waits no longer than its deadline.

use std::time::Duration;

use kohort_group::Input;
use kohort_group::coordinator::{GroupReply, GroupRequest};
use kohort_group::membership::{Answer, Beat, Failure, Question};
use kohort_protocol::ErrorCode;
use kohort_protocol::messages::{CoordinatorAddress, HeartbeatRequest};

use crate::invariants::{Checked, Invariant};
use crate::world::{PARTITIONS, What, World};

/// Who waits for the reply to a call, and as whom it asked.
pub(crate) struct Caller {
    pub(crate) member: usize,
    pub(crate) life: u64,
    pub(crate) member_id: String,
    waits: Waits,
}

enum Waits {
    Question { round: u64 },
    Beat { epoch: u64 },
}

impl World {
    pub(crate) fn lossy(&mut self) -> bool {
        let percent = if self.plants(Invariant::Settles) { 60 } else { self.loss_percent };
        self.faulty() && self.chance.below(100) < percent
    }

    pub(crate) fn delay(&mut self) -> Duration {
        let max = if self.faulty() { self.max_delay } else { Duration::from_millis(5) };
        self.chance.up_to(max)
    }

    pub(crate) fn ask(&mut self, index: usize, round: u64, question: Question, within: Duration) -> Checked {
        let life = self.members[index].life;
        let answer = |answer| Input::Answered { round, answer };
        if self.lossy() {
            // Half of the losses show at once (a reset), half only at the deadline (silence).
            let wait = if self.chance.below(2) == 0 { self.delay() } else { within };
            self.post(index, wait, answer(Err(Failure::Network("lost".into()))));
            return Ok(());
        }
        let mut member_id = String::new();
        let request: GroupRequest = match question {
            Question::FindCoordinator(_) => {
                let mut address =
                    CoordinatorAddress { node_id: 1, host: "sim".into(), port: 9092, ..Default::default() };
                if self.now < self.moving_until || (self.faulty() && self.chance.below(10) == 0) {
                    address.error = ErrorCode::CoordinatorNotAvailable;
                }
                let wait = self.delay();
                self.post(index, wait, answer(Ok(Answer::Coordinator(address))));
                return Ok(());
            }
            Question::PartitionCounts(topics) => {
                let counts = topics.into_iter().map(|topic| (topic, PARTITIONS)).collect();
                let wait = self.delay();
                self.post(index, wait, answer(Ok(Answer::PartitionCounts(counts))));
                return Ok(());
            }
            Question::Join(request) => {
                let member = &self.members[index];
                let may_join = member.working.is_empty() || member.core.is_cooperative();
                Invariant::NoWorkersAcrossAJoin
                    .holds(may_join, || format!("m{index} joins with workers alive"))?;
                member_id.clone_from(&request.member_id);
                request.into()
            }
            Question::Sync(mut request) => {
                if self.plants(Invariant::OneMemberPerPartition) && request.assignments.len() > 1 {
                    let first = request.assignments[0].assignment.clone();
                    for assignment in &mut request.assignments {
                        assignment.assignment = first.clone();
                    }
                }
                member_id.clone_from(&request.member_id);
                request.into()
            }
            Question::FetchOffsets(request) => request.into(),
            Question::CommitOffsets(mut request) => {
                member_id.clone_from(&request.member_id);
                for partition in request.topics.iter_mut().flat_map(|topic| &mut topic.partitions) {
                    let known = self.committed.get(&partition.partition).copied().unwrap_or(0);
                    if self.plants(Invariant::CommitsGoForward) && known > 0 {
                        partition.offset = known - 1;
                    }
                    if self.plants(Invariant::CommitsStayBehindTheWork) {
                        partition.offset += 100;
                    }
                }
                request.into()
            }
            Question::Leave(request) => {
                member_id.clone_from(&request.members[0].member_id);
                request.into()
            }
            other => unreachable!("a question that nobody here asks: {other:?}"),
        };
        self.post(index, within, answer(Err(Failure::Network("timed out".into()))));
        // Lost on the way back: the coordinator acts, the member hears nothing.
        let caller = (!self.lossy()).then_some(Caller {
            member: index,
            life,
            member_id,
            waits: Waits::Question { round },
        });
        self.send(caller, request);
        Ok(())
    }

    pub(crate) fn send_beat(&mut self, index: usize, epoch: u64, request: HeartbeatRequest) {
        let life = self.members[index].life;
        let member_id = request.member_id.clone();
        let caller = Caller { member: index, life, member_id, waits: Waits::Beat { epoch } };
        self.send(Some(caller), request.into());
    }

    fn send(&mut self, caller: Option<Caller>, request: GroupRequest) {
        self.next_call += 1;
        let call = self.next_call;
        if let Some(caller) = caller {
            self.calls.insert(call, caller);
        }
        let wait = self.delay();
        self.after(wait, What::Arrive { call, request });
    }

    pub(crate) fn reply(&mut self, call: u64, mut reply: GroupReply) -> Checked {
        let Some(caller) = self.calls.remove(&call) else { return Ok(()) };
        if self.plants(Invariant::SupersededIsRefused)
            && let GroupReply::Heartbeat(response) = &mut reply
        {
            response.error = ErrorCode::None;
        }
        self.check_superseded(&caller.member_id, &reply)?;
        let input = match (&caller.waits, reply) {
            (Waits::Beat { epoch }, GroupReply::Heartbeat(response)) => {
                Input::Beat { epoch: *epoch, beat: Beat::Answered(response.error) }
            }
            (Waits::Beat { .. }, reply) => unreachable!("a beat was answered by {reply:?}"),
            (Waits::Question { round }, reply) => {
                let answer = match reply {
                    GroupReply::Join(response) => Answer::Joined { version: self.version, response },
                    GroupReply::Sync(response) => Answer::Synced(response),
                    GroupReply::Leave(response) => Answer::Left(response),
                    GroupReply::OffsetCommit(response) => Answer::Committed(response),
                    GroupReply::OffsetFetch(response) => Answer::Offsets(response),
                    other => unreachable!("a reply to no question: {other:?}"),
                };
                Input::Answered { round: *round, answer: Ok(answer) }
            }
        };
        let wait = self.delay();
        if self.faulty() && self.chance.below(20) == 0 {
            // Delivered twice, and late: the second one belongs to no round any more.
            self.tally.count("duplicates");
            self.hand_over(&caller, wait * 2, input.clone());
        }
        self.hand_over(&caller, wait, input);
        Ok(())
    }

    fn hand_over(&mut self, caller: &Caller, wait: Duration, input: Input) {
        self.after(wait, What::Deliver { member: caller.member, life: caller.life, input });
    }

    /// The broker that had the coordinator has it no more, whatever is asked.
    pub(crate) fn refuse(&mut self, call: u64) {
        let Some(caller) = self.calls.remove(&call) else { return };
        let input = match caller.waits {
            Waits::Beat { epoch } => Input::Beat { epoch, beat: Beat::Answered(ErrorCode::NotCoordinator) },
            Waits::Question { round } => {
                let answer = Err(Failure::Network("the coordinator moves".into()));
                Input::Answered { round, answer }
            }
        };
        let wait = self.delay();
        self.hand_over(&caller, wait, input);
    }

    /// All connections break. Half of those who wait see it at once, half at their deadline.
    pub(crate) fn disconnect(&mut self) {
        for (_, caller) in std::mem::take(&mut self.calls) {
            let failure = Failure::Network("connection reset".into());
            let (input, seen) = match caller.waits {
                // A beat has no deadline of its own here: two seconds, as one that is lost.
                Waits::Beat { epoch } => {
                    let seen = Duration::from_secs(2 * self.chance.below(2));
                    (Input::Beat { epoch, beat: Beat::Failed(failure) }, Some(seen))
                }
                Waits::Question { round } => {
                    let seen = (self.chance.below(2) == 0).then_some(Duration::ZERO);
                    (Input::Answered { round, answer: Err(failure) }, seen)
                }
            };
            if let Some(seen) = seen {
                let wait = seen + self.delay();
                self.hand_over(&caller, wait, input);
            }
        }
    }
}
