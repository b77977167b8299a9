//! How bytes get to a broker: TCP, or whatever a [`Connector`] brings, such as memory in tests.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;

/// A two-way stream of bytes.
pub trait Stream: AsyncRead + AsyncWrite + Send + Unpin + 'static {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin + 'static> Stream for T {}

/// What [`Connector::connect`] gives.
pub type ConnectFuture<'a> = Pin<Box<dyn Future<Output = io::Result<Box<dyn Stream>>> + Send + 'a>>;

/// Opens streams to brokers. Called anew for every connection, so that a name is resolved and a certificate
/// read each time.
pub trait Connector: Send + Sync + 'static {
    /// Opens a stream to `host`:`port`. The caller bounds the wait; dropping the future gives up.
    fn connect<'a>(&'a self, host: &'a str, port: u16) -> ConnectFuture<'a>;
}

/// Plain TCP with `TCP_NODELAY` and keepalive; the name is resolved at each call.
#[derive(Debug, Clone, Copy, Default)]
pub struct TcpConnector;

/// A peer that vanished without a word is noticed in about two minutes on an idle connection; one with a
/// request on it is noticed at the request's deadline.
const KEEPALIVE: Duration = Duration::from_secs(60);

impl Connector for TcpConnector {
    fn connect<'a>(&'a self, host: &'a str, port: u16) -> ConnectFuture<'a> {
        Box::pin(async move {
            let stream = TcpStream::connect((host, port)).await?;
            stream.set_nodelay(true)?;
            let keepalive = socket2::TcpKeepalive::new().with_time(KEEPALIVE).with_interval(KEEPALIVE / 4);
            socket2::SockRef::from(&stream).set_tcp_keepalive(&keepalive)?;
            Ok(Box::new(stream) as Box<dyn Stream>)
        })
    }
}

/// A [`Connector`] from a function, such as an in-memory listener's.
pub fn connector_fn<F, Fut, S>(connect: F) -> Arc<dyn Connector>
where
    F: Fn(String, u16) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = io::Result<S>> + Send + 'static,
    S: Stream,
{
    struct FnConnector<F>(F);

    impl<F, Fut, S> Connector for FnConnector<F>
    where
        F: Fn(String, u16) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = io::Result<S>> + Send + 'static,
        S: Stream,
    {
        fn connect<'a>(&'a self, host: &'a str, port: u16) -> ConnectFuture<'a> {
            let connecting = (self.0)(host.to_owned(), port);
            Box::pin(async move { Ok(Box::new(connecting.await?) as Box<dyn Stream>) })
        }
    }

    Arc::new(FnConnector(connect))
}
