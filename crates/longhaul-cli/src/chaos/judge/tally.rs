//! What the judge counts.
//!
//! Never: a number that must be 0 without the runs that made it more.

use longhaul_core::id::{CallId, RunId};
use serde::Serialize;

/// What must never happen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Rule {
    /// What had a recorded result was begun again.
    RanAgain,
    /// What must not be repeated was done twice.
    OnceTwice,
    /// What must not be repeated was begun and let go of without a word.
    LostSilently,
    /// Something was done that no journal had begun.
    Unaccounted,
    /// One kill cost one run more than one model call.
    AskedTooOften,
    /// A journal with a gap, a fence that falls or a fact after its end.
    BrokenJournal,
}

impl Rule {
    pub(crate) const ALL: [Self; 6] = [
        Self::RanAgain,
        Self::OnceTwice,
        Self::LostSilently,
        Self::Unaccounted,
        Self::AskedTooOften,
        Self::BrokenJournal,
    ];

    /// Its name in JSON, and what a person reads.
    pub(crate) const fn names(self) -> (&'static str, &'static str) {
        match self {
            Self::RanAgain => ("ran_again", "recorded results that ran again"),
            Self::OnceTwice => ("once_twice", "once effects that happened twice"),
            Self::LostSilently => ("lost_silently", "once calls lost without a word"),
            Self::Unaccounted => ("unaccounted", "deeds that no journal had begun"),
            Self::AskedTooOften => (
                "asked_too_often",
                "runs that lost two model calls to one kill",
            ),
            Self::BrokenJournal => ("broken_journals", "journals with a gap or out of order"),
        }
    }
}

/// Where a rule was broken.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct Offence {
    pub(crate) rule: Rule,
    pub(crate) run: RunId,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) call: Option<CallId>,
    /// What happened, in a sentence.
    pub(crate) words: String,
}

/// A call whose outcome nobody had recorded, visible as such.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct Doubt {
    pub(crate) run: RunId,
    pub(crate) call: CallId,
    pub(crate) tool: String,
    /// What the witness file says; none: this tool leaves no line.
    pub(crate) happened: Option<bool>,
    /// By which word it was settled.
    pub(crate) settled: String,
}

/// Everything that was counted.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Tally {
    pub(crate) completed: u64,
    pub(crate) failed: Vec<RunId>,
    /// Cancelled, or not ended.
    pub(crate) other: Vec<RunId>,
    /// So often a new driver found what a dead one had left.
    pub(crate) picked_up: u64,
    pub(crate) asked: u64,
    /// Model calls that a kill had cut off.
    pub(crate) asked_again: u64,
    pub(crate) once_calls: u64,
    pub(crate) pure_repeats: u64,
    pub(crate) keyed_repeats: u64,
    pub(crate) in_doubt: Vec<Doubt>,
    pub(crate) offences: Vec<Offence>,
}

impl Tally {
    pub(crate) fn offend(&mut self, rule: Rule, run: RunId, call: Option<CallId>, words: String) {
        self.offences.push(Offence {
            rule,
            run,
            call,
            words,
        });
    }

    /// So often a rule was broken.
    pub(crate) fn broken(&self, rule: Rule) -> usize {
        let broken = self.offences.iter().filter(|offence| offence.rule == rule);
        broken.count()
    }

    /// Whether every run completed and no rule was broken.
    pub(crate) fn holds(&self) -> bool {
        self.offences.is_empty() && self.failed.is_empty() && self.other.is_empty()
    }
}
