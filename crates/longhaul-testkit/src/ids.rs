//! Ids for tests: the same seed gives the same ids, in the order of asking.
//!
//! Never: draws a random number.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use longhaul_core::id::{BatchId, GateId, RuleId, RunId, SandboxId, SteerId, TimerId, WorkerId};

use crate::clock::SIM_START;

/// A source of ids. Each is greater than every one before it, of whatever
/// kind, and none equals one of another seed. Clones draw from the same source.
#[derive(Debug, Clone)]
pub struct SeededIds {
    seed: u32,
    drawn: Arc<AtomicU64>,
}

impl SeededIds {
    /// The source of this seed.
    pub fn new(seed: u32) -> Self {
        Self { seed, drawn: Arc::new(AtomicU64::new(0)) }
    }

    /// The next id's bits: a time like a real id's, then the count, then the seed.
    pub fn next_bits(&self) -> u128 {
        let count = self.drawn.fetch_add(1, Ordering::Relaxed) + 1;
        let millis = u128::from(SIM_START.as_millis());
        millis << 80 | u128::from(count & 0xffff_ffff_ffff) << 32 | u128::from(self.seed)
    }

    /// The next run.
    pub fn run(&self) -> RunId {
        RunId::from_bits(self.next_bits())
    }

    /// The next gate.
    pub fn gate(&self) -> GateId {
        GateId::from_bits(self.next_bits())
    }

    /// The next worker.
    pub fn worker(&self) -> WorkerId {
        WorkerId::from_bits(self.next_bits())
    }

    /// The next sandbox.
    pub fn sandbox(&self) -> SandboxId {
        SandboxId::from_bits(self.next_bits())
    }

    /// The next message for a run.
    pub fn steer(&self) -> SteerId {
        SteerId::from_bits(self.next_bits())
    }

    /// The next timer.
    pub fn timer(&self) -> TimerId {
        TimerId::from_bits(self.next_bits())
    }

    /// The next batch.
    pub fn batch(&self) -> BatchId {
        BatchId::from_bits(self.next_bits())
    }

    /// The next rule.
    pub fn rule(&self) -> RuleId {
        RuleId::from_bits(self.next_bits())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_rise_and_repeat_with_their_seed() {
        let draw = |seed| {
            let ids = SeededIds::new(seed);
            [ids.run(), ids.run(), ids.run()]
        };
        assert!(draw(7).is_sorted_by(|a, b| a < b));
        assert_eq!(draw(7), draw(7));
        assert!(draw(7).iter().all(|id| !draw(8).contains(id)));
        assert!(draw(7).map(|id| id.to_string()).is_sorted());
    }
}
