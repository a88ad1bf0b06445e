//! Waits for work of a run (such as a model request) while watching for reasons to abort it.
//!
//! This module never aborts the work itself: it returns the reason, and the caller decides.

use std::future::Future;
use std::pin::{Pin, pin};

use longhaul_core::time::{Clock, Millis};
use longhaul_run::{Run, RunInput};

use crate::drive::assignment::Lease;
use crate::drive::progress::{ProgressThrottle, ProgressUpdate};
use crate::drive::session::{CommitOutcome, RunSession};
use crate::error::Result;
use crate::shutdown::Shutdown;

/// Reason to abort the current work of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum AbortReason {
    /// The run was cancelled.
    Cancelled,
    /// A person sent a message that interrupts the run.
    Interrupted,
    /// The attempt of the run has reached its hard timeout.
    TimedOut,
    /// The run's budget of active time is used up.
    ActiveTimeUsedUp,
    /// The worker shuts down, and its drain timeout has passed.
    Shutdown,
    /// The worker has lost its lease or its claim on the run.
    Lost,
}

/// Result of the work or a reason to abort it, whichever came first.
#[derive(Debug)]
pub(super) enum Abortable<T> {
    /// The work is done and has this result.
    Done(T),
    /// The work should be aborted for this reason.
    Aborted(AbortReason),
}

/// The signals that can abort the current work of a run.
#[derive(Debug)]
pub(super) struct AbortSignals<'a> {
    pub(super) session: &'a mut RunSession,
    pub(super) lease: &'a Lease,
    pub(super) shutdown: &'a Shutdown,
    /// Whether a message that interrupts the run aborts the work. `false` for work without effects,
    /// such as a request to the context provider, which is short.
    pub(super) interruptible: bool,
    /// Throttle for the progress reports of running calls, which are appended to the journal while
    /// waiting, and the clock for it. `None` means that no progress is appended.
    pub(super) progress: Option<(&'a ProgressThrottle, &'a dyn Clock)>,
    /// Time of the monotonic clock at which the work started. `None` means that the timeouts of the
    /// attempt and the budget of active time don't abort the work.
    pub(super) timed_since: Option<Millis>,
    /// Whether the work continues although the run's budget of active time is used up, because the
    /// work can't be stopped without harm.
    pub(super) exceeds_active_time: bool,
}

/// Waits for a future. `None` waits forever.
async fn wait_or_pend<T>(future: Option<impl Future<Output = T>>) -> T {
    match future {
        Some(future) => future.await,
        None => std::future::pending().await,
    }
}

/// Logs that a timeout of the attempt has passed, or that the run's active time is used up.
fn log_timeout(run: &Run) {
    let (id, agent) = (run.id(), &run.task().agent);
    let attempt = run.control().attempt.number;
    let is_used_up = run.control().budget.is_active_time_used_up();
    let message = match (run.control().attempt.timed_out, is_used_up) {
        (true, _) => "the attempt has reached its hard timeout",
        (false, true) => "the run's budget of active time is used up",
        (false, false) => "the attempt has exceeded its soft timeout",
    };
    tracing::warn!(run = %id, %agent, attempt, "{message}");
}

/// Appends a progress update of a running call to the journal. A droppable update may be lost, for
/// example if the store is busy or another process appends at the same time.
async fn commit_update(session: &mut RunSession, update: ProgressUpdate) -> Result<CommitOutcome> {
    match update {
        ProgressUpdate::Droppable(update) => session.try_commit_droppable(update).await,
        ProgressUpdate::Durable(update) => session.commit_durable(update).await,
    }
}

/// Waits for `other` while also polling `work`. If `work` ends first, stores its result in `done`
/// and continues to wait for `other`.
async fn complete_while_polling_work<T, U>(
    work: Pin<&mut (impl Future<Output = T> + ?Sized)>,
    mut other: Pin<&mut impl Future<Output = U>>,
    done: &mut Option<T>,
) -> U {
    tokio::select! {
        biased;
        output = other.as_mut() => return output,
        output = work => *done = Some(output),
    }
    other.await
}

impl AbortReason {
    /// Returns whether this driver has to stop, and not only the current work.
    pub(super) const fn ends_driver(self) -> bool {
        matches!(self, Self::Shutdown | Self::Lost)
    }

    /// Returns the next input for the state machine after work without effects, such as a request
    /// to the context provider, was aborted. `None` if this driver has lost its claim on the run.
    pub(super) const fn input_after_abort(self) -> Option<RunInput> {
        match self {
            Self::Cancelled | Self::Interrupted | Self::TimedOut | Self::ActiveTimeUsedUp => {
                Some(RunInput::Advance)
            }
            Self::Shutdown => Some(RunInput::Release),
            Self::Lost => None,
        }
    }
}

impl<'a> AbortSignals<'a> {
    /// Creates signals for cancellation, shutdown and loss of the claim on the run, but not for
    /// messages that interrupt the run.
    pub(super) const fn new(
        session: &'a mut RunSession,
        lease: &'a Lease,
        shutdown: &'a Shutdown,
    ) -> Self {
        Self {
            session,
            lease,
            shutdown,
            interruptible: false,
            progress: None,
            timed_since: None,
            exceeds_active_time: false,
        }
    }

    /// Waits until the work is done or there is a reason to abort it.
    pub(super) async fn wait_unless_aborted<T>(
        &mut self,
        mut work: Pin<&mut (impl Future<Output = T> + ?Sized)>,
    ) -> Result<Abortable<T>> {
        loop {
            if let Some(reason) = self.journaled_abort_reason() {
                return Ok(Abortable::Aborted(reason));
            }
            let clock = self.session.clock();
            let next_update = self.progress.map(|(throttle, clock)| throttle.next_update(clock));
            let timeout = self.time_to_timeout(&*clock).map(|timeout| clock.sleep(timeout));
            let update = tokio::select! {
                biased;
                done = work.as_mut() => return Ok(Abortable::Done(done)),
                () = self.lease.wait_until_lost() => return Ok(Abortable::Aborted(AbortReason::Lost)),
                () = self.shutdown.wait_for_abort_request() => return Ok(Abortable::Aborted(AbortReason::Shutdown)),
                () = self.session.wait_for_notification() => {
                    self.session.apply_new_entries().await?;
                    continue;
                }
                update = wait_or_pend(next_update) => update,
                () = wait_or_pend(timeout) => {
                    let elapsed = self.elapsed_work_time(&*clock);
                    ProgressUpdate::Durable(RunInput::TimeoutPassed { elapsed })
                }
            };
            let is_timeout =
                matches!(update, ProgressUpdate::Durable(RunInput::TimeoutPassed { .. }));
            let mut done = None;
            let committed = {
                let commit = pin!(commit_update(self.session, update));
                // The calls keep running, however long the store takes.
                complete_while_polling_work(work.as_mut(), commit, &mut done).await?
            };
            if is_timeout {
                log_timeout(self.session.run());
            }
            match (done, committed) {
                (Some(done), _) => return Ok(Abortable::Done(done)),
                (None, CommitOutcome::Lost) => {
                    return Ok(Abortable::Aborted(AbortReason::Lost));
                }
                (None, CommitOutcome::Applied) => {}
            }
        }
    }

    /// Returns how long the work has been running. Zero if the timeouts don't apply to it.
    fn elapsed_work_time(&self, clock: &dyn Clock) -> Millis {
        self.timed_since.map_or(Millis::ZERO, |since| clock.monotonic_time().minus(since))
    }

    /// Returns the duration until the next timeout of the attempt passes or the run's active time is
    /// used up. `None` if there is no such limit.
    fn time_to_timeout(&self, clock: &dyn Clock) -> Option<Millis> {
        self.timed_since?;
        let control = self.session.run().control();
        let elapsed = self.elapsed_work_time(clock);
        let active = control.attempt_active().plus(elapsed);
        let timeout = control.next_timeout().map(|timeout| timeout.minus(active));
        let remaining = control.remaining_active_time().filter(|_| !self.exceeds_active_time);
        let used_up = remaining.map(|remaining| remaining.minus(elapsed));
        timeout.into_iter().chain(used_up).min()
    }

    /// Returns the reason to abort the current work that the run's journal contains, such as a
    /// cancellation. `None` if the journal contains none.
    fn journaled_abort_reason(&self) -> Option<AbortReason> {
        let run = self.session.run();
        if run.outcome().is_some() {
            return Some(AbortReason::Lost);
        }
        if run.is_cancelling() {
            return Some(AbortReason::Cancelled);
        }
        if self.timed_since.is_some() && run.control().attempt.timed_out {
            return Some(AbortReason::TimedOut);
        }
        if self.timed_since.is_some()
            && !self.exceeds_active_time
            && run.control().budget.is_active_time_used_up()
        {
            return Some(AbortReason::ActiveTimeUsedUp);
        }
        let is_interrupted = self.interruptible && run.has_interrupting_steer();
        is_interrupted.then_some(AbortReason::Interrupted)
    }
}
