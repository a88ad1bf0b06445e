//! Why a run stands as it does, as answers show it.
//!
//! Never: a state without a reason.

use longhaul_core::id::RunId;
use longhaul_core::status::Status;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::schema;

/// A sentence, and a command that helps.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = Why)]
pub struct WhyView {
    /// Which run.
    #[schema(schema_with = schema::run_id)]
    pub run: RunId,
    /// How it stands.
    #[schema(schema_with = schema::status)]
    pub status: Status,
    /// Why it rests, in a word.
    pub reason: Option<String>,
    /// The same in a sentence.
    pub message: String,
    /// What helps; empty when nothing is needed.
    pub command: String,
}
