//! The [`Longhaul`] handle: the API through which people and programs use the engine.
//!
//! The handle never drives a run. Every change it makes is an append to a journal or a row of the
//! store.

mod answer;
mod chains;
mod commands;
mod delete_run;
mod diff;
mod files;
mod fork;
mod gate_views;
mod inboxes;
mod keys;
mod lane_busy;
mod lifecycle;
mod memory;
mod queries;
mod redact;
mod sandboxes;
mod schedule_changes;
mod schedules;
mod spend;
mod submit;
mod transcript;

use std::sync::Arc;

use longhaul_core::change::{JournalBatch, RowChange};
use longhaul_core::request::IdempotencyKey;

use crate::agent::{Agent, AgentDirectory, AgentRegistry, RunPolicyDefaults, SimilarName};
use crate::error::{Rejection, Result};
use crate::guard::redaction::Redaction;
use crate::services::Services;

pub use crate::handle::answer::{GateAnswerOutcome, NewSignalGate};
pub use crate::handle::commands::QueuedSteerMessage;
pub use crate::handle::inboxes::{build_inbox_task, quote_toml_key};
pub use crate::handle::keys::{
    CallerIdentity, CreateGateLinkRequest, IssuedApiKey, NewKeyRequest, ResolvedGateLink,
};
pub use crate::handle::memory::ThreadMessage;
pub use crate::handle::spend::UnpricedModel;
pub use crate::handle::submit::{SubmitOutcome, check_idempotency_key};
pub use crate::handle::transcript::{JournalStream, ModelCallOutcome};

/// Handle to the engine, through which people and programs submit, query and control runs. Cheap to
/// clone; clones share state.
#[derive(Debug, Clone)]
pub struct Longhaul {
    services: Services,
    request: Option<IdempotencyKey>,
}

impl Longhaul {
    /// Creates a handle that uses these services and knows these agents.
    pub fn new(services: Services, registry: AgentRegistry, defaults: RunPolicyDefaults) -> Self {
        let registry = Redaction(&*services.redact).redact_agents(&registry);
        let agents = AgentDirectory::new(registry, defaults);
        Self { services: Services { agents, ..services }, request: None }
    }

    /// Returns a handle for one request with an idempotency key. Changes made through this handle
    /// are committed together with a record that the request was applied.
    #[must_use]
    pub fn for_idempotent_request(&self, key: IdempotencyKey) -> Self {
        Self { request: Some(key), ..self.clone() }
    }

    /// Adds to a set of changes the record that the current request was applied, if the request has
    /// an idempotency key.
    fn add_request_applied_mark(&self, mut batch: JournalBatch) -> JournalBatch {
        let change = self.request.clone().map(RowChange::MarkRequestApplied);
        batch.changes.extend(change);
        batch
    }

    /// Returns the services that the handle uses, such as the store, the clock and the models.
    pub const fn services(&self) -> &Services {
        &self.services
    }

    /// Adds an agent, replacing an existing agent with the same name.
    pub fn register(&self, agent: Agent) {
        let agent = self.redaction().redact_agent(agent);
        self.services.agents.register(agent);
    }

    /// Replaces all agents that the handle knows.
    pub fn replace_agents(&self, agents: AgentRegistry) {
        let agents = self.redaction().redact_agents(&agents);
        self.services.agents.replace_agents(agents);
    }

    /// Returns all agents that the handle knows, in the order of their names.
    pub fn agents(&self) -> Vec<Arc<Agent>> {
        self.services.agents.agents()
    }

    /// Returns the agent with this name. The error is the most similar agent name, if there is one.
    pub fn get_agent(&self, name: &str) -> Result<Arc<Agent>, SimilarName> {
        self.services.agents.get_agent(name)
    }
}

/// Returns an error if a text is longer than the maximum. The label names the text in the error.
fn check_text_len(label: &'static str, len_bytes: usize, max_bytes: usize) -> Result<()> {
    match len_bytes <= max_bytes {
        true => Ok(()),
        false => Err(Rejection::TooLong { text_name: label, max: max_bytes }.into()),
    }
}
