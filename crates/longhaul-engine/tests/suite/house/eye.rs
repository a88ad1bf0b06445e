//! Somebody who sees what a test wrote down, and counts the looks.
//!
//! Never: looks by itself.

use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use longhaul_core::port::context::{ContextError, ContextProvider, Glance, Perception};
use longhaul_core::raw::RawJson;
use longhaul_engine::agent::wish::Eye;
use longhaul_engine::ports::Eyes;
use serde_json::{Value, json};

/// What is seen at a look.
#[derive(Debug, Clone)]
pub(crate) enum Sight {
    /// This world, with this for tools.
    World(Value, Value),
    /// Nothing: it fails with these words.
    Fails(&'static str),
    /// The same, and another look would not help.
    Lasts(&'static str),
    /// Nothing: it never comes back.
    Hangs,
    /// Nothing: it panics.
    Panics,
}

/// Somebody who looks. Clones are the same. Beyond what was written down the last
/// sight repeats.
#[derive(Debug, Clone, Default)]
pub(crate) struct Witness(Arc<Mutex<Kept>>);

#[derive(Debug, Default)]
struct Kept {
    sights: Vec<Sight>,
    glances: Vec<Glance>,
}

impl Witness {
    pub(crate) fn of(sights: impl IntoIterator<Item = Sight>) -> Self {
        let witness = Self::default();
        witness.0.lock().unwrap().sights = sights.into_iter().collect();
        witness
    }

    /// Somebody who sees these worlds, one after another.
    pub(crate) fn worlds(worlds: impl IntoIterator<Item = Value>) -> Self {
        Self::of(
            worlds
                .into_iter()
                .map(|world| Sight::World(world, json!({}))),
        )
    }

    /// Who looked, and because of what.
    pub(crate) fn glances(&self) -> Vec<Glance> {
        self.0.lock().unwrap().glances.clone()
    }
}

#[async_trait]
impl ContextProvider for Witness {
    async fn look(&self, glance: &Glance) -> Result<Perception, ContextError> {
        let sight = {
            let mut kept = self.0.lock().unwrap();
            let place = kept.glances.len().min(kept.sights.len() - 1);
            kept.glances.push(glance.clone());
            kept.sights[place].clone()
        };
        match sight {
            Sight::World(world, context) => Ok(Perception {
                world: RawJson::of(&world),
                context: serde_json::from_value(context).unwrap(),
            }),
            Sight::Fails(why) => Err(ContextError::passing(why)),
            Sight::Lasts(why) => Err(ContextError::lasting(why)),
            Sight::Hangs => std::future::pending().await,
            Sight::Panics => panic!("an eye with a mistake"),
        }
    }
}

impl Eyes for Witness {
    fn find(&self, eye: &Eye) -> Result<Arc<dyn ContextProvider>, String> {
        assert_eq!(*eye, Eye::Named("witness".into()));
        Ok(Arc::new(self.clone()))
    }
}
