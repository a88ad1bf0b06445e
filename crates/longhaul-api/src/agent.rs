//! An agent in responses.
//!
//! Never: its prompt. That is its author's, and a run's transcript shows it.

use longhaul_core::raw::Hash;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::schema;

/// An agent that can be asked.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = Agent)]
pub struct AgentView {
    /// Its name.
    pub name: String,
    /// The hash of what defines it.
    #[schema(schema_with = schema::hash)]
    pub version: Hash,
    /// What it is for, in a sentence.
    pub description: String,
    /// Models, tried in order; empty: the project's.
    pub models: Vec<String>,
    /// The tools it may use.
    pub tools: Vec<String>,
    /// Names that a task may inject.
    pub context: Vec<String>,
    /// After so many turns a run of it ends.
    pub max_turns: Option<u32>,
}
