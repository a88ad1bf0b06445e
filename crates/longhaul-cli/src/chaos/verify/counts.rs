//! What the judge counts.
//!
//! Never: a number that must be 0 without the runs that made it more.

use longhaul_core::id::{CallId, RunId};
use serde::Serialize;

/// What must never happen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Invariant {
    /// What had a recorded result was begun again.
    RepeatedAfterResult,
    /// What must not be repeated was done twice.
    DuplicateOnceEffect,
    /// What must not be repeated was begun and let go of without a word.
    LostWithoutReport,
    /// Something was done that no journal had begun.
    UnaccountedEffect,
    /// One kill cost one run more than one model call.
    ExcessModelCalls,
    /// A journal with a gap, a fence that falls or a fact after its end.
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

    /// Its name in JSON, and what a person reads.
    pub(crate) const fn names(self) -> (&'static str, &'static str) {
        match self {
            Self::RepeatedAfterResult => {
                ("repeated_after_result", "recorded results that ran again")
            }
            Self::DuplicateOnceEffect => {
                ("duplicate_once_effect", "once effects that happened twice")
            }
            Self::LostWithoutReport => ("lost_without_report", "once calls lost without a word"),
            Self::UnaccountedEffect => ("unaccounted_effect", "deeds that no journal had begun"),
            Self::ExcessModelCalls => {
                ("excess_model_calls", "runs that lost two model calls to one kill")
            }
            Self::BrokenJournal => ("broken_journals", "journals with a gap or out of order"),
        }
    }
}

/// Where a rule was broken.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct Violation {
    pub(crate) invariant: Invariant,
    pub(crate) run: RunId,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) call: Option<CallId>,
    /// What happened, in a sentence.
    pub(crate) message: String,
}

/// A call whose outcome nobody had recorded, visible as such.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct DoubtfulCall {
    pub(crate) run: RunId,
    pub(crate) call: CallId,
    pub(crate) tool: String,
    /// What the witness file says; none: this tool leaves no line.
    pub(crate) happened: Option<bool>,
    /// By which word it was settled.
    pub(crate) settled_by: String,
}

/// Everything that was counted.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct ChaosCounts {
    pub(crate) completed: u64,
    pub(crate) failed: Vec<RunId>,
    /// Cancelled, or not ended.
    pub(crate) other: Vec<RunId>,
    /// So often a new driver found what a dead one had left.
    pub(crate) recoveries: u64,
    pub(crate) model_calls: u64,
    /// Model calls that a kill had cut off.
    pub(crate) model_calls_repeated: u64,
    pub(crate) once_calls: u64,
    pub(crate) pure_repeats: u64,
    pub(crate) keyed_repeats: u64,
    pub(crate) in_doubt: Vec<DoubtfulCall>,
    pub(crate) violations: Vec<Violation>,
}

impl ChaosCounts {
    pub(crate) fn add_violation(
        &mut self,
        rule: Invariant,
        run: RunId,
        call: Option<CallId>,
        words: String,
    ) {
        self.violations.push(Violation { invariant: rule, run, call, message: words });
    }

    /// So often a rule was broken.
    pub(crate) fn violation_count(&self, rule: Invariant) -> usize {
        let broken = self.violations.iter().filter(|offence| offence.invariant == rule);
        broken.count()
    }

    /// Whether every run completed and no rule was broken.
    pub(crate) fn is_clean(&self) -> bool {
        self.violations.is_empty() && self.failed.is_empty() && self.other.is_empty()
    }
}
