//! A transaction: the tables, the time, and its two possible ends, commit and rollback. A
//! refused transaction changes nothing.

use longhaul_core::event::Event;
use longhaul_core::id::{Epoch, RunId};
use longhaul_core::port::store::{AppendRefusalReason, StoreError};
use longhaul_core::time::Timestamp;

use crate::mem_store::rows::Tables;

/// A rule that a store violates on purpose, to show that the checks detect it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BrokenRule {
    /// The epoch and worker of a driver are not checked.
    Fence,
    /// A run is parked although its journal has new events.
    Park,
    /// Two runs of a lane can run at the same time.
    LanePromotion,
    /// A chain releases its lane after each of its runs.
    ChainLane,
    /// More sandboxes than the provider has slots can run concurrently.
    SandboxSlot,
    /// Every append of a driver is accepted, even if the run has another driver or new events.
    /// This is needed because a driver that reads the next driver's claim would otherwise stop
    /// by itself.
    Driver,
}

/// A transaction in progress.
#[derive(Debug)]
pub(crate) struct Tx<'a> {
    pub(crate) tables: &'a mut Tables,
    pub(crate) now: Timestamp,
    pub(crate) broken_rule: Option<BrokenRule>,
}

/// Reason for a rollback.
#[derive(Debug)]
pub(crate) enum Rollback<T> {
    /// The caller gets this result.
    Answer(T),
    /// The store itself failed.
    Error(StoreError),
}

impl<T> From<StoreError> for Rollback<T> {
    fn from(error: StoreError) -> Self {
        Self::Error(error)
    }
}

pub(crate) type ChangeResult = Result<(), Rollback<AppendRefusalReason>>;

pub(crate) fn refuse(reason: AppendRefusalReason) -> ChangeResult {
    Err(Rollback::Answer(reason))
}

/// Events that one author appends to one journal.
#[derive(Debug)]
pub(crate) struct JournalAppend<'a> {
    pub(crate) run: RunId,
    pub(crate) epoch: Epoch,
    pub(crate) events: &'a [Event],
}
