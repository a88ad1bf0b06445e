//! The handle: what people and programs ask of Longhaul.
//!
//! Never: drives a run. Everything said here is an append like any other.

mod answer;
mod look;
mod read;
mod stand;
mod submit;
mod watch;
mod word;

use std::sync::{Arc, PoisonError, RwLock};

pub use crate::handle::answer::Verdict;
pub use crate::handle::look::Listed;
pub use crate::handle::submit::Submitted;
pub use crate::handle::watch::Watching;

use crate::agent::{Agent, Defaults, Roster};
use crate::ports::Ports;

/// A cheap handle to everything. Clones are the same.
#[derive(Debug, Clone)]
pub struct Longhaul {
    ports: Ports,
    roster: Arc<RwLock<Roster>>,
    defaults: Defaults,
}

impl Longhaul {
    /// A handle over these parts, for these agents.
    pub fn new(ports: Ports, roster: Roster, defaults: Defaults) -> Self {
        Self {
            ports,
            roster: Arc::new(RwLock::new(roster)),
            defaults,
        }
    }

    /// What it works with.
    pub const fn ports(&self) -> &Ports {
        &self.ports
    }

    /// Takes an agent in, in the place of one of the same name.
    pub fn register(&self, agent: Agent) {
        self.roster
            .write()
            .unwrap_or_else(PoisonError::into_inner)
            .register(agent);
    }

    /// The agent of this name; the error is a name that may have been meant.
    pub fn agent(&self, name: &str) -> Result<Arc<Agent>, Option<String>> {
        let roster = self.roster.read().unwrap_or_else(PoisonError::into_inner);
        match roster.find(name) {
            Some(agent) => Ok(Arc::clone(agent)),
            None => Err(roster.like(name).map(str::to_owned)),
        }
    }
}
