//! The nodes of a cluster, and which of them coordinates which group. Kafka keeps groups in the partitions of the
//! topic `__consumer_offsets`: a group belongs to one of them by the hash of its id, and whoever leads that partition
//! coordinates its groups. So it is here, a coordinator a partition; without the topic itself. Owned by `node`.

use std::time::{Duration, Instant};

use kohort_group::Coordinator;
use kohort_group::coordinator::{CoordinatorConfig, CoordinatorEffects};
use kohort_protocol::ErrorCode;

/// `offsets.topic.num.partitions`.
const OFFSETS_PARTITIONS: usize = 50;

/// The coordinator of the groups in one partition.
#[derive(Debug)]
struct Place {
    leader: i32,
    coordinator: Coordinator,
    /// Until then it answers COORDINATOR_LOAD_IN_PROGRESS.
    loading_until: Option<Instant>,
}

/// A partition whose leader was asked, and has loaded it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Led(usize);

/// All nodes and coordinators.
#[derive(Debug)]
pub(crate) struct Cluster {
    /// By node id: does it run?
    alive: Vec<bool>,
    /// Never empty.
    places: Vec<Place>,
}

impl Cluster {
    /// All nodes are alive. A single node has no use for several partitions.
    pub(crate) fn new(nodes: usize, config: &CoordinatorConfig, seed: u64) -> Self {
        let nodes = nodes.max(1);
        let count = if nodes == 1 { 1 } else { OFFSETS_PARTITIONS };
        let ids = (0..nodes).map(node_id).cycle();
        let places = ids.zip((0u64..).take(count)).map(|(leader, number)| Place {
            leader,
            coordinator: Coordinator::new(config.clone(), seed.wrapping_add(number)),
            loading_until: None,
        });
        Self { alive: vec![true; nodes], places: places.collect() }
    }

    /// How many nodes there are, alive or not.
    pub(crate) fn len(&self) -> usize {
        self.alive.len()
    }

    /// Every node's id.
    pub(crate) fn ids(&self) -> impl Iterator<Item = i32> + use<> {
        (0..self.alive.len()).map(node_id)
    }

    /// The ids of the nodes that run.
    pub(crate) fn alive(&self) -> impl Iterator<Item = i32> {
        self.alive.iter().enumerate().filter(|(_, alive)| **alive).map(|(index, _)| node_id(index))
    }

    /// Does this node run?
    pub(crate) fn is_alive(&self, node: i32) -> bool {
        usize::try_from(node).ok().and_then(|node| self.alive.get(node)).is_some_and(|alive| *alive)
    }

    /// A node starts or stops. What it leads stays its own; see [`Cluster::elect`].
    pub(crate) fn set_alive(&mut self, node: i32, runs: bool) {
        if let Some(alive) = usize::try_from(node).ok().and_then(|node| self.alive.get_mut(node)) {
            *alive = runs;
        }
    }

    /// All nodes start.
    pub(crate) fn set_all_alive(&mut self) {
        self.alive.fill(true);
    }

    /// The partition that holds this group, or any other key that is spread so.
    pub(crate) fn place_of(&self, key: &str) -> usize {
        java_hash(key) as usize % self.places.len().max(1)
    }

    /// The node that coordinates this key.
    pub(crate) fn leader_of(&self, key: &str) -> i32 {
        self.places.get(self.place_of(key)).map_or(-1, |place| place.leader)
    }

    /// Says that this node coordinates the group and has loaded it, or what it answers instead.
    pub(crate) fn check(&self, group: &str, node: i32, now: Instant) -> Result<Led, ErrorCode> {
        let number = self.place_of(group);
        let place = self.places.get(number).ok_or(ErrorCode::CoordinatorNotAvailable)?;
        if place.leader != node {
            return Err(ErrorCode::NotCoordinator);
        }
        if place.is_loading(now) {
            return Err(ErrorCode::CoordinatorLoadInProgress);
        }
        Ok(Led(number))
    }

    /// The coordinator that was checked.
    pub(crate) fn coordinator(&mut self, led: Led) -> Option<&mut Coordinator> {
        self.places.get_mut(led.0).map(|place| &mut place.coordinator)
    }

    /// The coordinators that this node leads, if it has loaded all of them.
    pub(crate) fn coordinators_of(&self, node: i32, now: Instant) -> Result<Vec<&Coordinator>, ErrorCode> {
        let led: Vec<&Place> = self.places.iter().filter(|place| place.leader == node).collect();
        if led.iter().any(|place| place.is_loading(now)) {
            return Err(ErrorCode::CoordinatorLoadInProgress);
        }
        Ok(led.into_iter().map(|place| &place.coordinator).collect())
    }

    /// Every coordinator, whoever leads it.
    pub(crate) fn all(&self) -> impl Iterator<Item = &Coordinator> {
        self.places.iter().map(|place| &place.coordinator)
    }

    /// Every coordinator, to change it.
    pub(crate) fn all_mut(&mut self) -> impl Iterator<Item = &mut Coordinator> {
        self.places.iter_mut().map(|place| &mut place.coordinator)
    }

    /// The coordinator of this group, whoever leads it.
    pub(crate) fn peek(&self, group: &str) -> Option<&Coordinator> {
        self.places.get(self.place_of(group)).map(|place| &place.coordinator)
    }

    /// The first deadline of all.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        self.all().filter_map(Coordinator::deadline).min()
    }

    /// Makes `node` the leader of a partition: what waits there is told so, the groups are loaded anew.
    pub(crate) fn lead(&mut self, number: usize, node: i32, now: Instant) -> CoordinatorEffects {
        let Some(place) = self.places.get_mut(number) else { return CoordinatorEffects::new() };
        place.leader = node;
        place.reload(now)
    }

    /// The coordinator of this group is not of use for a while, as if it had much to load: sessions begin after it.
    pub(crate) fn load_for(&mut self, group: &str, wait: Duration, now: Instant) -> CoordinatorEffects {
        let number = self.place_of(group);
        let Some(place) = self.places.get_mut(number) else { return CoordinatorEffects::new() };
        let until = now + wait;
        let effects = place.reload(until);
        place.loading_until = Some(until);
        effects
    }

    /// A node came back: loads anew what it leads, which it does if no other took over.
    pub(crate) fn reload_of(&mut self, node: i32, now: Instant) -> CoordinatorEffects {
        let led = self.places.iter_mut().filter(|place| place.leader == node);
        led.flat_map(|place| place.reload(now)).collect()
    }

    /// Loads every group anew where it is.
    pub(crate) fn reload(&mut self, now: Instant) -> CoordinatorEffects {
        self.places.iter_mut().flat_map(|place| place.reload(now)).collect()
    }

    /// The partitions whose leader is not alive, each with a new leader; none while nobody is alive.
    pub(crate) fn elect(&self) -> Vec<(usize, i32)> {
        let orphans = self.places.iter().enumerate().filter(|(_, place)| !self.is_alive(place.leader));
        let heirs: Vec<i32> = self.alive().collect();
        orphans.map(|(number, _)| number).zip(heirs.into_iter().cycle()).collect()
    }
}

impl Place {
    fn is_loading(&self, now: Instant) -> bool {
        self.loading_until.is_some_and(|until| now < until)
    }

    fn reload(&mut self, now: Instant) -> CoordinatorEffects {
        let kept = self.coordinator.clone();
        let effects = self.coordinator.unload();
        self.coordinator.load(&kept, now);
        self.loading_until = None;
        effects
    }
}

fn node_id(index: usize) -> i32 {
    i32::try_from(index).unwrap_or(i32::MAX)
}

/// Java's `String.hashCode` without its sign, as Kafka's `Utils.abs` takes it off.
fn java_hash(key: &str) -> u32 {
    let hash =
        key.encode_utf16().fold(0u32, |hash, unit| hash.wrapping_mul(31).wrapping_add(u32::from(unit)));
    hash & 0x7fff_ffff
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_group_belongs_to_the_partition_that_kafka_gives_it() {
        // Java's hash codes of these; the last two are negative there.
        for (key, hash) in
            [("", 0), ("a", 97), ("ab", 3105), ("orders", 3_286_196_965u32), ("kohort", 3_169_038_573)]
        {
            assert_eq!(java_hash(key), hash & 0x7fff_ffff, "{key}");
        }
        let cluster = Cluster::new(3, &CoordinatorConfig::default(), 1);
        assert_eq!((cluster.place_of("a"), cluster.leader_of("a")), (47, 47 % 3));
        assert_eq!(Cluster::new(1, &CoordinatorConfig::default(), 1).leader_of("a"), 0);
    }

    #[test]
    fn what_a_stopped_node_led_goes_to_those_that_run() {
        let now = Instant::now();
        let mut cluster = Cluster::new(3, &CoordinatorConfig::default(), 1);
        cluster.set_alive(1, false);
        let elected = cluster.elect();
        assert_eq!(elected.len(), 17);
        assert!(elected.iter().any(|(_, to)| *to == 0) && elected.iter().any(|(_, to)| *to == 2));
        for (number, to) in elected {
            let _ = cluster.lead(number, to, now);
        }
        assert!(cluster.elect().is_empty());
        cluster.set_alive(0, false);
        cluster.set_alive(2, false);
        assert!(cluster.elect().is_empty(), "there is nobody to take over");
    }
}
