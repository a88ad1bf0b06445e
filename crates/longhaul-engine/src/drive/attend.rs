//! Waits for work, and hears meanwhile what others say to the run.
//!
//! Never: throws work away by itself. It says why the work should be cut off.

use std::future::Future;
use std::pin::{Pin, pin};

use longhaul_core::time::Clock;
use longhaul_run::Input;

use crate::drive::gauge::{Gauge, Spoken};
use crate::error::Error;
use crate::lease::Lease;
use crate::ledger::{Ledger, Told};
use crate::stop::Stop;

/// Why work is cut off.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Cut {
    /// The run was cancelled.
    Cancelled,
    /// A person's message cuts in.
    Interrupted,
    /// This worker stops, and its patience is over.
    Stopping,
    /// Others count this worker as dead.
    Lost,
}

/// What came first.
#[derive(Debug)]
pub(super) enum First<T> {
    /// The work is done.
    Done(T),
    /// It should be cut off.
    Cut(Cut),
}

/// What can cut work off.
#[derive(Debug)]
pub(super) struct Ears<'a> {
    pub(super) ledger: &'a mut Ledger,
    pub(super) lease: &'a Lease,
    pub(super) stop: &'a Stop,
    /// A look changes nothing and is soon over: no message cuts it off.
    pub(super) hears_messages: bool,
    /// Where calls say how far they are.
    pub(super) gauge: Option<(&'a Gauge, &'a dyn Clock)>,
}

/// The next word of a call, if anybody listens.
async fn heard_of(gauge: Option<(&Gauge, &dyn Clock)>) -> Spoken {
    match gauge {
        Some((gauge, clock)) => gauge.next(clock).await,
        None => std::future::pending().await,
    }
}

/// Writes a word of a call as it deserves.
async fn pass_on(ledger: &mut Ledger, word: Spoken) -> Result<Told, Error> {
    match word {
        Spoken::Passing(word) => ledger.mention(word).await,
        Spoken::Lasting(word) => ledger.note(word).await,
    }
}

/// Sees something through while work goes on; what the work gives is kept.
async fn beside<T, U>(
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

impl Cut {
    /// What the run is told where a look was cut off; `None`: nothing is.
    pub(super) const fn after_look(self) -> Option<Input> {
        match self {
            Self::Cancelled | Self::Interrupted => Some(Input::GoOn),
            Self::Stopping => Some(Input::Release),
            Self::Lost => None,
        }
    }
}

impl<'a> Ears<'a> {
    /// Hears of cancels and stops, and of no message.
    pub(super) const fn new(ledger: &'a mut Ledger, lease: &'a Lease, stop: &'a Stop) -> Self {
        Self {
            ledger,
            lease,
            stop,
            hears_messages: false,
            gauge: None,
        }
    }

    /// Waits for work or for a reason to cut it off.
    pub(super) async fn attend<T>(
        &mut self,
        mut work: Pin<&mut (impl Future<Output = T> + ?Sized)>,
    ) -> Result<First<T>, Error> {
        loop {
            if let Some(cut) = self.heard() {
                return Ok(First::Cut(cut));
            }
            tokio::select! {
                biased;
                done = work.as_mut() => return Ok(First::Done(done)),
                () = self.lease.lost() => return Ok(First::Cut(Cut::Lost)),
                () = self.stop.cutting() => return Ok(First::Cut(Cut::Stopping)),
                () = self.ledger.nudged() => {}
                word = heard_of(self.gauge) => {
                    let mut done = None;
                    let telling = pin!(pass_on(self.ledger, word));
                    // However long the store takes: the calls go on meanwhile.
                    let told = beside(work.as_mut(), telling, &mut done).await?;
                    match (done, told) {
                        (Some(done), _) => return Ok(First::Done(done)),
                        (None, Told::Gone) => return Ok(First::Cut(Cut::Lost)),
                        (None, Told::On) => continue,
                    }
                }
            }
            self.ledger.catch_up().await?;
        }
    }

    /// What the journal says of work under way.
    fn heard(&self) -> Option<Cut> {
        let run = self.ledger.run();
        if run.outcome().is_some() {
            return Some(Cut::Lost);
        }
        if run.is_stopping() {
            return Some(Cut::Cancelled);
        }
        let cuts_in = self.hears_messages && run.is_interrupted();
        cuts_in.then_some(Cut::Interrupted)
    }
}
