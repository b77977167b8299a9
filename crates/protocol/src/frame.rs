//! Frames: a length of four bytes, a header, a body. Called by whoever owns a connection; reading from the socket
//! is not done here.

use bytes::{BufMut, Bytes, BytesMut};

use crate::api::flexible;
use crate::error::{DecodeError, EncodeError, FrameError, What};
use crate::message::{AnyResponse, Request, Response};
use crate::reader::Reader;
use crate::{ApiKey, error::DecodeErrorKind};

/// The length of the frame that follows these four bytes.
///
/// # Errors
/// [`FrameError`] if it is negative or larger than `max` bytes.
pub fn parse_frame_len(prefix: [u8; 4], max: usize) -> Result<usize, FrameError> {
    let length = i32::from_be_bytes(prefix);
    let Ok(length) = usize::try_from(length) else { return Err(FrameError::Negative(length)) };
    if length > max { Err(FrameError::TooLarge { length, max }) } else { Ok(length) }
}

fn framed(
    capacity: usize,
    write: impl FnOnce(&mut BytesMut) -> Result<(), EncodeError>,
) -> Result<Bytes, EncodeError> {
    let mut buf = BytesMut::with_capacity(capacity);
    buf.put_i32(0);
    write(&mut buf)?;
    let length = buf.len().saturating_sub(4);
    let prefix = i32::try_from(length).map_err(|_| EncodeError::FrameTooLarge(length))?;
    if let Some(place) = buf.get_mut(..4) {
        place.copy_from_slice(&prefix.to_be_bytes());
    }
    Ok(buf.freeze())
}

/// The whole frame of a request: length, header, body.
///
/// # Errors
/// As [`Request::encode`]; [`EncodeError::Refused`] too if the client id is longer than 32 767 bytes.
pub fn encode_request<R: Request>(
    request: &R,
    version: i16,
    correlation_id: i32,
    client_id: Option<&str>,
) -> Result<Bytes, EncodeError> {
    framed(256, |buf| {
        buf.put_i16(R::API.key());
        buf.put_i16(version);
        buf.put_i32(correlation_id);
        match client_id {
            Some(client_id) => {
                let length = i16::try_from(client_id.len()).map_err(|_| EncodeError::Refused {
                    api: R::API,
                    version,
                    reason: format!("the client id has {} bytes", client_id.len()),
                })?;
                buf.put_i16(length);
                buf.put_slice(client_id.as_bytes());
            }
            None => buf.put_i16(-1),
        }
        if flexible(R::API, version) {
            buf.put_u8(0);
        }
        request.encode(version, buf)
    })
}

/// True if the header of this answer ends with tagged fields. That of ApiVersions never does (KIP-511): a client
/// must be able to read it before it knows the version.
fn response_header_is_flexible(api: ApiKey, version: i16) -> bool {
    api != ApiKey::ApiVersions && flexible(api, version)
}

fn put_response_header(buf: &mut BytesMut, api: ApiKey, version: i16, correlation_id: i32) {
    buf.put_i32(correlation_id);
    if response_header_is_flexible(api, version) {
        buf.put_u8(0);
    }
}

/// The whole frame of an answer: length, header, body.
///
/// # Errors
/// As [`Response::encode`].
pub fn encode_response<R: Response>(
    response: &R,
    version: i16,
    correlation_id: i32,
) -> Result<Bytes, EncodeError> {
    framed(256, |buf| {
        put_response_header(buf, R::API, version, correlation_id);
        response.encode(version, buf)
    })
}

/// The whole frame of an answer whose type is known only at run time.
///
/// # Errors
/// As [`Response::encode`].
pub fn encode_any_response(
    response: &AnyResponse,
    version: i16,
    correlation_id: i32,
) -> Result<Bytes, EncodeError> {
    framed(256, |buf| {
        put_response_header(buf, response.api(), version, correlation_id);
        response.encode(version, buf)
    })
}

/// Takes the header off an answer's frame (without its length) and returns the correlation id; `frame` is left at
/// the body.
///
/// # Errors
/// [`DecodeError`] if the bytes are not such a header; `frame` is then as it was.
pub fn decode_response_header(frame: &mut Bytes, api: ApiKey, version: i16) -> Result<i32, DecodeError> {
    let mut reader = Reader::new(frame, What::ResponseHeader, response_header_is_flexible(api, version));
    let correlation_id = reader.i32("correlation id")?;
    reader.tagged_fields()?;
    let body = reader.position();
    *frame = frame.slice(body..);
    Ok(correlation_id)
}

/// The correlation id of an answer's frame, before it is known which request it answers.
///
/// # Errors
/// [`DecodeError`] if the frame is shorter than four bytes.
pub fn peek_correlation_id(frame: &Bytes) -> Result<i32, DecodeError> {
    Reader::new(frame, What::ResponseHeader, false).i32("correlation id")
}

/// Reads an answer's frame (without its length): the correlation id and the answer.
///
/// # Errors
/// [`DecodeError`] if the version is not spoken or the bytes are not such an answer.
pub fn decode_response<R: Response>(mut frame: Bytes, version: i16) -> Result<(i32, R), DecodeError> {
    let correlation_id = decode_response_header(&mut frame, R::API, version)?;
    Ok((correlation_id, R::decode(version, frame)?))
}

/// The header of a request, versions 1 and 2.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct RequestHeader {
    /// The request's key; [`RequestHeader::api`] names it.
    pub api_key: i16,
    /// The request's version, spoken or not.
    pub api_version: i16,
    /// Chosen by the client, repeated in the answer.
    pub correlation_id: i32,
    /// `client.id`, if the client has one.
    pub client_id: Option<String>,
}

impl RequestHeader {
    /// Takes the header off a request's frame (without its length); `frame` is left at the body. The header of a
    /// request or version that is not spoken is read too, so that the broker can say so; what follows it is then
    /// not understood.
    ///
    /// # Errors
    /// [`DecodeError`] if the bytes are not such a header; `frame` is then as it was.
    pub fn decode(frame: &mut Bytes) -> Result<Self, DecodeError> {
        let mut reader = Reader::new(frame, What::RequestHeader, false);
        let api_key = reader.i16("api key")?;
        let api_version = reader.i16("api version")?;
        if api_version < 0 {
            return Err(reader.error("api version", DecodeErrorKind::UnsupportedVersion(api_version)));
        }
        let correlation_id = reader.i32("correlation id")?;
        let client_id = reader.nullable_string("client id")?;
        let mut body = reader.position();
        let spoken = ApiKey::from_key(api_key).filter(|api| api.versions().contains(api_version));
        if spoken.is_some_and(|api| flexible(api, api_version)) {
            let rest = frame.slice(body..);
            let mut reader = Reader::new(&rest, What::RequestHeader, true);
            reader.tagged_fields()?;
            body = body.saturating_add(reader.position());
        }
        *frame = frame.slice(body..);
        Ok(Self { api_key, api_version, correlation_id, client_id })
    }

    /// The request, `None` if Kohort does not speak it.
    pub fn api(&self) -> Option<ApiKey> {
        ApiKey::from_key(self.api_key)
    }

    /// The request, if Kohort speaks it in this version.
    pub fn spoken(&self) -> Option<ApiKey> {
        self.api().filter(|api| api.versions().contains(self.api_version))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::messages::{ApiVersionsRequest, HeartbeatRequest, HeartbeatResponse};

    #[test]
    fn a_length_is_bounded() {
        assert_eq!(parse_frame_len([0, 0, 1, 0], 256), Ok(256));
        assert_eq!(parse_frame_len([0, 0, 1, 1], 256), Err(FrameError::TooLarge { length: 257, max: 256 }));
        assert_eq!(parse_frame_len([0xff; 4], 256), Err(FrameError::Negative(-1)));
    }

    #[test]
    fn headers_round_trip_in_every_format() {
        for version in 0..=4 {
            let request = HeartbeatRequest { group_id: "g".into(), ..Default::default() };
            for client_id in [None, Some("me")] {
                let frame = encode_request(&request, version, 77, client_id).unwrap();
                let mut prefix = [0; 4];
                prefix.copy_from_slice(&frame[..4]);
                assert_eq!(parse_frame_len(prefix, 1 << 20), Ok(frame.len() - 4));
                let mut rest = frame.slice(4..);
                let header = RequestHeader::decode(&mut rest).unwrap();
                assert_eq!(header.spoken(), Some(ApiKey::Heartbeat));
                assert_eq!((header.api_version, header.correlation_id), (version, 77));
                assert_eq!(header.client_id.as_deref(), client_id);
                assert_eq!(HeartbeatRequest::decode(version, rest), Ok(request.clone()));
            }
            let answer = HeartbeatResponse { error: crate::ErrorCode::RebalanceInProgress };
            let frame = encode_response(&answer, version, -5).unwrap().slice(4..);
            assert_eq!(peek_correlation_id(&frame), Ok(-5));
            assert_eq!(decode_response::<HeartbeatResponse>(frame, version), Ok((-5, answer)));
        }
    }

    #[test]
    fn the_header_of_an_unknown_version_is_still_read() {
        let request = ApiVersionsRequest::default();
        let frame = encode_request(&request, 3, 9, Some("x")).unwrap();
        let mut bytes = frame.slice(4..).to_vec();
        bytes[3] = 99;
        let header = RequestHeader::decode(&mut Bytes::from(bytes)).unwrap();
        assert_eq!((header.api_key, header.api_version, header.correlation_id), (18, 99, 9));
        assert_eq!((header.api(), header.spoken()), (Some(ApiKey::ApiVersions), None));
    }

    #[test]
    fn a_truncated_header_is_an_error() {
        let frame = encode_request(&HeartbeatRequest::default(), 4, 1, Some("client")).unwrap().slice(4..);
        for end in 0..16 {
            assert!(RequestHeader::decode(&mut frame.slice(..end)).is_err(), "{end}");
        }
    }
}
