//! The store under test, with the clock that controls it.

use std::any::Any;
use std::sync::Arc;

use longhaul_core::port::auth::AuthStore;
use longhaul_core::port::records::RecordStore;
use longhaul_core::port::schedules::ScheduleStore;
use longhaul_core::port::store::Store;

use crate::clock::SimClock;

/// Default number of rounds of a race.
const RACE_ROUNDS: usize = 2_000;

/// A new, empty store and its clock. Each check gets its own.
#[derive(Debug, Clone)]
pub struct Harness {
    /// Journals and the ready queue.
    pub store: Arc<dyn Store>,
    /// Other records of the same store.
    pub records: Arc<dyn RecordStore>,
    /// API keys, sessions and idempotent requests of the same store.
    pub auth: Arc<dyn AuthStore>,
    /// Schedules of the same store.
    pub schedules: Arc<dyn ScheduleStore>,
    /// Clock of the store.
    pub clock: SimClock,
    /// Number of rounds of a race; lower for stores where each round costs an fsync.
    pub rounds: usize,
    /// Value that must live as long as the store, such as its temporary directory.
    pub guard: Arc<dyn Any + Send + Sync>,
}

impl Harness {
    /// Creates a harness for one value that implements all four ports.
    pub fn new(
        store: impl Store + RecordStore + AuthStore + ScheduleStore + 'static,
        clock: SimClock,
    ) -> Self {
        let store = Arc::new(store);
        Self {
            records: store.clone(),
            auth: store.clone(),
            schedules: store.clone(),
            store,
            clock,
            rounds: RACE_ROUNDS,
            guard: Arc::new(()),
        }
    }

    /// Sets the number of rounds of a race.
    #[must_use]
    pub fn with_rounds(self, rounds: usize) -> Self {
        Self { rounds, ..self }
    }

    /// Keeps `guard` alive until the check has finished.
    #[must_use]
    pub fn with_guard(self, guard: impl Any + Send + Sync) -> Self {
        Self { guard: Arc::new(guard), ..self }
    }
}
