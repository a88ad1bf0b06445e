//! Checkpoints of runs as a store keeps them.

use crate::id::Seq;

/// Checkpoint: the state of a run after a certain event, stored to save replaying the whole
/// journal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunCheckpoint {
    /// Sequence number of the last event that the state includes.
    pub seq: Seq,
    /// Hash of the code that computed the state. Checkpoints of other code are discarded.
    pub fold_hash: String,
    /// Serialized state of the run.
    pub state: Vec<u8>,
}
