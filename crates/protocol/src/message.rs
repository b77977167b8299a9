//! The two traits that every message has, and the enums for code that learns only at run time which message it
//! holds: the broker's dispatch.

use bytes::{Bytes, BytesMut};

use crate::messages::*;
use crate::{ApiKey, DecodeError, EncodeError};

/// A request of the Kafka protocol. Clients encode it, brokers decode it.
pub trait Request: Sized {
    /// Which request it is.
    const API: ApiKey;
    /// Its answer.
    type Response: Response;

    /// Appends the body to `buf`, without a header. What `version` cannot say and what changes nothing when it is
    /// left out (a group instance id, a reason) is left out.
    ///
    /// # Errors
    /// [`EncodeError`] if the version is not spoken, or if leaving something out would change the meaning, for
    /// example several keys in a FindCoordinator request below version 4. `buf` is then unusable.
    fn encode(&self, version: i16, buf: &mut BytesMut) -> Result<(), EncodeError>;

    /// Reads the body, which starts behind the header. Bytes behind the body are ignored.
    ///
    /// # Errors
    /// [`DecodeError`] if the version is not spoken or the bytes are not such a request.
    fn decode(version: i16, body: Bytes) -> Result<Self, DecodeError>;
}

/// An answer of the Kafka protocol. Brokers encode it, clients decode it.
pub trait Response: Sized {
    /// Which request it answers.
    const API: ApiKey;

    /// Appends the body to `buf`, without a header; what `version` cannot say is left out as in
    /// [`Request::encode`].
    ///
    /// # Errors
    /// As [`Request::encode`].
    fn encode(&self, version: i16, buf: &mut BytesMut) -> Result<(), EncodeError>;

    /// Reads the body, which starts behind the header. Bytes behind the body are ignored. It allocates at most
    /// 32 × the body's length + 64 KiB.
    ///
    /// # Errors
    /// [`DecodeError`] if the version is not spoken or the bytes are not such an answer.
    fn decode(version: i16, body: Bytes) -> Result<Self, DecodeError>;
}

macro_rules! any_message {
    ($($name:ident $request:ident $response:ident,)*) => {
        /// Any request that Kohort speaks.
        #[derive(Debug, Clone, PartialEq, Eq)]
        #[non_exhaustive]
        pub enum AnyRequest {
            $(
                #[doc = concat!("[`", stringify!($request), "`].")]
                $name($request),
            )*
        }

        /// Any answer that Kohort speaks.
        #[derive(Debug, Clone, PartialEq, Eq)]
        #[non_exhaustive]
        pub enum AnyResponse {
            $(
                #[doc = concat!("[`", stringify!($response), "`].")]
                $name($response),
            )*
        }

        impl AnyRequest {
            /// Reads the body of a request, as [`Request::decode`] does.
            ///
            /// # Errors
            /// [`DecodeError`] if the version is not spoken or the bytes are not such a request.
            pub fn decode(api: ApiKey, version: i16, body: Bytes) -> Result<Self, DecodeError> {
                match api {
                    $(ApiKey::$name => <$request as Request>::decode(version, body).map(AnyRequest::$name),)*
                }
            }

            /// Which request it is.
            pub fn api(&self) -> ApiKey {
                match self {
                    $(AnyRequest::$name(_) => ApiKey::$name,)*
                }
            }

            /// Appends the body to `buf`, as [`Request::encode`] does.
            ///
            /// # Errors
            /// As [`Request::encode`].
            pub fn encode(&self, version: i16, buf: &mut BytesMut) -> Result<(), EncodeError> {
                match self {
                    $(AnyRequest::$name(request) => Request::encode(request, version, buf),)*
                }
            }
        }

        impl AnyResponse {
            /// Reads the body of an answer, as [`Response::decode`] does.
            ///
            /// # Errors
            /// [`DecodeError`] if the version is not spoken or the bytes are not such an answer.
            pub fn decode(api: ApiKey, version: i16, body: Bytes) -> Result<Self, DecodeError> {
                match api {
                    $(ApiKey::$name => <$response as Response>::decode(version, body).map(AnyResponse::$name),)*
                }
            }

            /// Which request it answers.
            pub fn api(&self) -> ApiKey {
                match self {
                    $(AnyResponse::$name(_) => ApiKey::$name,)*
                }
            }

            /// Appends the body to `buf`, as [`Response::encode`] does.
            ///
            /// # Errors
            /// As [`Response::encode`].
            pub fn encode(&self, version: i16, buf: &mut BytesMut) -> Result<(), EncodeError> {
                match self {
                    $(AnyResponse::$name(response) => Response::encode(response, version, buf),)*
                }
            }
        }

        $(
            impl From<$request> for AnyRequest {
                fn from(request: $request) -> Self {
                    AnyRequest::$name(request)
                }
            }

            impl From<$response> for AnyResponse {
                fn from(response: $response) -> Self {
                    AnyResponse::$name(response)
                }
            }
        )*
    };
}

any_message! {
    Produce ProduceRequest ProduceResponse,
    Fetch FetchRequest FetchResponse,
    ListOffsets ListOffsetsRequest ListOffsetsResponse,
    Metadata MetadataRequest MetadataResponse,
    OffsetCommit OffsetCommitRequest OffsetCommitResponse,
    OffsetFetch OffsetFetchRequest OffsetFetchResponse,
    FindCoordinator FindCoordinatorRequest FindCoordinatorResponse,
    JoinGroup JoinGroupRequest JoinGroupResponse,
    Heartbeat HeartbeatRequest HeartbeatResponse,
    LeaveGroup LeaveGroupRequest LeaveGroupResponse,
    SyncGroup SyncGroupRequest SyncGroupResponse,
    DescribeGroups DescribeGroupsRequest DescribeGroupsResponse,
    ListGroups ListGroupsRequest ListGroupsResponse,
    ApiVersions ApiVersionsRequest ApiVersionsResponse,
    CreateTopics CreateTopicsRequest CreateTopicsResponse,
    DeleteTopics DeleteTopicsRequest DeleteTopicsResponse,
    InitProducerId InitProducerIdRequest InitProducerIdResponse,
    CreatePartitions CreatePartitionsRequest CreatePartitionsResponse,
    DeleteGroups DeleteGroupsRequest DeleteGroupsResponse,
    OffsetDelete OffsetDeleteRequest OffsetDeleteResponse,
}
