//! Kafka's error codes, as they stand on the wire.

use std::fmt;

macro_rules! error_codes {
    ($($code:literal $name:ident $text:literal,)*) => {
        /// An error code of the Kafka protocol. A code without a name here is kept as [`ErrorCode::Other`].
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[non_exhaustive]
        pub enum ErrorCode {
            $(
                #[doc = concat!("Code ", stringify!($code), ": ", $text, ".")]
                $name,
            )*
            /// A code that this version of Kohort has no name for.
            Other(i16),
        }

        impl ErrorCode {
            /// Every code that has a name, in ascending order.
            pub const ALL: &'static [ErrorCode] = &[$(ErrorCode::$name,)*];

            /// The code as it stands on the wire.
            pub fn code(self) -> i16 {
                match self {
                    $(ErrorCode::$name => $code,)*
                    ErrorCode::Other(code) => code,
                }
            }

            /// What the code means, in a few words.
            pub fn text(self) -> &'static str {
                match self {
                    $(ErrorCode::$name => $text,)*
                    ErrorCode::Other(_) => "an error that this version has no name for",
                }
            }

            fn name(self) -> Option<&'static str> {
                match self {
                    $(ErrorCode::$name => Some(stringify!($name)),)*
                    ErrorCode::Other(_) => None,
                }
            }
        }

        impl From<i16> for ErrorCode {
            fn from(code: i16) -> Self {
                match code {
                    $($code => ErrorCode::$name,)*
                    other => ErrorCode::Other(other),
                }
            }
        }
    };
}

error_codes! {
    -1 UnknownServerError "the broker met an error it has no code for",
    0 None "no error",
    1 OffsetOutOfRange "the offset is outside the log",
    2 CorruptMessage "the record batch has a wrong CRC or an invalid size",
    3 UnknownTopicOrPartition "the broker does not host this topic or partition",
    4 InvalidFetchSize "the fetch size is invalid",
    5 LeaderNotAvailable "the partition has no leader at the moment",
    6 NotLeaderOrFollower "the broker is not the partition's leader",
    7 RequestTimedOut "the request timed out on the broker",
    8 BrokerNotAvailable "the broker is not available",
    9 ReplicaNotAvailable "the replica is not available",
    10 MessageTooLarge "the record batch is larger than the broker accepts",
    12 OffsetMetadataTooLarge "the offset's metadata is too large",
    13 NetworkException "the broker disconnected before an answer came",
    14 CoordinatorLoadInProgress "the coordinator is loading the group",
    15 CoordinatorNotAvailable "the coordinator is not available",
    16 NotCoordinator "the broker is not the group's coordinator",
    17 InvalidTopicException "the topic's name is invalid",
    18 RecordListTooLarge "the record batch is larger than a segment",
    19 NotEnoughReplicas "fewer in-sync replicas than required",
    20 NotEnoughReplicasAfterAppend "written to fewer in-sync replicas than required",
    21 InvalidRequiredAcks "the acks value is invalid",
    22 IllegalGeneration "the generation is not the group's current one",
    23 InconsistentGroupProtocol "the protocol type or the assignors do not fit the group's",
    24 InvalidGroupId "the group id is invalid",
    25 UnknownMemberId "the coordinator does not know the member id",
    26 InvalidSessionTimeout "the session timeout is outside the broker's limits",
    27 RebalanceInProgress "the group is rebalancing",
    28 InvalidCommitOffsetSize "the offset commit is too large",
    29 TopicAuthorizationFailed "not authorized for the topic",
    30 GroupAuthorizationFailed "not authorized for the group",
    31 ClusterAuthorizationFailed "not authorized for the cluster",
    33 UnsupportedSaslMechanism "the broker does not support the SASL mechanism",
    34 IllegalSaslState "the request does not fit the SASL state",
    35 UnsupportedVersion "the broker does not support this version of the request",
    36 TopicAlreadyExists "the topic exists already",
    37 InvalidPartitions "the number of partitions is invalid",
    38 InvalidReplicationFactor "the replication factor is invalid",
    39 InvalidReplicaAssignment "the replica assignment is invalid",
    40 InvalidConfig "the configuration is invalid",
    41 NotController "the broker is not the controller",
    42 InvalidRequest "the request is malformed",
    43 UnsupportedForMessageFormat "the message format does not support the request",
    44 PolicyViolation "the request violates a policy",
    45 OutOfOrderSequenceNumber "the producer's sequence number is out of order",
    46 DuplicateSequenceNumber "the producer's sequence number was seen before",
    47 InvalidProducerEpoch "the producer's epoch is stale",
    48 InvalidTxnState "the transaction is in another state",
    49 InvalidProducerIdMapping "the producer id does not belong to the transactional id",
    53 TransactionalIdAuthorizationFailed "not authorized for the transactional id",
    55 OperationNotAttempted "the operation was not attempted",
    56 KafkaStorageError "the broker could not access its disk",
    58 SaslAuthenticationFailed "the SASL authentication failed",
    59 UnknownProducerId "the broker does not know the producer id",
    68 NonEmptyGroup "the group still has members",
    69 GroupIdNotFound "the group does not exist",
    70 FetchSessionIdNotFound "the fetch session does not exist",
    71 InvalidFetchSessionEpoch "the fetch session's epoch is invalid",
    72 ListenerNotFound "the leader has no matching listener",
    73 TopicDeletionDisabled "topics cannot be deleted",
    74 FencedLeaderEpoch "the leader epoch is older than the broker's",
    75 UnknownLeaderEpoch "the leader epoch is newer than the broker's",
    76 UnsupportedCompressionType "the compression type is not supported",
    78 OffsetNotAvailable "the offset is not available yet",
    79 MemberIdRequired "join again with the member id that came with this answer",
    81 GroupMaxSizeReached "the group has reached its maximum size",
    82 FencedInstanceId "another member took the group instance id",
    83 EligibleLeadersNotAvailable "no eligible leader is available",
    86 GroupSubscribedToTopic "the group is subscribed to the topic",
    87 InvalidRecord "the broker refused a record",
    88 UnstableOffsetCommit "a transaction that commits the offset is pending",
    89 ThrottlingQuotaExceeded "a quota is exceeded",
    90 ProducerFenced "a newer producer took the transactional id",
    100 UnknownTopicId "the broker does not know the topic id",
}

/// [`ErrorCode::None`].
impl Default for ErrorCode {
    fn default() -> Self {
        ErrorCode::None
    }
}

impl ErrorCode {
    /// True for [`ErrorCode::None`].
    pub fn is_none(self) -> bool {
        self == ErrorCode::None
    }

    /// True for everything but [`ErrorCode::None`].
    pub fn is_error(self) -> bool {
        !self.is_none()
    }
}

/// `FencedInstanceId (82): another member took the group instance id`
impl fmt::Display for ErrorCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name() {
            Some(name) => write!(f, "{name} ({}): {}", self.code(), self.text()),
            None => write!(f, "error code {}", self.code()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_code_survives_the_wire() {
        for code in i16::MIN..=i16::MAX {
            assert_eq!(ErrorCode::from(code).code(), code);
        }
        assert!(ErrorCode::ALL.windows(2).all(|pair| pair[0].code() < pair[1].code()));
    }
}
