//! Sandboxes of the simulation: drivers open them at a fake provider, and a background actor stops
//! those that nobody uses.

use longhaul_core::change::{SandboxFilter, SandboxRow};
use longhaul_core::event::environment::SandboxEvent;
use longhaul_core::port::sandbox::{
    Isolation, SandboxError, SandboxSpec, SandboxState, Sandboxes as _,
};
use longhaul_core::port::store::{AppendRequest, AppendResult, JournalAuthor};
use longhaul_run::input::{SandboxChange, SandboxPlan};
use longhaul_run::{Run, RunInput, change_idle_sandbox};

use crate::fake_sandboxes::{FAKE_PROVIDER, FakeSandboxes, SandboxOp};
use crate::sim::SimError;
use crate::sim::driver::SimServices;

/// Name of the provider of all sandboxes.
pub const SIM_PROVIDER: &str = FAKE_PROVIDER;

/// Maximum number of sandboxes that run concurrently. Low, so that runs wait for a slot.
pub const SIM_SLOTS: u32 = 2;

/// Returns the next input of a run whose sandbox must be opened, as if opening it always succeeded.
pub(crate) fn open_sim_sandbox(run: &Run) -> RunInput {
    let sandbox = run.control().sandbox.as_deref();
    match sandbox.filter(|sandbox| sandbox.state.holds_slot()) {
        None => {
            let event =
                SandboxEvent { provider: SIM_PROVIDER.to_owned(), ..SandboxEvent::default() };
            RunInput::OpenSandbox(Box::new(SandboxPlan { event, capacity: SIM_SLOTS }))
        }
        Some(sandbox) => {
            let handle = sandbox.event.sandbox.to_string();
            let isolation = Isolation::Remote;
            RunInput::SandboxChanged(SandboxChange::Running { handle, isolation })
        }
    }
}

/// Opens the sandbox of a run at the provider, which fails at times. Returns the input that says
/// what has changed.
pub(crate) async fn open_at_provider(
    run: &Run,
    provider: &FakeSandboxes,
    choose: &mut dyn FnMut(usize) -> usize,
) -> RunInput {
    let sandbox = run.control().sandbox.as_deref();
    let Some(sandbox) = sandbox.filter(|sandbox| sandbox.state.holds_slot()) else {
        return open_sim_sandbox(run);
    };
    let name = sandbox_name(&sandbox.event);
    let (op, is_created) = match (sandbox.state, sandbox.event.handle.is_empty()) {
        (SandboxState::Stopping, _) => (SandboxOp::Stop, false),
        (_, true) => (SandboxOp::Create, true),
        (_, false) => (SandboxOp::Start, false),
    };
    fail_sometimes(provider, (op, &name), choose);
    let spec = SandboxSpec { name: name.clone(), ..SandboxSpec::default() };
    let opened = match (op, is_created) {
        (SandboxOp::Stop, _) => match stop_by_name(provider, &name).await {
            Ok(()) => return RunInput::SandboxChanged(SandboxChange::Stopped),
            Err(error) => Err(error),
        },
        (_, true) => provider.create(&spec).await,
        (_, false) => provider.start(&sandbox.event.handle, &spec).await,
    };
    RunInput::SandboxChanged(match opened {
        Ok(opened) => {
            let (handle, isolation) = (opened.info().handle.clone(), opened.info().isolation);
            SandboxChange::Running { handle, isolation }
        }
        Err(error) => SandboxChange::Failed(error),
    })
}

/// Lets the next call of the provider fail at times, in a way that is possible for this sandbox.
pub fn fail_sometimes(
    provider: &FakeSandboxes,
    (op, name): (SandboxOp, &str),
    choose: &mut dyn FnMut(usize) -> usize,
) {
    let is_running = provider.running().iter().any(|running| running == name);
    let error = match (choose(16), is_running) {
        (1 | 2, _) => SandboxError::Unavailable("timeout".to_owned()),
        (3, _) => {
            provider.lose(name);
            return;
        }
        (4, false) if op != SandboxOp::Stop => SandboxError::NoCapacity("full".to_owned()),
        (5, false) if op != SandboxOp::Stop => SandboxError::Refused("no image".to_owned()),
        _ => return,
    };
    provider.fail_next(op, error);
}

/// Returns the name of a sandbox at the provider, as the engine derives it.
fn sandbox_name(event: &SandboxEvent) -> String {
    format!("lh-{}", event.sandbox.to_string().replace('_', "-"))
}

async fn stop_by_name(provider: &FakeSandboxes, name: &str) -> Result<(), SandboxError> {
    let listed = provider.list(&Default::default()).await?;
    let found = listed.into_iter().find(|info| info.name == name);
    provider.stop(&found.ok_or(SandboxError::NotFound)?.handle).await
}

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
    let mut has_changed = queue.woken > 0;
    for row in existing_sandboxes(services).await? {
        let is_due = row.owner_ended || queue.waiting > 0 || choose(4) == 3;
        let stopping = match row.state {
            SandboxState::Stopping => Some(row),
            state if state.holds_slot() && row.idle_since.is_some() && is_due => {
                record(services, &row, SandboxState::Stopping).await?
            }
            _ => None,
        };
        let Some(row) = stopping else { continue };
        has_changed = true;
        if choose(4) == 3 {
            continue;
        }
        let name = sandbox_name(&row.event);
        let state = match stop_by_name(&services.world.sandboxes, &name).await {
            Ok(()) => SandboxState::Stopped,
            Err(SandboxError::NotFound) => SandboxState::Lost,
            Err(error) => return Err(error.into()),
        };
        record(services, &row, state).await?;
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
