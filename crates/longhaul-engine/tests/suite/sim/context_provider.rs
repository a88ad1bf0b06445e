//! A context provider for simulated runs. It waits before and after its answer, so that a crash can
//! happen on both sides. A driver that was replaced may call it, too: that has no effect, and its
//! result is rejected.

use std::collections::BTreeMap;
use std::sync::Arc;

use async_trait::async_trait;
use longhaul_core::port::context::{ContextError, ContextProvider, ContextRequest, Perception};
use longhaul_core::raw::RawJson;
use longhaul_engine::agent::config::PerceptionSource;
use longhaul_engine::services::ContextProviders;

use crate::suite::sim::context::SimContext;

/// A context provider that returns one of three worlds.
#[derive(Debug, Clone)]
pub(super) struct SimContextProvider(pub(super) SimContext);

#[async_trait]
impl ContextProvider for SimContextProvider {
    async fn fetch(&self, _: &ContextRequest) -> Result<Perception, ContextError> {
        let SimContext { random, .. } = &self.0;
        random.yield_some().await;
        let world = RawJson::from_serialize(&random.below(3));
        random.yield_some().await;
        Ok(Perception { world, context: BTreeMap::new() })
    }
}

impl ContextProviders for SimContextProvider {
    fn resolve_provider(
        &self,
        _source: &PerceptionSource,
    ) -> Result<Arc<dyn ContextProvider>, String> {
        Ok(Arc::new(self.clone()))
    }
}
