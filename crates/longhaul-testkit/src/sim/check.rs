//! The invariants, read from the journals and the world outside alone.
//!
//! Never: asks the store or the heart what should be. A checker that shares
//! code with what it checks finds nothing.

mod budget;
mod calls;
mod lanes;
mod lost_results;
mod order;

use longhaul_core::event::entry::Entry;
use longhaul_core::id::RunId;

pub use crate::sim::check::lost_results::check_lost_results;

use crate::sim::SimError;
use crate::sim::external_world::{ModelCall, ToolEffect};

/// What is left of a history.
#[derive(Debug)]
pub struct SimHistory {
    /// Every journal.
    pub journals: Vec<(RunId, Vec<Entry>)>,
    /// Everything that was done to the world.
    pub effects: Vec<ToolEffect>,
    /// Every question to the model.
    pub model_calls: Vec<ModelCall>,
}

impl SimHistory {
    /// Every event of every run in the order of time, for whoever must find out
    /// what happened.
    pub fn timeline(&self) -> String {
        let mut all: Vec<&Entry> = self.journals.iter().flat_map(|(_, entries)| entries).collect();
        all.sort_by_key(|entry| (entry.at, entry.run, entry.seq));
        let line = |entry: &&Entry| {
            let Entry { run, seq, at, epoch, event } = entry;
            format!("{at} {run} {seq} e{epoch} {}\n", event.kind())
        };
        all.iter().map(line).collect()
    }
}

/// Checks everything; the first violation is told.
pub fn check(seen: &SimHistory) -> Result<(), SimError> {
    for (run, entries) in &seen.journals {
        order::check(entries).map_err(|what| with_run(*run, &what))?;
        calls::check(entries, &seen.effects).map_err(|what| with_run(*run, &what))?;
        budget::check(entries).map_err(|what| with_run(*run, &what))?;
    }
    calls::check_model_calls(&seen.model_calls)?;
    lanes::check(&seen.journals)?;
    Ok(())
}

fn with_run(run: RunId, what: &str) -> String {
    format!("{run}: {what}")
}
