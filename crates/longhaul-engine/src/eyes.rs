//! Those who look at the world for agents, by name: code of the program that
//! Longhaul is part of.
//!
//! Never: looks. Ways that are no name are somebody else's to find.

use std::collections::BTreeMap;
use std::sync::Arc;

use longhaul_core::port::context::ContextProvider;

use crate::agent::wish::Eye;
use crate::ports::{Eyes, NoEyes};

/// Those who look, by name, and whoever finds the others.
#[derive(Debug, Clone)]
pub struct NamedEyes {
    known: BTreeMap<String, Arc<dyn ContextProvider>>,
    others: Arc<dyn Eyes>,
}

impl Default for NamedEyes {
    fn default() -> Self {
        Self::over(Arc::new(NoEyes))
    }
}

impl NamedEyes {
    /// Nobody by name yet; programs and addresses are found by these.
    pub fn over(others: Arc<dyn Eyes>) -> Self {
        Self {
            known: BTreeMap::new(),
            others,
        }
    }

    /// Takes somebody in, in the place of whoever had the name.
    pub fn register(&mut self, name: impl Into<String>, eye: Arc<dyn ContextProvider>) {
        self.known.insert(name.into(), eye);
    }
}

impl Eyes for NamedEyes {
    fn find(&self, eye: &Eye) -> Result<Arc<dyn ContextProvider>, String> {
        let Eye::Named(name) = eye else {
            return self.others.find(eye);
        };
        self.known.get(name).cloned().ok_or_else(|| {
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
    use longhaul_core::port::context::{ContextError, Glance, Perception};

    use super::*;

    #[derive(Debug)]
    struct Blind;

    #[async_trait]
    impl ContextProvider for Blind {
        async fn look(&self, _: &Glance) -> Result<Perception, ContextError> {
            Err(ContextError::passing("it is dark"))
        }
    }

    #[test]
    fn a_name_is_found_and_another_is_said() {
        let mut eyes = NamedEyes::default();
        eyes.register("mole", Arc::new(Blind));
        assert!(eyes.find(&Eye::Named("mole".into())).is_ok());
        let missing = eyes.find(&Eye::Named("hawk".into())).unwrap_err();
        assert!(missing.contains("`hawk`"), "{missing}");
        assert!(eyes.find(&Eye::Url("http://a".into())).is_err());
    }
}
