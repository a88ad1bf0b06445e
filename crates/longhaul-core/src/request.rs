//! Requests that are sent under an idempotency key, and what they have changed.

use serde::{Deserialize, Serialize};

use crate::id::{RunId, Seq};
use crate::raw::Hash;

/// The name of a request: its caller and the idempotency key that they chose.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct IdempotencyKey {
    /// The caller. Keys of different callers are unrelated.
    pub principal: String,
    /// The idempotency key.
    pub key: String,
}

/// What a request has changed. It is stored in the commit of the change itself, so
/// that a repetition of the request never applies it a second time.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RequestEffect {
    /// It appended events to a journal.
    Events {
        /// The run.
        run: RunId,
        /// The place of the last event.
        seq: Seq,
    },
    /// It created the API key with this hash.
    Key(Hash),
}
