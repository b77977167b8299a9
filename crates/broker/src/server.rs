//! The task that runs a started node: it accepts connections, owns their tasks and keeps the timer together with the
//! other nodes' tasks. It ends when it is told to, and cuts its connections then.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use tokio::io::DuplexStream;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{mpsc, oneshot};
use tokio::task::{JoinHandle, JoinSet};

use crate::connection::{Peer, serve};
use crate::event::BrokerEvent;
use crate::memory::{self, HOST, MemoryListener};
use crate::node::Advertised;
use crate::shared::Shared;

/// A pause after a failed accept: it fails again at once while the process is out of descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// A started broker's task.
#[derive(Debug)]
pub(crate) struct Server {
    task: JoinHandle<()>,
    stop: Option<oneshot::Sender<()>>,
    memory: MemoryListener,
    node: usize,
}

impl Server {
    /// Starts to accept. `ports` are those of all nodes, by node id; those that sockets listen on.
    pub(crate) fn start(
        node: usize,
        tcp: Option<TcpListener>,
        ports: Arc<[u16]>,
        memory: MemoryListener,
        shared: Arc<Shared>,
    ) -> Self {
        let (stop, stopped) = oneshot::channel();
        shared.running.fetch_add(1, Ordering::AcqRel);
        let running = Running {
            node: i32::try_from(node).unwrap_or(i32::MAX),
            tcp,
            ports,
            memory: memory.open(node),
            memory_ports: memory::ports(shared.nodes).into(),
            shared,
            connections: JoinSet::new(),
        };
        Self { task: tokio::spawn(running.run(stopped)), stop: Some(stop), memory, node }
    }

    /// Stops accepting and cuts every connection; returns when all are gone.
    pub(crate) async fn stop(mut self) {
        self.memory.close(self.node);
        // A task that is gone already needs no word.
        let _ = self.stop.take().map(|stop| stop.send(()));
        let _ = (&mut self.task).await;
    }

    /// False once the task has ended.
    pub(crate) fn is_running(&self) -> bool {
        !self.task.is_finished()
    }
}

/// A broker that is dropped takes its connections with it.
impl Drop for Server {
    fn drop(&mut self) {
        self.memory.close(self.node);
        self.task.abort();
    }
}

struct Running {
    node: i32,
    tcp: Option<TcpListener>,
    ports: Arc<[u16]>,
    memory: mpsc::Receiver<DuplexStream>,
    memory_ports: Arc<[u16]>,
    shared: Arc<Shared>,
    connections: JoinSet<()>,
}

impl Running {
    async fn run(mut self, mut stopped: oneshot::Receiver<()>) {
        loop {
            let deadline = self.shared.arm();
            tokio::select! {
                _ = &mut stopped => break,
                () = self.shared.timer.notified() => {}
                () = until(deadline) => self.shared.on_deadline(),
                accepted = accept(self.tcp.as_ref()) => self.on_tcp(accepted).await,
                Some(stream) = self.memory.recv() => self.on_memory(stream),
                // How it ended is told by the connection itself, a panic included.
                Some(_) = self.connections.join_next(), if !self.connections.is_empty() => {}
            }
        }
        // The port is free before the connections are cut: who reconnects at once is refused.
        drop(self.tcp.take());
        self.connections.shutdown().await;
    }

    async fn on_tcp(&mut self, accepted: io::Result<(TcpStream, SocketAddr)>) {
        let Ok((stream, peer)) = accepted else {
            tokio::time::sleep(ACCEPT_PAUSE).await;
            return;
        };
        // Without these the connection is of no use, or gone already.
        let (Ok(()), Ok(local)) = (stream.set_nodelay(true), stream.local_addr()) else { return };
        let advertised =
            Advertised { host: local.ip().to_canonical().to_string(), ports: self.ports.clone() };
        self.open(stream, format!("/{}", peer.ip().to_canonical()), advertised);
    }

    fn on_memory(&mut self, stream: DuplexStream) {
        let advertised = Advertised { host: HOST.to_owned(), ports: self.memory_ports.clone() };
        self.open(stream, format!("/{HOST}"), advertised);
    }

    fn open<S>(&mut self, stream: S, host: String, advertised: Advertised)
    where
        S: tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin + Send + 'static,
    {
        let max = self.shared.max_connections;
        if self.connections.len() >= max {
            self.shared.events.emit(BrokerEvent::ConnectionRefused { peer: host, max });
            return;
        }
        let connection = self.shared.last_connection.fetch_add(1, Ordering::Relaxed).saturating_add(1);
        let peer = Peer { connection, node: self.node, host, advertised };
        self.connections.spawn(serve(stream, peer, self.shared.clone()));
    }
}

/// However the task ends, a panic included, it is told, and nobody waits for the replies of what is gone.
impl Drop for Running {
    fn drop(&mut self) {
        self.shared.cut(self.node);
        if self.shared.nodes > 1 {
            self.shared.events.emit(BrokerEvent::NodeStopped { node: self.node });
        }
        if self.shared.running.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.shared.events.emit(BrokerEvent::Stopped);
        }
    }
}

async fn until(deadline: Option<Instant>) {
    match deadline {
        Some(at) => tokio::time::sleep_until(at.into()).await,
        None => std::future::pending().await,
    }
}

async fn accept(tcp: Option<&TcpListener>) -> io::Result<(TcpStream, SocketAddr)> {
    match tcp {
        Some(listener) => listener.accept().await,
        None => std::future::pending().await,
    }
}
