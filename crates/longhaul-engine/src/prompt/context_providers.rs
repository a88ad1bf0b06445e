//! Registry of the context providers that the embedding program implements. They supply the current
//! state of what an agent works with, for its prompt.

use std::collections::BTreeMap;
use std::sync::Arc;

use longhaul_core::port::context::ContextProvider;

use crate::agent::config::PerceptionSource;
use crate::services::{ContextProviders, NoContextProviders};

/// Registry of context providers by name. Providers without a name (commands and URLs) are looked
/// up in `fallback`.
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
    /// Creates an empty registry. Context providers without a name (commands and URLs) are looked
    /// up in `fallback`.
    pub fn with_fallback(fallback: Arc<dyn ContextProviders>) -> Self {
        Self { providers: BTreeMap::new(), fallback }
    }

    /// Registers a context provider, replacing an existing provider with the same name.
    pub fn register(&mut self, name: impl Into<String>, provider: Arc<dyn ContextProvider>) {
        self.providers.insert(name.into(), provider);
    }
}

impl ContextProviders for ContextProviderRegistry {
    fn resolve_provider(
        &self,
        source: &PerceptionSource,
    ) -> Result<Arc<dyn ContextProvider>, String> {
        let PerceptionSource::Named(name) = source else {
            return self.fallback.resolve_provider(source);
        };
        self.providers.get(name).cloned().ok_or_else(|| {
            format!(
                "There is no context provider named `{name}` in this program. Register a context \
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
    fn the_error_names_an_unknown_context_provider() {
        let mut registry = ContextProviderRegistry::default();
        registry.register("mole", Arc::new(FailingProvider));
        assert!(registry.resolve_provider(&PerceptionSource::Named("mole".into())).is_ok());
        let missing =
            registry.resolve_provider(&PerceptionSource::Named("hawk".into())).unwrap_err();
        assert!(missing.contains("`hawk`"), "{missing}");
        assert!(registry.resolve_provider(&PerceptionSource::Url("http://a".into())).is_err());
    }
}
