//! Effect classes of calls, which determine what happens after a crash during a call.
//!
//! A tool that declares no class counts as `once`.

use serde::{Deserialize, Serialize};

/// Effect class of a tool call, which says whether the call may be repeated after a crash.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EffectClass {
    /// The call has no side effects, so it may run again.
    Pure,
    /// The call is idempotent: it may run again with the same idempotency key, by which the called
    /// system recognizes a repetition.
    Keyed,
    /// The call has side effects and must not be repeated silently.
    #[default]
    Once,
    /// The call runs in a session that may outlive a crash of the worker. Like `once`, the call is
    /// not repeated automatically.
    Session,
}

impl EffectClass {
    /// Returns whether a call without a recorded result may simply be started again.
    pub const fn may_repeat(self) -> bool {
        match self {
            Self::Pure | Self::Keyed => true,
            Self::Once | Self::Session => false,
        }
    }
}

/// What happens with a call in doubt, i.e. one that was started but has no recorded outcome. In the
/// order from the mildest to the strictest policy: of several matching rules the greatest applies.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum InDoubtPolicy {
    /// Tell the model that the outcome is unknown.
    Tell,
    /// Ask a person for the outcome.
    #[default]
    Ask,
    /// End the run as failed, because the outcome of the call is unknown.
    Fail,
}
