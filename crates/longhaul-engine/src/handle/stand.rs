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

impl Longhaul {
    /// Ends a run. When this returns nothing more of it can start.
    pub async fn cancel(&self, run: RunId, by: &str, reason: &str) -> Result<(), Error> {
        within("the reason", reason.len(), REASON_BYTES_MAX)?;
        let (by, reason) = (self.clean(by), self.clean(reason));
        let close = Input::Close {
            by: by.clone(),
            reason: reason.clone(),
        };
        self.close_or_say(run, close, Word::Cancel { by, reason })
            .await
    }

    /// Stills a run until somebody lets it go on.
    pub async fn pause(&self, run: RunId, by: &str) -> Result<(), Error> {
        let by = self.clean(by);
        let still = Input::Still { by: by.clone() };
        self.close_or_say(run, still, Word::Pause { by }).await
    }

    /// Decides for a run that nobody drives; a driver is told.
    async fn close_or_say(&self, run: RunId, input: Input, word: Word) -> Result<(), Error> {
        if !self.close(run, input).await? {
            self.say(run, word).await?;
        }
        Ok(())
    }

    /// Whether the run stands as was asked now. Otherwise somebody drives it.
    async fn close(&self, run: RunId, input: Input) -> Result<bool, Error> {
        let (folded, now) = fold(&self.ports, run).await?;
        let batch = match decide(&folded, input, Moment::at(now)) {
            Ok(batch) => self.marked(batch),
            Err(refusal @ (Refusal::Ended(_) | Refusal::Already(_))) => return Err(refusal.into()),
            Err(_) => return Ok(false),
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
                Ok(true)
            }
            Appended::NoRun => Err(Error::NoRun(run)),
            Appended::RunEnded => Err(self.ended(run).await),
            Appended::MovedOn | Appended::Fenced | Appended::Refused(_) => Ok(false),
        }
    }
}
