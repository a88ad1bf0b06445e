//! The counts and violations that the verification of a chaos test finds.

use longhaul_core::id::{CallId, RunId};
use serde::Serialize;

/// A guarantee of the runtime that a chaos test verifies. Each variant is described by its
/// violation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Invariant {
    /// A call with a recorded result was started again.
    RepeatedAfterResult,
    /// An effect that must not be repeated happened twice.
    DuplicateOnceEffect,
    /// A call that must not be repeated was started and lost, and the journal does not report the
    /// loss.
    LostWithoutReport,
    /// An effect happened, but no journal contains the start of the tool call.
    UnaccountedEffect,
    /// One kill lost more than one model call of a run.
    ExcessModelCalls,
    /// A journal has a gap, a decreasing epoch or an event after the end of the run.
    BrokenJournal,
}

impl Invariant {
    pub(crate) const ALL: [Self; 6] = [
        Self::RepeatedAfterResult,
        Self::DuplicateOnceEffect,
        Self::LostWithoutReport,
        Self::UnaccountedEffect,
        Self::ExcessModelCalls,
        Self::BrokenJournal,
    ];

    /// Returns the guarantee's name in JSON and its label on the scorecard.
    pub(crate) const fn name_and_label(self) -> (&'static str, &'static str) {
        match self {
            Self::RepeatedAfterResult => {
                ("repeated_after_result", "recorded results that were repeated")
            }
            Self::DuplicateOnceEffect => {
                ("duplicate_once_effect", "once effects that happened twice")
            }
            Self::LostWithoutReport => ("lost_without_report", "once calls lost without a report"),
            Self::UnaccountedEffect => {
                ("unaccounted_effect", "effects without a start in a journal")
            }
            Self::ExcessModelCalls => {
                ("excess_model_calls", "runs that lost two model calls to one kill")
            }
            Self::BrokenJournal => ("broken_journals", "journals with a gap or out of order"),
        }
    }
}

/// One violation of a guarantee in a run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct InvariantViolation {
    pub(crate) invariant: Invariant,
    pub(crate) run: RunId,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) call: Option<CallId>,
    /// Description of what happened.
    pub(crate) message: String,
}

/// A call that the journal reports as in doubt: it was started, and its outcome was unknown after a
/// kill.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct InDoubtCall {
    pub(crate) run: RunId,
    pub(crate) call: CallId,
    pub(crate) tool: String,
    /// Whether the file in which probe tools record their effects has a record of the call. `None`
    /// if the tool writes no records.
    pub(crate) happened: Option<bool>,
    /// How the outcome of the call was decided, such as `verified` or a person's decision.
    pub(crate) settled_by: String,
}

/// Everything that the verification of a chaos test counted and found.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct ChaosCounts {
    pub(crate) completed: u64,
    pub(crate) failed: Vec<RunId>,
    /// Runs that were cancelled or have not ended.
    pub(crate) other: Vec<RunId>,
    /// Number of times that a new worker recovered a run of a dead worker.
    pub(crate) recoveries: u64,
    pub(crate) model_calls: u64,
    /// Number of model calls that were interrupted by a kill and repeated.
    pub(crate) model_calls_repeated: u64,
    pub(crate) once_calls: u64,
    pub(crate) pure_repeats: u64,
    pub(crate) keyed_repeats: u64,
    pub(crate) in_doubt: Vec<InDoubtCall>,
    pub(crate) violations: Vec<InvariantViolation>,
}

impl ChaosCounts {
    pub(crate) fn add_violation(
        &mut self,
        invariant: Invariant,
        run: RunId,
        call: Option<CallId>,
        message: String,
    ) {
        self.violations.push(InvariantViolation { invariant, run, call, message });
    }

    /// Returns the number of violations of a guarantee.
    pub(crate) fn violation_count(&self, invariant: Invariant) -> usize {
        let violations =
            self.violations.iter().filter(|violation| violation.invariant == invariant);
        violations.count()
    }

    /// Returns whether every run completed and no guarantee was violated.
    pub(crate) fn has_test_passed(&self) -> bool {
        self.violations.is_empty() && self.failed.is_empty() && self.other.is_empty()
    }
}
