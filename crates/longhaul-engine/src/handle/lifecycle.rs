//! Ends and stills runs: as a closer where nobody drives, else by a word that
//! the driver hears.
//!
//! Never: a flag beside the journal.

use longhaul_core::id::RunId;
use longhaul_core::port::store::{AppendRequest, Appended, Author};
use longhaul_run::commands::RunCommand;
use longhaul_run::{DecideContext, Input, Rejection, decide};

use crate::error::Error;
use crate::handle::{Longhaul, check_len};
use crate::run_session::fold;

/// So long may a reason be.
const REASON_BYTES_MAX: usize = 4 * 1024;

impl Longhaul {
    /// Ends a run. When this returns nothing more of it can start.
    pub async fn cancel(&self, run: RunId, by: &str, reason: &str) -> Result<(), Error> {
        check_len("the reason", reason.len(), REASON_BYTES_MAX)?;
        let (by, reason) = (self.redact(by), self.redact(reason));
        let close = Input::CancelNow { by: by.clone(), reason: reason.clone() };
        self.apply_or_send_command(run, close, RunCommand::Cancel { by, reason }).await
    }

    /// Stills a run until somebody lets it go on.
    pub async fn pause(&self, run: RunId, by: &str) -> Result<(), Error> {
        let by = self.redact(by);
        let still = Input::PauseNow { by: by.clone() };
        self.apply_or_send_command(run, still, RunCommand::Pause { by }).await
    }

    /// Decides for a run that nobody drives; a driver is told.
    async fn apply_or_send_command(
        &self,
        run: RunId,
        input: Input,
        word: RunCommand,
    ) -> Result<(), Error> {
        if !self.apply_if_undriven(run, input).await? {
            self.send_command(run, word).await?;
        }
        Ok(())
    }

    /// Whether the run stands as was asked now. Otherwise somebody drives it.
    async fn apply_if_undriven(&self, run: RunId, input: Input) -> Result<bool, Error> {
        let (folded, now) = fold(&self.services, run).await?;
        let batch = match decide(&folded, input, DecideContext::new(now)) {
            Ok(batch) => self.with_request_mark(batch),
            Err(refusal @ (Rejection::Ended(_) | Rejection::AlreadyInState(_))) => {
                return Err(refusal.into());
            }
            Err(_) => return Ok(false),
        };
        let author = Author::Closer { after: folded.seq() };
        match self.services.store.append(AppendRequest { run, author, batch }).await? {
            Appended::At { .. } => {
                self.services.notifier.run_changed(run);
                Ok(true)
            }
            Appended::RunNotFound => Err(Error::RunNotFound(run)),
            Appended::RunEnded => Err(self.ended_error(run).await),
            Appended::Conflict | Appended::Fenced | Appended::Refused(_) => Ok(false),
        }
    }
}
