//! The loop in which a worker claims runs until shutdown is requested.

use longhaul_core::event::EVENT_FORMAT;
use longhaul_core::port::queue::RunsToClaim;
use longhaul_core::port::store::{Claim, RunClaimRequest, StoreError};
use longhaul_core::port::tool::RunClaimId;
use longhaul_core::time::Millis;

use crate::drive::assignment::{DrivePermit, RunAssignment};
use crate::error::{Error, Result};
use crate::notifier::ReadyRunsSubscription;
use crate::services::Services;
use crate::shutdown::Shutdown;
use crate::worker::filter::FilteredQueue;
use crate::worker::identity::HeartbeatSender;
use crate::worker::intake::WorkerIntake;
use crate::worker::options::WorkerOptions;
use crate::worker::pool::{DriverPool, Permits, release_run};

/// Maximum number of runs that are claimed at once.
const CLAIM_MAX: usize = 64;

/// Delay before a failed access to the store is retried.
pub(super) const STORE_RETRY_DELAY: Millis = Millis(500);

/// The loop in which a worker claims runs.
#[derive(Debug)]
pub(super) struct ClaimLoop<'a> {
    pub(super) services: &'a Services,
    pub(super) options: &'a WorkerOptions,
    pub(super) heartbeats: &'a HeartbeatSender,
    pub(super) shutdown: &'a Shutdown,
    pub(super) pool: &'a mut DriverPool,
    pub(super) intake: &'a WorkerIntake,
    /// Reader of the queued runs that the task filter accepts. `None` if the worker has no filter.
    pub(super) filtered: Option<FilteredQueue>,
    /// Number of claims so far, from which the inbox that is served first is chosen.
    pub(super) turn: usize,
    /// Whether a run was claimed since the hook `on_no_run_found` was called last.
    pub(super) has_claimed: bool,
}

/// Outcome of an attempt to claim runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ClaimOutcome {
    /// As many runs were claimed as the worker had free permits to drive runs.
    Full,
    /// Some runs were claimed, but fewer than the worker had free permits to drive runs.
    Some,
    /// No run was found that this worker may claim.
    Empty,
    /// Nothing was claimed, although runs may be ready: the lease of the worker is not valid, the
    /// store refused the claim, other workers were faster, or the filter can't be called.
    Nothing,
}

impl ClaimLoop<'_> {
    /// Claims runs until shutdown is requested.
    pub(super) async fn run_until_shutdown(mut self) -> Result<()> {
        let mut work = self.services.notifier.subscribe_to_ready_runs();
        // Set when the response to a claim was lost, so that runs may have been claimed without our
        // knowledge.
        let mut is_uncertain = false;
        while !self.shutdown.is_draining() {
            if is_uncertain {
                let notifier = &self.services.notifier;
                let is_lost = |claim| !notifier.is_claim_driven(claim);
                match release_claims_if(self.services, self.heartbeats, is_lost).await {
                    Ok(()) => is_uncertain = false,
                    Err(error) => {
                        self.wait_after(error).await?;
                        continue;
                    }
                }
            }
            let permits = self.pool.take_free_permits(CLAIM_MAX);
            if !permits.is_empty() {
                match self.claim_runs(permits).await {
                    Ok(ClaimOutcome::Full) => continue,
                    Ok(ClaimOutcome::Some | ClaimOutcome::Empty) if self.has_unfiltered_runs() => {
                        continue;
                    }
                    Ok(ClaimOutcome::Empty) if self.is_hook_due() => {
                        self.has_claimed = false;
                        self.pool.start_no_run_found_hook();
                    }
                    Ok(ClaimOutcome::Some | ClaimOutcome::Empty | ClaimOutcome::Nothing) => {}
                    Err(error) => {
                        if let Some(filtered) = &mut self.filtered {
                            filtered.rewind_to_last_page();
                        }
                        self.wait_after(error).await?;
                        is_uncertain = true;
                        continue;
                    }
                }
            }
            let is_changed = tokio::select! {
                biased;
                () = self.shutdown.wait_for_drain_request() => return Ok(()),
                is_changed = self.wait_for_queue_change(&mut work) => is_changed,
            };
            if let Some(filtered) = &mut self.filtered {
                filtered.set_next_page_start(is_changed);
            }
        }
        Ok(())
    }

    /// Waits until the queues may have changed, a driver has ended or the poll interval has passed.
    /// Returns whether the queues may have changed.
    async fn wait_for_queue_change(&mut self, work: &mut ReadyRunsSubscription) -> bool {
        let clock = &self.services.clock;
        if let Some(filtered) = &self.filtered {
            clock.sleep(filtered.delay_before_next_read()).await;
        }
        tokio::select! {
            biased;
            () = self.pool.wait_for_any_driver() => false,
            () = work.wait_for_ready_runs() => true,
            () = clock.sleep(self.options.poll) => false,
        }
    }

    /// Claims at most one run per permit and starts their drivers.
    async fn claim_runs(&mut self, permits: Permits) -> Result<ClaimOutcome> {
        let (identity, requested) = (self.heartbeats.current_identity(), permits.len());
        // Every inbox is served first in turn, so that none starves.
        let mut inboxes = self.options.inboxes.clone();
        let first = self.turn.checked_rem(inboxes.len()).unwrap_or(0);
        inboxes.rotate_left(first);
        self.turn = self.turn.wrapping_add(1);
        let prepare = async {
            let may_begin = identity.lease.wait_until_valid().await;
            let accepted = match &mut self.filtered {
                Some(filtered) if may_begin => {
                    Some(filtered.next_accepted_runs(&inboxes, requested).await?)
                }
                Some(_) | None => None,
            };
            Ok::<_, Error>((may_begin, accepted))
        };
        // Only this wait may be cancelled: a claim that was sent must be completed.
        let (may_begin, accepted_runs) = tokio::select! {
            biased;
            () = self.shutdown.wait_for_drain_request() => (false, None),
            prepared = prepare => prepared?,
        };
        if !may_begin {
            return Ok(ClaimOutcome::Nothing);
        }
        let accepted = accepted_runs.as_ref().map(Vec::len);
        if let Some(filtered) = &self.filtered {
            self.heartbeats.set_claiming(!filtered.is_blocked());
            if accepted == Some(0) {
                let is_blocked = filtered.is_blocked();
                return Ok(if is_blocked { ClaimOutcome::Nothing } else { ClaimOutcome::Empty });
            }
        }
        let only = match accepted_runs {
            Some(runs) => Some(RunsToClaim::Runs(runs)),
            None => self.options.only_tree.map(RunsToClaim::Tree),
        };
        let request = RunClaimRequest {
            worker: identity.worker,
            inboxes,
            types: self.options.types.clone(),
            only,
            limit: requested,
            format: EVENT_FORMAT,
            host: Some(self.options.host.clone()),
        };
        let claimed = self.services.store.claim_runs(request).await?;
        let claimed_count = claimed.len();
        if let Some(filtered) = self.filtered.as_mut().filter(|_| Some(claimed_count) < accepted) {
            filtered.rewind_to_last_page();
        }
        self.has_claimed |= claimed_count > 0;
        for (claim, permit) in claimed.into_iter().zip(permits) {
            self.pool.start_driver(RunAssignment {
                claim,
                worker: identity.worker,
                lease: identity.lease.clone(),
                shutdown: self.shutdown.clone(),
                crash_limiter: identity.crash_limiter.clone(),
                permit: DrivePermit::new(permit),
            });
        }
        Ok(match claimed_count {
            0 if accepted.is_some() || self.has_ready_run().await? => ClaimOutcome::Nothing,
            0 => ClaimOutcome::Empty,
            _ if claimed_count == requested => ClaimOutcome::Full,
            _ => ClaimOutcome::Some,
        })
    }

    /// Returns whether the hook `on_no_run_found` has to be called if no run is ready.
    fn is_hook_due(&self) -> bool {
        self.has_claimed && self.pool.is_empty() && !self.intake.has_busy_inbox()
    }

    /// Returns whether a run is ready although a claim has returned none, because the store refused
    /// the claim. Only checked if the hook `on_no_run_found` would be called otherwise.
    async fn has_ready_run(&self) -> Result<bool> {
        if !self.is_hook_due() {
            return Ok(false);
        }
        for inbox in &self.options.inboxes {
            let request = self.options.peek_request(inbox, None, 1);
            if !self.services.store.peek_queue(request).await?.is_empty() {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Returns whether the queue has runs for which the worker's task filter was not called yet.
    fn has_unfiltered_runs(&self) -> bool {
        self.filtered.as_ref().is_some_and(|filtered| !filtered.is_at_end())
    }

    /// Waits before a retry if the error says that the store is busy or full. Any other error is
    /// returned.
    async fn wait_after(&self, error: Error) -> Result<()> {
        let Error::Store(StoreError::Busy { .. } | StoreError::DiskFull { .. }) = error else {
            return Err(error);
        };
        tracing::warn!(%error, "the store is busy; retrying the claim");
        let clock = &self.services.clock;
        clock.sleep(STORE_RETRY_DELAY).await;
        Ok(())
    }
}

/// Releases those runs claimed by this worker for which `is_released` is true: runs that it does
/// not drive, because the response to the claim was lost or their driver was aborted. The runs are
/// claimed again under a new epoch (claim number), in which no call was started yet.
pub(super) async fn release_claims_if(
    services: &Services,
    heartbeats: &HeartbeatSender,
    is_released: impl Fn(RunClaimId) -> bool,
) -> Result<()> {
    let worker = heartbeats.current_identity().worker;
    for (run, last_seq) in services.records.claimed_runs_with_last_seq(worker).await? {
        // Its driver may have ended meanwhile, and another worker may have claimed it.
        let row = services.store.get_run(run).await?;
        let Some(row) = row.filter(|row| row.worker == Some(worker)) else { continue };
        let epoch = row.epoch;
        if is_released(RunClaimId { run, epoch }) {
            release_run(services, worker, &Claim { run, epoch, last_seq }).await?;
        }
    }
    Ok(())
}
