//! Says one word to a run, as an outsider.
//!
//! Never: names a place in the journal, or folds one.

use longhaul_core::change::Batch;
use longhaul_core::event::steer::{Delivery, SteerMessage};
use longhaul_core::id::{RunId, Seq, SteerId};
use longhaul_core::policy::budget::Raise;
use longhaul_core::port::store::{Append, Appended, Author, Refused};
use longhaul_core::status::Status;
use longhaul_run::outside::{View, Word, tell};
use longhaul_run::{Moment, Refusal};

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
        let steer = SteerId::from_bits(self.ports.mint.bits());
        let message = SteerMessage {
            steer,
            text: text.into(),
            delivery,
            by: by.to_owned(),
        };
        self.say(run, Word::Steer(message)).await?;
        Ok(steer)
    }

    /// Writes a message under an id that the caller has made up, once however
    /// often it is sent.
    pub async fn steer_once(&self, run: RunId, message: SteerMessage) -> Result<SteerId, Error> {
        let steer = message.steer;
        let sent = self.ports.shelves.steers(run).await?;
        if sent.iter().all(|row| row.steer != steer) {
            self.say(run, Word::Steer(message)).await?;
        }
        Ok(steer)
    }

    /// Puts other words in the place of a message that was not read yet.
    pub async fn change_steer(&self, run: RunId, message: SteerMessage) -> Result<(), Error> {
        let steer = message.steer;
        let said = self.say(run, Word::ChangeSteer(message)).await;
        self.if_there_is(run, steer, said).await
    }

    /// Takes a message back that was not read yet.
    pub async fn withdraw_steer(&self, run: RunId, steer: SteerId, by: &str) -> Result<(), Error> {
        let by = by.to_owned();
        let said = self.say(run, Word::WithdrawSteer { steer, by }).await;
        self.if_there_is(run, steer, said).await
    }

    /// A row can't tell a message that is settled from one that never was.
    async fn if_there_is(
        &self,
        run: RunId,
        steer: SteerId,
        said: Result<Seq, Error>,
    ) -> Result<(), Error> {
        match said {
            Ok(_) => Ok(()),
            Err(Error::Refused(Refusal::SteerSettled(_))) => {
                let sent = self.ports.shelves.steers(run).await?;
                match sent.iter().any(|row| row.steer == steer) {
                    true => Err(Refusal::SteerSettled(steer).into()),
                    false => Err(Error::NoSteer(steer)),
                }
            }
            Err(error) => Err(error),
        }
    }

    /// Lets a run go on, maybe with more to spend.
    pub async fn resume(&self, run: RunId, raise: Option<Raise>, by: &str) -> Result<(), Error> {
        let by = by.to_owned();
        self.say(run, Word::Resume { by, raise }).await?;
        Ok(())
    }

    /// Says a word to a run; where it stands in the journal.
    pub(crate) async fn say(&self, run: RunId, word: Word) -> Result<Seq, Error> {
        let word = self.clean_word(word);
        let row = self.row(run).await?;
        let now = self.ports.shelves.now().await?;
        let view = View {
            run,
            status: row.status,
        };
        let steer = if let Word::ChangeSteer(SteerMessage { steer, .. })
        | Word::WithdrawSteer { steer, .. } = &word
        {
            Some(*steer)
        } else {
            None
        };
        let batch = tell(&view, word, Moment::at(now))?;
        let told = self.append(run, batch).await?;
        told.map_err(|refused| no(run, steer, refused))
    }

    /// Appends as an outsider and wakes whoever it concerns; the inner error is
    /// a row's no.
    pub(super) async fn append(
        &self,
        run: RunId,
        batch: Batch,
    ) -> Result<Result<Seq, Refused>, Error> {
        let author = Author::Outsider;
        let batch = self.marked(batch);
        let append = Append { run, author, batch };
        match self.ports.store.append(append).await? {
            Appended::At { seq, .. } => {
                self.ports.nudges.wrote(run);
                Ok(Ok(seq))
            }
            Appended::Refused(refused) => Ok(Err(refused)),
            Appended::NoRun => Err(Error::NoRun(run)),
            Appended::RunEnded => Err(self.ended(run).await),
            // An outsider names neither place nor epoch; these are for drivers.
            Appended::MovedOn | Appended::Fenced => Err(Error::Crowded(run)),
        }
    }

    /// How a run has ended, as a refusal.
    pub(crate) async fn ended(&self, run: RunId) -> Error {
        match self.ports.store.row(run).await {
            Ok(Some(row)) => Refusal::Ended(row.status).into(),
            Ok(None) => Error::NoRun(run),
            Err(_) => Refusal::Ended(Status::Completed).into(),
        }
    }
}

/// What a row's no means to whoever asked.
fn no(run: RunId, steer: Option<SteerId>, refused: Refused) -> Error {
    match refused {
        Refused::SteersFull => Refusal::SteersFull(longhaul_core::change::STEERS_MAX).into(),
        Refused::SteerSettled => match steer {
            Some(steer) => Refusal::SteerSettled(steer).into(),
            None => Error::Crowded(run),
        },
        // Sent again, it hears what the other attempt has changed.
        Refused::RequestApplied => Error::Crowded(run),
        other @ (Refused::OverBudget(_)
        | Refused::NoSeat
        | Refused::LaneFull(_)
        | Refused::GateClosed(..)
        | Refused::NoGate
        | Refused::TimerSpent
        | Refused::NotOutside(_)) => Error::Stuck {
            run,
            why: format!("the store said {other:?}"),
        },
    }
}
