//! What a store brings along to be looked at.
//!
//! Never: a check.

use std::any::Any;
use std::sync::Arc;

use longhaul_core::port::auth::AuthStore;
use longhaul_core::port::records::RecordStore;
use longhaul_core::port::store::Store;

use crate::clock::SimClock;

/// How many rounds a race is run unless the harness says otherwise.
const RACE_ROUNDS: usize = 2_000;

/// A fresh, empty store and the clock that it reads. One for each check.
#[derive(Debug, Clone)]
pub struct Harness {
    /// The journal and the queue.
    pub store: Arc<dyn Store>,
    /// The rows beside it, of the same store.
    pub records: Arc<dyn RecordStore>,
    /// Keys and what they gave out, of the same store.
    pub auth: Arc<dyn AuthStore>,
    /// The clock that the store reads.
    pub clock: SimClock,
    /// How many rounds a race is run: fewer where each costs an fsync.
    pub rounds: usize,
    /// What must live as long as the store, such as its directory.
    pub guard: Arc<dyn Any + Send + Sync>,
}

impl Harness {
    /// A harness around one value that is all three ports.
    pub fn new(store: impl Store + RecordStore + AuthStore + 'static, clock: SimClock) -> Self {
        let store = Arc::new(store);
        Self {
            records: store.clone(),
            auth: store.clone(),
            store,
            clock,
            rounds: RACE_ROUNDS,
            guard: Arc::new(()),
        }
    }

    /// The same with so many rounds for each race.
    #[must_use]
    pub fn with_rounds(self, rounds: usize) -> Self {
        Self { rounds, ..self }
    }

    /// The same, keeping `guard` until the check is over.
    #[must_use]
    pub fn with_guard(self, guard: impl Any + Send + Sync) -> Self {
        Self { guard: Arc::new(guard), ..self }
    }
}
