//! Requests sent with an idempotency key, and their effects.

use serde::{Deserialize, Serialize};

use crate::id::{RunId, Seq};
use crate::raw::Hash;
use crate::time::Millis;

/// Identifies an idempotent request by its caller and the idempotency key that the caller chose.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct IdempotencyKey {
    /// Caller that sent the request. Keys of different callers are independent.
    pub principal: String,
    /// Idempotency key chosen by the caller.
    pub key: String,
}

/// Idempotency key of a request to create runs, with the caller and the hash of the request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IdempotencyRecord {
    /// Caller that sent the request. Keys of different callers are independent.
    pub principal: String,
    /// Idempotency key chosen by the caller.
    pub key: String,
    /// Hash of the whole request. It distinguishes a repetition from another request with the same
    /// key.
    pub body_hash: Hash,
    /// How long the idempotency key is remembered. `None` means as long as the run exists; the
    /// request then creates exactly one run.
    pub ttl: Option<Millis>,
}

/// Effect of an idempotent request. It is stored in the same transaction as the change itself, so
/// that a repeated request is never applied a second time.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum IdempotentRequestEffect {
    /// The request appended events to a journal.
    Events {
        /// Run whose journal the events were appended to.
        run: RunId,
        /// Sequence number of the last appended event.
        seq: Seq,
    },
    /// The request created the API key with this hash.
    Key(Hash),
    /// The request added messages to a thread.
    Thread,
}
