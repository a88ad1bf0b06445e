//! Sandboxes: calls start only in a sandbox that runs under their claim, never more sandboxes run
//! than there are slots, and those of ended runs are stopped.

use std::collections::BTreeSet;

use longhaul_core::event::Event;
use longhaul_core::event::entry::JournalEntry;
use longhaul_core::id::CallId;

use crate::sim::SimError;
use crate::sim::driver::SimServices;
use crate::sim::sandboxes::{SIM_PROVIDER, SIM_SLOTS, existing_sandboxes, stop_idle_sandboxes};

/// Number of rounds in which the sandboxes of ended runs must have been stopped.
const STOP_ROUNDS: usize = 3;

pub(super) fn check(entries: &[JournalEntry]) -> Result<(), String> {
    let mut sandboxed: BTreeSet<CallId> = BTreeSet::new();
    let mut is_open = false;
    for entry in entries {
        let started = match &entry.event {
            Event::TurnCompleted(data) => {
                let calls = data.calls.iter().zip(1..).filter(|(call, _)| call.sandboxed);
                let ids = calls.map(|(_, index)| CallId { turn: data.turn, index });
                sandboxed.extend(ids);
                None
            }
            Event::ToolStarted(data) => Some(data.call),
            Event::ToolResumed(data) => Some(data.call),
            Event::ToolVerified(data) => Some(data.call),
            _ => None,
        };
        if let Some(call) = started.filter(|call| sandboxed.contains(call) && !is_open) {
            return Err(format!("{call} started outside of a sandbox of its claim"));
        }
        let ends_use = entry.event.kind().starts_with("sandbox.")
            || matches!(entry.event, Event::RunClaimed(_) | Event::RunForked(_));
        if ends_use {
            is_open = matches!(entry.event, Event::SandboxRunning(_));
        }
    }
    Ok(())
}

/// Checks that all sandboxes can be stopped now that all runs have ended, and that there were never
/// too many.
pub async fn check_sandboxes(services: &SimServices) -> Result<(), SimError> {
    for _ in 0..STOP_ROUNDS {
        stop_idle_sandboxes(services, &mut |_| 0).await?;
    }
    for row in existing_sandboxes(services).await? {
        if row.state.holds_slot() || !row.owner_ended {
            return Err(format!("the sandbox of an ended run is not stopped: {row:?}").into());
        }
    }
    let provider = &services.world.sandboxes;
    let (running, running_max) = (provider.running(), provider.running_max());
    if !running.is_empty() || running_max > SIM_SLOTS as usize {
        return Err(format!("{running_max} sandboxes ran at once, and now run: {running:?}").into());
    }
    let queue = services.records.wake_runs_for_free_slots(SIM_PROVIDER, SIM_SLOTS).await?;
    match queue.waiting + queue.woken {
        0 => Ok(()),
        _ => Err(format!("ended runs wait for slots: {queue:?}").into()),
    }
}
