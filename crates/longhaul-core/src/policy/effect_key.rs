//! Effect keys: names of effects that happen at most once over all runs, such as `invoice:17`.
//!
//! An agent file declares a template of the key for calls of a tool. A call claims its key in the
//! append that starts it. The store keeps only the hash of a key, because a key may contain personal
//! data; the text is in the journals of the runs that use it. The row of a key whose call has
//! completed or has an unknown outcome outlives the run, because otherwise the effect could happen
//! again.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::id::{CallId, RunId};
use crate::raw::Hash;

/// Maximum length of the text of an effect key in bytes.
pub const EFFECT_KEY_BYTES_MAX: usize = 1024;

/// Effect key of a tool call. Calls with the same key take effect at most once over all runs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct EffectKey {
    /// Text of the effect key, with secrets redacted.
    pub text: String,
    /// Hash of the effect key, by which the store finds the row of the key.
    pub hash: Hash,
}

/// The tool call that has claimed an effect key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct EffectKeyHolder {
    /// Run of the call: the run whose model made the call or, once the call has completed, the run
    /// whose journal has its result.
    pub run: RunId,
    /// Id of the tool call that has claimed the effect key.
    pub call: CallId,
}

/// State of an effect key that a call has claimed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum EffectKeyState {
    /// The call was started and has not ended, or a person is asked about its outcome.
    Held,
    /// The call has completed. Its result is final.
    Done,
    /// The call was started, it is over, and nobody knows whether it has taken effect.
    Unknown,
}

/// An effect key that is claimed, with the call that has claimed it and the state of the key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClaimedEffectKey {
    pub key: Hash,
    /// Tool call that has claimed the effect key.
    pub holder: EffectKeyHolder,
    pub state: EffectKeyState,
}

/// Change of the row of an effect key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EffectKeyChange {
    /// Claims the effect key for a tool call that is about to start. Refused if another call has
    /// claimed the key, unless the claim replaces that call and its outcome is unknown.
    Claim(EffectKeyClaim),
    /// Queues the run until the outcome of the tool call `holder` is known. Refused if `holder`
    /// does not hold the effect key any more.
    Wait {
        /// Hash of the effect key that the run waits for.
        key: Hash,
        /// Tool call that holds the effect key.
        holder: EffectKeyHolder,
    },
    /// Records the outcome of an ended tool call under its effect key, or frees the key, and wakes
    /// the runs that wait for the key. Does nothing if another call has claimed the key.
    Settle {
        /// The effect key, and the tool call that has claimed it.
        claim: EffectKeyClaim,
        /// New state of the effect key. `None` frees the key, because the tool call certainly had
        /// no effect.
        state: Option<EffectKeyState>,
    },
}

/// Claim of an effect key by a tool call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EffectKeyClaim {
    pub key: Hash,
    /// Tool call that claims the effect key.
    pub holder: EffectKeyHolder,
    /// Call with an unknown outcome whose claim a person has decided to replace. `None` means that
    /// no claim is replaced.
    pub replaces: Option<EffectKeyHolder>,
}

impl EffectKeyClaim {
    /// Returns whether this tool call may change the effect key that is claimed as in `taken`: the
    /// call itself has claimed the key and has not completed, or another call with an unknown
    /// outcome has claimed it and this call replaces that one.
    pub fn may_change_key(&self, claimed_key: &ClaimedEffectKey) -> bool {
        let is_own = claimed_key.holder == self.holder && claimed_key.state != EffectKeyState::Done;
        is_own
            || claimed_key.state == EffectKeyState::Unknown
                && self.replaces == Some(claimed_key.holder)
    }
}
