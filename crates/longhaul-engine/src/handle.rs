//! The handle: what people and programs ask of Longhaul.
//!
//! Never: drives a run. Everything said here is an append like any other.

mod answer;
mod commands;
mod idempotency;
mod keys;
mod lifecycle;
mod links;
mod memory;
mod model_calls;
mod queries;
mod redact;
mod sessions;
mod submit;
mod transcript;
mod watch;

use std::sync::{Arc, PoisonError, RwLock};

use longhaul_core::change::{Batch, Change};
use longhaul_core::request::IdempotencyKey;

pub use crate::handle::answer::GateAnswerOutcome;
pub use crate::handle::keys::{CreateKey, Identity, IssuedKey};
pub use crate::handle::links::{CreateLink, ResolvedLink};
pub use crate::handle::memory::ThreadMessage;
pub use crate::handle::model_calls::ModelCallOutcome;
pub use crate::handle::submit::SubmitOutcome;
pub use crate::handle::watch::JournalStream;

use crate::agent::{Agent, AgentRegistry, Defaults};
use crate::error::{Error, Rejection};
use crate::redaction::Redaction;
use crate::services::EngineServices;

/// A cheap handle to everything. Clones are the same.
#[derive(Debug, Clone)]
pub struct Longhaul {
    services: EngineServices,
    agents: Arc<RwLock<AgentRegistry>>,
    defaults: Defaults,
    request: Option<IdempotencyKey>,
}

impl Longhaul {
    /// A handle over these parts, for these agents.
    pub fn new(ports: EngineServices, roster: AgentRegistry, defaults: Defaults) -> Self {
        let roster = Redaction(&*ports.redact).agents(&roster);
        Self { services: ports, agents: Arc::new(RwLock::new(roster)), defaults, request: None }
    }

    /// The same handle for one request under an idempotency key: what it changes is
    /// committed together with a note that this request has changed it.
    #[must_use]
    pub fn for_request(&self, key: IdempotencyKey) -> Self {
        Self { request: Some(key), ..self.clone() }
    }

    /// A batch that also marks the request it is appended for.
    fn with_request_mark(&self, mut batch: Batch) -> Batch {
        let mark = self.request.clone().map(Change::MarkRequestApplied);
        batch.changes.extend(mark);
        batch
    }

    /// What it works with.
    pub const fn services(&self) -> &EngineServices {
        &self.services
    }

    /// Takes an agent in, in the place of one of the same name.
    pub fn register(&self, agent: Agent) {
        let agent = self.redaction().agent(agent);
        self.agents.write().unwrap_or_else(PoisonError::into_inner).register(agent);
    }

    /// Puts these agents in the place of all that were known.
    pub fn replace_agents(&self, agents: AgentRegistry) {
        let agents = self.redaction().agents(&agents);
        *self.agents.write().unwrap_or_else(PoisonError::into_inner) = agents;
    }

    /// All agents, by name.
    pub fn agents(&self) -> Vec<Arc<Agent>> {
        let roster = self.agents.read().unwrap_or_else(PoisonError::into_inner);
        roster.all().cloned().collect()
    }

    /// The agent of this name; the error is a name that may have been meant.
    pub fn agent(&self, name: &str) -> Result<Arc<Agent>, Option<String>> {
        let roster = self.agents.read().unwrap_or_else(PoisonError::into_inner);
        match roster.find(name) {
            Some(agent) => Ok(Arc::clone(agent)),
            None => Err(roster.suggest(name).map(str::to_owned)),
        }
    }
}

/// Holds words to a bound.
fn check_len(what: &'static str, bytes: usize, max: usize) -> Result<(), Error> {
    match bytes <= max {
        true => Ok(()),
        false => Err(Rejection::TooLong { what, max }.into()),
    }
}
