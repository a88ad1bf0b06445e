//! Waits for work, and hears meanwhile what others say to the run.
//!
//! Never: throws work away by itself. It says why the work should be cut off.

use std::future::Future;
use std::pin::{Pin, pin};

use longhaul_core::time::Clock;
use longhaul_run::Input;

use crate::drive::progress::{ProgressThrottle, ProgressUpdate};
use crate::error::Error;
use crate::lease::Lease;
use crate::run_session::{CommitOutcome, RunSession};
use crate::shutdown::Shutdown;

/// Why work is cut off.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum AbortReason {
    /// The run was cancelled.
    Cancelled,
    /// A person's message cuts in.
    Interrupted,
    /// This worker stops, and its patience is over.
    Shutdown,
    /// Others count this worker as dead.
    Lost,
}

/// What came first.
#[derive(Debug)]
pub(super) enum Raced<T> {
    /// The work is done.
    Done(T),
    /// It should be cut off.
    Aborted(AbortReason),
}

/// What can cut work off.
#[derive(Debug)]
pub(super) struct AbortSignals<'a> {
    pub(super) session: &'a mut RunSession,
    pub(super) lease: &'a Lease,
    pub(super) shutdown: &'a Shutdown,
    /// A look changes nothing and is soon over: no message cuts it off.
    pub(super) interruptible: bool,
    /// Where calls say how far they are.
    pub(super) progress: Option<(&'a ProgressThrottle, &'a dyn Clock)>,
}

/// The next word of a call, if anybody listens.
async fn next_progress(gauge: Option<(&ProgressThrottle, &dyn Clock)>) -> ProgressUpdate {
    match gauge {
        Some((gauge, clock)) => gauge.next_update(clock).await,
        None => std::future::pending().await,
    }
}

/// Writes a word of a call as it deserves.
async fn commit_progress(
    ledger: &mut RunSession,
    word: ProgressUpdate,
) -> Result<CommitOutcome, Error> {
    match word {
        ProgressUpdate::Droppable(word) => ledger.try_commit(word).await,
        ProgressUpdate::Durable(word) => ledger.commit_durable(word).await,
    }
}

/// Sees something through while work goes on; what the work gives is kept.
async fn drive_alongside<T, U>(
    work: Pin<&mut (impl Future<Output = T> + ?Sized)>,
    mut other: Pin<&mut impl Future<Output = U>>,
    done: &mut Option<T>,
) -> U {
    tokio::select! {
        biased;
        seen = other.as_mut() => return seen,
        given = work => *done = Some(given),
    }
    other.await
}

impl AbortReason {
    /// What the run is told where a look was cut off; `None`: nothing is.
    pub(super) const fn input_after_perception(self) -> Option<Input> {
        match self {
            Self::Cancelled | Self::Interrupted => Some(Input::Advance),
            Self::Shutdown => Some(Input::Release),
            Self::Lost => None,
        }
    }
}

impl<'a> AbortSignals<'a> {
    /// Hears of cancels and stops, and of no message.
    pub(super) const fn new(
        ledger: &'a mut RunSession,
        lease: &'a Lease,
        stop: &'a Shutdown,
    ) -> Self {
        Self { session: ledger, lease, shutdown: stop, interruptible: false, progress: None }
    }

    /// Waits for work or for a reason to cut it off.
    pub(super) async fn race<T>(
        &mut self,
        mut work: Pin<&mut (impl Future<Output = T> + ?Sized)>,
    ) -> Result<Raced<T>, Error> {
        loop {
            if let Some(cut) = self.pending_abort() {
                return Ok(Raced::Aborted(cut));
            }
            tokio::select! {
                biased;
                done = work.as_mut() => return Ok(Raced::Done(done)),
                () = self.lease.lost() => return Ok(Raced::Aborted(AbortReason::Lost)),
                () = self.shutdown.aborting() => return Ok(Raced::Aborted(AbortReason::Shutdown)),
                () = self.session.notified() => {}
                word = next_progress(self.progress) => {
                    let mut done = None;
                    let telling = pin!(commit_progress(self.session, word));
                    // However long the store takes: the calls go on meanwhile.
                    let told = drive_alongside(work.as_mut(), telling, &mut done).await?;
                    match (done, told) {
                        (Some(done), _) => return Ok(Raced::Done(done)),
                        (None, CommitOutcome::Lost) => return Ok(Raced::Aborted(AbortReason::Lost)),
                        (None, CommitOutcome::Applied) => continue,
                    }
                }
            }
            self.session.catch_up().await?;
        }
    }

    /// What the journal says of work under way.
    fn pending_abort(&self) -> Option<AbortReason> {
        let run = self.session.run();
        if run.outcome().is_some() {
            return Some(AbortReason::Lost);
        }
        if run.is_stopping() {
            return Some(AbortReason::Cancelled);
        }
        let cuts_in = self.interruptible && run.is_interrupted();
        cuts_in.then_some(AbortReason::Interrupted)
    }
}
