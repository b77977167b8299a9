//! Notices to delegates, kept for as long as the delegate does not run. It delivers; it decides nothing.

use super::guarded;
use crate::id::ChildId;
use crate::spec::{DelegateNotice, Notify};
use ractor::ActorCell;

#[derive(Default)]
pub(super) struct Outbox {
    kept: Vec<(ChildId, Notify, DelegateNotice)>,
}

impl Outbox {
    /// A child runs: whatever was kept for it is delivered, in order.
    pub(super) fn deliver(&mut self, id: &ChildId, cell: &ActorCell) {
        if self.kept.is_empty() {
            return;
        }
        let (due, rest) = std::mem::take(&mut self.kept).into_iter().partition(|(to, ..)| to == id);
        self.kept = rest;
        let due: Vec<(ChildId, Notify, DelegateNotice)> = due;
        for (_, notify, notice) in due {
            guarded("delegate notice", || notify(cell, notice));
        }
    }

    /// A child is gone for good.
    pub(super) fn forget(&mut self, id: &ChildId) {
        self.kept.retain(|(to, _, notice)| to != id && notice.id() != id);
    }

    /// Tells the delegate now, if it runs.
    pub(super) fn send(
        &mut self,
        to: &ChildId,
        delegate: Option<&ActorCell>,
        notify: &Notify,
        notice: DelegateNotice,
    ) {
        match delegate {
            Some(cell) => guarded("delegate notice", || notify(cell, notice)),
            None => self.kept.push((to.clone(), notify.clone(), notice)),
        }
    }
}
