//! The supervisor's actor: it performs what the plan decides and decides nothing itself. Started by `builder`,
//! spoken to by `handle` and by its parent.
//!
//! | message | effect |
//! |---|---|
//! | a child's exit (ractor) | classified, told to the plan |
//! | `Started` | the start task's answer, told to the plan |
//! | `Retry`, `Time`, `Prepared`, `Vanished` | told to the plan |
//! | `Shutdown` | told to the plan, which runs the shutdown in this loop |
//! | `StartChild`, `TerminateChild`, `RestartChild`, `DeleteChild` | told to the plan, answered when it says so |
//! | `WhichChildren`, `Snapshot`, `Identify` | answered at once |
//!
//! No handler awaits: a start is a task of its own, a stop is a step whose end is the child's exit, a timeout
//! is a message.

mod list;
mod outbox;
mod starting;

use crate::builder::SupervisorBuilder;
use crate::error::{ChildStartError, SupervisorError, SupervisorExit};
use crate::event::SupervisorEvent;
use crate::handle::{ChildInfo, ChildTarget, SupervisorRef};
use crate::id::ChildId;
use crate::plan::{Action, Flags, Input, Key, Plan, Reply, Request, State as ChildState};
use crate::reason::{self, ExitReason};
use crate::snapshot::Level;
use crate::spec::{ChildSpec, DelegateNotice, Restart, StartContext};
use crate::{PrepareDone, PrepareRequest};
use outbox::Outbox;
use ractor::{Actor, ActorCell, ActorId, ActorProcessingErr, ActorRef, SupervisionEvent};
use starting::{Owned, Starting};
use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, OnceLock};
use tokio::sync::oneshot;
use tokio::time::Instant;

pub(crate) type Answer<T> = oneshot::Sender<Result<T, SupervisorError>>;

pub(crate) enum Message {
    Started {
        key: Key,
        incarnation: u64,
        result: Result<ActorCell, ChildStartError>,
    },
    Retry(Key),
    Time,
    Prepared,
    /// An actor that could not be linked has ended.
    Vanished(ActorId),
    Shutdown(Option<Instant>),
    StartChild(Box<ChildSpec>, Answer<ActorCell>),
    TerminateChild(ChildTarget, Answer<()>),
    RestartChild(ChildId, Answer<ActorCell>),
    DeleteChild(ChildId, Answer<()>),
    WhichChildren(oneshot::Sender<Vec<ChildInfo>>),
    Snapshot(oneshot::Sender<Level>),
    Identify(oneshot::Sender<SupervisorRef>),
}

pub(crate) struct Arguments {
    pub(crate) builder: SupervisorBuilder,
    /// Where the reference is left for whoever spawned this actor.
    pub(crate) born: Arc<OnceLock<SupervisorRef>>,
}

pub(crate) struct SupervisorActor;

enum Waiting {
    ForCell(Answer<ActorCell>),
    ForDone(Answer<()>),
}

/// A child as the actor holds it.
struct Held {
    spec: ChildSpec,
    /// While it runs.
    cell: Option<ActorCell>,
}

pub(crate) struct State {
    /// Without the children: they are held below.
    builder: SupervisorBuilder,
    me: SupervisorRef,
    began: Instant,
    plan: Plan,
    // Boxed: a map keeps room for more than it holds.
    children: HashMap<Key, Box<Held>>,
    by_actor: HashMap<ActorId, (Key, u64)>,
    starts: HashMap<Key, Starting>,
    // Exits that overtook the answer of the start they belong to.
    early: HashMap<ActorId, ExitReason>,
    waiting: HashMap<u64, Waiting>,
    last_token: u64,
    timer: Option<(Instant, Owned)>,
    outbox: Outbox,
}

/// The child that a delegated child names.
pub(crate) fn delegate_of(spec: &ChildSpec) -> Option<&ChildId> {
    match &spec.restart {
        Restart::Delegated { to } => Some(to),
        _ => None,
    }
}

impl Actor for SupervisorActor {
    type Msg = Message;
    type State = State;
    type Arguments = Arguments;

    async fn pre_start(
        &self,
        myself: ActorRef<Message>,
        arguments: Arguments,
    ) -> Result<State, ActorProcessingErr> {
        let Arguments { mut builder, born } = arguments;
        let me = SupervisorRef::new(myself.get_cell(), builder.id.clone(), builder.hub.clone());
        let _ = born.set(me.clone());
        let started = match builder.check() {
            Ok(()) => starting::in_order(&builder, &me).await,
            Err(error) => Err(error),
        };
        let cells = match started {
            Ok(cells) => cells,
            Err(error) => {
                me.verdict(ExitReason::Error(Arc::new(error.clone())));
                return Err(error.into());
            }
        };
        let specs = std::mem::take(&mut builder.children);
        let began = Instant::now();
        let mut state = State {
            plan: Plan::new(Flags {
                id: builder.id.clone(),
                strategy: builder.strategy,
                max: builder.max,
                period: builder.period,
                auto_shutdown: builder.auto_shutdown,
                prepare: builder.prepare.as_ref().map(|prepare| (prepare.child.clone(), prepare.limit)),
                dynamic: builder.dynamic,
            }),
            me,
            began,
            children: HashMap::with_capacity(specs.len()),
            by_actor: HashMap::new(),
            starts: HashMap::new(),
            early: HashMap::new(),
            waiting: HashMap::new(),
            last_token: 0,
            timer: None,
            outbox: Outbox::default(),
            builder,
        };
        for (spec, cell) in specs.into_iter().zip(cells) {
            let key = state.plan.adopt(&spec, began.into_std());
            state.children.insert(key, Box::new(Held { spec, cell: None }));
            state.adopt_stray(&myself, &cell);
            state.arrived(key, 1, cell);
            state.tell_started(key, 1);
        }
        Ok(state)
    }

    async fn handle(
        &self,
        myself: ActorRef<Message>,
        message: Message,
        state: &mut State,
    ) -> Result<(), ActorProcessingErr> {
        match message {
            Message::Started { key, incarnation, result } => {
                state.start_ended(&myself, key, incarnation, result)
            }
            Message::Retry(key) => state.feed(&myself, Input::Retry(key)),
            Message::Time => {
                state.timer = None;
                state.feed(&myself, Input::Time)
            }
            Message::Prepared => state.feed(&myself, Input::Prepared),
            Message::Vanished(actor) if state.by_actor.contains_key(&actor) => {
                state.exit(&myself, actor, ExitReason::Aborted)
            }
            Message::Vanished(_) => Ok(()),
            Message::Shutdown(deadline) => {
                state.feed(&myself, Input::Shutdown(deadline.map(Instant::into_std)))
            }
            Message::StartChild(spec, answer) => {
                state.request(&myself, Request::Start(spec), Waiting::ForCell(answer))
            }
            Message::TerminateChild(target, answer) => {
                let id = state.resolve(target);
                state.request(&myself, Request::Terminate(id), Waiting::ForDone(answer))
            }
            Message::RestartChild(id, answer) => {
                state.request(&myself, Request::Restart(id), Waiting::ForCell(answer))
            }
            Message::DeleteChild(id, answer) => {
                state.request(&myself, Request::Delete(id), Waiting::ForDone(answer))
            }
            Message::WhichChildren(answer) => {
                let _ = answer.send(state.list());
                Ok(())
            }
            Message::Snapshot(answer) => {
                let _ = answer.send(state.level());
                Ok(())
            }
            Message::Identify(answer) => {
                let _ = answer.send(state.me.clone());
                Ok(())
            }
        }
    }

    async fn handle_supervisor_evt(
        &self,
        myself: ActorRef<Message>,
        event: SupervisionEvent,
        state: &mut State,
    ) -> Result<(), ActorProcessingErr> {
        match reason::classify(event) {
            Some((cell, reason)) => state.exit(&myself, cell.get_id(), reason),
            None => Ok(()),
        }
    }

    async fn post_stop(&self, _: ActorRef<Message>, state: &mut State) -> Result<(), ActorProcessingErr> {
        // After the plan's own end nothing is left to do; this is for a stop from elsewhere.
        let mut left = Vec::new();
        for child in state.plan.children().iter() {
            let held = state.children.remove(&child.key).map(|held| *held);
            if let Some(Held { spec, cell: Some(cell) }) = held {
                left.push((spec, cell));
            }
        }
        state.starts.clear();
        let Some(child) = starting::stop_in_reverse(&state.builder, left).await else {
            state.me.verdict(ExitReason::Shutdown);
            return Ok(());
        };
        let supervisor = state.builder.id.clone();
        let exit = SupervisorExit::Unkillable { supervisor, child, cause: None };
        state.me.verdict(ExitReason::Error(Arc::new(exit.clone())));
        Err(exit.into())
    }
}

impl State {
    fn request(
        &mut self,
        myself: &ActorRef<Message>,
        request: Request,
        waiting: Waiting,
    ) -> Result<(), ActorProcessingErr> {
        self.last_token += 1;
        let token = self.last_token;
        self.waiting.insert(token, waiting);
        self.feed(myself, Input::Request { token, request })
    }

    fn exit(
        &mut self,
        myself: &ActorRef<Message>,
        actor: ActorId,
        reason: ExitReason,
    ) -> Result<(), ActorProcessingErr> {
        match self.by_actor.remove(&actor) {
            Some((key, incarnation)) => {
                if let Some(held) = self.children.get_mut(&key) {
                    held.cell = None;
                }
                self.feed(myself, Input::Exited { key, incarnation, reason })
            }
            None if !self.starts.is_empty() => {
                self.early.insert(actor, reason);
                Ok(())
            }
            None => {
                self.unknown(actor, reason);
                Ok(())
            }
        }
    }

    fn unknown(&self, actor: ActorId, reason: ExitReason) {
        let supervisor = self.builder.id.clone();
        self.builder.hub.emit(SupervisorEvent::UnknownExit { supervisor, actor, reason });
    }

    fn start_ended(
        &mut self,
        myself: &ActorRef<Message>,
        key: Key,
        incarnation: u64,
        result: Result<ActorCell, ChildStartError>,
    ) -> Result<(), ActorProcessingErr> {
        self.starts.remove(&key);
        let expected = self.plan.children().get(key).is_some_and(|child| {
            child.incarnation == incarnation && matches!(child.state(), ChildState::Starting { .. })
        });
        let mut overtaken = None;
        let result = match result {
            Ok(cell) if expected => {
                overtaken = self.early.remove(&cell.get_id()).map(|reason| (cell.get_id(), reason));
                self.adopt_stray(myself, &cell);
                self.arrived(key, incarnation, cell);
                Ok(())
            }
            Ok(cell) => {
                cell.kill();
                Ok(())
            }
            Err(error) => Err(error),
        };
        if self.starts.is_empty() {
            for (actor, reason) in std::mem::take(&mut self.early) {
                self.unknown(actor, reason);
            }
        }
        if expected {
            self.feed(myself, Input::Started { key, incarnation, result })?;
        }
        match overtaken {
            Some((actor, reason)) => self.exit(myself, actor, reason),
            None => Ok(()),
        }
    }

    /// A start function that forgot to link its actor still gets a supervised child.
    fn adopt_stray(&self, myself: &ActorRef<Message>, cell: &ActorCell) {
        let id = myself.get_id();
        let linked = || cell.try_get_supervisor().is_some_and(|parent| parent.get_id() == id);
        if linked() {
            return;
        }
        cell.link(myself.get_cell());
        if linked() {
            return;
        }
        // It is ending already. If it was linked before, its exit is in the queue and comes first.
        let (myself, cell) = (myself.clone(), cell.clone());
        tokio::spawn(async move {
            let _ = cell.wait(None).await;
            let _ = myself.cast(Message::Vanished(cell.get_id()));
        });
    }

    fn arrived(&mut self, key: Key, incarnation: u64, cell: ActorCell) {
        self.by_actor.insert(cell.get_id(), (key, incarnation));
        if let Some(held) = self.children.get_mut(&key) {
            self.outbox.deliver(&held.spec.id, &cell);
            held.cell = Some(cell);
        }
    }

    fn feed(&mut self, myself: &ActorRef<Message>, input: Input) -> Result<(), ActorProcessingErr> {
        let now = Instant::now().into_std();
        for action in self.plan.handle(input, now) {
            self.perform(myself, action)?;
        }
        self.rearm(myself);
        Ok(())
    }

    /// A timer that comes too early does no harm and is armed anew then; so a shutdown whose every step has a
    /// deadline does not start a timer for each.
    fn rearm(&mut self, myself: &ActorRef<Message>) {
        let Some(at) = self.plan.deadline().map(Instant::from_std) else { return };
        if self.timer.as_ref().is_some_and(|(armed, _)| *armed <= at) {
            return;
        }
        let myself = myself.clone();
        let task = tokio::spawn(async move {
            tokio::time::sleep_until(at).await;
            let _ = myself.cast(Message::Time);
        });
        self.timer = Some((at, Owned::new(&task)));
    }

    fn cell(&self, key: Key) -> Option<&ActorCell> {
        self.children.get(&key)?.cell.as_ref()
    }

    fn perform(&mut self, myself: &ActorRef<Message>, action: Action) -> Result<(), ActorProcessingErr> {
        match action {
            Action::File(key, spec) => {
                self.children.insert(key, Box::new(Held { spec: *spec, cell: None }));
            }
            Action::Start { key, incarnation } => self.begin_start(myself, key, incarnation),
            Action::AbortStart(key) => {
                if let Some(start) = self.starts.get(&key) {
                    start.abort();
                }
            }
            Action::Stop { key, deadline } => {
                if let Some(cell) = self.cell(key) {
                    starting::ask_to_stop(cell, deadline.map(Instant::from_std));
                }
            }
            Action::Kill(key) => {
                if let Some(cell) = self.cell(key) {
                    cell.kill();
                }
            }
            Action::Retry(key) => {
                let _ = myself.cast(Message::Retry(key));
            }
            Action::Forget(key) => {
                if let Some(held) = self.children.remove(&key) {
                    self.outbox.forget(&held.spec.id);
                }
            }
            Action::Prepare { key, deadline } => self.prepare(myself, key, Instant::from_std(deadline)),
            Action::TellStarted { key, incarnation } => self.tell_started(key, incarnation),
            Action::TellExited { key, incarnation, reason } => {
                if let Some(held) = self.children.get(&key) {
                    let notice =
                        DelegateNotice::ChildExited { id: held.spec.id.clone(), incarnation, reason };
                    self.tell(key, notice);
                }
            }
            Action::Reply { token, result } => self.answer(token, result),
            Action::Emit(event) => {
                self.builder.hub.emit(event);
            }
            Action::End(failure) => return self.end(myself, failure),
        }
        Ok(())
    }

    fn end(
        &mut self,
        myself: &ActorRef<Message>,
        failure: Option<SupervisorExit>,
    ) -> Result<(), ActorProcessingErr> {
        match failure {
            Some(exit) => {
                self.me.verdict(ExitReason::Error(Arc::new(exit.clone())));
                Err(exit.into())
            }
            None => {
                self.me.verdict(ExitReason::Shutdown);
                myself.stop(Some(reason::SHUTDOWN.to_owned()));
                Ok(())
            }
        }
    }

    fn begin_start(&mut self, myself: &ActorRef<Message>, key: Key, incarnation: u64) {
        let Some(Held { spec, .. }) = self.children.get(&key).map(|held| &**held) else { return };
        let context = StartContext { supervisor: self.me.clone(), id: spec.id.clone(), incarnation };
        let myself = myself.clone();
        let start = Starting::spawn(spec, context, move |result| {
            let _ = myself.cast(Message::Started { key, incarnation, result });
        });
        self.starts.insert(key, start);
    }

    fn prepare(&mut self, myself: &ActorRef<Message>, key: Key, deadline: Instant) {
        let teller = myself.clone();
        let done = PrepareDone::new(move || {
            let _ = teller.cast(Message::Prepared);
        });
        let request = PrepareRequest { deadline, done };
        if let (Some(prepare), Some(cell)) = (&self.builder.prepare, self.cell(key)) {
            // A panic drops the request, which ends the step.
            guarded("prepare", || (prepare.ask)(cell, request));
        }
    }

    fn tell_started(&mut self, key: Key, incarnation: u64) {
        if let Some(Held { spec, cell: Some(cell) }) = self.children.get(&key).map(|held| &**held)
            && delegate_of(spec).is_some()
        {
            let id = spec.id.clone();
            let notice = DelegateNotice::ChildStarted { id, incarnation, cell: cell.clone() };
            self.tell(key, notice);
        }
    }

    fn tell(&mut self, key: Key, notice: DelegateNotice) {
        if let Some(Held { spec, .. }) = self.children.get(&key).map(|held| &**held)
            && let (Some(to), Some(notify)) = (delegate_of(spec), &spec.notify)
        {
            let delegate = self.plan.children().by_id(to).and_then(|child| self.children.get(&child.key));
            let delegate = delegate.and_then(|held| held.cell.as_ref());
            self.outbox.send(to, delegate, notify, notice);
        }
    }

    fn answer(&mut self, token: u64, result: Result<Reply, SupervisorError>) {
        // A caller that went away does not need its answer.
        match self.waiting.remove(&token) {
            Some(Waiting::ForDone(answer)) => {
                let _ = answer.send(result.map(|_| ()));
            }
            Some(Waiting::ForCell(answer)) => {
                let _ = answer.send(match result {
                    Ok(Reply::Started(key)) => self.cell(key).cloned().ok_or(SupervisorError::Gone),
                    Ok(Reply::Done) => Err(SupervisorError::Gone),
                    Err(error) => Err(error),
                });
            }
            None => {}
        }
    }
}

/// Runs a user's function on the supervisor's task; its panic is reported and is not the supervisor's.
fn guarded(what: &'static str, run: impl FnOnce()) {
    if catch_unwind(AssertUnwindSafe(run)).is_err() {
        tracing::error!(target: "kohort", "the supervisor's {what} function panicked");
    }
}
