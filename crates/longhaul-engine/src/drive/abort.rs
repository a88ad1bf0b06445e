//! Waits for work of a run (such as a model request) while watching for reasons to abort it.
//!
//! This module never aborts the work itself: it returns the reason, and the caller decides.

use std::future::Future;
use std::pin::{Pin, pin};

use longhaul_core::time::Clock;
use longhaul_run::Input;

use crate::drive::progress::{ProgressThrottle, ProgressUpdate};
use crate::error::Error;
use crate::lease::Lease;
use crate::run_session::{CommitOutcome, RunSession};
use crate::shutdown::Shutdown;

/// Reason to abort the current work of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum AbortReason {
    /// The run was cancelled.
    Cancelled,
    /// A person sent a message that interrupts the run.
    Interrupted,
    /// The worker shuts down, and its drain timeout has passed.
    Shutdown,
    /// The worker has lost its lease or its claim on the run.
    Lost,
}

/// Result of the work or a reason to abort it, whichever came first.
#[derive(Debug)]
pub(super) enum AbortableOutcome<T> {
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
    /// Whether a message that interrupts the run aborts the work. `false` for fetching context,
    /// which is short and has no effects.
    pub(super) interruptible: bool,
    /// Source of progress reports of running calls, which are appended to the journal while
    /// waiting.
    pub(super) progress: Option<(&'a ProgressThrottle, &'a dyn Clock)>,
}

/// Waits for the next progress update of a running call. If there is no throttle, waits forever.
async fn next_progress_update(throttle: Option<(&ProgressThrottle, &dyn Clock)>) -> ProgressUpdate {
    match throttle {
        Some((throttle, clock)) => throttle.next_update(clock).await,
        None => std::future::pending().await,
    }
}

/// Appends a progress update to the journal. Droppable updates may be lost.
async fn commit_progress_update(
    session: &mut RunSession,
    update: ProgressUpdate,
) -> Result<CommitOutcome, Error> {
    match update {
        ProgressUpdate::Droppable(update) => session.try_commit(update).await,
        ProgressUpdate::Durable(update) => session.commit_durably(update).await,
    }
}

/// Runs `other` to completion while polling `work`. If `work` ends first, its result is stored in
/// `done`.
async fn run_while_polling<T, U>(
    work: Pin<&mut (impl Future<Output = T> + ?Sized)>,
    mut other: Pin<&mut impl Future<Output = U>>,
    done: &mut Option<T>,
) -> U {
    tokio::select! {
        biased;
        output = other.as_mut() => return output,
        given = work => *done = Some(given),
    }
    other.await
}

impl AbortReason {
    /// Returns the next input for the state machine after work without effects, such as fetching
    /// context, was aborted. `None` if this driver has lost its claim on the run.
    pub(super) const fn input_after_abort(self) -> Option<Input> {
        match self {
            Self::Cancelled | Self::Interrupted => Some(Input::Advance),
            Self::Shutdown => Some(Input::Release),
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
        Self { session, lease, shutdown, interruptible: false, progress: None }
    }

    /// Waits until the work is done or there is a reason to abort it.
    pub(super) async fn wait_unless_aborted<T>(
        &mut self,
        mut work: Pin<&mut (impl Future<Output = T> + ?Sized)>,
    ) -> Result<AbortableOutcome<T>, Error> {
        loop {
            if let Some(reason) = self.journaled_abort_reason() {
                return Ok(AbortableOutcome::Aborted(reason));
            }
            tokio::select! {
                biased;
                done = work.as_mut() => return Ok(AbortableOutcome::Done(done)),
                () = self.lease.wait_until_lost() => return Ok(AbortableOutcome::Aborted(AbortReason::Lost)),
                () = self.shutdown.wait_for_abort() => return Ok(AbortableOutcome::Aborted(AbortReason::Shutdown)),
                () = self.session.wait_for_notification() => {}
                update = next_progress_update(self.progress) => {
                    let mut done = None;
                    let commit = pin!(commit_progress_update(self.session, update));
                    // The calls keep running, however long the store takes.
                    let committed = run_while_polling(work.as_mut(), commit, &mut done).await?;
                    match (done, committed) {
                        (Some(done), _) => return Ok(AbortableOutcome::Done(done)),
                        (None, CommitOutcome::Lost) => return Ok(AbortableOutcome::Aborted(AbortReason::Lost)),
                        (None, CommitOutcome::Applied) => continue,
                    }
                }
            }
            self.session.apply_new_entries().await?;
        }
    }

    /// Returns the reason to abort the work that is already in the journal, if there is one.
    fn journaled_abort_reason(&self) -> Option<AbortReason> {
        let run = self.session.run();
        if run.outcome().is_some() {
            return Some(AbortReason::Lost);
        }
        if run.is_cancelling() {
            return Some(AbortReason::Cancelled);
        }
        let cuts_in = self.interruptible && run.has_interrupting_steer();
        cuts_in.then_some(AbortReason::Interrupted)
    }
}
