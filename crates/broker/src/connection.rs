//! One connection: frames in, answers out, in the order of the requests. A held request holds those behind it, as
//! on Kafka. What a request means is not known here; `shared` is asked. Run as a task by `server`.

use std::future::Future;
use std::sync::Arc;

use bytes::{Buf, Bytes, BytesMut};
use kohort_protocol::{
    AnyRequest, AnyResponse, ApiKey, DecodeError, ErrorCode, FrameError, RequestHeader, frame,
};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

use crate::api;
use crate::event::{BrokerEvent, CloseReason};
use crate::faults::Fault;
use crate::journal::RequestSeen;
use crate::node::{Advertised, Reply};
use crate::shared::{Asked, Question, Shared};

/// Bytes taken in while a request is held: enough to notice that the peer is gone.
const READ_AHEAD: usize = 64 * 1024;
/// The most that is made room for at once, whatever a length promises.
const READ_STEP: usize = 64 * 1024;
/// Room made for a frame of which nothing is known. Most connections are idle.
const READ_IDLE: usize = 512;
/// Smaller answers are collected, larger ones written as they are.
const WRITE_TOGETHER: usize = 16 * 1024;

/// Who is connected.
#[derive(Debug)]
pub(crate) struct Peer {
    pub(crate) connection: u64,
    /// Id of the node.
    pub(crate) node: i32,
    /// As Kafka shows it: `/127.0.0.1`.
    pub(crate) host: String,
    pub(crate) advertised: Advertised,
}

/// Serves one connection to its end.
pub(crate) async fn serve<S>(stream: S, peer: Peer, shared: Arc<Shared>)
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let mut open = Open::new(&shared, &peer);
    let mut connection = Connection {
        stream,
        peer,
        shared: shared.clone(),
        input: BytesMut::new(),
        output: BytesMut::new(),
        client_id: Arc::from(""),
    };
    let Err(reason) = connection.run().await;
    open.reason = Some(reason);
}

/// Tells of the connection's end, however it comes about.
struct Open<'a> {
    shared: &'a Shared,
    connection: u64,
    peer: String,
    reason: Option<CloseReason>,
}

impl<'a> Open<'a> {
    fn new(shared: &'a Shared, peer: &Peer) -> Self {
        let (connection, peer) = (peer.connection, peer.host.clone());
        shared.events.emit(BrokerEvent::ConnectionOpened { connection, peer: peer.clone() });
        Self { shared, connection, peer, reason: None }
    }
}

impl Drop for Open<'_> {
    fn drop(&mut self) {
        let cut = if std::thread::panicking() { CloseReason::Panicked } else { CloseReason::Stopped };
        self.shared.events.emit(BrokerEvent::ConnectionClosed {
            connection: self.connection,
            peer: std::mem::take(&mut self.peer),
            reason: self.reason.take().unwrap_or(cut),
        });
    }
}

enum Never {}

struct Connection<S> {
    stream: S,
    peer: Peer,
    shared: Arc<Shared>,
    input: BytesMut,
    output: BytesMut,
    /// Of the last request: clients rarely change it.
    client_id: Arc<str>,
}

impl<S: AsyncRead + AsyncWrite + Unpin> Connection<S> {
    async fn run(&mut self) -> Result<Never, CloseReason> {
        loop {
            while let Some(frame) = self.next_frame()? {
                self.serve_frame(frame).await?;
            }
            self.flush().await?;
            if self.stream.read_buf(&mut self.input).await.map_err(io)? == 0 {
                return Err(CloseReason::Peer);
            }
        }
    }

    /// The next frame that is there in full; makes room for more if there is none.
    fn next_frame(&mut self) -> Result<Option<Bytes>, FrameError> {
        let Some(prefix) = self.input.first_chunk::<4>() else {
            if self.input.is_empty() && self.input.capacity() > READ_STEP / 4 {
                // What a large request needed is given back before the connection idles.
                self.input = BytesMut::new();
            }
            self.input.reserve(READ_IDLE);
            return Ok(None);
        };
        let length = frame::parse_frame_len(*prefix, self.shared.max_frame_bytes)?;
        let missing = length.saturating_add(4).saturating_sub(self.input.len());
        if missing > 0 {
            self.input.reserve(missing.min(READ_STEP));
            return Ok(None);
        }
        self.input.advance(4);
        // What is kept of a small request must not keep the whole buffer alive.
        let taken = if length < READ_STEP {
            let copy = self.input.get(..length).map(Bytes::copy_from_slice);
            self.input.advance(length);
            copy.unwrap_or_default()
        } else {
            self.input.split_to(length).freeze()
        };
        Ok(Some(taken))
    }

    async fn serve_frame(&mut self, mut body: Bytes) -> Result<(), CloseReason> {
        let header = RequestHeader::decode(&mut body)?;
        let at_most = |api: &ApiKey| self.shared.max_versions.get(api).copied().unwrap_or(i16::MAX);
        let spoken =
            header.spoken().filter(|api| api::SERVED.contains(api) && header.api_version <= at_most(api));
        let Some(api) = spoken else {
            return self.not_spoken(&header).await;
        };
        let request = match AnyRequest::decode(api, header.api_version, body) {
            Ok(request) => request,
            Err(error) => return Err(malformed(error)),
        };
        self.remember_client(header.client_id.as_deref().unwrap_or_default());
        let fault = self.note(&header, &request);
        self.perform(&header, request, fault).await
    }

    /// Kafka answers an unknown version only where the client has no other way to learn the versions.
    async fn not_spoken(&mut self, header: &RequestHeader) -> Result<(), CloseReason> {
        if header.api() != Some(ApiKey::ApiVersions) {
            return Err(CloseReason::NotServed { key: header.api_key, version: header.api_version });
        }
        let answer = api::api_versions::answer(ErrorCode::UnsupportedVersion, &self.shared.max_versions);
        let bytes = frame::encode_response(&answer, 0, header.correlation_id)?;
        self.write(bytes).await
    }

    fn remember_client(&mut self, client_id: &str) {
        if *self.client_id != *client_id {
            self.client_id = Arc::from(client_id);
        }
    }

    /// Writes the request down and looks up what is to go wrong.
    fn note(&self, header: &RequestHeader, request: &AnyRequest) -> Option<Fault> {
        let (connection, node) = (self.peer.connection, self.peer.node);
        let (version, correlation_id) = (header.api_version, header.correlation_id);
        let api = request.api();
        let client_id = self.client_id.clone();
        let seen = RequestSeen::new((node, connection), version, client_id.clone(), correlation_id, request);
        let fault = self.shared.faults.take(&seen);
        self.shared.journal.push(seen);
        let events = &self.shared.events;
        events.emit(BrokerEvent::RequestReceived { connection, api, version, client_id, correlation_id });
        if let Some(fault) = fault.filter(|fault| *fault != Fault::Pass) {
            events.emit(BrokerEvent::FaultInjected { connection, api, kind: fault.kind() });
        }
        fault
    }

    async fn perform(
        &mut self,
        header: &RequestHeader,
        request: AnyRequest,
        fault: Option<Fault>,
    ) -> Result<(), CloseReason> {
        match fault.unwrap_or(Fault::Pass) {
            Fault::Pass => {
                let reply = self.ask(header, request).await?;
                self.reply(header, reply).await
            }
            Fault::Error(code) => match api::refused(&request, code) {
                _ if wants_no_answer(&request) => Err(CloseReason::UnacknowledgedProduce),
                Some(answer) => self.answer(header, &answer).await,
                None => Ok(()),
            },
            Fault::Delay(wait) => {
                self.hold(tokio::time::sleep(wait)).await?;
                let reply = self.ask(header, request).await?;
                self.reply(header, reply).await
            }
            Fault::DelayAnswer(wait) => {
                let reply = self.ask(header, request).await?;
                self.hold(tokio::time::sleep(wait)).await?;
                self.reply(header, reply).await
            }
            Fault::Drop => Ok(()),
            Fault::DropAnswer => self.ask(header, request).await.map(drop),
            Fault::Disconnect => Err(CloseReason::Fault),
            Fault::DisconnectAfter => {
                self.ask(header, request).await?;
                Err(CloseReason::Fault)
            }
            Fault::Silence => self.swallow().await,
        }
    }

    /// The node's reply, however long it takes.
    async fn ask(&mut self, header: &RequestHeader, request: AnyRequest) -> Result<Reply, CloseReason> {
        let asked = self.shared.ask(Question {
            node: self.peer.node,
            version: header.api_version,
            client_id: &self.client_id,
            client_host: &self.peer.host,
            advertised: &self.peer.advertised,
            request,
        });
        match asked {
            Asked::Now(reply) => Ok(reply),
            Asked::Parked(mut parked) => match self.hold(parked.reply()).await? {
                Some(reply) => Ok(reply),
                // Unanswered for good: the connection waits for its peer to give up, as on Kafka.
                None => Err(self.swallow().await.err().unwrap_or(CloseReason::Peer)),
            },
        }
    }

    async fn reply(&mut self, header: &RequestHeader, reply: Reply) -> Result<(), CloseReason> {
        match reply {
            Reply::Answer(answer) => self.answer(header, &answer).await,
            Reply::Nothing => Ok(()),
            Reply::Close(reason) => Err(reason),
        }
    }

    async fn answer(&mut self, header: &RequestHeader, answer: &AnyResponse) -> Result<(), CloseReason> {
        let bytes = frame::encode_any_response(answer, header.api_version, header.correlation_id)?;
        self.write(bytes).await
    }

    async fn write(&mut self, bytes: Bytes) -> Result<(), CloseReason> {
        if self.output.len().saturating_add(bytes.len()) > WRITE_TOGETHER {
            self.flush().await?;
        }
        if bytes.len() > WRITE_TOGETHER {
            return self.stream.write_all(&bytes).await.map_err(io);
        }
        self.output.extend_from_slice(&bytes);
        Ok(())
    }

    async fn flush(&mut self) -> Result<(), CloseReason> {
        if !self.output.is_empty() {
            self.stream.write_all(&self.output).await.map_err(io)?;
            self.output.clear();
        }
        Ok(())
    }

    /// Waits for `held`, and notices meanwhile that the peer went away.
    async fn hold<F: Future>(&mut self, held: F) -> Result<F::Output, CloseReason> {
        self.flush().await?;
        tokio::pin!(held);
        loop {
            self.input.reserve(READ_IDLE);
            let room = self.input.len() < READ_AHEAD;
            tokio::select! {
                biased;
                output = &mut held => return Ok(output),
                read = self.stream.read_buf(&mut self.input), if room => {
                    if read.map_err(io)? == 0 {
                        return Err(CloseReason::Peer);
                    }
                }
            }
        }
    }

    /// Takes bytes and does nothing with them until the peer goes away.
    async fn swallow(&mut self) -> Result<(), CloseReason> {
        self.flush().await?;
        loop {
            self.input.clear();
            self.input.reserve(READ_IDLE);
            if self.stream.read_buf(&mut self.input).await.map_err(io)? == 0 {
                return Err(CloseReason::Peer);
            }
        }
    }
}

fn wants_no_answer(request: &AnyRequest) -> bool {
    matches!(request, AnyRequest::Produce(produce) if produce.acks == 0)
}

fn io(error: std::io::Error) -> CloseReason {
    match error.kind() {
        std::io::ErrorKind::ConnectionReset | std::io::ErrorKind::BrokenPipe => CloseReason::Peer,
        _ => CloseReason::Io(error.to_string()),
    }
}

fn malformed(error: DecodeError) -> CloseReason {
    CloseReason::Malformed(error)
}
