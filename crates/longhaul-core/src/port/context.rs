//! What a run sees of the world before it thinks.
//!
//! Never: asked twice for the same look. The answer is journaled.

use async_trait::async_trait;
use serde::{Deserialize, Serialize};

use crate::id::{AgentName, ResourceKey, RunId, ThreadKey};
use crate::raw::RawJson;

/// Somebody who knows the world around an agent.
#[async_trait]
pub trait ContextProvider: Send + Sync + std::fmt::Debug {
    /// Looks once.
    async fn fetch(&self, glance: &ContextRequest) -> Result<Perception, ContextError>;
}

/// Who looks, and because of what.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ContextRequest {
    /// For which run.
    pub run: RunId,
    /// Which agent.
    pub agent: AgentName,
    /// The kind of event, where the run was made by one.
    pub event: Option<String>,
    /// The run's input.
    pub input: RawJson,
    /// On whose behalf, as the caller said it.
    pub actor: Option<RawJson>,
    /// Whom the run is about.
    pub resource: Option<ResourceKey>,
    /// The conversation it belongs to.
    pub thread: Option<ThreadKey>,
    /// The turn that comes next, from 1.
    pub turn: u32,
}

/// What was seen.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Perception {
    /// The world, for templates.
    pub world: RawJson,
    /// What tools are given, by name.
    #[serde(default)]
    pub context: std::collections::BTreeMap<String, RawJson>,
}

/// Nothing could be seen.
#[derive(Debug, thiserror::Error)]
#[error("the context provider failed: {message}")]
pub struct ContextError {
    /// Why not.
    pub message: String,
    /// Another look would end no better.
    pub is_permanent: bool,
}

impl ContextError {
    /// A failure that may pass: it is tried again, a few times at most.
    pub fn transient(why: impl Into<String>) -> Self {
        let (why, lasts) = (why.into(), false);
        Self { message: why, is_permanent: lasts }
    }

    /// A failure that lasts until somebody mends something.
    pub fn permanent(why: impl Into<String>) -> Self {
        let (why, lasts) = (why.into(), true);
        Self { message: why, is_permanent: lasts }
    }
}
