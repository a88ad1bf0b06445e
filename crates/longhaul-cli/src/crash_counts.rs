//! What a crash changed and what it did not, counted in the journal.

use std::collections::BTreeSet;

use longhaul_core::event::Event;
use longhaul_core::event::entry::Entry;
use longhaul_core::failure::FailureClass;
use longhaul_core::id::Seq;

/// What a journal says about crashes.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct CrashCounts {
    /// Model replies and tool results that were recorded up to the crash.
    pub(crate) recorded_replies: usize,
    pub(crate) recorded_results: usize,
    /// Recorded replies and results that were begun again.
    pub(crate) repeated: usize,
    /// Model calls that were under way and are asked again.
    pub(crate) retried_model_calls: usize,
    /// Tool calls that were under way and are in doubt.
    pub(crate) in_doubt: usize,
}

impl CrashCounts {
    /// Counts a journal with a crash after this event.
    pub(crate) fn from_journal(journal: &[Entry], crash: Seq) -> Self {
        let mut counts = Self::default();
        let (mut turns, mut calls) = (BTreeSet::new(), BTreeSet::new());
        for entry in journal {
            let before = usize::from(entry.seq <= crash);
            #[expect(clippy::wildcard_enum_match_arm, reason = "only these bear on a crash")]
            match &entry.event {
                Event::TurnCompleted(done) => {
                    counts.recorded_replies += before;
                    turns.insert(done.turn);
                }
                Event::ToolCompleted(ended) | Event::ToolFailed(ended) => {
                    counts.recorded_results += before;
                    calls.insert(ended.call);
                }
                Event::TurnStarted(started) => {
                    counts.repeated += usize::from(turns.contains(&started.turn));
                }
                Event::ToolStarted(started) => {
                    counts.repeated += usize::from(calls.contains(&started.call));
                }
                Event::TurnFailed(failed) if failed.failure.class == FailureClass::Lost => {
                    counts.retried_model_calls += 1;
                }
                Event::ToolInDoubt(_) => counts.in_doubt += 1,
                _ => {}
            }
        }
        counts
    }
}
