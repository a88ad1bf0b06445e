//! What the crash changed and what it did not, counted in the journal.
//!
//! Never: a number that was not counted.

use std::collections::BTreeSet;

use longhaul_core::event::Event;
use longhaul_core::event::entry::Entry;
use longhaul_core::failure::FailureClass;
use longhaul_core::id::Seq;

/// What is found in a journal around a crash.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Score {
    /// Model replies and tool results that stood before the crash.
    pub(crate) replies: usize,
    pub(crate) results: usize,
    /// Of those, what was begun again after it.
    pub(crate) repeated: usize,
    /// Questions that were under way and are asked again.
    pub(crate) asked_again: usize,
    /// Calls that were under way and are in doubt.
    pub(crate) in_doubt: usize,
}

/// Counts a journal around a crash after this place.
pub(crate) fn score(journal: &[Entry], crash: Seq) -> Score {
    let mut score = Score::default();
    let mut turns = BTreeSet::new();
    let mut calls = BTreeSet::new();
    for entry in journal {
        let after = entry.seq > crash;
        #[expect(clippy::wildcard_enum_match_arm, reason = "only these bear on a crash")]
        match &entry.event {
            Event::TurnCompleted(done) if !after => drop(turns.insert(done.turn)),
            Event::ToolCompleted(ended) | Event::ToolFailed(ended) if !after => {
                calls.insert(ended.call);
            }
            Event::TurnStarted(started) if after => {
                score.repeated += usize::from(turns.contains(&started.turn));
            }
            Event::ToolStarted(started) if after => {
                score.repeated += usize::from(calls.contains(&started.call));
            }
            Event::TurnFailed(failed) if after && failed.failure.class == FailureClass::Lost => {
                score.asked_again += 1;
            }
            Event::ToolInDoubt(_) if after => score.in_doubt += 1,
            _ => {}
        }
    }
    score.replies = turns.len();
    score.results = calls.len();
    score
}
