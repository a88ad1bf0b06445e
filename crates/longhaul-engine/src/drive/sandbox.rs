//! Opens the sandbox of a run before the first tool call that works in it.
//!
//! Invariant: the id of a sandbox is in the journal before its provider is asked to create it, so
//! that a sandbox whose creation was interrupted is found again.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use longhaul_core::change::SandboxState;
use longhaul_core::id::Epoch;
use longhaul_core::port::sandbox::{Sandbox, SandboxError, SandboxSpec, Sandboxes, WORKSPACE};
use longhaul_core::time::{Clock, Millis};
use longhaul_run::RunInput;
use longhaul_run::input::SandboxChange;
use longhaul_run::state::sandbox::RunSandbox;

use crate::drive::context::DriveContext;
use crate::error::Result;
use crate::panics::guard;
use crate::sandboxes::ClaimedSandbox;

/// Timeout for creating, starting or stopping a sandbox. Shorter than the time after which a driver
/// counts as stalled.
const OPEN_TIMEOUT: Millis = Millis::from_secs(5 * 60);

/// Timeout for cloning the repository of the run into a sandbox. A driver that opens and fills a
/// sandbox for longer than both timeouts would count as stalled.
const FILL_TIMEOUT: Millis = Millis::from_secs(4 * 60);

/// Opens the sandbox of the run. The returned input says what has changed. `None` if the agent of
/// the run is not loaded.
pub(super) async fn open_run_sandbox(ctx: &mut DriveContext) -> Result<Option<RunInput>> {
    let Some(env) = &ctx.env else { return Ok(None) };
    let missing = |message: String| Ok(Some(RunInput::MissingDependency(message)));
    let Some(config) = env.agent.sandbox_config().cloned() else {
        let agent = &env.agent.name;
        return missing(format!("Agent `{agent}` has no `sandbox`, but its tool calls need one."));
    };
    let sandboxes = ctx.services.sandboxes.clone();
    let sandbox = ctx.session.run().control().sandbox.as_deref().cloned();
    let sandbox = sandbox.filter(|sandbox| sandbox.state.holds_slot());
    let Some(sandbox) = sandbox else {
        return match sandboxes.plan(&config) {
            Ok(plan) => Ok(Some(RunInput::OpenSandbox(Box::new(plan)))),
            Err(message) => missing(message),
        };
    };
    let provider = match sandboxes.find_provider(&sandbox.event.provider) {
        Ok(provider) => Arc::clone(provider),
        Err(message) => return missing(message),
    };
    if !ctx.lease.wait_until_valid().await {
        return Ok(None);
    }
    let clock = Arc::clone(&ctx.services.clock);
    let change = if sandbox.state == SandboxState::Stopping {
        let stop = async {
            let handle = sandboxes.find_handle(&*provider, &sandbox.event).await?;
            provider.stop(&handle).await
        };
        match with_timeout((&*clock, OPEN_TIMEOUT), stop).await {
            Ok(()) => SandboxChange::Stopped,
            Err(error) => SandboxChange::Failed(error),
        }
    } else {
        let epoch = sandbox.event.earlier_epochs + ctx.session.claim().epoch.0;
        let spec = sandboxes.spec(&config, &sandbox.event);
        let repo = ctx.session.run().task().repo.clone();
        let repositories = Arc::clone(&ctx.services.repositories);
        let opening = async {
            let opening = open(&*provider, (&sandbox, &spec), Epoch(epoch));
            let opened = with_timeout((&*clock, OPEN_TIMEOUT), opening).await?;
            let filling = async {
                if let Some(repo) = &repo {
                    repositories.clone_to_sandbox(repo, &*opened).await?;
                }
                let needs_env = config.env_file && sandbox.state == SandboxState::Creating;
                if needs_env { write_env_file(&*opened, &spec).await } else { Ok(()) }
            };
            with_timeout((&*clock, FILL_TIMEOUT), filling).await.map(|()| opened)
        };
        match opening.await {
            Ok(opened) => {
                let info = opened.info().clone();
                sandboxes.is_used.store(true, Ordering::Relaxed);
                ctx.sandbox = Some(Arc::new(ClaimedSandbox::new(opened, Epoch(epoch), clock)));
                SandboxChange::Running { handle: info.handle, isolation: info.isolation }
            }
            Err(error) => SandboxChange::Failed(error),
        }
    };
    Ok(Some(RunInput::SandboxChanged(change)))
}

/// Creates or starts a sandbox, and kills what earlier drivers have left running in it.
async fn open(
    provider: &dyn Sandboxes,
    (sandbox, spec): (&RunSandbox, &SandboxSpec),
    epoch: Epoch,
) -> Result<Arc<dyn Sandbox>, SandboxError> {
    // The creation of a sandbox without a handle was not answered.
    let opened = match sandbox.event.handle.is_empty() {
        true => provider.create(spec).await?,
        false => provider.start(&sandbox.event.handle, spec).await?,
    };
    opened.kill_commands_before(epoch).await?;
    Ok(opened)
}

/// Writes the placeholders of the secrets to `.env` in the work folder.
async fn write_env_file(sandbox: &dyn Sandbox, spec: &SandboxSpec) -> Result<(), SandboxError> {
    let secrets = spec.secrets.iter();
    let lines = secrets.map(|secret| format!("{}={}\n", secret.name, secret.placeholder()));
    let content = lines.collect::<String>();
    sandbox.write(&format!("{WORKSPACE}/.env"), content.as_bytes()).await
}

async fn with_timeout<T>(
    (clock, timeout): (&dyn Clock, Millis),
    work: impl Future<Output = Result<T, SandboxError>>,
) -> Result<T, SandboxError> {
    let unavailable =
        |error: crate::panics::GuardError| SandboxError::Unavailable(error.to_string());
    guard(clock, timeout, work).await.map_err(unavailable)?
}
