//! No result is lost but in a crash: what a driver had in its hands stands in
//! the journal, or beside it when it came too late.
//!
//! Never: asks for what a crash took.

use std::collections::BTreeSet;

use longhaul_core::event::Event;
use longhaul_core::event::entry::Entry;
use longhaul_core::event::tool::ToolOutput;
use longhaul_core::id::{CallId, RunId};

use crate::sim::SimError;
use crate::sim::driver::SimServices;
use crate::sim::external_world::ExternalWorld;

/// Checks what the world saw of the drivers themselves.
pub async fn check_lost_results(
    ports: &SimServices,
    journals: &[(RunId, Vec<Entry>)],
) -> Result<(), SimError> {
    if let Some(wrong) = ports.world.violations().first() {
        return Err(wrong.as_str().into());
    }
    let mut kept = BTreeSet::new();
    for (run, entries) in journals {
        let late = ports.records.late_results(*run).await?;
        kept.extend(late.into_iter().map(|late| (*run, late.call)));
        let results = entries.iter().filter_map(|entry| result(&entry.event));
        let real = results.filter(|(call, output)| **output == ExternalWorld::result(*run, *call));
        kept.extend(real.map(|(call, _)| (*run, call)));
    }
    let lost = |owed: &&(RunId, CallId)| !kept.contains(owed);
    match ports.world.expected_results().iter().find(lost) {
        None => Ok(()),
        Some((run, call)) => Err(format!("{run}: the result of {call} was lost").into()),
    }
}

/// The call that this fact brings a result of, and the result. What was said
/// of a call whose outcome nobody knew is none.
fn result(event: &Event) -> Option<(CallId, &ToolOutput)> {
    #[expect(clippy::wildcard_enum_match_arm, reason = "only results are looked at")]
    match event {
        Event::ToolCompleted(data) => Some((data.call, &data.output)),
        Event::ToolSurfaced(data) => Some((data.call, &data.output)),
        _ => None,
    }
}
