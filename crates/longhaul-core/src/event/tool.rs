//! Events about tool calls.
//!
//! Invariant: a call has exactly one result, which is final.

use serde::{Deserialize, Serialize};

use crate::id::{CallId, Epoch, RunId};
use crate::message::Part;
use crate::policy::effect::InDoubtPolicy;
use crate::policy::effect_key::{EffectKeyHolder, EffectKeyState};
use crate::raw::{BlobRef, RawJson};
use crate::time::{Millis, Timestamp};

/// A tool call is about to start. The event is durable before the call starts.
#[serde_with::skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ToolStarted {
    /// Id of the tool call that is about to start.
    pub call: CallId,
    /// Attempt number of the tool call, from 1.
    pub attempt: u32,
    /// Time at which the tool call ends, if it only waits until that time. `None` for other calls.
    pub until: Option<Timestamp>,
    /// Child run whose end the tool call waits for. `None` if it waits for no child run.
    pub child: Option<RunId>,
}

/// A tool call reported progress.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ToolProgress {
    /// Id of the tool call that reported the progress.
    pub call: CallId,
    /// Description of the progress, written by the tool.
    pub message: String,
    /// Progress of the tool call in percent. `None` means that the percentage is unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub percent: Option<u8>,
}

/// Output of a tool call: what the model sees, and the complete output if that is longer.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ToolOutput {
    /// Part of the output that is shown to the model.
    pub content: Vec<Part>,
    /// Complete output, if `content` contains only a part of the output.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub full: Option<BlobRef>,
    /// Artifacts that the call created, such as references to files. They become artifacts of the
    /// run's result, and the model does not see them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub artifacts: Vec<RawJson>,
    /// Whether the call failed for a reason that may pass, so that a retry may succeed.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub transient: bool,
    /// Definitions of the tools that the call has loaded. They are added to the end of the list of
    /// tools that the model sees.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub loaded_tools: Vec<RawJson>,
}

impl ToolOutput {
    /// Creates an output that consists of one text.
    pub fn text(output_text: impl Into<std::sync::Arc<str>>) -> Self {
        Self { content: vec![Part::Text(output_text.into())], ..Self::default() }
    }

    /// Returns the text of the output, with a placeholder for each image.
    pub fn joined_text(&self) -> String {
        let texts = self.content.iter().map(|part| match part {
            Part::Text(text) => &**text,
            Part::Image(_) => "(an image)",
        });
        texts.collect::<Vec<_>>().join("\n")
    }

    /// Adds an artifact, such as a reference to a file that the call created.
    #[must_use]
    pub fn with_artifact(mut self, artifact: &impl Serialize) -> Self {
        self.artifacts.push(RawJson::from_serialize(artifact));
        self
    }
}

/// A tool call was not started, because another call has claimed its effect key (the key of an
/// effect that happens at most once over all runs).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ToolKeyTaken {
    /// Id of the tool call that was not started.
    pub call: CallId,
    /// Tool call that has claimed the effect key.
    pub holder: EffectKeyHolder,
    /// State of the effect key. `Held`: the tool call waits. `Done`: it gets the result of the call
    /// that claimed the key. `Unknown`: its outcome is in doubt, like that of the call that claimed
    /// the key.
    pub state: EffectKeyState,
    /// What happens with the tool call if the outcome of the call that claimed its effect key is
    /// unknown. `None` if that outcome is known or pending.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub in_doubt: Option<InDoubtPolicy>,
}

/// A tool call ended with a result.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ToolEnded {
    pub call: CallId,
    /// Output that the tool call returned.
    pub output: ToolOutput,
    /// Duration of the tool call, measured by the clock of the worker that drives the run.
    #[serde(default)]
    pub active: Millis,
}

/// What a tool needs to continue a call that it has suspended, i.e. a call that is started and has no
/// result yet, and for which nothing runs in this process.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ToolSuspension {
    /// State that only the tool understands. The tool continues the call with exactly this state.
    pub state: RawJson,
    /// Whether the tool may continue the call a second time after a crash. If not, it is unknown
    /// after a crash in the meantime whether the call had an effect, so that the call is in doubt.
    #[serde(default)]
    pub may_repeat: bool,
    /// Whether another system works on the call in the meantime, so that the runtime must notify
    /// that system if the run gives up the call.
    #[serde(default)]
    pub must_cancel: bool,
}

/// A question that a tool asks a person before it continues a call.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ToolQuestion {
    /// Who asks, such as ``the MCP server `billing` ``. Written by the runtime, not by the asker.
    pub asker: String,
    /// Question in the asker's words.
    pub message: String,
    /// Schema of the form that the person fills in.
    pub schema: RawJson,
}

/// A tool needs a person's answer before it continues the call.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ToolInputRequired {
    /// Id of the tool call that needs the answer.
    pub call: CallId,
    /// Data with which the tool continues the call.
    pub suspension: ToolSuspension,
    /// Question to the person.
    pub question: ToolQuestion,
    /// Duration for which the tool worked on the call.
    #[serde(default)]
    pub active: Millis,
}

/// The tool has not completed the call yet, so the runtime asks it again later.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ToolPending {
    /// Id of the tool call that has no result yet.
    pub call: CallId,
    /// Data with which the tool continues the call.
    pub suspension: ToolSuspension,
    /// Time at which the tool call became pending for the first time.
    pub since: Timestamp,
    /// Time at which the tool is asked again.
    pub until: Timestamp,
    /// Status of the work on the tool call, as described by the tool. `None` if the tool gave no
    /// description.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// Whether the run gives up the call, for the reason in `message`. The tool is told so instead of
    /// being asked again.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub given_up: bool,
    /// Duration for which the tool worked on the call.
    #[serde(default)]
    pub active: Millis,
}

/// A suspended tool call is about to be continued. The event is durable before the call continues.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ToolResumed {
    /// Id of the tool call that is about to be continued.
    pub call: CallId,
    /// Number of times that the tool call was continued since it was suspended, from 1.
    pub attempt: u32,
}

/// A tool call is in doubt: it was started, but its outcome was not recorded.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ToolInDoubt {
    /// Id of the tool call whose outcome is unknown.
    pub call: CallId,
    /// Epoch (fencing token) of the worker that started the call.
    pub epoch: Epoch,
    /// What happens with the tool call if the tool can't find out whether the call took effect.
    pub policy: InDoubtPolicy,
    /// Reason why the outcome is unknown. `None` in journals of older builds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Duration of the tool call. It is known only if the worker that started the call is still
    /// alive.
    #[serde(default)]
    pub active: Millis,
}

/// The tool checked whether a call in doubt (one without a recorded outcome) has taken effect.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ToolVerified {
    /// Id of the tool call that was checked.
    pub call: CallId,
    /// Whether the tool call has taken effect, according to the tool.
    pub outcome: VerifyOutcome,
}

/// Result of checking whether a call in doubt (one without a recorded outcome) has taken effect.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum VerifyOutcome {
    /// The call has taken effect and returned this output.
    Happened(ToolOutput),
    /// The call has not taken effect, so it may be started again.
    NotHappened,
    /// It can't be determined whether the call has taken effect.
    Unknown,
}

/// A tool result arrived late, from a worker that had already lost its claim on the run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LateToolResultEvent {
    /// Id of the tool call whose result arrived late.
    pub call: CallId,
    /// Whether the tool call failed.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_error: bool,
    /// Output of the tool call, which arrived late.
    pub output: ToolOutput,
}
