//! Counts in a journal what a crash lost and what was repeated after the crash.

use std::collections::BTreeSet;

use longhaul_core::event::Event;
use longhaul_core::event::entry::JournalEntry;
use longhaul_core::failure::FailureClass;
use longhaul_core::id::Seq;

/// Numbers of recorded replies and results, and of repeated calls, in a journal with a crash.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct CrashRecoveryCounts {
    /// Number of model replies that were recorded before the crash.
    pub(crate) recorded_replies: usize,
    /// Number of tool results that were recorded before the crash.
    pub(crate) recorded_results: usize,
    /// Number of model and tool calls that were started again although their reply or result was
    /// recorded before the crash.
    pub(crate) repeated: usize,
    /// Number of model calls that were in flight at the crash and were repeated.
    pub(crate) retried_model_calls: usize,
    /// Number of tool calls that were in flight at the crash, so that their outcome is unknown.
    pub(crate) in_doubt: usize,
}

impl CrashRecoveryCounts {
    /// Counts replies, results and repeated calls in a journal. The event with the given sequence
    /// number is the last one before the crash.
    pub(crate) fn from_journal(journal: &[JournalEntry], crash_seq: Seq) -> Self {
        let mut counts = Self::default();
        let (mut turns, mut calls) = (BTreeSet::new(), BTreeSet::new());
        for entry in journal {
            let before_crash = usize::from(entry.seq <= crash_seq);
            #[expect(clippy::wildcard_enum_match_arm, reason = "other events are not counted")]
            match &entry.event {
                Event::TurnCompleted(completed) => {
                    counts.recorded_replies += before_crash;
                    turns.insert(completed.turn);
                }
                Event::ToolCompleted(ended) | Event::ToolFailed(ended) => {
                    counts.recorded_results += before_crash;
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
