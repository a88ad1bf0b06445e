//! Opens the sandbox of a run before the first tool call that works in it.
//!
//! Invariant: the id of a sandbox is in the journal before its provider is asked to create it, so
//! that a sandbox whose creation was interrupted is found again.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use longhaul_core::change::SandboxState;
use longhaul_core::id::Epoch;
use longhaul_core::port::repositories::Repositories;
use longhaul_core::port::sandbox::{
    Sandbox, SandboxError, SandboxSecret, SandboxSpec, Sandboxes, WORKSPACE,
};

use longhaul_core::repo::RepoSource;
use longhaul_core::time::Millis;
use longhaul_run::input::SandboxChange;
use longhaul_run::state::sandbox::RunSandbox;
use longhaul_run::{Run, RunInput};

use crate::agent::config::SandboxConfig;
use crate::drive::context::DriveContext;
use crate::drive::workspace::{read_packs, restore_workspace, start_workspace};
use crate::error::Result;
use crate::sandboxes::{ClaimedSandbox, with_timeout};
use crate::services::Services;

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
        // The handle is recorded once the sandbox has its files. From then on the files belong to
        // the agent, which may have deleted the cloned repository.
        let files = match sandbox.event.handle.is_empty() {
            true => {
                let run = (&ctx.services, ctx.session.run());
                Some(SandboxFiles::of_run(run, &config, &spec).await?)
            }
            false => None,
        };
        let opening = async {
            let opening = open(&*provider, (&sandbox, &spec), Epoch(epoch));
            let opened = with_timeout((&*clock, OPEN_TIMEOUT), opening).await?;
            let opened = ClaimedSandbox::new(opened, Epoch(epoch), Arc::clone(&clock));
            if let Some(files) = &files {
                with_timeout((&*clock, FILL_TIMEOUT), files.write(&opened)).await?;
            }
            Ok(opened)
        };
        match opening.await {
            Ok(opened) => {
                let info = opened.info().clone();
                sandboxes.is_used.store(true, Ordering::Relaxed);
                ctx.sandbox = Some(Arc::new(opened));
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

/// Files that a new sandbox gets before the first call.
#[derive(Debug)]
struct SandboxFiles {
    repositories: Arc<dyn Repositories>,
    /// Repository that is cloned if the sandbox does not have it: an earlier driver may have died
    /// after the clone.
    repo: Option<RepoSource>,
    /// Commit of the last snapshot of the run, and the packs with its objects.
    snapshot: Option<(String, Vec<Vec<u8>>)>,
    /// Content of `.env` with the placeholders of the secrets.
    env: Option<String>,
}

impl SandboxFiles {
    async fn of_run(
        (services, run): (&Services, &Run),
        config: &SandboxConfig,
        spec: &SandboxSpec,
    ) -> Result<Self> {
        let snapshot = match run.control().workspace.commit.clone() {
            None => None,
            Some(commit) => Some((commit, read_packs(services, run.id()).await?)),
        };
        let line = |secret: &SandboxSecret| format!("{}={}\n", secret.name, secret.placeholder());
        let env = config.env_file.then(|| spec.secrets.iter().map(line).collect());
        let repositories = Arc::clone(&services.repositories);
        Ok(Self { repositories, repo: run.task().repo.clone(), snapshot, env })
    }

    async fn write(&self, sandbox: &dyn Sandbox) -> std::result::Result<(), SandboxError> {
        if let Some(repo) = &self.repo {
            self.repositories.clone_to_sandbox(repo, sandbox).await?;
            start_workspace(sandbox).await?;
        }
        if let Some((commit, packs)) = &self.snapshot {
            restore_workspace(sandbox, commit, packs).await?;
        }
        match &self.env {
            Some(env) => sandbox.write(&format!("{WORKSPACE}/.env"), env.as_bytes()).await,
            None => Ok(()),
        }
    }
}
