//! One tool call of a reply, from judgement to result.
//!
//! Never: two results. A call that is done stays as it is.

use longhaul_core::event::tool::ToolOutput;
use longhaul_core::event::turn::CallClassification;
use longhaul_core::id::{CallId, Epoch, GateId, RunId};
use longhaul_core::message::{Part, ToolResult};
use longhaul_core::policy::effect::InDoubtPolicy;
use longhaul_core::raw::RawJson;
use serde::{Deserialize, Serialize};

use crate::state::pending_timer::PendingTimer;

/// One call.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Call {
    /// Which, by our count.
    pub id: CallId,
    /// Which, by the provider's id.
    pub provider_id: String,
    /// The arguments as the model wrote them.
    pub input: RawJson,
    /// What the engine found out about it.
    pub classification: CallClassification,
    /// How often it was started.
    pub starts: u32,
    /// A person's other arguments.
    pub edited: Option<RawJson>,
    /// What a person said when they let it pass.
    pub approval_note: Option<String>,
    /// Where it stands.
    pub state: CallState,
}

/// Where a call stands.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum CallState {
    /// No rule was asked yet.
    Unevaluated,
    /// It may begin when its turn comes.
    Ready,
    /// A person is asked whether it may.
    Gated(GateId),
    /// It has begun, under this driver.
    Started(Epoch),
    /// It had begun, and nobody knows what came of it.
    InDoubt {
        /// What is done about it.
        policy: InDoubtPolicy,
        /// The tool can still look.
        can_verify: bool,
        /// Why nobody knows.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        reason: Option<String>,
    },
    /// Somebody is asked, and what they say is the result.
    AwaitingAnswer(GateId),
    /// A time must come, and then the result is that it came.
    Sleeping(PendingTimer),
    /// A run must end, and its end is the result.
    AwaitingChild(RunId),
    /// The result is known and not yet written down.
    ResultReady {
        /// What it is.
        output: ToolOutput,
        /// Whether it is a failure.
        is_error: bool,
    },
    /// The result is written down.
    Done {
        /// What it is.
        output: ToolOutput,
        /// Whether it is a failure.
        is_error: bool,
    },
}

impl CallState {
    /// Words that become the result of the call.
    pub(crate) fn settling(words: impl Into<std::sync::Arc<str>>, is_error: bool) -> Self {
        Self::ResultReady { output: ToolOutput::text(words), is_error }
    }
}

impl Call {
    /// What the tool is to be given.
    pub fn arguments(&self) -> &RawJson {
        self.edited.as_ref().unwrap_or(&self.input)
    }

    /// Whether it has its result.
    pub const fn is_done(&self) -> bool {
        matches!(self.state, CallState::Done { .. })
    }

    /// Whether a driver of this epoch may make it: nobody has, or one that died has and
    /// it may be repeated.
    pub(crate) fn may_begin(&self, epoch: Epoch) -> bool {
        match self.state {
            CallState::Unevaluated | CallState::Ready => true,
            CallState::Started(older) => older < epoch && self.classification.class.may_repeat(),
            CallState::Gated(_)
            | CallState::InDoubt { .. }
            | CallState::AwaitingAnswer(_)
            | CallState::Sleeping(_)
            | CallState::AwaitingChild(_)
            | CallState::ResultReady { .. }
            | CallState::Done { .. } => false,
        }
    }

    /// Whether it is under way with this driver.
    pub fn is_running_in(&self, epoch: Epoch) -> bool {
        self.state == CallState::Started(epoch)
    }

    /// Whether it must stand alone: nothing beside it, in the model's order.
    pub const fn is_exclusive(&self) -> bool {
        !self.classification.class.may_repeat()
    }

    /// The gate it waits for.
    pub const fn gate(&self) -> Option<GateId> {
        if let CallState::Gated(gate) | CallState::AwaitingAnswer(gate) = &self.state {
            return Some(*gate);
        }
        None
    }

    /// The result as the model reads it.
    pub(crate) fn result(&self) -> Option<ToolResult> {
        let CallState::Done { output, is_error } = &self.state else {
            return None;
        };
        let changed = self.edited.as_ref().map(RawJson::as_str);
        let changed = changed.map(|edited| format!("A person changed this call to {edited}"));
        let remark = self.approval_note.as_ref();
        let remark = remark.map(|words| format!("A person allowed this call and said: {words}"));
        let people = changed.into_iter().chain(remark);
        let content = people
            .map(|words| Part::Text(words.into()))
            .chain(output.content.iter().cloned())
            .collect();
        Some(ToolResult {
            call: self.id,
            id: self.provider_id.clone(),
            content,
            is_error: *is_error,
        })
    }
}
