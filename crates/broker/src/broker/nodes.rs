//! What a handle can do with the nodes of a cluster: stop and start one, move what it leads.

use std::time::Duration;

use super::{Broker, listener};
use crate::error::BrokerError;
use crate::event::BrokerEvent;
use crate::server::Server;
use crate::shared::now;

impl Broker {
    /// The ids of all nodes, whether they run or not.
    pub fn node_ids(&self) -> Vec<i32> {
        self.shared.view(|node| node.cluster.ids().collect())
    }

    /// Does this node accept connections?
    pub fn is_node_running(&self, node: i32) -> bool {
        let places = self.lock();
        let place = usize::try_from(node).ok().and_then(|node| places.get(node));
        place.and_then(|place| place.server.as_ref()).is_some_and(Server::is_running)
    }

    /// The node that coordinates a group: the leader of one of 50 partitions, by the hash of the group's id as on
    /// Kafka.
    pub fn coordinator_of(&self, group_id: &str) -> i32 {
        self.shared.view(|node| node.cluster.leader_of(group_id))
    }

    /// The node that leads a partition.
    pub fn leader_of(&self, topic: &str, partition: i32) -> Option<i32> {
        self.shared.view(|node| Some(node.topics.partition(topic, partition)?.leader))
    }

    /// Makes this node the coordinator of a group, and of all groups in the same one of Kafka's 50 partitions. What
    /// waits for an answer gets NOT_COORDINATOR; a stable group goes on there, each member with a full session, as on
    /// Kafka. A group in the middle of a rebalance comes back without members; Kafka would go back to its last
    /// complete generation. Moving it to where it is loads it anew.
    ///
    /// # Errors
    /// [`BrokerError::NoSuchNode`] if there is no such node or it is stopped.
    pub fn move_coordinator(&self, group_id: &str, to: i32) -> Result<(), BrokerError> {
        self.running(to)?;
        self.shared.change(|node, out| node.move_coordinator(group_id, to, now(), out));
        Ok(())
    }

    /// The coordinator of this group answers COORDINATOR_LOAD_IN_PROGRESS for so long, as if it had much to load;
    /// then sessions begin. Waiting calls get NOT_COORDINATOR, groups are loaded as by
    /// [`Broker::move_coordinator`].
    pub fn load_coordinator_for(&self, group_id: &str, wait: Duration) {
        self.shared.change(|node, out| node.load_for(group_id, wait, now(), out));
    }

    /// Makes this node the leader of a partition, in a new epoch. No record is lost: nodes have replicas that are
    /// never behind.
    ///
    /// # Errors
    /// [`BrokerError::NoSuchNode`], [`BrokerError::NoSuchPartition`].
    pub fn move_leader(&self, topic: &str, partition: i32, to: i32) -> Result<(), BrokerError> {
        self.running(to)?;
        self.known(topic, partition)?;
        self.shared.change(|node, out| node.move_leader(topic, partition, to, out));
        Ok(())
    }

    /// Stops a node in order: what it coordinates and leads goes to the nodes that run, at once and without loss;
    /// then its connections are cut and its port is closed. While no node runs, everything stays where it is. A
    /// second stop does nothing.
    ///
    /// # Errors
    /// [`BrokerError::NoSuchNode`] if there is no such node.
    pub async fn stop_node(&self, node: i32) -> Result<(), BrokerError> {
        let index = self.index_of(node)?;
        self.shared.change(|state, out| state.set_alive(node, false, now(), out));
        let server = self.lock().get_mut(index).and_then(|place| place.server.take());
        if let Some(server) = server {
            server.stop().await;
        }
        Ok(())
    }

    /// Starts a stopped node again, at the same address. It leads nothing at first, unless no other node runs:
    /// partitions and coordinators come by [`Broker::move_leader`] and [`Broker::move_coordinator`], by the stop of
    /// other nodes, and with new topics. A node that runs is left alone.
    ///
    /// # Errors
    /// [`BrokerError::NoSuchNode`], [`BrokerError::AddressInUse`], [`BrokerError::Listen`]; the node is then stopped.
    ///
    /// # Cancel safety
    /// A start that is given up leaves the node stopped.
    pub async fn start_node(&self, node: i32) -> Result<(), BrokerError> {
        let index = self.index_of(node)?;
        if self.is_node_running(node) {
            return Ok(());
        }
        let listen = self.lock().get(index).and_then(|place| place.listen.clone());
        let tcp = match listen {
            Some(address) => Some(listener(&address).await?),
            None => None,
        };
        self.shared.change(|state, out| state.set_alive(node, true, now(), out));
        self.open(vec![(index, tcp)]);
        Ok(())
    }

    /// Starts these nodes' tasks on sockets that listen already.
    pub(super) fn open(&self, sockets: Vec<(usize, Option<tokio::net::TcpListener>)>) {
        let mut places = self.lock();
        for (index, tcp) in &sockets {
            let address = tcp.as_ref().and_then(|tcp| tcp.local_addr().ok());
            if let (Some(address), Some(place)) = (address, places.get_mut(*index)) {
                place.listen = Some(address.to_string());
                place.address = Some(address);
            }
        }
        let ports: std::sync::Arc<[u16]> =
            places.iter().map(|place| place.address.map_or(0, |address| address.port())).collect();
        let mut started = Vec::new();
        for (index, tcp) in sockets {
            let Some(place) = places.get_mut(index) else { continue };
            let (memory, shared) = (self.memory.clone(), self.shared.clone());
            place.server = Some(Server::start(index, tcp, ports.clone(), memory, shared));
            started.push((index, place.shown(index)));
        }
        drop(places);
        if self.shared.nodes > 1 {
            for (index, address) in started {
                let node = i32::try_from(index).unwrap_or(i32::MAX);
                self.shared.events.emit(BrokerEvent::NodeStarted { node, address });
            }
        }
    }

    fn index_of(&self, node: i32) -> Result<usize, BrokerError> {
        let index = usize::try_from(node).ok().filter(|index| *index < self.shared.nodes);
        let problem = || format!("does not exist: there are {} nodes, from 0", self.shared.nodes);
        index.ok_or_else(|| BrokerError::NoSuchNode { node, problem: problem() })
    }

    fn running(&self, node: i32) -> Result<(), BrokerError> {
        self.index_of(node)?;
        if self.shared.view(|state| state.cluster.is_alive(node)) {
            return Ok(());
        }
        Err(BrokerError::NoSuchNode { node, problem: "is stopped; start it first".to_owned() })
    }
}
