//! A background actor of the simulation that stops sandboxes which nobody uses, as the engine does.

use longhaul_core::change::{SandboxFilter, SandboxRow};
use longhaul_core::port::sandbox::{SandboxError, SandboxState};
use longhaul_core::port::store::{AppendRequest, AppendResult, JournalAuthor};
use longhaul_run::change_idle_sandbox;

use crate::sim::SimError;
use crate::sim::driver::SimServices;
use crate::sim::sandboxes::{SIM_PROVIDER, SIM_SLOTS, sandbox_name, stop_by_name};

/// Returns the sandboxes that exist according to the store.
pub async fn existing_sandboxes(services: &SimServices) -> Result<Vec<SandboxRow>, SimError> {
    let filter = SandboxFilter { limit: 1_000, ..SandboxFilter::default() };
    let rows = services.records.list_sandboxes(filter).await?;
    let used = rows.iter().filter(|row| row.state.holds_slot()).count();
    if used > SIM_SLOTS as usize {
        return Err(format!("{used} sandboxes occupy {SIM_SLOTS} slots").into());
    }
    Ok(rows)
}

/// Stops idle sandboxes: those of ended runs, some others, and as many as are needed for waiting
/// runs. At times it is interrupted before the stop is finished. Returns whether anything changed.
pub async fn stop_idle_sandboxes(
    services: &SimServices,
    choose: &mut dyn FnMut(usize) -> usize,
) -> Result<bool, SimError> {
    let queue = services.records.wake_runs_for_free_slots(SIM_PROVIDER, SIM_SLOTS).await?;
    let mut has_changed = false;
    for row in existing_sandboxes(services).await? {
        let is_due = row.owner_ended || queue.waiting > 0 || choose(4) == 3;
        let stopping = if row.state == SandboxState::Stopping {
            Some(row)
        } else if row.state.holds_slot() && row.idle_since.is_some() && is_due {
            record(services, &row, SandboxState::Stopping).await?
        } else {
            None
        };
        let Some(row) = stopping else { continue };
        if choose(4) == 3 {
            continue;
        }
        let name = sandbox_name(&row.event);
        let state = match stop_by_name(&services.world.sandboxes, &name).await {
            Ok(()) => SandboxState::Stopped,
            Err(SandboxError::NotFound) => SandboxState::Lost,
            Err(error) => return Err(error.into()),
        };
        has_changed |= record(services, &row, state).await?.is_some();
    }
    Ok(has_changed)
}

/// Records a new state of an idle sandbox and returns its new row. `None` means that its owner has
/// continued meanwhile.
async fn record(
    services: &SimServices,
    row: &SandboxRow,
    state: SandboxState,
) -> Result<Option<SandboxRow>, SimError> {
    let now = services.records.now().await?;
    let (new_row, batch) = change_idle_sandbox(row, state, (now, None));
    if row.owner_ended {
        let updated = services.records.update_sandbox_of_ended_run(new_row.clone(), row.state);
        return Ok(updated.await?.then_some(new_row));
    }
    let Some(owner) = services.store.get_run(row.owner).await? else { return Ok(None) };
    if !existing_sandboxes(services).await?.contains(row) {
        return Ok(None);
    }
    let author = JournalAuthor::Closer { after: owner.last_seq };
    let append = AppendRequest { run: row.owner, author, batch };
    let appended = services.store.append_to_journal(append).await?;
    Ok(matches!(appended, AppendResult::Committed { .. }).then_some(new_row))
}
