//! Deterministic ids for tests: the same seed gives the same sequence of ids.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use longhaul_core::id::{BatchId, GateId, RuleId, RunId, SandboxId, SteerId, TimerId, WorkerId};

use crate::clock::SIM_START;

/// A generator of ids. Each id is greater than all earlier ones of any kind, and generators
/// with different seeds never return the same id. Clones share the sequence.
#[derive(Debug, Clone)]
pub struct SeededIds {
    seed: u32,
    generated: Arc<AtomicU64>,
}

impl SeededIds {
    /// Creates a generator with this seed.
    pub fn new(seed: u32) -> Self {
        Self { seed, generated: Arc::new(AtomicU64::new(0)) }
    }

    /// Returns the bits of the next id: a timestamp as in a real id, then the counter, then the
    /// seed.
    pub fn next_bits(&self) -> u128 {
        let count = self.generated.fetch_add(1, Ordering::Relaxed) + 1;
        let millis = u128::from(SIM_START.as_millis());
        millis << 80 | u128::from(count & 0xffff_ffff_ffff) << 32 | u128::from(self.seed)
    }

    pub fn run(&self) -> RunId {
        RunId::from_bits(self.next_bits())
    }

    pub fn gate(&self) -> GateId {
        GateId::from_bits(self.next_bits())
    }

    pub fn worker(&self) -> WorkerId {
        WorkerId::from_bits(self.next_bits())
    }

    pub fn sandbox(&self) -> SandboxId {
        SandboxId::from_bits(self.next_bits())
    }

    pub fn steer(&self) -> SteerId {
        SteerId::from_bits(self.next_bits())
    }

    pub fn timer(&self) -> TimerId {
        TimerId::from_bits(self.next_bits())
    }

    pub fn batch(&self) -> BatchId {
        BatchId::from_bits(self.next_bits())
    }

    pub fn rule(&self) -> RuleId {
        RuleId::from_bits(self.next_bits())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_rise_and_repeat_with_their_seed() {
        let new_ids = |seed| {
            let ids = SeededIds::new(seed);
            [ids.run(), ids.run(), ids.run()]
        };
        assert!(new_ids(7).is_sorted_by(|a, b| a < b));
        assert_eq!(new_ids(7), new_ids(7));
        assert!(new_ids(7).iter().all(|id| !new_ids(8).contains(id)));
        assert!(new_ids(7).map(|id| id.to_string()).is_sorted());
    }
}
