//! Somebody who looks at the world of simulated runs, and waits before and after
//! the look, so that a crash fits on both sides. A driver that another has taken
//! the place of may look too: that changes nothing, and what it saw is refused.
//!
//! Never: touches the world.

use std::collections::BTreeMap;
use std::sync::Arc;

use async_trait::async_trait;
use longhaul_core::port::context::{ContextError, ContextProvider, ContextRequest, Perception};
use longhaul_core::raw::RawJson;
use longhaul_engine::agent::config::PerceptionSource;
use longhaul_engine::services::ContextProviders;

use crate::suite::sim::context::SimContext;

/// Somebody who sees one of three worlds.
#[derive(Debug, Clone)]
pub(super) struct SimContextProvider(pub(super) SimContext);

#[async_trait]
impl ContextProvider for SimContextProvider {
    async fn fetch(&self, _: &ContextRequest) -> Result<Perception, ContextError> {
        let SimContext { random: luck, .. } = &self.0;
        luck.yield_some().await;
        let world = RawJson::from_serialize(&luck.below(3));
        luck.yield_some().await;
        Ok(Perception { world, context: BTreeMap::new() })
    }
}

impl ContextProviders for SimContextProvider {
    fn resolve(&self, _eye: &PerceptionSource) -> Result<Arc<dyn ContextProvider>, String> {
        Ok(Arc::new(self.clone()))
    }
}
