//! What was written to all journals, in the order of writing.
//!
//! Never: a place that goes back. The run that was written to last is not
//! forgotten, so no line ever gets the place of one that was.

use std::collections::BTreeMap;
use std::ops::Bound;

use longhaul_core::id::{RunId, Seq};
use longhaul_core::port::shelves::{Grown, Place, Tail};
use longhaul_core::port::store::StoreError;

use crate::mem_store::rows::Tables;

impl Tables {
    /// What was written after a place.
    pub(crate) fn tail(&self, after: Place, limit: usize) -> Result<Tail, StoreError> {
        let rows = self.after(after).take(limit);
        let entries = rows.filter_map(|(place, (run, seq))| {
            let line = self.journal.get(&(*run, *seq))?;
            let entry = self.entry(*run, *seq, line);
            Some(entry.map(|entry| (*place, entry)))
        });
        Ok(Tail {
            entries: entries.collect::<Result<_, _>>()?,
        })
    }

    /// Which journals have grown after a place.
    pub(crate) fn grown(&self, after: Place, limit: usize) -> Grown {
        let rows = || self.after(after).take(limit);
        let runs: BTreeMap<RunId, Seq> = rows().map(|(_, row)| *row).collect();
        Grown {
            runs: runs.into_iter().collect(),
            end: rows().last().map_or(after, |(place, _)| *place),
        }
    }

    /// The place of what was written last.
    pub(crate) fn end(&self) -> Place {
        let last = self.places.iter().next_back();
        last.map_or_else(Place::default, |(place, _)| *place)
    }

    /// The run that was written to last.
    pub(crate) fn newest(&self) -> Option<RunId> {
        let last = self.places.iter().next_back();
        last.map(|(_, (run, _))| *run)
    }

    fn after(&self, after: Place) -> impl Iterator<Item = (&Place, &(RunId, Seq))> {
        self.places
            .range((Bound::Excluded(after), Bound::Unbounded))
    }
}
