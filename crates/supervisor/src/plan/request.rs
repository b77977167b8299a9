//! The requests of OTP's `supervisor` module: what each does to a child in which state.

use super::child::Purpose;
use super::{Action, Deferred, Group, Key, Phase, Plan, Stage, State};
use crate::error::SupervisorError;
use crate::id::ChildId;
use crate::spec::{ChildSpec, Restart};
use std::time::Instant;

/// What a caller can ask for.
pub(crate) enum Request {
    /// `start_child`. The actor files the spec under the key of the `Start` that follows.
    Start(Box<ChildSpec>),
    /// `terminate_child`.
    Terminate(ChildId),
    /// `restart_child`.
    Restart(ChildId),
    /// `delete_child`.
    Delete(ChildId),
}

/// What a request is answered with.
#[derive(Debug)]
pub(crate) enum Reply {
    Done,
    Started(Key),
}

impl Plan {
    pub(super) fn request(&mut self, token: u64, request: Request, now: Instant) {
        if !matches!(self.phase, Phase::Running) {
            return self.reply(token, Err(SupervisorError::ShuttingDown));
        }
        let busy = matches!(&self.group, Some(Group { stage: Stage::Stopping | Stage::Starting { .. }, .. }));
        if busy {
            return self.deferred.push_back(Deferred::Request { token, request });
        }
        match request {
            Request::Start(spec) => self.request_start(token, *spec),
            Request::Terminate(id) => self.request_terminate(token, id, now),
            Request::Restart(id) => self.request_restart(token, id),
            Request::Delete(id) => self.request_delete(token, id),
        }
    }

    fn reply(&mut self, token: u64, result: Result<super::Reply, SupervisorError>) {
        self.act(Action::Reply { token, result });
    }

    fn index_of(&self, id: &ChildId) -> Result<usize, SupervisorError> {
        let index = self.children.iter().position(|child| child.id == *id);
        index.ok_or_else(|| SupervisorError::NotFound(id.clone()))
    }

    fn request_start(&mut self, token: u64, spec: ChildSpec) {
        let id = spec.id.clone();
        if let Ok(index) = self.index_of(&id) {
            let error = match self.children[index].state {
                State::Down => SupervisorError::AlreadyPresent(id),
                _ => SupervisorError::AlreadyStarted(id),
            };
            return self.reply(token, Err(error));
        }
        let key = self.add(&spec);
        if let Some(child) = self.children.last_mut() {
            child.start_token = Some(token);
        }
        self.act(Action::File(key, Box::new(spec)));
        self.start(key, Purpose::New);
    }

    fn request_terminate(&mut self, token: u64, id: ChildId, now: Instant) {
        let index = match self.index_of(&id) {
            Ok(index) => index,
            Err(error) => return self.reply(token, Err(error)),
        };
        let child = &mut self.children[index];
        let key = child.key;
        match child.state {
            State::Lost => self.reply(token, Err(SupervisorError::Unkillable(id))),
            State::Down => {
                child.retry = false;
                let temporary = child.restart == Restart::Temporary;
                self.leave_group(key);
                if temporary {
                    self.forget(key);
                }
                self.reply(token, Ok(super::Reply::Done));
            }
            State::Starting { .. } | State::Running | State::Stopping => {
                child.stop_tokens.push(token);
                self.leave_group(key);
                self.begin_stop(key, now);
            }
        }
    }

    fn leave_group(&mut self, key: Key) {
        if let Some(group) = &mut self.group {
            group.keys.retain(|other| *other != key);
        }
    }

    fn request_restart(&mut self, token: u64, id: ChildId) {
        let index = match self.index_of(&id) {
            Ok(index) => index,
            Err(error) => return self.reply(token, Err(error)),
        };
        let child = &self.children[index];
        let key = child.key;
        match child.state {
            State::Down if self.is_restarting(child) => {
                self.reply(token, Err(SupervisorError::Restarting(id)))
            }
            State::Down => {
                self.children[index].start_token = Some(token);
                self.start(key, Purpose::Request);
            }
            State::Starting { .. } => self.reply(token, Err(SupervisorError::Restarting(id))),
            State::Running | State::Stopping => self.reply(token, Err(SupervisorError::Running(id))),
            State::Lost => self.reply(token, Err(SupervisorError::Unkillable(id))),
        }
    }

    fn request_delete(&mut self, token: u64, id: ChildId) {
        let index = match self.index_of(&id) {
            Ok(index) => index,
            Err(error) => return self.reply(token, Err(error)),
        };
        let child = &self.children[index];
        let key = child.key;
        match child.state {
            State::Down if self.is_restarting(child) => {
                self.reply(token, Err(SupervisorError::Restarting(id)))
            }
            State::Down => {
                self.forget(key);
                self.reply(token, Ok(super::Reply::Done));
            }
            State::Starting { .. } => self.reply(token, Err(SupervisorError::Restarting(id))),
            State::Running | State::Stopping => self.reply(token, Err(SupervisorError::Running(id))),
            State::Lost => self.reply(token, Err(SupervisorError::Unkillable(id))),
        }
    }
}
