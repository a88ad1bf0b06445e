//! Sandboxes of the simulation: drivers open them at a fake provider, which fails at times.

use longhaul_core::event::environment::{SandboxEvent, SavedFiles};
use longhaul_core::port::sandbox::{
    Isolation, SandboxError, SandboxSpec, SandboxState, Sandboxes as _,
};
use longhaul_run::input::{SandboxChange, SandboxPlan};
use longhaul_run::{Run, RunInput};

use crate::fake_sandboxes::{FAKE_PROVIDER, FakeSandboxes, SandboxOp};

/// Name of the provider of all sandboxes.
pub const SIM_PROVIDER: &str = FAKE_PROVIDER;

/// Maximum number of sandboxes that run concurrently. Low, so that runs wait for a slot.
pub const SIM_SLOTS: u32 = 2;

/// Returns the input that the files of the sandbox have not changed.
pub(crate) fn unchanged_workspace() -> RunInput {
    RunInput::WorkspaceSaved(SavedFiles::Unchanged, Vec::new())
}

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
    let is_stopping = sandbox.state == SandboxState::Stopping;
    let op = match sandbox.event.handle.is_empty() {
        _ if is_stopping => SandboxOp::Stop,
        true => SandboxOp::Create,
        false => SandboxOp::Start,
    };
    fail_sometimes(provider, (op, &name), choose);
    let spec = SandboxSpec { name: name.clone(), ..SandboxSpec::default() };
    if is_stopping {
        let stopped = stop_by_name(provider, &name).await;
        let change = stopped.map_or_else(SandboxChange::Failed, |()| SandboxChange::Stopped);
        return RunInput::SandboxChanged(change);
    }
    let opened = match op == SandboxOp::Create {
        true => provider.create(&spec).await,
        false => provider.start(&sandbox.event.handle, &spec).await,
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
pub(crate) fn sandbox_name(event: &SandboxEvent) -> String {
    format!("lh-{}", event.sandbox.to_string().replace('_', "-"))
}

pub(crate) async fn stop_by_name(provider: &FakeSandboxes, name: &str) -> Result<(), SandboxError> {
    let listed = provider.list(&Default::default()).await?;
    let found = listed.into_iter().find(|info| info.name == name);
    provider.stop(&found.ok_or(SandboxError::NotFound)?.handle).await
}
