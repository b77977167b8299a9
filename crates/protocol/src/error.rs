//! What goes wrong between bytes and plain types. Errors of record batches are in [`crate::records`].

use thiserror::Error;

use crate::ApiKey;

/// Bytes from outside do not say what they should. The connection they came from is out of step and must be
/// closed; a blob that is one member's own is that member's fault alone.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("cannot decode {what}: field `{field}` at byte {offset}: {kind}")]
#[non_exhaustive]
pub struct DecodeError {
    /// What was decoded, for example `JoinGroup answer v9`.
    pub what: What,
    /// The field that failed.
    pub field: &'static str,
    /// Where the field stands, counted from the first byte given to the decoder.
    pub offset: usize,
    /// What is wrong with it.
    pub kind: DecodeErrorKind,
}

/// What a decoder was reading.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum What {
    /// The body of a request.
    Request(ApiKey, i16),
    /// The body of an answer.
    Response(ApiKey, i16),
    /// The header of a request.
    RequestHeader,
    /// The header of an answer.
    ResponseHeader,
    /// A member's subscription blob.
    Subscription,
    /// A member's assignment blob.
    Assignment,
}

/// `JoinGroup answer v9`
impl std::fmt::Display for What {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            What::Request(api, version) => write!(f, "{api} request v{version}"),
            What::Response(api, version) => write!(f, "{api} answer v{version}"),
            What::RequestHeader => f.write_str("a request's header"),
            What::ResponseHeader => f.write_str("an answer's header"),
            What::Subscription => f.write_str("a subscription"),
            What::Assignment => f.write_str("an assignment"),
        }
    }
}

/// What is wrong with a field.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum DecodeErrorKind {
    /// The bytes end within the field.
    #[error("{needed} bytes are needed, {remaining} remain")]
    Truncated {
        /// Bytes the field needs.
        needed: usize,
        /// Bytes that remain.
        remaining: usize,
    },
    /// A length is negative where no null is allowed, or below −1.
    #[error("the length {0} is invalid")]
    InvalidLength(i64),
    /// More elements are promised than the remaining bytes can hold.
    #[error("{count} elements of at least {minimum} bytes cannot fit into the {remaining} bytes that remain")]
    CountTooLarge {
        /// Elements promised.
        count: usize,
        /// Fewest bytes an element takes.
        minimum: usize,
        /// Bytes that remain.
        remaining: usize,
    },
    /// A null where the protocol allows none.
    #[error("it is null, which this version does not allow")]
    UnexpectedNull,
    /// A variable-length integer is longer than its type can be.
    #[error("the variable-length integer is too long")]
    VarintOverflow,
    /// A string is not UTF-8.
    #[error("the string is not UTF-8")]
    NotUtf8,
    /// A version that this crate does not speak.
    #[error("version {0} is not spoken")]
    UnsupportedVersion(i16),
    /// A value that the protocol does not define.
    #[error("the value {0} is not defined")]
    InvalidValue(i64),
}

/// A plain value cannot be put on the wire.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum EncodeError {
    /// This crate does not speak this version.
    #[error("{api} v{version} is not spoken, only {}", .api.versions())]
    UnsupportedVersion {
        /// The request.
        api: ApiKey,
        /// The version asked for.
        version: i16,
    },
    /// The value asks for what this version of the request cannot say.
    #[error("{api} v{version} cannot say `{field}`: {reason}")]
    NotInVersion {
        /// The request.
        api: ApiKey,
        /// The version asked for.
        version: i16,
        /// The field.
        field: &'static str,
        /// Why not.
        reason: &'static str,
    },
    /// A string, blob or list is longer than the wire's length fields can say.
    #[error("{api} v{version} was not encoded: {reason}")]
    Refused {
        /// The request.
        api: ApiKey,
        /// The version.
        version: i16,
        /// The encoder's words.
        reason: String,
    },
    /// A subscription or assignment blob cannot be written.
    #[error("the {blob} v{version} was not encoded: {reason}")]
    Blob {
        /// `subscription` or `assignment`.
        blob: &'static str,
        /// The version.
        version: i16,
        /// The encoder's words.
        reason: String,
    },
    /// The frame is longer than its length field can say.
    #[error("the frame of {0} bytes is longer than 2 147 483 647 bytes")]
    FrameTooLarge(usize),
}

/// The length in front of a frame is unusable. The connection must be closed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum FrameError {
    /// The length is negative.
    #[error("the frame's length {0} is negative")]
    Negative(i32),
    /// The frame is larger than allowed.
    #[error("the frame of {length} bytes is larger than the {max} bytes allowed")]
    TooLarge {
        /// The frame's length in bytes.
        length: usize,
        /// The most bytes allowed.
        max: usize,
    },
}
