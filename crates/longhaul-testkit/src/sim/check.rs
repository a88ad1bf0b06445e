//! The invariants, read from the journals and the world outside alone.
//!
//! Never: asks the store or the heart what should be. A checker that shares
//! code with what it checks finds nothing.

mod calls;
mod debts;
mod lanes;
mod money;
mod order;

use longhaul_core::event::entry::Entry;
use longhaul_core::id::RunId;

pub use crate::sim::check::debts::check_debts;

use crate::sim::Fault;
use crate::sim::outside::{Asked, Deed};

/// What is left of a history.
#[derive(Debug)]
pub struct Seen {
    /// Every journal.
    pub journals: Vec<(RunId, Vec<Entry>)>,
    /// Everything that was done to the world.
    pub deeds: Vec<Deed>,
    /// Every question to the model.
    pub asked: Vec<Asked>,
}

impl Seen {
    /// Every event of every run in the order of time, for whoever must find out
    /// what happened.
    pub fn timeline(&self) -> String {
        let mut all: Vec<&Entry> = self
            .journals
            .iter()
            .flat_map(|(_, entries)| entries)
            .collect();
        all.sort_by_key(|entry| (entry.at, entry.run, entry.seq));
        let line = |entry: &&Entry| {
            let Entry {
                run,
                seq,
                at,
                epoch,
                event,
            } = entry;
            format!("{at} {run} {seq} e{epoch} {}\n", event.kind())
        };
        all.iter().map(line).collect()
    }
}

/// Checks everything; the first violation is told.
pub fn check(seen: &Seen) -> Result<(), Fault> {
    for (run, entries) in &seen.journals {
        order::check(entries).map_err(|what| named(*run, &what))?;
        calls::check(entries, &seen.deeds).map_err(|what| named(*run, &what))?;
        money::check(entries).map_err(|what| named(*run, &what))?;
    }
    calls::asked_once(&seen.asked)?;
    lanes::check(&seen.journals)?;
    Ok(())
}

fn named(run: RunId, what: &str) -> String {
    format!("{run}: {what}")
}
