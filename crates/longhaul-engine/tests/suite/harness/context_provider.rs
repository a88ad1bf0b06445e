//! Somebody who sees what a test wrote down, and counts the looks.
//!
//! Never: looks by itself.

use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use longhaul_core::port::context::{ContextError, ContextProvider, ContextRequest, Perception};
use longhaul_core::raw::RawJson;
use longhaul_engine::agent::config::PerceptionSource;
use longhaul_engine::services::ContextProviders;
use serde_json::{Value, json};

/// What is seen at a look.
#[derive(Debug, Clone)]
pub(crate) enum FakePerception {
    /// This world, with this for tools.
    World(Value, Value),
    /// Nothing: it fails with these words.
    Transient(&'static str),
    /// The same, and another look would not help.
    Permanent(&'static str),
    /// Nothing: it never comes back.
    Hangs,
    /// Nothing: it panics.
    Panics,
}

/// Somebody who looks. Clones are the same. Beyond what was written down the last
/// sight repeats.
#[derive(Debug, Clone, Default)]
pub(crate) struct FakeContextProvider(Arc<Mutex<State>>);

#[derive(Debug, Default)]
struct State {
    responses: Vec<FakePerception>,
    requests: Vec<ContextRequest>,
}

impl FakeContextProvider {
    pub(crate) fn new(sights: impl IntoIterator<Item = FakePerception>) -> Self {
        let witness = Self::default();
        witness.0.lock().unwrap().responses = sights.into_iter().collect();
        witness
    }

    /// Somebody who sees these worlds, one after another.
    pub(crate) fn worlds(worlds: impl IntoIterator<Item = Value>) -> Self {
        Self::new(worlds.into_iter().map(|world| FakePerception::World(world, json!({}))))
    }

    /// Who looked, and because of what.
    pub(crate) fn requests(&self) -> Vec<ContextRequest> {
        self.0.lock().unwrap().requests.clone()
    }
}

#[async_trait]
impl ContextProvider for FakeContextProvider {
    async fn fetch(&self, glance: &ContextRequest) -> Result<Perception, ContextError> {
        let sight = {
            let mut kept = self.0.lock().unwrap();
            let place = kept.requests.len().min(kept.responses.len() - 1);
            kept.requests.push(glance.clone());
            kept.responses[place].clone()
        };
        match sight {
            FakePerception::World(world, context) => Ok(Perception {
                world: RawJson::from_serialize(&world),
                context: serde_json::from_value(context).unwrap(),
            }),
            FakePerception::Transient(why) => Err(ContextError::transient(why)),
            FakePerception::Permanent(why) => Err(ContextError::permanent(why)),
            FakePerception::Hangs => std::future::pending().await,
            FakePerception::Panics => panic!("an eye with a mistake"),
        }
    }
}

impl ContextProviders for FakeContextProvider {
    fn resolve(&self, eye: &PerceptionSource) -> Result<Arc<dyn ContextProvider>, String> {
        assert_eq!(*eye, PerceptionSource::Named("witness".into()));
        Ok(Arc::new(self.clone()))
    }
}
