//! What stands between a member and its broker: answers can be held, changed, or lost with their connection, which the
//! broker, having served the request, knows nothing of.

use std::future::Future;
use std::io;
use std::sync::Arc;

use kohort::{Connector, connector_fn};
use kohort_broker::Broker;
use kohort_protocol::ApiKey;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::sync::mpsc;

/// A connector whose every answer goes through `on_answer` first: the request's kind, and the answer behind its
/// length. `None` closes the connection.
pub(crate) fn between<F, Fut>(broker: &Broker, on_answer: F) -> Arc<dyn Connector>
where
    F: Fn(ApiKey, Vec<u8>) -> Fut + Clone + Send + Sync + 'static,
    Fut: Future<Output = Option<Vec<u8>>> + Send + 'static,
{
    let memory = broker.memory();
    connector_fn(move |host: String, port| {
        let (memory, on_answer) = (memory.clone(), on_answer.clone());
        async move {
            let (mut from, mut to) = tokio::io::split(memory.connect(&host, port).await?);
            let (ours, theirs) = tokio::io::duplex(1 << 16);
            let (mut asked, mut told) = tokio::io::split(theirs);
            let (kinds, mut answers) = mpsc::unbounded_channel();
            tokio::spawn(async move {
                while let Ok(frame) = read(&mut asked).await {
                    let key = i16::from_be_bytes([frame[0], frame[1]]);
                    let _ = kinds.send(ApiKey::from_key(key).unwrap());
                    if write(&mut to, &frame).await.is_err() {
                        return;
                    }
                }
                let _ = to.shutdown().await;
            });
            tokio::spawn(async move {
                // A broker answers the requests of a connection in their order.
                while let (Ok(frame), Some(api)) = (read(&mut from).await, answers.recv().await) {
                    let Some(frame) = on_answer(api, frame).await else { break };
                    if write(&mut told, &frame).await.is_err() {
                        return;
                    }
                }
                let _ = told.shutdown().await;
            });
            Ok(ours)
        }
    })
}

async fn read(stream: &mut (impl AsyncRead + Unpin)) -> io::Result<Vec<u8>> {
    let length = stream.read_u32().await?;
    let mut frame = vec![0; length as usize];
    stream.read_exact(&mut frame).await?;
    Ok(frame)
}

async fn write(stream: &mut (impl AsyncWrite + Unpin), frame: &[u8]) -> io::Result<()> {
    let length = u32::try_from(frame.len()).unwrap().to_be_bytes();
    stream.write_all(&[&length[..], frame].concat()).await
}

/// The answer to a Heartbeat of version 4: behind the correlation id and no tags, the throttle time and the code.
pub(crate) fn beat_answer(mut frame: Vec<u8>, throttle_ms: i32, code: i16) -> Vec<u8> {
    assert_eq!(frame.len(), 12, "a Heartbeat answer of version 4");
    frame[5..9].copy_from_slice(&throttle_ms.to_be_bytes());
    frame[9..11].copy_from_slice(&code.to_be_bytes());
    frame
}

/// The answer to a LeaveGroup of version 5 without an error on top, one entry for each code.
pub(crate) fn leave_answer(frame: &[u8], member_id: &str, codes: &[i16]) -> Vec<u8> {
    let short = |length: usize| u8::try_from(length + 1).unwrap();
    let mut answer = frame[..4].to_vec();
    // No tags, no throttle time, no error.
    answer.extend([0; 7]);
    answer.push(short(codes.len()));
    for code in codes {
        answer.push(short(member_id.len()));
        answer.extend(member_id.as_bytes());
        // No instance id.
        answer.push(0);
        answer.extend(code.to_be_bytes());
        answer.push(0);
    }
    answer.push(0);
    answer
}
