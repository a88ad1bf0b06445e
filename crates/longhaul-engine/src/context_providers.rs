//! Those who look at the world for agents, by name: code of the program that
//! Longhaul is part of.
//!
//! Never: looks. Ways that are no name are somebody else's to find.

use std::collections::BTreeMap;
use std::sync::Arc;

use longhaul_core::port::context::ContextProvider;

use crate::agent::config::PerceptionSource;
use crate::services::{ContextProviders, NoContextProviders};

/// Those who look, by name, and whoever finds the others.
#[derive(Debug, Clone)]
pub struct ContextProviderRegistry {
    providers: BTreeMap<String, Arc<dyn ContextProvider>>,
    fallback: Arc<dyn ContextProviders>,
}

impl Default for ContextProviderRegistry {
    fn default() -> Self {
        Self::with_fallback(Arc::new(NoContextProviders))
    }
}

impl ContextProviderRegistry {
    /// Nobody by name yet; programs and addresses are found by these.
    pub fn with_fallback(others: Arc<dyn ContextProviders>) -> Self {
        Self { providers: BTreeMap::new(), fallback: others }
    }

    /// Takes somebody in, in the place of whoever had the name.
    pub fn register(&mut self, name: impl Into<String>, eye: Arc<dyn ContextProvider>) {
        self.providers.insert(name.into(), eye);
    }
}

impl ContextProviders for ContextProviderRegistry {
    fn resolve(&self, eye: &PerceptionSource) -> Result<Arc<dyn ContextProvider>, String> {
        let PerceptionSource::Named(name) = eye else {
            return self.fallback.resolve(eye);
        };
        self.providers.get(name).cloned().ok_or_else(|| {
            format!(
                "Nobody named `{name}` looks at the world in this program. Register a context \
                 provider of that name, or start a worker that has one."
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use async_trait::async_trait;
    use longhaul_core::port::context::{ContextError, ContextRequest, Perception};

    use super::*;

    #[derive(Debug)]
    struct FailingProvider;

    #[async_trait]
    impl ContextProvider for FailingProvider {
        async fn fetch(&self, _: &ContextRequest) -> Result<Perception, ContextError> {
            Err(ContextError::transient("it is dark"))
        }
    }

    #[test]
    fn an_unknown_context_provider_is_named() {
        let mut eyes = ContextProviderRegistry::default();
        eyes.register("mole", Arc::new(FailingProvider));
        assert!(eyes.resolve(&PerceptionSource::Named("mole".into())).is_ok());
        let missing = eyes.resolve(&PerceptionSource::Named("hawk".into())).unwrap_err();
        assert!(missing.contains("`hawk`"), "{missing}");
        assert!(eyes.resolve(&PerceptionSource::Url("http://a".into())).is_err());
    }
}
