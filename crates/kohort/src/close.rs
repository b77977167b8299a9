//! How a member is closed (KIP-1092).

use std::time::Duration;

pub use kohort_group::membership::{CloseReport, GroupMembershipOperation, LeaveOutcome};

/// What a close may take and whether it leaves the group (KIP-1092's `CloseOptions`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CloseOptions {
    timeout: Option<Duration>,
    operation: GroupMembershipOperation,
}

impl CloseOptions {
    /// Close within `timeout`; the operation is [`GroupMembershipOperation::Default`].
    pub fn timeout(timeout: Duration) -> Self {
        Self::default().with_timeout(timeout)
    }

    /// Close with this operation; the timeout is the group's close timeout, 30 s by default.
    pub fn group_membership_operation(operation: GroupMembershipOperation) -> Self {
        Self::default().with_group_membership_operation(operation)
    }

    /// With this timeout. Zero returns at once and still tries one LeaveGroup.
    pub fn with_timeout(mut self, timeout: Duration) -> Self {
        self.timeout = Some(timeout);
        self
    }

    /// With this operation.
    pub fn with_group_membership_operation(mut self, operation: GroupMembershipOperation) -> Self {
        self.operation = operation;
        self
    }

    /// The timeout, if one was set.
    pub fn timeout_set(&self) -> Option<Duration> {
        self.timeout
    }

    /// The operation.
    pub fn operation(&self) -> GroupMembershipOperation {
        self.operation
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn c_close_05_what_is_not_set_is_default() {
        let timeout = CloseOptions::timeout(Duration::from_secs(3));
        assert_eq!(timeout.timeout_set(), Some(Duration::from_secs(3)));
        assert_eq!(timeout.operation(), GroupMembershipOperation::Default);
        let operation = CloseOptions::group_membership_operation(GroupMembershipOperation::RemainInGroup);
        assert_eq!(operation.timeout_set(), None);
        assert_eq!(operation.operation(), GroupMembershipOperation::RemainInGroup);
        assert_eq!(
            CloseOptions::default(),
            CloseOptions::default().with_group_membership_operation(Default::default())
        );
    }
}
