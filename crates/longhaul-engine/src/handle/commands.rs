//! Sends commands to runs as an outsider, i.e. without claiming the run.
//!
//! An outsider appends to the journal unconditionally, without reading the journal first.

use longhaul_api::steer::{SteerReceipt, SteerState};
use longhaul_core::change::{JournalBatch, STEERS_MAX};
use longhaul_core::event::steer::{SteerDelivery, SteerMessage};
use longhaul_core::id::{RunId, Seq, SteerId};
use longhaul_core::policy::budget::BudgetRaise;
use longhaul_core::policy::gate::GateKind;
use longhaul_core::port::store::{
    AppendRefusalReason, AppendRequest, AppendResult, GateFilter, JournalAuthor,
};
use longhaul_core::status::Status;
use longhaul_run::commands::{RunCommand, decide_command};
use longhaul_run::{DecisionContext, Rejection, check_question_answer};

use crate::error::{Error, Result};
use crate::handle::Longhaul;
use crate::replay::replay_run_state;

/// Maximum number of open gates of a run that are searched for the oldest question.
const OPEN_QUESTIONS_MAX: usize = 100;

/// A message that was queued for a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct QueuedSteerMessage {
    /// Run that reads the message.
    pub run: RunId,
    pub id: SteerId,
}

impl Longhaul {
    /// Sends a person's message to a run. If the run has ended and belongs to a chain, the message
    /// goes to the newest run of the chain.
    pub async fn steer(
        &self,
        run: RunId,
        text: impl Into<String>,
        delivery: SteerDelivery,
        by: &str,
    ) -> Result<QueuedSteerMessage> {
        let steer = SteerId::from_bits(self.services.ids.next_id_bits());
        let by = by.to_owned();
        let message = SteerMessage { steer, text: text.into(), delivery, by, is_task: false };
        let run = self.apply_or_send(run, None, Some(RunCommand::Steer(message))).await?;
        Ok(QueuedSteerMessage { run, id: steer })
    }

    /// Sends a person's message with an id that the caller chose. Does nothing if a message with
    /// this id was sent before.
    pub async fn steer_idempotently(
        &self,
        run: RunId,
        message: SteerMessage,
    ) -> Result<QueuedSteerMessage> {
        let id = message.steer;
        let run = self.run_of_steer(run, id).await?;
        let queued = self.services.records.queued_steer_messages(run).await?;
        if queued.iter().any(|row| row.steer == id) {
            return Ok(QueuedSteerMessage { run, id });
        }
        let run = self.apply_or_send(run, None, Some(RunCommand::Steer(message))).await?;
        Ok(QueuedSteerMessage { run, id })
    }

    /// Returns the receipt of a message that was just sent to a run. If the run asks a question
    /// that the message does not answer, the receipt has a note about it.
    pub async fn receipt_for_steer_message(
        &self,
        QueuedSteerMessage { run, id }: QueuedSteerMessage,
        (text, delivery): (&str, SteerDelivery),
    ) -> Result<SteerReceipt> {
        let answers = matches!(delivery, SteerDelivery::AfterBatch | SteerDelivery::BeforeNextTool);
        let filter = GateFilter::open(Some(run), OPEN_QUESTIONS_MAX);
        let gates = if answers { self.list_gates(filter).await? } else { Vec::new() };
        // The oldest question is answered first.
        let mut questions = gates.iter().rev().filter(|gate| gate.spec.kind == GateKind::Question);
        let note = questions.next().and_then(|gate| {
            let reason = check_question_answer(&gate.spec, text).err()?;
            let gate = gate.spec.id;
            Some(format!(
                "The message does not answer the question {gate}: {reason}. The run reads the \
                 message after the question is answered."
            ))
        });
        Ok(SteerReceipt { id, run, status: SteerState::Queued, delivery, note })
    }

    /// Replaces the text of a message that the run has not read yet. If the run has ended and
    /// belongs to a chain, the message may belong to the newest run of the chain instead.
    pub async fn update_steer(&self, run: RunId, message: SteerMessage) -> Result<()> {
        let steer = message.steer;
        let run = self.run_of_steer(run, steer).await?;
        let result = self.send_command(run, RunCommand::ChangeSteer(message)).await;
        self.steer_result(run, steer, result).await
    }

    /// Withdraws a message that the run has not read yet. If the run has ended and belongs to a
    /// chain, the message may belong to the newest run of the chain instead.
    pub async fn withdraw_steer(&self, run: RunId, steer: SteerId, by: &str) -> Result<()> {
        let run = self.run_of_steer(run, steer).await?;
        let by = by.to_owned();
        let result = self.send_command(run, RunCommand::WithdrawSteer { steer, by }).await;
        self.steer_result(run, steer, result).await
    }

    /// Returns the run that may have a message with this id: the newest run of the chain, if this
    /// run has ended, belongs to a chain and has no such message. Otherwise this run itself.
    pub async fn run_of_steer(&self, run: RunId, steer: SteerId) -> Result<RunId> {
        let Some(newest) = self.newest_run_of_chain(run).await? else { return Ok(run) };
        let queued = self.services.records.queued_steer_messages(run).await?;
        Ok(if queued.iter().any(|row| row.steer == steer) { run } else { newest })
    }

    /// Converts the error "message already delivered, dropped or withdrawn" into "not found" if the
    /// run has no message with this id, because the store returns the first error in both cases.
    async fn steer_result(&self, run: RunId, steer: SteerId, result: Result<Seq>) -> Result<()> {
        match result {
            Ok(_) => Ok(()),
            Err(Error::Rejected(Rejection::SteerSettled(_))) => {
                let queued = self.services.records.queued_steer_messages(run).await?;
                match queued.iter().any(|row| row.steer == steer) {
                    true => Err(Rejection::SteerSettled(steer).into()),
                    false => Err(Error::SteerNotFound(steer)),
                }
            }
            Err(error) => Err(error),
        }
    }

    /// Resumes a paused or blocked run, optionally with a raised budget. If the run has ended and
    /// belongs to a chain, the newest run of the chain is resumed. Returns the run that was
    /// resumed. Changes nothing if the run waits for something that a resume does not end.
    ///
    /// # Errors
    ///
    /// The run has ended, nobody has paused it, a cap is above the new one, or the run is a child and
    /// the budget of its whole tree is used up.
    pub async fn resume_run(
        &self,
        run: RunId,
        raise: Option<BudgetRaise>,
        by: &str,
    ) -> Result<RunId> {
        let by = by.to_owned();
        let command = match raise {
            Some(raise) => self.resume_and_raise(run, raise, by).await?,
            None => {
                let newest = self.newest_run_of_chain(run).await?.unwrap_or(run);
                if !self.needs_resume(newest).await? {
                    return Ok(newest);
                }
                RunCommand::Resume { by, raise, raises_tree: false }
            }
        };
        self.apply_or_send(run, None, Some(command)).await
    }

    /// Returns whether a resume without a raised budget changes the run. `false` means that the run
    /// waits for something else.
    async fn needs_resume(&self, run: RunId) -> Result<bool> {
        let status = self.run_row(run).await?.status;
        match status {
            // The command to a run that has ended is refused with its status.
            Status::Paused
            | Status::Blocked
            | Status::Completed
            | Status::Failed
            | Status::Cancelled => return Ok(true),
            Status::Pending | Status::Running | Status::Waiting => {}
        }
        let (folded, _) = replay_run_state(&self.services, run).await?;
        match folded.status().is_terminal() || folded.control().can_be_resumed() {
            true => Ok(true),
            false if status == Status::Waiting => Ok(false),
            false => Err(Rejection::NotPaused(self.explain_run(run).await?.message).into()),
        }
    }

    /// Sends a command to a run. Returns the sequence number of the last appended event.
    pub(crate) async fn send_command(&self, run: RunId, command: RunCommand) -> Result<Seq> {
        let command = self.redact_command(command);
        let row = self.run_row(run).await?;
        let ctx = DecisionContext::new(self.store_time().await?);
        let steer = if let RunCommand::ChangeSteer(SteerMessage { steer, .. })
        | RunCommand::WithdrawSteer { steer, .. } = &command
        {
            Some(*steer)
        } else {
            None
        };
        let batch = decide_command(run, row.status, command, ctx)?;
        let outcome = self.append_as_outsider(run, batch).await?;
        outcome.map_err(|refusal| refused_append_error(run, steer, refusal))
    }

    /// Appends to a run's journal without a claim on the run, and notifies the driver of the run.
    /// The inner error is the reason why the store refused the append.
    pub(super) async fn append_as_outsider(
        &self,
        run: RunId,
        batch: JournalBatch,
    ) -> Result<Result<Seq, AppendRefusalReason>> {
        let author = JournalAuthor::Outsider;
        let batch = self.add_request_applied_mark(batch);
        let append = AppendRequest { run, author, batch };
        match self.services.append_and_notify(append).await? {
            AppendResult::Committed { seq, .. } => Ok(Ok(seq)),
            AppendResult::Refused(refusal) => Ok(Err(refusal)),
            AppendResult::RunNotFound => Err(Error::RunNotFound(run)),
            AppendResult::RunEnded => Err(self.run_ended_error(run).await),
            // An outsider names neither sequence number nor epoch; only drivers can get these
            // results.
            AppendResult::Conflict | AppendResult::Fenced => Err(Error::Contention(run)),
        }
    }

    pub(crate) async fn run_ended_error(&self, run: RunId) -> Error {
        match self.services.store.get_run(run).await {
            Ok(Some(row)) => Rejection::Ended(row.status).into(),
            Ok(None) => Error::RunNotFound(run),
            Err(_) => Rejection::Ended(Status::Completed).into(),
        }
    }
}

/// Converts the reason why the store refused an append into an error for the caller.
fn refused_append_error(run: RunId, steer: Option<SteerId>, refusal: AppendRefusalReason) -> Error {
    match (refusal, steer) {
        (AppendRefusalReason::SteersFull, _) => Rejection::SteersFull(STEERS_MAX).into(),
        (AppendRefusalReason::SteerSettled, Some(steer)) => Rejection::SteerSettled(steer).into(),
        // Another attempt of the same request was applied. When the request is sent again it finds
        // that effect.
        (AppendRefusalReason::SteerSettled | AppendRefusalReason::RequestAlreadyApplied, _) => {
            Error::Contention(run)
        }
        (unexpected, _) => {
            let reason = format!("the store refused the append: {unexpected:?}");
            Error::Internal { run, reason }
        }
    }
}
