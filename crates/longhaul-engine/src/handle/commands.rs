//! Says one word to a run, as an outsider.
//!
//! Never: names a place in the journal, or folds one.

use longhaul_core::change::Batch;
use longhaul_core::event::steer::{Delivery, SteerMessage};
use longhaul_core::id::{RunId, Seq, SteerId};
use longhaul_core::policy::budget::BudgetRaise;
use longhaul_core::port::store::{AppendRequest, Appended, Author, Refused};
use longhaul_core::status::Status;
use longhaul_run::commands::{RunCommand, RunSnapshot, decide_command};
use longhaul_run::{DecideContext, Rejection};

use crate::error::Error;
use crate::handle::Longhaul;

impl Longhaul {
    /// Writes a message to a run; its id is the receipt.
    pub async fn steer(
        &self,
        run: RunId,
        text: impl Into<String>,
        delivery: Delivery,
        by: &str,
    ) -> Result<SteerId, Error> {
        let steer = SteerId::from_bits(self.services.ids.next_bits());
        let message = SteerMessage { steer, text: text.into(), delivery, by: by.to_owned() };
        self.send_command(run, RunCommand::Steer(message)).await?;
        Ok(steer)
    }

    /// Writes a message under an id that the caller has made up, once however
    /// often it is sent.
    pub async fn steer_once(&self, run: RunId, message: SteerMessage) -> Result<SteerId, Error> {
        let steer = message.steer;
        let sent = self.services.records.steers(run).await?;
        if sent.iter().all(|row| row.steer != steer) {
            self.send_command(run, RunCommand::Steer(message)).await?;
        }
        Ok(steer)
    }

    /// Puts other words in the place of a message that was not read yet.
    pub async fn update_steer(&self, run: RunId, message: SteerMessage) -> Result<(), Error> {
        let steer = message.steer;
        let said = self.send_command(run, RunCommand::ChangeSteer(message)).await;
        self.map_missing_steer(run, steer, said).await
    }

    /// Takes a message back that was not read yet.
    pub async fn withdraw_steer(&self, run: RunId, steer: SteerId, by: &str) -> Result<(), Error> {
        let by = by.to_owned();
        let said = self.send_command(run, RunCommand::WithdrawSteer { steer, by }).await;
        self.map_missing_steer(run, steer, said).await
    }

    /// A row can't tell a message that is settled from one that never was.
    async fn map_missing_steer(
        &self,
        run: RunId,
        steer: SteerId,
        said: Result<Seq, Error>,
    ) -> Result<(), Error> {
        match said {
            Ok(_) => Ok(()),
            Err(Error::Rejected(Rejection::SteerSettled(_))) => {
                let sent = self.services.records.steers(run).await?;
                match sent.iter().any(|row| row.steer == steer) {
                    true => Err(Rejection::SteerSettled(steer).into()),
                    false => Err(Error::SteerNotFound(steer)),
                }
            }
            Err(error) => Err(error),
        }
    }

    /// Lets a run go on, maybe with more to spend.
    pub async fn resume(
        &self,
        run: RunId,
        raise: Option<BudgetRaise>,
        by: &str,
    ) -> Result<(), Error> {
        let by = by.to_owned();
        self.send_command(run, RunCommand::Resume { by, raise }).await?;
        Ok(())
    }

    /// Says a word to a run; where it stands in the journal.
    pub(crate) async fn send_command(&self, run: RunId, word: RunCommand) -> Result<Seq, Error> {
        let word = self.redact_command(word);
        let row = self.run_row(run).await?;
        let now = self.services.records.now().await?;
        let view = RunSnapshot { run, status: row.status };
        let steer = if let RunCommand::ChangeSteer(SteerMessage { steer, .. })
        | RunCommand::WithdrawSteer { steer, .. } = &word
        {
            Some(*steer)
        } else {
            None
        };
        let batch = decide_command(&view, word, DecideContext::new(now))?;
        let told = self.append(run, batch).await?;
        told.map_err(|refused| map_rejection(run, steer, refused))
    }

    /// Appends as an outsider and wakes whoever it concerns; the inner error is
    /// a row's no.
    pub(super) async fn append(
        &self,
        run: RunId,
        batch: Batch,
    ) -> Result<Result<Seq, Refused>, Error> {
        let author = Author::Outsider;
        let batch = self.with_request_mark(batch);
        let append = AppendRequest { run, author, batch };
        match self.services.store.append(append).await? {
            Appended::At { seq, .. } => {
                self.services.notifier.run_changed(run);
                Ok(Ok(seq))
            }
            Appended::Refused(refused) => Ok(Err(refused)),
            Appended::RunNotFound => Err(Error::RunNotFound(run)),
            Appended::RunEnded => Err(self.ended_error(run).await),
            // An outsider names neither place nor epoch; these are for drivers.
            Appended::Conflict | Appended::Fenced => Err(Error::Contention(run)),
        }
    }

    /// How a run has ended, as a refusal.
    pub(crate) async fn ended_error(&self, run: RunId) -> Error {
        match self.services.store.get_run(run).await {
            Ok(Some(row)) => Rejection::Ended(row.status).into(),
            Ok(None) => Error::RunNotFound(run),
            Err(_) => Rejection::Ended(Status::Completed).into(),
        }
    }
}

/// What a row's no means to whoever asked.
fn map_rejection(run: RunId, steer: Option<SteerId>, refused: Refused) -> Error {
    match refused {
        Refused::SteersFull => Rejection::SteersFull(longhaul_core::change::STEERS_MAX).into(),
        Refused::SteerSettled => match steer {
            Some(steer) => Rejection::SteerSettled(steer).into(),
            None => Error::Contention(run),
        },
        // Sent again, it hears what the other attempt has changed.
        Refused::RequestAlreadyApplied => Error::Contention(run),
        other @ (Refused::OverBudget(_)
        | Refused::NoSlot
        | Refused::LaneFull(_)
        | Refused::GateClosed(..)
        | Refused::GateNotFound
        | Refused::TimerConsumed
        | Refused::NotAllowedForOutsider(_)) => {
            Error::Internal { run, reason: format!("the store said {other:?}") }
        }
    }
}
