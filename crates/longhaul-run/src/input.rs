//! Everything that can be told to a run, in one closed list.
//!
//! Never: a result that is produced again. Inputs are decided again when the
//! journal has moved on; the model and the tools are not asked again.

use std::sync::Arc;

use longhaul_core::change::Blob;
use longhaul_core::event::environment::MemoryCompacted;
use longhaul_core::event::run::RunPrepared;
use longhaul_core::event::tool::{ToolOutput, ToolProgress, ToolVerified};
use longhaul_core::event::turn::{CallClassification, OutputCheck, PerceptionUpdate};
use longhaul_core::failure::Failure;
use longhaul_core::id::CallId;
use longhaul_core::port::model::ModelResponse;
use longhaul_core::time::Millis;
use longhaul_core::usage::{MicroUsd, Usage};

use crate::commands::RunCommand;

pub use crate::context::DecideContext;

/// What a run is told.
#[derive(Debug, Clone)]
pub enum Input {
    /// Its driver is there: whatever is due without help from outside.
    Advance,
    /// The world was looked at and the prompt made, with the contents that prompt, table
    /// and world name by hash.
    Prepared(Box<RunPrepared>, Vec<Blob>),
    /// Somebody looked at the world again before a turn.
    PerceptionRefreshed(Box<PerceptionRefresh>),
    /// A call says how far it is.
    Progress(ToolProgress),
    /// The model replied.
    ModelReplied(Box<ModelReply>),
    /// The model did not reply.
    ModelFailed {
        /// What happened.
        failure: Failure,
        /// What it cost all the same; none: what the list says.
        cost: Option<MicroUsd>,
        /// How long it took.
        active: Millis,
    },
    /// A person's message cut the model off.
    ModelInterrupted(InterruptedReply),
    /// The older part of the conversation was summed up.
    Compacted(Box<MemoryCompacted>),
    /// Calls have ended.
    ToolsDone(Vec<ToolCallResult>),
    /// A tool looked whether a call in doubt has happened, with what the finding names
    /// by hash: the whole output, and its pictures.
    Verified(ToolVerified, Vec<Blob>),
    /// Its driver takes it up: from here on a death of that driver counts again.
    Recover,
    /// The drivers of the run died at the same place too often.
    CrashLoop,
    /// A part that the run needs is missing; this sentence says what to configure.
    MissingDependency(String),
    /// What the run is pinned to can't be used, and nothing that anybody configures
    /// changes that; this sentence says what to do instead.
    Unrunnable(String),
    /// Its driver is told to stop and lets go of it.
    Release,
    /// Nobody drives it, and it is to end now.
    CancelNow {
        /// Who says so.
        by: String,
        /// Why.
        reason: String,
    },
    /// Nobody drives it, and it is to stand still now.
    PauseNow {
        /// Who says so.
        by: String,
    },
    /// A word from outside.
    Command(RunCommand),
}

/// What the model said until a person's message cut it off.
#[derive(Debug, Clone)]
pub struct InterruptedReply {
    /// The words so far.
    pub text: Arc<str>,
    /// What was used.
    pub usage: Usage,
    /// What it cost.
    pub cost: Option<MicroUsd>,
    /// How long it took.
    pub active: Millis,
}

/// What a later look at the world gave. Nothing in it: all is as it was.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PerceptionRefresh {
    /// What the model is told of it.
    pub message: Option<Arc<str>>,
    /// What is new.
    pub update: Option<PerceptionUpdate>,
}

/// A reply, and what the engine found out about its calls.
#[derive(Debug, Clone)]
pub struct ModelReply {
    /// The reply.
    pub response: ModelResponse,
    /// One for each call, in the model's order.
    pub calls: Vec<CallClassification>,
    /// Whether the words, or what a `finish` without a problem is given, fit the schema
    /// of the run's result.
    pub output_check: Option<OutputCheck>,
    /// How long it took.
    pub active: Millis,
}

/// The end of one call.
#[derive(Debug, Clone)]
pub struct ToolCallResult {
    /// Which call.
    pub call: CallId,
    /// How it ended.
    pub status: ToolCallStatus,
    /// What came of it.
    pub output: ToolOutput,
    /// How much of the driver's time it took; calls side by side share it.
    pub active: Millis,
    /// What the result names by hash: the whole output, and its pictures.
    pub blobs: Vec<Blob>,
}

/// How a call ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ToolCallStatus {
    /// With a result.
    Completed,
    /// With a failure that the model reads.
    Failed,
    /// We stopped it, and know that it stopped.
    Interrupted,
    /// We let go of it, and nobody knows whether it has happened.
    Unknown,
}
