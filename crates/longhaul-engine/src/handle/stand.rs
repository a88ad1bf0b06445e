//! Ends and stills runs: as a closer where nobody drives, else by a word that
//! the driver hears.
//!
//! Never: a flag beside the journal.

use longhaul_core::id::RunId;
use longhaul_core::port::store::{Append, Appended, Author};
use longhaul_run::outside::Word;
use longhaul_run::{Input, Moment, Refusal, decide};

use crate::error::Error;
use crate::handle::{Longhaul, within};
use crate::ledger::fold;

/// So long may a reason be.
const REASON_BYTES_MAX: usize = 4 * 1024;

/// Whether the run stands as was asked, or will as soon as its driver hears.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Closed {
    Yes,
    /// Somebody drives it.
    Driven,
}

impl Longhaul {
    /// Ends a run. When this returns nothing more of it can start.
    pub async fn cancel(&self, run: RunId, by: &str, reason: &str) -> Result<(), Error> {
        within("the reason", reason.len(), REASON_BYTES_MAX)?;
        let (by, reason) = (self.clean(by), self.clean(reason));
        let close = Input::Close {
            by: by.clone(),
            reason: reason.clone(),
        };
        match self.close(run, close).await? {
            Closed::Yes => Ok(()),
            Closed::Driven => {
                self.say(run, Word::Cancel { by, reason }).await?;
                Ok(())
            }
        }
    }

    /// Stills a run until somebody lets it go on.
    pub async fn pause(&self, run: RunId, by: &str) -> Result<(), Error> {
        let by = self.clean(by);
        match self.close(run, Input::Still { by: by.clone() }).await? {
            Closed::Yes => Ok(()),
            Closed::Driven => {
                self.say(run, Word::Pause { by }).await?;
                Ok(())
            }
        }
    }

    /// Decides for a run that nobody drives.
    async fn close(&self, run: RunId, input: Input) -> Result<Closed, Error> {
        let (folded, now) = fold(&self.ports, run).await?;
        let batch = match decide(&folded, input, Moment::at(now)) {
            Ok(batch) => self.marked(batch),
            Err(refusal @ (Refusal::Ended(_) | Refusal::Already(_))) => return Err(refusal.into()),
            Err(_) => return Ok(Closed::Driven),
        };
        let author = Author::Closer {
            after: folded.seq(),
        };
        match self
            .ports
            .store
            .append(Append { run, author, batch })
            .await?
        {
            Appended::At { .. } => {
                self.ports.nudges.wrote(run);
                Ok(Closed::Yes)
            }
            Appended::NoRun => Err(Error::NoRun(run)),
            Appended::RunEnded => Err(self.ended(run).await),
            Appended::MovedOn | Appended::Fenced | Appended::Refused(_) => Ok(Closed::Driven),
        }
    }
}
