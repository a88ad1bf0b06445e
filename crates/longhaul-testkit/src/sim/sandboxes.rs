//! Sandboxes of the simulation. They have no files: opening one always succeeds.

use longhaul_core::event::environment::SandboxEvent;
use longhaul_core::port::sandbox::Isolation;
use longhaul_run::input::{SandboxChange, SandboxPlan};
use longhaul_run::{Run, RunInput};

/// Name of the provider of all sandboxes.
pub const SIM_PROVIDER: &str = "sim";

/// Maximum number of sandboxes that run concurrently. Low, so that runs wait for a slot.
pub const SIM_SLOTS: u32 = 2;

/// Returns the next input of a run whose sandbox must be opened.
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
