//! Somebody who looks at the world of simulated runs, and waits before and after
//! the look, so that a crash fits on both sides. A driver that another has taken
//! the place of may look too: that changes nothing, and what it saw is refused.
//!
//! Never: touches the world.

use std::collections::BTreeMap;
use std::sync::Arc;

use async_trait::async_trait;
use longhaul_core::port::context::{ContextError, ContextProvider, Glance, Perception};
use longhaul_core::raw::RawJson;
use longhaul_engine::agent::wish::Eye;
use longhaul_engine::ports::Eyes;

use crate::suite::sim::world::World;

/// Somebody who sees one of three worlds.
#[derive(Debug, Clone)]
pub(super) struct SimEye(pub(super) World);

#[async_trait]
impl ContextProvider for SimEye {
    async fn look(&self, _: &Glance) -> Result<Perception, ContextError> {
        let World { luck, .. } = &self.0;
        luck.some_waits().await;
        let world = RawJson::of(&luck.below(3));
        luck.some_waits().await;
        Ok(Perception {
            world,
            context: BTreeMap::new(),
        })
    }
}

impl Eyes for SimEye {
    fn find(&self, _eye: &Eye) -> Result<Arc<dyn ContextProvider>, String> {
        Ok(Arc::new(self.clone()))
    }
}
