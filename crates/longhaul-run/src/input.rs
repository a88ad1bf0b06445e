//! Everything that can be told to a run, in one closed list.
//!
//! Never: a result that is produced again. Inputs are decided again when the
//! journal has moved on; the model and the tools are not asked again.

use std::collections::BTreeMap;
use std::sync::Arc;

use longhaul_core::change::Blob;
use longhaul_core::event::run::Compactor;
use longhaul_core::event::tool::{Finding, ToolOutput};
use longhaul_core::event::turn::{Appraisal, Fit, Seen};
use longhaul_core::failure::Failure;
use longhaul_core::id::CallId;
use longhaul_core::message::Message;
use longhaul_core::port::model::Answered;
use longhaul_core::raw::{Body, RawJson};
use longhaul_core::time::Millis;
use longhaul_core::usage::{Micros, Tariff, Usage};

use crate::outside::Word;

pub use crate::moment::Moment;

/// What a run is told.
#[derive(Debug, Clone)]
pub enum Input {
    /// Its driver is there: whatever is due without help from outside.
    GoOn,
    /// The world was looked at and the prompt made.
    Perceived(Box<Perceived>),
    /// Somebody looked at the world again before a turn.
    Looked(Box<Looked>),
    /// A call says how far it is.
    Progress {
        /// Which call.
        call: CallId,
        /// In percent, where that is known.
        percent: Option<u8>,
        /// In words.
        message: String,
    },
    /// The model replied.
    Replied(Box<Replied>),
    /// The model did not reply.
    ModelFailed {
        /// What happened.
        failure: Failure,
        /// What it cost all the same; none: what the list says.
        cost: Option<Micros>,
        /// How long it took.
        active: Millis,
    },
    /// A person's message cut the model off.
    Interrupted {
        /// The words so far.
        text: Arc<str>,
        /// What was used.
        usage: Usage,
        /// What it cost.
        cost: Option<Micros>,
        /// How long it took.
        active: Millis,
    },
    /// The older part of the conversation was summed up.
    Compacted(Box<Compacted>),
    /// Calls have ended.
    ToolsDone(Vec<ToolDone>),
    /// A tool looked whether a call in doubt has happened.
    Verified {
        /// Which call.
        call: CallId,
        /// What it found.
        finding: Finding,
        /// What the finding names by hash: the whole output, and its pictures.
        blobs: Vec<Blob>,
    },
    /// Its driver takes it up: from here on a death of that driver counts again.
    Recover,
    /// The drivers of the run died at the same place too often.
    CrashLoop,
    /// A part that the run needs is missing; this sentence says what to configure.
    Missing(String),
    /// What the run is pinned to can't be used, and nothing that anybody configures
    /// changes that; this sentence says what to do instead.
    Unfit(String),
    /// Its driver is told to stop and lets go of it.
    Release,
    /// Nobody drives it, and it is to end now.
    Close {
        /// Who says so.
        by: String,
        /// Why.
        reason: String,
    },
    /// Nobody drives it, and it is to stand still now.
    Still {
        /// Who says so.
        by: String,
    },
    /// A word from outside.
    Outside(Word),
}

/// What a look at the world gave.
#[derive(Debug, Clone)]
pub struct Perceived {
    /// The system prompt.
    pub system: Body,
    /// The table of tools.
    pub tools: Body,
    /// Memory and the first user message.
    pub opening: Vec<Message>,
    /// The model that will be asked.
    pub model: String,
    /// Those that are asked in its place when it fails for good, in order.
    pub fallbacks: Vec<String>,
    /// What the dearest model of the list charges.
    pub tariff: Tariff,
    /// Who sums up what no longer fits; none: the run's own model.
    pub compactor: Option<Compactor>,
    /// The world as somebody saw it; none: nobody looked.
    pub world: Option<Body>,
    /// What whoever looked gives to tools.
    pub context: BTreeMap<String, RawJson>,
    /// Those tools of the table that others bring.
    pub supplied: Vec<String>,
    /// So many identical calls in a row end the run; none: never.
    pub circles: Option<u32>,
    /// Contents that prompt, table and world name by hash.
    pub blobs: Vec<Blob>,
}

/// What a later look at the world gave. Nothing in it: all is as it was.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Looked {
    /// What the model is told of it.
    pub words: Option<Arc<str>>,
    /// What is new.
    pub seen: Option<Seen>,
}

/// A reply, and what the engine found out about its calls.
#[derive(Debug, Clone)]
pub struct Replied {
    /// The reply.
    pub answered: Answered,
    /// One for each call, in the model's order.
    pub calls: Vec<Appraisal>,
    /// Whether the words, or what a `finish` without a problem is given, fit the schema
    /// of the run's result.
    pub fit: Option<Fit>,
    /// How long it took.
    pub active: Millis,
}

/// A summary of the older part of a conversation.
#[derive(Debug, Clone)]
pub struct Compacted {
    /// So many messages from the start are replaced.
    pub replaced: usize,
    /// By these.
    pub summary: Vec<Message>,
    /// What it used.
    pub usage: Usage,
    /// What it cost.
    pub cost: Option<Micros>,
    /// The model that did it.
    pub model: String,
    /// How long it took.
    pub active: Millis,
}

/// The end of one call.
#[derive(Debug, Clone)]
pub struct ToolDone {
    /// Which call.
    pub call: CallId,
    /// How it ended.
    pub end: ToolEnd,
    /// What came of it.
    pub output: ToolOutput,
    /// How much of the driver's time it took; calls side by side share it.
    pub active: Millis,
    /// What the result names by hash: the whole output, and its pictures.
    pub blobs: Vec<Blob>,
}

/// How a call ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ToolEnd {
    /// With a result.
    Completed,
    /// With a failure that the model reads.
    Failed,
    /// We stopped it, and know that it stopped.
    Interrupted,
    /// We let go of it, and nobody knows whether it has happened.
    Unknown,
}
