//! Which requests exist, which versions of them Kohort speaks, and how a version is agreed on.
//!
//! The ranges are what both our encoders and our decoders speak. They are not those of the `kafka-protocol`
//! crate, whose `valid_versions` promises versions that its encoders refuse.

use std::fmt;

use crate::messages::ApiVersionRange;

/// A range of versions of one request, both ends included.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct VersionRange {
    /// Lowest version.
    pub min: i16,
    /// Highest version.
    pub max: i16,
}

impl VersionRange {
    /// True if `version` lies in the range.
    pub fn contains(self, version: i16) -> bool {
        self.min <= version && version <= self.max
    }

    /// The versions that lie in both ranges, `None` if there are none.
    pub fn intersect(self, other: VersionRange) -> Option<VersionRange> {
        let both = VersionRange { min: self.min.max(other.min), max: self.max.min(other.max) };
        (both.min <= both.max).then_some(both)
    }
}

/// `4–12`
impl fmt::Display for VersionRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}–{}", self.min, self.max)
    }
}

macro_rules! api_keys {
    ($($name:ident = $key:literal, $min:literal ..= $max:literal, flexible $flexible:literal, $text:literal;)*) => {
        /// A request of the Kafka protocol that Kohort speaks.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[non_exhaustive]
        pub enum ApiKey {
            $(
                #[doc = concat!("Key ", stringify!($key), ": ", $text, ". Versions ", stringify!($min), "–",
                    stringify!($max), " are spoken, flexible from ", stringify!($flexible), ".")]
                $name,
            )*
        }

        impl ApiKey {
            /// Every request that Kohort speaks, in ascending order of the key.
            pub const ALL: &'static [ApiKey] = &[$(ApiKey::$name,)*];

            /// The request with this key, `None` if Kohort does not speak it.
            pub fn from_key(key: i16) -> Option<ApiKey> {
                match key {
                    $($key => Some(ApiKey::$name),)*
                    _ => None,
                }
            }

            /// The key as it stands on the wire.
            pub fn key(self) -> i16 {
                match self {
                    $(ApiKey::$name => $key,)*
                }
            }

            /// Kafka's name for the request, for example `JoinGroup`.
            pub fn name(self) -> &'static str {
                match self {
                    $(ApiKey::$name => stringify!($name),)*
                }
            }

            /// The versions that this crate both encodes and decodes, in both directions.
            pub fn versions(self) -> VersionRange {
                match self {
                    $(ApiKey::$name => VersionRange { min: $min, max: $max },)*
                }
            }

            /// The first version with compact lengths and tagged fields (KIP-482).
            fn first_flexible(self) -> i16 {
                match self {
                    $(ApiKey::$name => $flexible,)*
                }
            }
        }
    };
}

api_keys! {
    Produce = 0, 3..=12, flexible 9, "append record batches";
    Fetch = 1, 4..=12, flexible 12, "read record batches";
    ListOffsets = 2, 1..=7, flexible 6, "the offset of a timestamp";
    Metadata = 3, 0..=9, flexible 9, "brokers, topics, leaders";
    OffsetCommit = 8, 2..=9, flexible 8, "keep offsets for a group";
    OffsetFetch = 9, 1..=9, flexible 6, "the offsets kept for a group";
    FindCoordinator = 10, 0..=6, flexible 3, "who coordinates a group";
    JoinGroup = 11, 0..=9, flexible 6, "become a member of a group";
    Heartbeat = 12, 0..=4, flexible 4, "stay a member of a group";
    LeaveGroup = 13, 0..=5, flexible 4, "leave a group";
    SyncGroup = 14, 0..=5, flexible 4, "give or get the assignment";
    DescribeGroups = 15, 0..=6, flexible 5, "the state and the members of groups";
    ListGroups = 16, 0..=5, flexible 3, "the groups of a broker";
    ApiVersions = 18, 0..=3, flexible 3, "what the broker speaks";
    CreateTopics = 19, 2..=7, flexible 5, "create topics";
    DeleteTopics = 20, 1..=5, flexible 4, "delete topics";
    InitProducerId = 22, 0..=4, flexible 2, "an id for an idempotent producer";
    CreatePartitions = 37, 0..=3, flexible 2, "more partitions for a topic";
    DeleteGroups = 42, 0..=2, flexible 2, "delete groups and their offsets";
    OffsetDelete = 47, 0..=0, flexible 1, "forget the offsets kept for a group";
}

/// Kafka's name for the request.
impl fmt::Display for ApiKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// True if this version of the request uses compact lengths and tagged fields (KIP-482), in its body and in its
/// headers. One exception: the header of an ApiVersions *answer* never has tagged fields (KIP-511), which
/// [`crate::frame`] minds.
pub fn flexible(api: ApiKey, version: i16) -> bool {
    version >= api.first_flexible()
}

/// What one broker speaks. Without an answer to ApiVersions there is nothing to negotiate: an empty value
/// negotiates nothing.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct ApiVersions {
    /// Ascending by key, one entry a key.
    ranges: Vec<(ApiKey, VersionRange)>,
}

impl ApiVersions {
    /// A broker's ranges as its answer to ApiVersions gives them. Keys that Kohort does not speak and ranges that
    /// are empty are left out; of a key that is named twice the last range counts.
    pub fn new(apis: &[ApiVersionRange]) -> Self {
        let mut ranges = Vec::new();
        for api in ApiKey::ALL {
            let named = apis.iter().rev().find(|range| range.key == api.key() && range.min <= range.max);
            if let Some(range) = named {
                ranges.push((*api, VersionRange { min: range.min, max: range.max }));
            }
        }
        Self { ranges }
    }

    /// What this crate speaks, as if it were a broker.
    pub fn spoken() -> Self {
        Self { ranges: ApiKey::ALL.iter().map(|api| (*api, api.versions())).collect() }
    }

    /// The broker's own range, `None` if it does not speak the request.
    pub fn range(&self, api: ApiKey) -> Option<VersionRange> {
        self.ranges.iter().find(|(key, _)| *key == api).map(|(_, range)| *range)
    }

    /// The highest version that both the broker and this crate speak, `None` if there is none.
    pub fn negotiate(&self, api: ApiKey) -> Option<i16> {
        self.range(api)?.intersect(api.versions()).map(|both| both.max)
    }

    /// The ranges as an answer to ApiVersions lists them.
    pub fn to_ranges(&self) -> Vec<ApiVersionRange> {
        self.ranges
            .iter()
            .map(|(api, range)| ApiVersionRange { key: api.key(), min: range.min, max: range.max })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_survive_the_wire_and_ranges_are_sound() {
        for api in ApiKey::ALL {
            assert_eq!(ApiKey::from_key(api.key()), Some(*api));
            assert!(api.versions().min <= api.versions().max);
        }
        assert_eq!(ApiKey::from_key(4), None);
        assert_eq!(ApiKey::from_key(-1), None);
    }

    #[test]
    fn negotiation_takes_the_highest_common_version() {
        let ranges = [
            ApiVersionRange { key: 1, min: 4, max: 17 },
            ApiVersionRange { key: 11, min: 0, max: 5 },
            ApiVersionRange { key: 8, min: 0, max: 1 },
            ApiVersionRange { key: 3, min: 5, max: 2 },
            ApiVersionRange { key: 999, min: 0, max: 1 },
        ];
        let versions = ApiVersions::new(&ranges);
        assert_eq!(versions.negotiate(ApiKey::Fetch), Some(12));
        assert_eq!(versions.negotiate(ApiKey::JoinGroup), Some(5));
        assert_eq!(versions.negotiate(ApiKey::OffsetCommit), None);
        assert_eq!(versions.negotiate(ApiKey::Metadata), None);
        assert_eq!(versions.negotiate(ApiKey::Heartbeat), None);
        assert_eq!(ApiVersions::new(&ApiVersions::spoken().to_ranges()), ApiVersions::spoken());
    }
}
