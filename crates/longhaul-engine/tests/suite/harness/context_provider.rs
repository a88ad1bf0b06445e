//! A fake context provider that returns what a test sets and records the requests.

use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use longhaul_core::port::context::{ContextError, ContextProvider, ContextRequest, Perception};
use longhaul_core::raw::RawJson;
use longhaul_engine::agent::config::PerceptionSource;
use longhaul_engine::services::ContextProviders;
use serde_json::{Value, json};

/// Response of the fake context provider.
#[derive(Debug, Clone)]
pub(crate) enum FakePerception {
    /// Returns this world and these context values for tools.
    World(Value, Value),
    /// Fails with a transient error.
    Transient(&'static str),
    /// Fails with a permanent error.
    Permanent(&'static str),
    /// Never returns.
    Hangs,
    Panics,
}

/// A fake context provider. Cheap to clone; clones share state. The last response is repeated.
#[derive(Debug, Clone, Default)]
pub(crate) struct FakeContextProvider(Arc<Mutex<State>>);

#[derive(Debug, Default)]
struct State {
    responses: Vec<FakePerception>,
    requests: Vec<ContextRequest>,
}

impl FakeContextProvider {
    pub(crate) fn new(responses: impl IntoIterator<Item = FakePerception>) -> Self {
        let provider = Self::default();
        provider.0.lock().unwrap().responses = responses.into_iter().collect();
        provider
    }

    /// Returns these worlds one after another.
    pub(crate) fn worlds(worlds: impl IntoIterator<Item = Value>) -> Self {
        Self::new(worlds.into_iter().map(|world| FakePerception::World(world, json!({}))))
    }

    /// Returns the recorded requests.
    pub(crate) fn requests(&self) -> Vec<ContextRequest> {
        self.0.lock().unwrap().requests.clone()
    }
}

#[async_trait]
impl ContextProvider for FakeContextProvider {
    async fn fetch(&self, request: &ContextRequest) -> Result<Perception, ContextError> {
        let response = {
            let mut state = self.0.lock().unwrap();
            let index = state.requests.len().min(state.responses.len() - 1);
            state.requests.push(request.clone());
            state.responses[index].clone()
        };
        match response {
            FakePerception::World(world, context) => Ok(Perception {
                world: RawJson::from_serialize(&world),
                context: serde_json::from_value(context).unwrap(),
            }),
            FakePerception::Transient(reason) => Err(ContextError::transient(reason)),
            FakePerception::Permanent(reason) => Err(ContextError::permanent(reason)),
            FakePerception::Hangs => std::future::pending().await,
            FakePerception::Panics => panic!("a bug in the provider"),
        }
    }
}

impl ContextProviders for FakeContextProvider {
    fn resolve_provider(
        &self,
        source: &PerceptionSource,
    ) -> Result<Arc<dyn ContextProvider>, String> {
        assert_eq!(*source, PerceptionSource::Named("test_provider".into()));
        Ok(Arc::new(self.clone()))
    }
}
