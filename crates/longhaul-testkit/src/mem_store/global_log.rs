//! What was written to all journals, in the order of writing.
//!
//! Never: a place that goes back. The run that was written to last is not
//! forgotten, so no line ever gets the place of one that was.

use std::collections::BTreeMap;
use std::ops::Bound;

use longhaul_core::id::{RunId, Seq};
use longhaul_core::port::records::{ChangedRuns, GlobalPage, GlobalSeq};
use longhaul_core::port::store::StoreError;

use crate::mem_store::rows::Tables;

impl Tables {
    /// What was written after a place.
    pub(crate) fn read_all(
        &self,
        after: GlobalSeq,
        limit: usize,
    ) -> Result<GlobalPage, StoreError> {
        let rows = self.rows_after(after).take(limit);
        let entries = rows.filter_map(|(place, (run, seq))| {
            let line = self.journal.get(&(*run, *seq))?;
            let entry = self.entry(*run, *seq, line);
            Some(entry.map(|entry| (*place, entry)))
        });
        Ok(GlobalPage { entries: entries.collect::<Result<_, _>>()? })
    }

    /// Which journals have grown after a place.
    pub(crate) fn changed_since(&self, after: GlobalSeq, limit: usize) -> ChangedRuns {
        let rows = || self.rows_after(after).take(limit);
        let runs: BTreeMap<RunId, Seq> = rows().map(|(_, row)| *row).collect();
        ChangedRuns {
            runs: runs.into_iter().collect(),
            end: rows().last().map_or(after, |(place, _)| *place),
        }
    }

    /// The place of what was written last.
    pub(crate) fn last_global_seq(&self) -> GlobalSeq {
        let last = self.global_log.iter().next_back();
        last.map_or_else(GlobalSeq::default, |(place, _)| *place)
    }

    /// The run that was written to last.
    pub(crate) fn last_written_run(&self) -> Option<RunId> {
        let last = self.global_log.iter().next_back();
        last.map(|(_, (run, _))| *run)
    }

    fn rows_after(&self, after: GlobalSeq) -> impl Iterator<Item = (&GlobalSeq, &(RunId, Seq))> {
        self.global_log.range((Bound::Excluded(after), Bound::Unbounded))
    }
}
