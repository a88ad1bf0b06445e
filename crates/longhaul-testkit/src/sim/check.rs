//! Invariant checks. They use only the journals and the external world, and share no code with
//! the store or the state machine, so that they can't repeat its bugs.

mod budget;
mod calls;
mod caps;
mod chains;
mod children;
mod effect_keys;
mod lanes;
mod lost_results;
mod order;
mod outcomes;
mod rules;
mod sandboxes;

use longhaul_core::event::entry::JournalEntry;
use longhaul_core::id::RunId;

pub use crate::sim::check::caps::check_caps;
pub use crate::sim::check::chains::check_chains;
pub use crate::sim::check::lost_results::check_lost_results;
pub use crate::sim::check::rules::check_rules;
pub use crate::sim::check::sandboxes::check_sandboxes;

use crate::sim::SimError;
use crate::sim::external_world::{ModelCall, ToolEffect};

/// Result of a simulation, as input of the checks.
#[derive(Debug)]
pub struct SimHistory {
    pub journals: Vec<(RunId, Vec<JournalEntry>)>,
    /// All effects on the external world.
    pub effects: Vec<ToolEffect>,
    /// All model requests.
    pub model_calls: Vec<ModelCall>,
}

impl SimHistory {
    /// Lists the events of all runs in order of time, for debugging.
    pub fn timeline(&self) -> String {
        let mut all: Vec<&JournalEntry> =
            self.journals.iter().flat_map(|(_, entries)| entries).collect();
        all.sort_by_key(|entry| (entry.at, entry.run, entry.seq));
        let line = |entry: &&JournalEntry| {
            let JournalEntry { run, seq, at, epoch, event } = entry;
            format!("{at} {run} {seq} e{epoch} {}\n", event.kind())
        };
        all.iter().map(line).collect()
    }
}

/// Checks all invariants and returns the first violation.
pub fn check(history: &SimHistory) -> Result<(), SimError> {
    let raises = children::raises_by_others(&history.journals);
    for (run, entries) in &history.journals {
        order::check(entries).map_err(|error| with_run(*run, &error))?;
        outcomes::check(entries).map_err(|error| with_run(*run, &error))?;
        calls::check(entries, &history.effects).map_err(|error| with_run(*run, &error))?;
        sandboxes::check(entries).map_err(|error| with_run(*run, &error))?;
        budget::check(entries, raises.get(run).copied().unwrap_or_default())
            .map_err(|error| with_run(*run, &error))?;
    }
    calls::check_model_calls(&history.model_calls)?;
    lanes::check(&history.journals)?;
    children::check(&history.journals)?;
    effect_keys::check(&history.journals)?;
    Ok(())
}

fn with_run(run: RunId, error: &str) -> String {
    format!("{run}: {error}")
}
