//! Checks that results are lost only in crashes: a result that a driver had received is in the
//! journal, or is stored as a late result.

use std::collections::BTreeSet;

use longhaul_core::event::Event;
use longhaul_core::event::entry::JournalEntry;
use longhaul_core::event::tool::ToolOutput;
use longhaul_core::id::{CallId, RunId};

use crate::sim::SimError;
use crate::sim::driver::SimServices;
use crate::sim::external_world::ExternalWorld;

/// Checks the reported violations and the results that drivers had received.
pub async fn check_lost_results(
    services: &SimServices,
    journals: &[(RunId, Vec<JournalEntry>)],
) -> Result<(), SimError> {
    if let Some(violation) = services.world.violations().first() {
        return Err(violation.as_str().into());
    }
    let mut stored = BTreeSet::new();
    for (run, entries) in journals {
        let late_results = services.records.late_tool_results(*run).await?;
        stored.extend(late_results.into_iter().map(|result| (*run, result.call)));
        let results = entries.iter().filter_map(|entry| result(&entry.event));
        let actual =
            results.filter(|(call, output)| **output == ExternalWorld::result(*run, *call));
        stored.extend(actual.map(|(call, _)| (*run, call)));
    }
    let is_lost = |expected: &&(RunId, CallId)| !stored.contains(expected);
    match services.world.expected_results().iter().find(is_lost) {
        None => Ok(()),
        Some((run, call)) => Err(format!("{run}: the result of {call} was lost").into()),
    }
}

/// Returns the call and the result of an event, if it has one. An answer about a call whose
/// outcome is unknown is not a result.
fn result(event: &Event) -> Option<(CallId, &ToolOutput)> {
    #[expect(clippy::wildcard_enum_match_arm, reason = "only results matter here")]
    match event {
        Event::ToolCompleted(data) => Some((data.call, &data.output)),
        Event::ToolSurfaced(data) => Some((data.call, &data.output)),
        _ => None,
    }
}
