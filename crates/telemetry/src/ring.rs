//! The bounded ring between an emitter and one subscriber, and the stream that reads it. The writer never
//! waits: a full ring drops its oldest event and counts it. Written by `hub` and `registry`, read by users.

use crate::event::Event;
use std::collections::VecDeque;
use std::fmt;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

pub(crate) struct Ring<E> {
    capacity: usize,
    slots: Mutex<Slots<E>>,
}

struct Slots<E> {
    queue: VecDeque<E>,
    missed: u64,
    waker: Option<Waker>,
    closed: bool,
}

impl<E: Event> Ring<E> {
    /// A ring for `capacity` events, at least one.
    pub(crate) fn new(capacity: usize) -> Arc<Ring<E>> {
        Arc::new(Ring {
            capacity: capacity.max(1),
            slots: Mutex::new(Slots { queue: VecDeque::new(), missed: 0, waker: None, closed: false }),
        })
    }

    fn lock(&self) -> MutexGuard<'_, Slots<E>> {
        self.slots.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds an event; false when the reader is gone and the ring can be forgotten.
    pub(crate) fn push(&self, event: E) -> bool {
        let mut slots = self.lock();
        if slots.closed {
            return false;
        }
        let mut dropped = None;
        if slots.queue.len() >= self.capacity {
            dropped = slots.queue.pop_front();
            slots.missed = slots.missed.saturating_add(1);
        }
        slots.queue.push_back(event);
        let waker = slots.waker.take();
        drop(slots);
        // Foreign code (a waker, an event's drop) must not run under the lock.
        drop(dropped);
        if let Some(waker) = waker {
            waker.wake();
        }
        true
    }

    /// Ends the ring: the reader drains what is left, then sees the end.
    pub(crate) fn close(&self) {
        let waker = {
            let mut slots = self.lock();
            slots.closed = true;
            slots.waker.take()
        };
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    fn pop(&self) -> Option<E> {
        let mut slots = self.lock();
        let missed = std::mem::take(&mut slots.missed);
        if missed > 0 {
            drop(slots);
            return Some(E::lagged(missed));
        }
        slots.queue.pop_front()
    }

    fn poll_pop(&self, cx: &mut Context<'_>) -> Poll<Option<E>> {
        let mut slots = self.lock();
        let missed = std::mem::take(&mut slots.missed);
        if missed > 0 {
            drop(slots);
            return Poll::Ready(Some(E::lagged(missed)));
        }
        if let Some(event) = slots.queue.pop_front() {
            return Poll::Ready(Some(event));
        }
        if slots.closed {
            return Poll::Ready(None);
        }
        let stale = match &slots.waker {
            Some(waker) if waker.will_wake(cx.waker()) => None,
            _ => slots.waker.replace(cx.waker().clone()),
        };
        drop(slots);
        drop(stale);
        Poll::Pending
    }
}

/// The events of one subscription, in the order in which they were emitted.
///
/// When the subscriber is slower than the emitters and its ring is full, the oldest events are dropped and the
/// next item is [`Event::lagged`] with the number missed, at the place where they are missing. The stream ends
/// when every clone of the hub it came from is gone; what was emitted before is still delivered.
///
/// Also a `futures_core::Stream`.
pub struct EventStream<E: Event> {
    ring: Arc<Ring<E>>,
}

impl<E: Event> EventStream<E> {
    pub(crate) fn new(ring: Arc<Ring<E>>) -> EventStream<E> {
        EventStream { ring }
    }

    /// Waits for the next event; `None` is the end.
    ///
    /// Cancel safe: no event is lost when the future is dropped before it is ready.
    pub async fn next(&mut self) -> Option<E> {
        std::future::poll_fn(|cx| self.ring.poll_pop(cx)).await
    }

    /// The next event that is already there; `None` says that there is none now, not that the stream ended.
    pub fn try_next(&mut self) -> Option<E> {
        self.ring.pop()
    }
}

impl<E: Event> futures_core::Stream for EventStream<E> {
    type Item = E;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<E>> {
        self.ring.poll_pop(cx)
    }
}

impl<E: Event> Drop for EventStream<E> {
    fn drop(&mut self) {
        self.ring.close();
        let left = std::mem::take(&mut self.ring.lock().queue);
        drop(left);
    }
}

impl<E: Event> fmt::Debug for EventStream<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let slots = self.ring.lock();
        f.debug_struct("EventStream")
            .field("capacity", &self.ring.capacity)
            .field("waiting", &slots.queue.len())
            .field("missed", &slots.missed)
            .field("closed", &slots.closed)
            .finish()
    }
}
