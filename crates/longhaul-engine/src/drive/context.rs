//! What a driver has before it: the journal, the capsule, the calls under way.
//!
//! Never: keeps anything that a crash could miss.

use std::pin::pin;

use longhaul_core::port::model::ModelRequest;
use longhaul_core::port::store::Claim;
use longhaul_core::port::tool::ClaimId;
use longhaul_core::time::Millis;
use longhaul_run::Input;

use crate::agent::Agent;
use crate::blob_texts::BlobTextCache;
use crate::blocker::Blocker;
use crate::crash_guard::{Admission, Trial};
use crate::drive::abort::{AbortReason, AbortSignals, Raced};
use crate::drive::assignment::{Assignment, DriveOutcome};
use crate::drive::calls::RunningCalls;
use crate::drive::progress::ProgressThrottle;
use crate::error::Error;
use crate::lease::Lease;
use crate::run_env::{ExternalTools, RunEnv, load_external_tools, missing_tools, pinned_agent};
use crate::run_session::{CommitOutcome, RunSession};
use crate::services::EngineServices;
use crate::shutdown::Shutdown;

/// So long is waited for all that others bring.
const EXTERNAL_TOOLS_TIMEOUT: Millis = Millis::from_secs(90);

/// What a driver has before it.
#[derive(Debug)]
pub(super) struct DriveContext {
    pub(super) services: EngineServices,
    pub(super) session: RunSession,
    pub(super) lease: Lease,
    pub(super) shutdown: Shutdown,
    /// Held after a crash, until the run has made progress.
    trial: Option<Trial>,
    /// None: a part is missing, and the run waits for it.
    pub(super) env: Option<RunEnv>,
    pub(super) calls: RunningCalls,
    /// How far the calls are.
    pub(super) progress: ProgressThrottle,
    /// Prompt and table, read once.
    blob_texts: BlobTextCache,
}

/// How a driver finds the run.
pub(super) enum Setup {
    /// Everything that it needs is here.
    Ready,
    /// This is not.
    Blocked(Blocker),
    /// Its drivers died at the same place too often.
    CrashLoop,
    /// The run is not ours any more, or is to be let go of.
    Lost,
}

impl DriveContext {
    /// Folds the journal and looks up what the run needs.
    pub(super) async fn open(
        ports: &EngineServices,
        charge: Assignment,
    ) -> Result<(Self, Setup), Error> {
        let mut desk = Self {
            services: ports.clone(),
            session: RunSession::open(ports, charge.worker, charge.claim.clone()).await?,
            lease: charge.lease.clone(),
            shutdown: charge.shutdown.clone(),
            trial: None,
            env: None,
            calls: RunningCalls::default(),
            progress: ProgressThrottle::default(),
            blob_texts: BlobTextCache::default(),
        };
        let crashes = desk.session.run().control().crashes;
        let may_begin = match charge.crash_guard.admission(crashes) {
            Admission::Free => true,
            Admission::Trial { permits } => desk.begin_trial(&charge, permits).await?,
            Admission::Blocked => return Ok((desk, Setup::CrashLoop)),
        };
        // From here on a death of this process counts; one that only waited does not.
        let arrived = match may_begin
            && desk.session.commit_durable(Input::Recover).await? == CommitOutcome::Applied
        {
            true => desk.load_env().await?,
            false => Setup::Lost,
        };
        Ok((desk, arrived))
    }

    /// Takes as many permits of the crash guard as the run needs; false: let go. While it
    /// waits another run may have its slot. A run that was cancelled needs neither to come
    /// to its end.
    async fn begin_trial(&mut self, charge: &Assignment, permits: u32) -> Result<bool, Error> {
        self.trial = charge.crash_guard.try_trial(permits);
        if self.trial.is_some() {
            return Ok(true);
        }
        charge.permit.release();
        self.services.notifier.work_available();
        let waiting = pin!(async {
            let admitted = async {
                let trial = charge.crash_guard.trial(permits).await;
                charge.permit.acquire().await;
                trial
            };
            tokio::select! {
                biased;
                trial = admitted => Raced::Done(trial),
                () = charge.shutdown.draining() => Raced::Aborted(AbortReason::Shutdown),
            }
        });
        let mut ears = AbortSignals::new(&mut self.session, &self.lease, &self.shutdown);
        match ears.race(waiting).await? {
            Raced::Done(Raced::Done(trial)) => self.trial = trial,
            Raced::Aborted(AbortReason::Cancelled | AbortReason::Interrupted) => {}
            Raced::Done(Raced::Aborted(_))
            | Raced::Aborted(AbortReason::Shutdown | AbortReason::Lost) => return Ok(false),
        }
        Ok(true)
    }

    /// Lets the next run be on trial once this one has made progress.
    pub(super) fn end_trial(&mut self) {
        if self.session.run().control().crashes == 0 {
            self.trial = None;
        }
    }

    /// Lets go of a run that this worker does not go on with. One that is still ours when
    /// the worker stops is released where it can be, so that this does not count as a crash.
    pub(super) async fn release(&mut self) -> DriveOutcome {
        if self.shutdown.is_draining() && !self.lease.is_lost() {
            match self.session.commit_durable(Input::Release).await {
                Ok(_) if self.session.run().control().idle.is_some() => return DriveOutcome::Idle,
                Ok(_) => {}
                Err(error) => {
                    let run = self.session.run().id();
                    tracing::warn!(%run, %error, "its release could not be recorded");
                }
            }
        }
        DriveOutcome::Lost
    }

    async fn load_env(&mut self) -> Result<Setup, Error> {
        let agent = match pinned_agent(&self.services, self.session.run()).await? {
            Ok(agent) => agent,
            Err(sentence) => return Ok(Setup::Blocked(sentence.into())),
        };
        let names = missing_tools(&self.services, &agent);
        let brought = match self.load_external_tools(&agent, &names).await? {
            Raced::Done(Ok(brought)) => brought,
            Raced::Done(Err(sentence)) => return Ok(Setup::Blocked(sentence.into())),
            // To come to its end it needs nothing of others.
            Raced::Aborted(AbortReason::Cancelled | AbortReason::Interrupted) => {
                ExternalTools::new()
            }
            Raced::Aborted(AbortReason::Shutdown | AbortReason::Lost) => return Ok(Setup::Lost),
        };
        let opened = RunEnv::build(&self.services, self.session.run(), agent, brought);
        Ok(match opened {
            Ok(capsule) => {
                self.env = Some(capsule);
                Setup::Ready
            }
            Err(lack) => Setup::Blocked(lack),
        })
    }

    /// Waits for what others bring, and hears meanwhile what is said to the run.
    async fn load_external_tools(
        &mut self,
        agent: &Agent,
        names: &[String],
    ) -> Result<Raced<Result<ExternalTools, String>>, Error> {
        if names.is_empty() {
            return Ok(Raced::Done(Ok(ExternalTools::new())));
        }
        let Claim { run, epoch, .. } = *self.session.claim();
        let (ports, stop) = (&self.services, &self.shutdown);
        let bringing = pin!(async {
            tokio::select! {
                biased;
                brought = load_external_tools(ports, agent, names, ClaimId { run, epoch }) => Raced::Done(brought),
                // Nothing was begun that would be waited for.
                () = stop.draining() => Raced::Aborted(AbortReason::Shutdown),
                () = ports.clock.sleep(EXTERNAL_TOOLS_TIMEOUT) => Raced::Done(Err(external_tools_timeout_message(agent, names))),
            }
        });
        let mut ears = AbortSignals::new(&mut self.session, &self.lease, stop);
        Ok(match ears.race(bringing).await? {
            Raced::Done(brought) => brought,
            Raced::Aborted(cut) => Raced::Aborted(cut),
        })
    }

    /// The question with prompt and table as texts: a model knows no blobs.
    pub(super) async fn inline_blobs(&mut self, ask: ModelRequest) -> Result<ModelRequest, Error> {
        self.blob_texts.inline_blobs(&*self.services.records, ask).await
    }
}

/// What is said of tools that nobody brought in time.
fn external_tools_timeout_message(agent: &Agent, names: &[String]) -> String {
    format!(
        "Agent `{}` uses what others bring, and after {} s not all of it was there: `{}`. See \
         whether it can be started, then answer here: it is asked for again.",
        agent.name,
        EXTERNAL_TOOLS_TIMEOUT.0 / 1_000,
        names.join("`, `")
    )
}
