//! What the demo's handlers did: which records were handled, how often, and what they add up to. Shared by all
//! handlers and by the check at the end.

use std::collections::{BTreeMap, HashMap};
use std::convert::Infallible;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use kohort::{Context, Handler, Record};

/// A set of offsets that grow from 0.
#[derive(Default)]
pub(super) struct Offsets(Vec<u64>);

impl Offsets {
    /// True if it was not in the set before.
    pub(super) fn insert(&mut self, offset: i64) -> bool {
        let Ok(offset) = usize::try_from(offset) else { return false };
        let (word, bit) = (offset / 64, 1 << (offset % 64));
        if self.0.len() <= word {
            self.0.resize(word + 1, 0);
        }
        let fresh = self.0[word] & bit == 0;
        self.0[word] |= bit;
        fresh
    }

    pub(super) fn len(&self) -> u64 {
        self.0.iter().map(|word| u64::from(word.count_ones())).sum()
    }

    /// How many of these are not in `other`.
    fn missing_in(&self, other: Option<&Offsets>) -> u64 {
        let there = |word: usize| other.and_then(|other| other.0.get(word)).copied().unwrap_or(0);
        self.0.iter().enumerate().map(|(word, bits)| u64::from((bits & !there(word)).count_ones())).sum()
    }
}

/// Offsets by partition.
pub(super) type Seen = BTreeMap<i32, Offsets>;

/// How many of `produced` are not in `handled`.
pub(super) fn lost(produced: &Seen, handled: &Seen) -> u64 {
    produced.iter().map(|(partition, offsets)| offsets.missing_in(handled.get(partition))).sum()
}

/// One customer's orders.
#[derive(Default, Clone, Copy)]
pub(super) struct Orders {
    pub(super) count: u64,
    pub(super) sum: i64,
}

/// The books.
#[derive(Default)]
pub(super) struct Ledger {
    pub(super) seen: Seen,
    /// Calls of handlers, repetitions included.
    pub(super) handled: u64,
    /// Repetitions: records that were handled before. They are counted here and not booked twice.
    pub(super) duplicates: u64,
    pub(super) customers: HashMap<Vec<u8>, Orders>,
}

/// The books, shared.
#[derive(Default, Clone)]
pub(super) struct Books(Arc<Mutex<Ledger>>);

impl Books {
    pub(super) fn open(&self) -> MutexGuard<'_, Ledger> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The handler of one partition.
pub(super) struct Clerk(pub(super) Books);

impl Handler for Clerk {
    type Error = Infallible;

    async fn handle(&mut self, record: Record<'_>, cx: &mut Context) -> Result<(), Infallible> {
        let mut books = self.0.open();
        books.handled += 1;
        if !books.seen.entry(cx.partition().partition).or_default().insert(record.offset) {
            books.duplicates += 1;
            return Ok(());
        }
        let key = record.key.unwrap_or_default();
        if !books.customers.contains_key(key) {
            books.customers.insert(key.to_vec(), Orders::default());
        }
        if let Some(orders) = books.customers.get_mut(key) {
            orders.count += 1;
            orders.sum = orders.sum.saturating_add(amount(record.value));
        }
        Ok(())
    }
}

/// A whole number; what is none counts as 0.
fn amount(value: Option<&[u8]>) -> i64 {
    value
        .and_then(|value| std::str::from_utf8(value).ok())
        .and_then(|text| text.trim().parse().ok())
        .unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_missing_is_lost() {
        let (mut produced, mut handled) = (Seen::new(), Seen::new());
        for offset in 0..200 {
            assert!(produced.entry(0).or_default().insert(offset));
            produced.entry(1).or_default().insert(offset);
            if offset != 63 && offset != 199 {
                handled.entry(0).or_default().insert(offset);
            }
        }
        assert!(!produced.entry(0).or_default().insert(199));
        assert_eq!(produced[&0].len(), 200);
        assert_eq!(lost(&produced, &handled), 2 + 200);
        assert_eq!(lost(&Seen::new(), &handled), 0);
    }
}
