//! The global log: the entries of all journals in the order of writing.
//!
//! Invariant: a global sequence number is never reused. The run with the newest event is never
//! pruned for this reason.

use std::collections::BTreeMap;
use std::ops::Bound;

use longhaul_core::id::{RunId, Seq};
use longhaul_core::port::records::{ChangedRuns, GlobalJournalPage, GlobalSeq};
use longhaul_core::port::store::StoreError;

use crate::mem_store::rows::Tables;

impl Tables {
    /// Returns the entries after a global sequence number.
    pub(crate) fn read_all(
        &self,
        after: GlobalSeq,
        limit: usize,
    ) -> Result<GlobalJournalPage, StoreError> {
        let rows = self.rows_after(after).take(limit);
        let entries = rows.filter_map(|(global_seq, (run, seq))| {
            let row = self.journal.get(&(*run, *seq))?;
            let entry = self.entry(*run, *seq, row);
            Some(entry.map(|entry| (*global_seq, entry)))
        });
        Ok(GlobalJournalPage { entries: entries.collect::<Result<_, _>>()? })
    }

    /// Returns the runs that have changed after a global sequence number.
    pub(crate) fn changed_since(&self, after: GlobalSeq, limit: usize) -> ChangedRuns {
        let rows = || self.rows_after(after).take(limit);
        let runs: BTreeMap<RunId, Seq> = rows().map(|(_, row)| *row).collect();
        ChangedRuns {
            runs: runs.into_iter().collect(),
            end: rows().last().map_or(after, |(global_seq, _)| *global_seq),
        }
    }

    /// Returns the last global sequence number.
    pub(crate) fn last_global_seq(&self) -> GlobalSeq {
        let last = self.global_log.iter().next_back();
        last.map_or(self.last_deleted_global_seq, |(global_seq, _)| {
            self.last_deleted_global_seq.max(*global_seq)
        })
    }

    /// Returns the run with the newest event.
    pub(crate) fn last_written_run(&self) -> Option<RunId> {
        let last = self.global_log.iter().next_back();
        last.map(|(_, (run, _))| *run)
    }

    fn rows_after(&self, after: GlobalSeq) -> impl Iterator<Item = (&GlobalSeq, &(RunId, Seq))> {
        self.global_log.range((Bound::Excluded(after), Bound::Unbounded))
    }
}
