//! State shared by the fakes of one process: the external world, and the store to check who holds a
//! run.
//!
//! The engine does not see it.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

use longhaul_core::id::{Epoch, RunId, WorkerId};
use longhaul_core::port::store::Store;
use longhaul_testkit::sim::driver::SimServices;
use longhaul_testkit::sim::external_world::ExternalWorld;

use crate::suite::sim::random::RandomSource;

/// State shared by the fakes of one process. Cheap to clone; clones share state.
#[derive(Debug, Clone)]
pub(super) struct SimContext {
    pub(super) external: ExternalWorld,
    pub(super) random: RandomSource,
    store: Arc<dyn Store>,
    ids: Arc<Mutex<BTreeSet<WorkerId>>>,
}

impl SimContext {
    pub(super) fn new(services: &SimServices) -> Self {
        Self {
            external: services.world.clone(),
            random: RandomSource::default(),
            store: services.store.clone(),
            ids: Arc::default(),
        }
    }

    /// Adds an id under which this process works.
    pub(super) fn register_worker(&self, worker: WorkerId) {
        self.ids.lock().unwrap().insert(worker);
    }

    /// Checks that this process still holds the run when it starts something for it. A worker
    /// without heartbeats must stop starting effects before others claim its runs.
    pub(super) async fn assert_may_start(&self, run: RunId, label: &str, epoch: Option<Epoch>) {
        let row = self.store.get_run(run).await.unwrap();
        let row = row.expect("a driven run exists");
        let is_current =
            row.worker.is_some_and(|worker| self.ids.lock().unwrap().contains(&worker));
        if !is_current || epoch.is_some_and(|epoch| epoch != row.epoch) {
            let now = row.epoch;
            let violation =
                format!("{run}: {label} starts for a run that another worker holds, under {now}");
            self.external.record_violation(violation);
        }
    }
}
