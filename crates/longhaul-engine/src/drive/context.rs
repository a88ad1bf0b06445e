//! The state of a driver, which executes one run: the session on the run's journal, the agent,
//! models and tools of the run, and the running tool calls.
//!
//! Invariant: the state contains nothing that must survive a crash.

use std::pin::pin;
use std::sync::Arc;

use longhaul_core::id::CallId;
use longhaul_core::port::sandbox::Sandbox;
use longhaul_core::port::store::Claim;
use longhaul_core::port::tool::RunClaimId;
use longhaul_core::time::Millis;
use longhaul_run::RunInput;

use crate::agent::Agent;
use crate::drive::abort::{AbortReason, AbortSignals, Abortable};
use crate::drive::assignment::{DriveRunOutcome, Lease, RunAssignment};
use crate::drive::calls::ActiveCalls;
use crate::drive::crash_limiter::{RunAdmission, TrialPermits};
use crate::drive::progress::ProgressThrottle;
use crate::drive::run_env::{
    ExternalTools, RunEnv, load_external_tools, load_run_agent, unregistered_tool_names,
};
use crate::drive::session::{CommitOutcome, RunSession};
use crate::error::Result;
use crate::replay::BlobTextCache;
use crate::sandboxes::ClaimedSandbox;
use crate::services::Services;
use crate::shutdown::Shutdown;

/// Maximum time to wait until external tools (such as those of MCP servers) are loaded.
const EXTERNAL_TOOLS_TIMEOUT: Millis = Millis::from_secs(90);

/// The state of a driver while it drives one run.
pub(super) struct DriveContext {
    pub(super) services: Services,
    pub(super) session: RunSession,
    pub(super) lease: Lease,
    pub(super) shutdown: Shutdown,
    /// Permits to drive this run after a crash of its worker. They limit how many such runs are driven
    /// at once, and are released when the run makes progress. `None` if the run holds no permits.
    trial: Option<TrialPermits>,
    /// Agent, models and tools of the run. `None` if they are not loaded, for example because a
    /// tool is missing and the run is blocked.
    pub(super) env: Option<RunEnv>,
    /// Sandbox of the run, if this driver has opened it.
    pub(super) sandbox: Option<Arc<ClaimedSandbox>>,
    pub(super) calls: ActiveCalls,
    /// Collector of progress reports of the running tool calls, which passes them on at a limited
    /// rate.
    pub(super) progress: ProgressThrottle,
    /// Cache of the texts of the system prompt and the tool table (list of tool definitions), if
    /// they are stored as blobs.
    pub(super) blob_texts: BlobTextCache,
}

impl DriveContext {
    /// Replays the journal of the claimed run and loads what the run needs. Also returns the first
    /// input for the state machine. It is `None` if this driver has lost its claim on the run, or
    /// has to release the run.
    pub(super) async fn open_claimed_run(
        services: &Services,
        assignment: RunAssignment,
    ) -> Result<(Self, Option<RunInput>)> {
        let mut ctx = Self {
            services: services.clone(),
            session: RunSession::open(services, assignment.worker, assignment.claim.clone())
                .await?,
            lease: assignment.lease.clone(),
            shutdown: assignment.shutdown.clone(),
            trial: None,
            env: None,
            sandbox: None,
            calls: ActiveCalls::default(),
            progress: ProgressThrottle::default(),
            blob_texts: BlobTextCache::default(),
        };
        let crashes = ctx.session.run().control().driver.crashes;
        let may_begin = match assignment.crash_limiter.admission_after_crashes(crashes) {
            RunAdmission::Free => true,
            RunAdmission::Trial { permits, delay } => {
                ctx.acquire_trial(&assignment, (permits, delay)).await?
            }
            RunAdmission::Blocked => return Ok((ctx, Some(RunInput::CrashLoop))),
        };
        // From here on a crash of this process counts for the run. A crash while it only waited
        // does not.
        let first_input = match may_begin
            && ctx.session.commit_durable(RunInput::Recover).await? == CommitOutcome::Applied
        {
            true => ctx.load_env().await?,
            false => None,
        };
        Ok((ctx, first_input))
    }

    /// Acquires the crash limiter permits that a run needs after a crash, after a delay. Returns
    /// `false` if the run has to be released. While the run waits in the queue, its drive permit is
    /// released to another run. A cancelled run needs no permits, because it only ends.
    async fn acquire_trial(
        &mut self,
        assignment: &RunAssignment,
        (permit_count, delay): (u32, Millis),
    ) -> Result<bool> {
        if delay == Millis::ZERO {
            self.trial = assignment.crash_limiter.try_acquire_permits(permit_count);
        }
        if self.trial.is_some() {
            return Ok(true);
        }
        let services = self.services.clone();
        let waiting = pin!(async {
            let acquire_permits = async {
                let place = assignment.crash_limiter.wait_for_queue_place().await;
                assignment.permit.release();
                services.notifier.notify_runs_ready();
                services.clock.sleep(delay).await;
                let trial = assignment.crash_limiter.acquire_permits(permit_count).await;
                // The next run in the queue releases its drive permit.
                drop(place);
                assignment.permit.acquire().await;
                trial
            };
            tokio::select! {
                biased;
                trial = acquire_permits => Abortable::Done(trial),
                () = assignment.shutdown.wait_for_drain_request() => Abortable::Aborted(AbortReason::Shutdown),
            }
        });
        let mut signals = AbortSignals::new(&mut self.session, &self.lease, &self.shutdown);
        match signals.wait_unless_aborted(waiting).await? {
            Abortable::Done(Abortable::Done(trial)) => self.trial = trial,
            Abortable::Aborted(reason) if !reason.ends_driver() => {}
            Abortable::Done(Abortable::Aborted(_)) | Abortable::Aborted(_) => return Ok(false),
        }
        Ok(true)
    }

    /// Returns the sandbox that a tool call works in. `None` if it works on this machine.
    pub(super) fn sandbox_of_call(&self, call: CallId) -> Option<Arc<dyn Sandbox>> {
        let is_sandboxed = self.session.run().is_call_sandboxed(call);
        let sandbox = self.sandbox.as_ref().filter(|_| is_sandboxed)?;
        Some(Arc::clone(sandbox) as Arc<dyn Sandbox>)
    }

    /// Releases the crash limiter permits once the run has made progress.
    pub(super) fn release_trial(&mut self) {
        if self.session.run().control().driver.crashes == 0 {
            self.trial = None;
        }
    }

    /// Gives up the run. If the claim is still valid and the worker shuts down, a release event is
    /// appended where possible, so that the shutdown does not count as a crash.
    pub(super) async fn stop(&mut self) -> DriveRunOutcome {
        if self.shutdown.is_draining() && !self.lease.is_lost() {
            match self.session.commit_durable(RunInput::Release).await {
                Ok(_) if self.session.run().control().driver.is_idle() => {
                    return DriveRunOutcome::Idle;
                }
                Ok(_) => {}
                Err(error) => {
                    let run = self.session.run().id();
                    tracing::warn!(%run, %error, "could not record that this worker has stopped driving the run");
                }
            }
        }
        DriveRunOutcome::Lost
    }

    /// Loads what a driver of the run needs: its agent, tools and models. Returns the next input of
    /// the state machine, which says if something is missing. `None` means that the driver must end.
    async fn load_env(&mut self) -> Result<Option<RunInput>> {
        let agent = match load_run_agent(&self.services, self.session.run()).await? {
            Ok(agent) => agent,
            Err(message) => return Ok(Some(RunInput::MissingDependency(message))),
        };
        let names = unregistered_tool_names(&self.services, &agent);
        let external_tools = match self.load_external_tools(&agent, &names).await? {
            Abortable::Done(Ok(external_tools)) => external_tools,
            Abortable::Done(Err(message)) => {
                return Ok(Some(RunInput::MissingDependency(message)));
            }
            // A cancelled run ends without external tools.
            Abortable::Aborted(reason) if !reason.ends_driver() => ExternalTools::new(),
            Abortable::Aborted(_) => return Ok(None),
        };
        let result =
            RunEnv::build_for_run(&self.services, self.session.run(), agent, external_tools);
        Ok(Some(match result {
            Ok(env) => {
                self.env = Some(env);
                RunInput::Advance
            }
            Err(blocker) => blocker.into_input(),
        }))
    }

    /// Loads external tools, but stops waiting for them if the run is cancelled or this driver has
    /// lost its claim on the run.
    async fn load_external_tools(
        &mut self,
        agent: &Agent,
        names: &[String],
    ) -> Result<Abortable<Result<ExternalTools, String>>> {
        if names.is_empty() {
            return Ok(Abortable::Done(Ok(ExternalTools::new())));
        }
        let Claim { run, epoch, .. } = *self.session.claim();
        let (services, shutdown) = (&self.services, &self.shutdown);
        let load = pin!(async {
            tokio::select! {
                biased;
                external_tools = load_external_tools(services, agent, names, RunClaimId { run, epoch }) => Abortable::Done(external_tools),
                // Nothing was started that would have to be waited for.
                () = shutdown.wait_for_drain_request() => Abortable::Aborted(AbortReason::Shutdown),
                () = services.clock.sleep(EXTERNAL_TOOLS_TIMEOUT) => Abortable::Done(Err(external_tools_timeout_message(agent, names))),
            }
        });
        // A cancelled run needs the tool of a suspended call, to tell it so.
        if self.session.run().control().has_call_to_cancel() {
            return Ok(load.await);
        }
        let mut signals = AbortSignals::new(&mut self.session, &self.lease, shutdown);
        Ok(match signals.wait_unless_aborted(load).await? {
            Abortable::Done(external_tools) => external_tools,
            Abortable::Aborted(reason) => Abortable::Aborted(reason),
        })
    }
}

/// Returns the message for a run whose external tools were not available in time.
fn external_tools_timeout_message(agent: &Agent, tool_names: &[String]) -> String {
    format!(
        "External tools of agent `{}` were not available after {} s: `{}`. Check that they can \
         be started, then resume the run or answer here to retry.",
        agent.name,
        EXTERNAL_TOOLS_TIMEOUT.0 / 1_000,
        tool_names.join("`, `")
    )
}
