//! What a call does to the world, and so what a crash in its middle means.
//!
//! Never: guesses. A tool that says nothing is `once`.

use serde::{Deserialize, Serialize};

/// The class of a call.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EffectClass {
    /// Changes nothing: may run again.
    Pure,
    /// Runs again under the same key, and the other side knows the key.
    Keyed,
    /// Must not be repeated silently.
    #[default]
    Once,
    /// Lives in a session that may be found again; else as `once`.
    Session,
}

impl EffectClass {
    /// Whether a call without a recorded result may simply be started again.
    pub const fn may_repeat(self) -> bool {
        match self {
            Self::Pure | Self::Keyed => true,
            Self::Once | Self::Session => false,
        }
    }
}

/// What happens to a call whose outcome nobody recorded.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum InDoubtPolicy {
    /// The model reads that the outcome is unknown.
    Tell,
    /// A person says what happened.
    #[default]
    Ask,
    /// The run ends.
    Fail,
}
