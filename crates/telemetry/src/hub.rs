//! A source of events of one type, and the way of one emit. It holds no process-wide state (see `registry`)
//! and interprets no event. Owned by whatever emits: a member, a supervisor, a client.

use crate::bridge;
use crate::event::Event;
use crate::registry;
use crate::ring::{EventStream, Ring};
use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// A source of events of type `E`. Cheap to clone; clones share their subscribers.
pub struct Hub<E: Event> {
    inner: Arc<Inner<E>>,
}

struct Inner<E: Event> {
    // Read without the lock so that an emit without subscribers costs one load.
    count: AtomicUsize,
    rings: Mutex<Vec<Arc<Ring<E>>>>,
}

impl<E: Event> Inner<E> {
    fn lock(&self) -> MutexGuard<'_, Vec<Arc<Ring<E>>>> {
        self.rings.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<E: Event> Drop for Inner<E> {
    fn drop(&mut self) {
        for ring in self.lock().drain(..) {
            ring.close();
        }
    }
}

impl<E: Event> Hub<E> {
    /// A hub without subscribers.
    pub fn new() -> Hub<E> {
        Hub { inner: Arc::new(Inner { count: AtomicUsize::new(0), rings: Mutex::new(Vec::new()) }) }
    }

    /// Subscribes to everything that is emitted from now on. `capacity` is the number of events kept for a
    /// slow reader (at least one).
    pub fn subscribe(&self, capacity: usize) -> EventStream<E> {
        let ring = Ring::new(capacity);
        let mut rings = self.inner.lock();
        rings.push(Arc::clone(&ring));
        self.inner.count.store(rings.len(), Ordering::Release);
        EventStream::new(ring)
    }

    /// Emits one event to the subscribers of this hub, to the bridges and to the process-wide handlers.
    /// Never waits for a subscriber; runs the process-wide handlers on the caller's thread.
    pub fn emit(&self, event: E) {
        if self.inner.count.load(Ordering::Acquire) > 0 {
            self.push(&event);
        }
        publish(event);
    }

    fn push(&self, event: &E) {
        // Pushing happens under the lock, so that every subscriber sees concurrent emits in one order;
        // wakers run there too, and only schedule.
        let mut rings = self.inner.lock();
        let before = rings.len();
        rings.retain(|ring| ring.push(event.clone()));
        if rings.len() != before {
            self.inner.count.store(rings.len(), Ordering::Release);
        }
    }
}

/// The part of an emit that needs no hub.
pub(crate) fn publish<E: Event>(event: E) {
    bridge::trace::record(&event);
    bridge::meter::record(&event);
    registry::dispatch(event);
}

impl<E: Event> Clone for Hub<E> {
    fn clone(&self) -> Hub<E> {
        Hub { inner: Arc::clone(&self.inner) }
    }
}

impl<E: Event> Default for Hub<E> {
    fn default() -> Hub<E> {
        Hub::new()
    }
}

impl<E: Event> fmt::Debug for Hub<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Hub").field("subscribers", &self.inner.count.load(Ordering::Relaxed)).finish()
    }
}
