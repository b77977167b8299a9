//! The requests of OTP's `supervisor` module: what each does to a child in which state.

use super::child::{Pending, Purpose};
use super::{Action, Child, Deferred, Group, Key, Plan, State};
use crate::builder::AutoShutdown;
use crate::error::{BadSpec, SupervisorError};
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
        if self.is_ending() {
            return self.reply(token, Err(SupervisorError::ShuttingDown));
        }
        if self.group.as_ref().is_some_and(Group::is_busy) {
            return self.deferred.push_back(Deferred::Request { token, request });
        }
        let refused = match request {
            Request::Start(spec) => self.request_start(token, *spec),
            Request::Terminate(id) => self.request_terminate(token, id, now),
            Request::Restart(id) => self.request_restart(token, id),
            Request::Delete(id) => self.request_delete(token, id),
        };
        if let Err(error) = refused {
            self.reply(token, Err(error));
        }
    }

    fn reply(&mut self, token: u64, result: Result<Reply, SupervisorError>) {
        self.act(Action::Reply { token, result });
    }

    fn named(&self, id: ChildId) -> Result<&Child, SupervisorError> {
        self.children.by_id(&id).ok_or(SupervisorError::NotFound(id))
    }

    fn request_start(&mut self, token: u64, spec: ChildSpec) -> Result<(), SupervisorError> {
        let id = spec.id.clone();
        if let Some(child) = self.children.by_id(&id) {
            return Err(match child.state() {
                State::Down => SupervisorError::AlreadyPresent(id),
                _ => SupervisorError::AlreadyStarted(id),
            });
        }
        spec.check()?;
        if spec.significant && self.flags.auto_shutdown == AutoShutdown::Never {
            return Err(BadSpec::SignificantNever { child: id }.into());
        }
        if let Restart::Delegated { to } = &spec.restart
            && self.children.by_id(to).is_none()
        {
            return Err(BadSpec::UnknownDelegate { child: id, to: to.clone() }.into());
        }
        if let Some(max) = self.flags.dynamic
            && self.children.len() >= max
        {
            return Err(SupervisorError::MaxChildren(max));
        }
        let key = self.children.add(&spec);
        if let Some(child) = self.children.get_mut(key) {
            child.start_token = Some(token);
        }
        self.act(Action::File(key, Box::new(spec)));
        self.start(key, Purpose::New);
        Ok(())
    }

    fn request_terminate(&mut self, token: u64, id: ChildId, now: Instant) -> Result<(), SupervisorError> {
        let child = self.named(id)?;
        let (key, state, restart) = (child.key, child.state(), child.restart.clone());
        match state {
            State::Lost => return Err(SupervisorError::Unkillable(child.id.clone())),
            State::Down => {
                self.leave_group(key);
                self.children.set_until(key, None);
                if let Some(child) = self.children.get_mut(key) {
                    child.pending = Pending::Nothing;
                }
                self.drop_spec_if_it_goes(key, &restart);
                self.reply(token, Ok(Reply::Done));
            }
            State::Starting { .. } | State::Running | State::Stopping => {
                self.leave_group(key);
                if let Some(child) = self.children.get_mut(key) {
                    child.stop_tokens.push(token);
                }
                self.begin_stop(key, now);
            }
        }
        Ok(())
    }

    /// The key of a child that is down and stays so.
    fn resting(&self, id: ChildId) -> Result<Key, SupervisorError> {
        if self.flags.dynamic.is_some() {
            return Err(SupervisorError::Dynamic);
        }
        let child = self.named(id)?;
        let id = child.id.clone();
        match child.state() {
            State::Down if self.is_restarting(child) => Err(SupervisorError::Restarting(id)),
            State::Down => Ok(child.key),
            State::Starting { .. } => Err(SupervisorError::Restarting(id)),
            State::Running | State::Stopping => Err(SupervisorError::Running(id)),
            State::Lost => Err(SupervisorError::Unkillable(id)),
        }
    }

    fn request_restart(&mut self, token: u64, id: ChildId) -> Result<(), SupervisorError> {
        let key = self.resting(id)?;
        if let Some(child) = self.children.get_mut(key) {
            child.start_token = Some(token);
        }
        self.start(key, Purpose::Request);
        Ok(())
    }

    fn request_delete(&mut self, token: u64, id: ChildId) -> Result<(), SupervisorError> {
        let key = self.resting(id)?;
        self.forget(key);
        self.reply(token, Ok(Reply::Done));
        Ok(())
    }
}
