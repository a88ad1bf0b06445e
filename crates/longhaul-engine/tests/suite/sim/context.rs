//! What the doubles of one process share: the world that they touch, and the
//! store behind the engine's back, to see who may touch it.
//!
//! Never: seen by the engine.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

use longhaul_core::id::{Epoch, RunId, WorkerId};
use longhaul_core::port::store::Store;
use longhaul_testkit::sim::driver::SimServices;
use longhaul_testkit::sim::external_world::ExternalWorld;

use crate::suite::sim::random::RandomSource;

/// What the doubles of one process share. Clones are the same.
#[derive(Debug, Clone)]
pub(super) struct SimContext {
    pub(super) external: ExternalWorld,
    pub(super) random: RandomSource,
    store: Arc<dyn Store>,
    ids: Arc<Mutex<BTreeSet<WorkerId>>>,
}

impl SimContext {
    pub(super) fn new(ports: &SimServices) -> Self {
        Self {
            external: ports.world.clone(),
            random: RandomSource::default(),
            store: ports.store.clone(),
            ids: Arc::default(),
        }
    }

    /// This process works under one id more.
    pub(super) fn register_worker(&self, worker: WorkerId) {
        self.ids.lock().unwrap().insert(worker);
    }

    /// Something is begun for a run: nobody else may have it by now. A worker
    /// that could not beat stops beginning things before others take its runs.
    pub(super) async fn assert_may_start(&self, run: RunId, what: &str, epoch: Option<Epoch>) {
        let row = self.store.get_run(run).await.unwrap();
        let row = row.expect("what is driven is there");
        let ours = row.worker.is_some_and(|worker| self.ids.lock().unwrap().contains(&worker));
        if !ours || epoch.is_some_and(|epoch| epoch != row.epoch) {
            let now = row.epoch;
            let wrong = format!("{run}: {what} begins for a run that another has, under {now}");
            self.external.record_violation(wrong);
        }
    }
}
