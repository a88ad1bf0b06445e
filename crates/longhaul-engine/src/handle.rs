//! The handle: what people and programs ask of Longhaul.
//!
//! Never: drives a run. Everything said here is an append like any other.

mod answer;
mod clean;
mod exchanges;
mod keys;
mod links;
mod look;
mod memory;
mod passes;
mod read;
mod replies;
mod stand;
mod submit;
mod watch;
mod word;

use std::sync::{Arc, PoisonError, RwLock};

use longhaul_core::change::{Batch, Change};
use longhaul_core::request::ReplyKey;

pub use crate::handle::answer::Verdict;
pub use crate::handle::exchanges::Came;
pub use crate::handle::keys::{KeyAsk, Known, MadeKey};
pub use crate::handle::links::{LinkAsk, OpenLink};
pub use crate::handle::memory::Said;
pub use crate::handle::submit::Submitted;
pub use crate::handle::watch::Watching;

use crate::agent::{Agent, Defaults, Roster};
use crate::clean::Cleaner;
use crate::error::{Error, Refusal};
use crate::ports::Ports;

/// A cheap handle to everything. Clones are the same.
#[derive(Debug, Clone)]
pub struct Longhaul {
    ports: Ports,
    roster: Arc<RwLock<Roster>>,
    defaults: Defaults,
    request: Option<ReplyKey>,
}

impl Longhaul {
    /// A handle over these parts, for these agents.
    pub fn new(ports: Ports, roster: Roster, defaults: Defaults) -> Self {
        let roster = Cleaner(&*ports.redact).roster(&roster);
        Self {
            ports,
            roster: Arc::new(RwLock::new(roster)),
            defaults,
            request: None,
        }
    }

    /// The same handle for one request under an idempotency key: what it changes is
    /// committed together with a note that this request has changed it.
    #[must_use]
    pub fn for_request(&self, key: ReplyKey) -> Self {
        Self {
            request: Some(key),
            ..self.clone()
        }
    }

    /// A batch that also marks the request it is appended for.
    fn marked(&self, mut batch: Batch) -> Batch {
        let mark = self.request.clone().map(Change::MarkReply);
        batch.changes.extend(mark);
        batch
    }

    /// What it works with.
    pub const fn ports(&self) -> &Ports {
        &self.ports
    }

    /// Takes an agent in, in the place of one of the same name.
    pub fn register(&self, agent: Agent) {
        let agent = self.cleaner().agent(agent);
        self.roster
            .write()
            .unwrap_or_else(PoisonError::into_inner)
            .register(agent);
    }

    /// Puts these agents in the place of all that were known.
    pub fn replace_agents(&self, agents: Roster) {
        let agents = self.cleaner().roster(&agents);
        *self.roster.write().unwrap_or_else(PoisonError::into_inner) = agents;
    }

    /// All agents, by name.
    pub fn agents(&self) -> Vec<Arc<Agent>> {
        let roster = self.roster.read().unwrap_or_else(PoisonError::into_inner);
        roster.all().cloned().collect()
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

/// Holds words to a bound.
fn within(what: &'static str, bytes: usize, max: usize) -> Result<(), Error> {
    match bytes <= max {
        true => Ok(()),
        false => Err(Refusal::TooLong { what, max }.into()),
    }
}
