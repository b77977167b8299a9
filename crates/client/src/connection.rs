//! One connection to one broker, with one request on it at a time.
//!
//! A broker answers a connection's requests in order, and a JoinGroup may be held for minutes: whoever must
//! not wait behind it takes another connection. So there is nothing to multiplex here, and an answer with
//! another correlation id is an error.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use bytes::{Bytes, BytesMut};
use kohort_protocol::frame::{decode_response, encode_request, parse_frame_len};
use kohort_protocol::messages::{ApiVersionsRequest, ApiVersionsResponse};
use kohort_protocol::{ApiKey, ApiVersions, ErrorCode, Request, Response};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt, ReadBuf};
use tokio::time::Instant;

use crate::cluster::Address;
use crate::error::ClientError;
use crate::transport::Stream;

pub(crate) struct Connection {
    stream: Box<dyn Stream>,
    address: Address,
    client_id: Arc<str>,
    max_frame_bytes: usize,
    versions: ApiVersions,
    correlation: i32,
    /// A request is out, or was abandoned: the next bytes are not ours to interpret.
    busy: bool,
    pub(crate) last_used: Instant,
}

impl Connection {
    /// Takes over a fresh stream and asks which versions the broker speaks (KIP-511).
    pub(crate) async fn open(
        stream: Box<dyn Stream>,
        address: Address,
        client_id: Arc<str>,
        max_frame_bytes: usize,
        deadline: Instant,
    ) -> Result<Self, ClientError> {
        let mut connection = Connection {
            stream,
            address,
            client_id,
            max_frame_bytes,
            versions: ApiVersions::spoken(),
            correlation: 0,
            busy: false,
            last_used: Instant::now(),
        };
        let answer = connection.negotiate(deadline).await?;
        if answer.error.is_error() {
            return Err(ClientError::Broker { api: ApiKey::ApiVersions, code: answer.error });
        }
        connection.versions = ApiVersions::new(&answer.apis);
        Ok(connection)
    }

    /// A broker that does not know our version says so in version 0 and is asked again in that (KIP-511).
    async fn negotiate(&mut self, deadline: Instant) -> Result<ApiVersionsResponse, ClientError> {
        let request = ApiVersionsRequest {
            client_software_name: "kohort".into(),
            client_software_version: env!("CARGO_PKG_VERSION").into(),
        };
        let version = ApiKey::ApiVersions.versions().max;
        let frame = self.exchange(&request, version, deadline).await?;
        let answer: ApiVersionsResponse = self.decode(frame, version)?;
        if answer.error != ErrorCode::UnsupportedVersion {
            return Ok(answer);
        }
        let frame = self.exchange(&request, 0, deadline).await?;
        self.decode(frame, 0)
    }

    /// One request, one answer, and the version they were spoken in. Not cancel safe: a dropped call leaves the connection busy, and it is thrown
    /// away at its return.
    pub(crate) async fn call<R: Request>(
        &mut self,
        request: &R,
        deadline: Instant,
    ) -> Result<(i16, R::Response), ClientError> {
        let version = self
            .versions
            .negotiate(R::API)
            .ok_or_else(|| ClientError::Unsupported { address: self.address.clone(), api: R::API })?;
        let frame = self.exchange(request, version, deadline).await?;
        Ok((version, self.decode(frame, version)?))
    }

    /// Sends the frame and reads the next one.
    async fn exchange<R: Request>(
        &mut self,
        request: &R,
        version: i16,
        deadline: Instant,
    ) -> Result<Bytes, ClientError> {
        self.correlation = self.correlation.wrapping_add(1);
        let frame = encode_request(request, version, self.correlation, Some(&self.client_id))?;
        let sent = Instant::now();
        self.busy = true;
        let exchanged = tokio::time::timeout_at(deadline, async {
            self.stream.write_all(&frame).await.map_err(Failure::Io)?;
            self.stream.flush().await.map_err(Failure::Io)?;
            read_frame(&mut self.stream, self.max_frame_bytes).await
        })
        .await;
        let address = || self.address.clone();
        match exchanged {
            Ok(Ok(frame)) => {
                self.busy = false;
                self.last_used = Instant::now();
                Ok(frame)
            }
            Ok(Err(Failure::Io(source))) => {
                Err(ClientError::Disconnected { address: address(), api: R::API, source: Arc::new(source) })
            }
            Ok(Err(Failure::Frame(source))) => {
                Err(ClientError::Frame { address: address(), api: R::API, source })
            }
            Err(_) => Err(ClientError::Timeout { address: address(), api: R::API, after: sent.elapsed() }),
        }
    }

    fn decode<T: Response>(&mut self, frame: Bytes, version: i16) -> Result<T, ClientError> {
        let api = T::API;
        match decode_response::<T>(frame, version) {
            Ok((found, answer)) if found == self.correlation => Ok(answer),
            Ok((found, _)) => {
                self.busy = true;
                let expected = self.correlation;
                Err(ClientError::Correlation { address: self.address.clone(), api, expected, found })
            }
            Err(source) => {
                self.busy = true;
                Err(ClientError::Decode { address: self.address.clone(), api, source })
            }
        }
    }

    /// May it be used again? Not with a request abandoned on it, nor if the broker closed it meanwhile.
    pub(crate) fn is_usable(&mut self) -> bool {
        if self.busy {
            return false;
        }
        let mut byte = [0u8; 1];
        let mut buffer = ReadBuf::new(&mut byte);
        let mut context = Context::from_waker(Waker::noop());
        // Nothing may come without a question: an end, an error and stray bytes all disqualify.
        matches!(Pin::new(&mut self.stream).poll_read(&mut context, &mut buffer), Poll::Pending)
    }
}

enum Failure {
    Io(io::Error),
    Frame(kohort_protocol::FrameError),
}

async fn read_frame(stream: &mut Box<dyn Stream>, max: usize) -> Result<Bytes, Failure> {
    let mut prefix = [0u8; 4];
    stream.read_exact(&mut prefix).await.map_err(Failure::Io)?;
    let length = parse_frame_len(prefix, max).map_err(Failure::Frame)?;
    // Reserved, not touched: memory is used as bytes arrive, whatever the length claims.
    let mut frame = BytesMut::with_capacity(length);
    let mut body = stream.take(length as u64);
    while frame.len() < length {
        if body.read_buf(&mut frame).await.map_err(Failure::Io)? == 0 {
            return Err(Failure::Io(io::ErrorKind::UnexpectedEof.into()));
        }
    }
    Ok(frame.freeze())
}
