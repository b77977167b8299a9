//! Notices to delegates, kept for as long as the delegate does not run. It delivers; it decides nothing.

use super::guarded;
use crate::id::ChildId;
use crate::spec::{DelegateNotice, Notify};
use ractor::ActorCell;
use std::collections::HashMap;

#[derive(Default)]
pub(super) struct Outbox {
    open: HashMap<ChildId, ActorCell>,
    kept: Vec<(ChildId, Notify, DelegateNotice)>,
}

impl Outbox {
    /// A child runs: whatever was kept for it is delivered, in order.
    pub(super) fn open(&mut self, id: &ChildId, cell: &ActorCell) {
        self.open.insert(id.clone(), cell.clone());
        let (due, rest) = std::mem::take(&mut self.kept).into_iter().partition(|(to, ..)| to == id);
        self.kept = rest;
        let due: Vec<(ChildId, Notify, DelegateNotice)> = due;
        for (_, notify, notice) in due {
            guarded("delegate notice", || notify(cell, notice));
        }
    }

    /// A child is down: from now on its notices are kept.
    pub(super) fn close(&mut self, id: &ChildId) {
        self.open.remove(id);
    }

    /// A child is gone for good.
    pub(super) fn forget(&mut self, id: &ChildId) {
        self.close(id);
        self.kept.retain(|(to, _, notice)| to != id && notice.id() != id);
    }

    pub(super) fn send(&mut self, to: &ChildId, notify: &Notify, notice: DelegateNotice) {
        match self.open.get(to) {
            Some(cell) => guarded("delegate notice", || notify(cell, notice)),
            None => self.kept.push((to.clone(), notify.clone(), notice)),
        }
    }
}
