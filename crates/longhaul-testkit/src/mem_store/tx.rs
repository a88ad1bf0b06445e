//! One transaction: the tables, the time, and the two ways it can end.
//!
//! Never: half a transaction. What is refused leaves no trace.

use longhaul_core::event::Event;
use longhaul_core::id::{Epoch, RunId};
use longhaul_core::port::store::{Refused, StoreError};
use longhaul_core::time::Timestamp;

use crate::mem_store::rows::Tables;

/// A rule that is broken on purpose, so that a checker can show that it sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BrokenRule {
    /// A driver's epoch and name are not looked at.
    Fence,
    /// A run parks although its journal has moved on.
    Park,
    /// A lane lets two runs go at once.
    LanePromotion,
    /// Takes a driver's append whoever holds the run and whatever was read: a
    /// driver that reads the claim of the next one stops by itself otherwise.
    Driver,
}

/// A transaction in the making.
#[derive(Debug)]
pub(crate) struct Tx<'a> {
    pub(crate) tables: &'a mut Tables,
    pub(crate) now: Timestamp,
    pub(crate) broken_rule: Option<BrokenRule>,
}

/// Why a transaction is taken back.
#[derive(Debug)]
pub(crate) enum Rollback<T> {
    /// The caller is told this.
    Answer(T),
    /// The store itself failed.
    Error(StoreError),
}

impl<T> From<StoreError> for Rollback<T> {
    fn from(fault: StoreError) -> Self {
        Self::Error(fault)
    }
}

/// What one change of a row gives.
pub(crate) type ChangeResult = Result<(), Rollback<Refused>>;

/// A row says no.
pub(crate) fn refuse(why: Refused) -> ChangeResult {
    Err(Rollback::Answer(why))
}

/// Facts that one author adds to one journal.
#[derive(Debug)]
pub(crate) struct JournalAppend<'a> {
    pub(crate) run: RunId,
    pub(crate) epoch: Epoch,
    pub(crate) events: &'a [Event],
}
