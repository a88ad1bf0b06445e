//! Cancels, pauses and closes runs: directly if no worker drives the run, otherwise by a command to
//! the run's driver. Retries failed runs. Pauses and resumes lanes. Raises budgets when a run is
//! resumed.

use longhaul_api::lane::LaneView;
use longhaul_core::change::{Blob, NewRun};
use longhaul_core::event::run::RunControlRequest;
use longhaul_core::id::{LaneKey, RunId};
use longhaul_core::policy::budget::{Budget, BudgetCap, BudgetRaise};
use longhaul_core::port::store::{
    AppendRequest, AppendResult, CreateRunsRequest, IdempotencyRecord, JournalAuthor,
};
use longhaul_core::raw::Hash;
use longhaul_core::status::Status;
use longhaul_run::commands::RunCommand;
use longhaul_run::explain::{command_to_raise_shared_budget, dollars_text};
use longhaul_run::submit::{RetryPoint, retry_failed_run};
use longhaul_run::{DecisionContext, Rejection, Run, RunInput, decide};

use crate::error::{Error, Result};
use crate::handle::{Longhaul, SubmitOutcome, check_text_len};
use crate::replay::{replay_journal, replay_run, replay_run_state};

/// Maximum length of the reason for a cancellation, in bytes.
const REASON_BYTES_MAX: usize = 4 * 1024;

/// Maximum number of attempts at an operation on a run. An attempt fails if the run, or another run of
/// its chain, changes meanwhile.
const ATTEMPTS_MAX: usize = 16;

/// Caller name (principal) under which the idempotency keys of retries are stored. It is the same
/// for all callers, so that a failed run is retried only once.
const RETRY_PRINCIPAL: &str = "longhaul:retry";

impl Longhaul {
    /// Cancels a run. When this returns, the run starts no more model or tool calls. If the run has
    /// ended and belongs to a chain, the newest run of the chain is cancelled. Returns the run that
    /// was cancelled.
    pub async fn cancel_run(&self, run: RunId, by: &str, reason: &str) -> Result<RunId> {
        check_text_len("the reason", reason.len(), REASON_BYTES_MAX)?;
        let (by, reason) = (self.redact(by), self.redact(reason));
        let request = RunControlRequest::from_principal(&by).with_reason(&reason);
        let cancel = RunCommand::Cancel { by, reason };
        self.apply_or_send(run, Some(RunInput::CancelNow(request)), Some(cancel)).await
    }

    /// Pauses a run until it is resumed. If the run has ended and belongs to a chain, the newest
    /// run of the chain is paused. Returns the run that was paused.
    pub async fn pause_run(&self, run: RunId, by: &str) -> Result<RunId> {
        let by = self.redact(by);
        let pause_now = RunInput::PauseNow { by: by.clone() };
        self.apply_or_send(run, Some(pause_now), Some(RunCommand::Pause { by })).await
    }

    /// Completes a run that has its result and stays open for messages, with this result. If the
    /// run has ended and belongs to a chain, the newest run of the chain is closed. Returns the run
    /// that was closed.
    pub async fn close_run(&self, run: RunId, by: &str) -> Result<RunId> {
        let close_now = RunInput::CloseNow { by: self.redact(by) };
        self.apply_or_send(run, Some(close_now), None).await
    }

    /// Creates a new run that continues from the last event before the end of a failed run, or from
    /// the start if the failed run has completed no turn, with the agent definition and budget of
    /// the failed run. It is a new run, because no event follows the end of a run in its journal. A
    /// failed run has at most one retry: a second call returns the existing run. If the given run has
    /// completed and belongs to a chain, the newest run of the chain is retried.
    pub async fn retry(&self, run: RunId, by: &str) -> Result<SubmitOutcome> {
        let failed = self.run_to_retry(run).await?;
        let mut retry_point = RetryPoint::default();
        let (folded, _) = replay_journal(&self.services, failed, None, |run, entry| {
            retry_point.update_from_entry(entry);
            run.apply_without_transcript(entry)
        })
        .await?;
        let new = retry_failed_run(self.new_run_id(), &folded, &retry_point, self.redact(by))?;
        let new = NewRun { lane_depth_max: self.services.agents.defaults.lane_depth_max, ..new };
        let definition = self.services.records.agent_definition(new.task.definition).await?;
        let key = failed.to_string();
        let idempotency = IdempotencyRecord {
            principal: RETRY_PRINCIPAL.to_owned(),
            body_hash: Hash::digest(key.as_bytes()),
            key,
            ttl: None,
        };
        self.create_runs(CreateRunsRequest {
            runs: vec![new],
            blobs: definition.into_iter().map(Blob::new).collect(),
            idempotency: Some(idempotency),
        })
        .await
    }

    /// Returns the run that a retry of the given run retries: the newest run of its chain if the run
    /// has completed and belongs to a chain, and otherwise the run itself.
    pub(super) async fn run_to_retry(&self, run: RunId) -> Result<RunId> {
        let completed = self.run_row(run).await?.status == Status::Completed;
        let newest = self.newest_run_of_chain(run).await?.filter(|_| completed);
        Ok(newest.unwrap_or(run))
    }

    /// Pauses a lane: no run of the lane starts until the lane is resumed. A run that has started
    /// continues.
    pub async fn pause_lane(&self, lane: &LaneKey) -> Result<LaneView> {
        self.check_no_secret_in_name("the lane", lane.as_str())?;
        Ok(LaneView::from(&self.services.records.set_lane_pause_state(lane, true).await?))
    }

    /// Resumes a paused lane. Does nothing if the lane is not paused.
    pub async fn resume_lane(&self, lane: &LaneKey) -> Result<LaneView> {
        let row = self.services.records.set_lane_pause_state(lane, false).await?;
        self.services.notifier.notify_runs_ready();
        Ok(LaneView::from(&row))
    }

    /// Applies `input` to the run if there is an input and no worker drives the run. Otherwise
    /// sends `command` to the run's driver, or tries again if there is no command. If the run has
    /// ended and belongs to a chain, uses the newest run of the chain instead. Returns the run that
    /// received the input or the command.
    pub(super) async fn apply_or_send(
        &self,
        run: RunId,
        input: Option<RunInput>,
        command: Option<RunCommand>,
    ) -> Result<RunId> {
        let mut target = run;
        // A message that arrives now changes the run, which is then looked at again.
        for _ in 0..ATTEMPTS_MAX {
            let applied = match input.clone() {
                Some(input) => self.apply_without_driver(target, input).await,
                None => Ok(false),
            };
            let result = match (applied, command.clone()) {
                (Ok(false), Some(command)) => {
                    self.send_command(target, command).await.map(|_| true)
                }
                (applied, _) => applied,
            };
            match result {
                Ok(true) => return Ok(target),
                Ok(false) => {}
                // The chain may continue with another run while this one is looked at.
                Err(Error::Rejected(Rejection::Ended(status))) => {
                    let newest = self.newest_run_of_chain(target).await?;
                    target = newest.ok_or(Rejection::Ended(status))?;
                }
                Err(error) => return Err(error),
            }
        }
        Err(Error::Contention(target))
    }

    /// Applies an input of the state machine to a run and appends the resulting events, if no
    /// worker drives the run. Returns `false` if nothing was appended, because a worker drives the
    /// run, the run has changed meanwhile, or the input is rejected.
    async fn apply_without_driver(&self, run: RunId, input: RunInput) -> Result<bool> {
        let (folded, now) = replay_run(&self.services, run).await?;
        let batch = match decide(&folded, input, DecisionContext::new(now)) {
            Ok(batch) => self.add_request_applied_mark(batch),
            Err(
                refusal @ (Rejection::Ended(_)
                | Rejection::AlreadyInState(_)
                | Rejection::NotOpen(_)
                | Rejection::OpenGate(_)),
            ) => return Err(refusal.into()),
            Err(_) => return Ok(false),
        };
        let author = JournalAuthor::Closer { after: folded.seq() };
        match self.services.append_and_notify(AppendRequest { run, author, batch }).await? {
            AppendResult::Committed { .. } => Ok(true),
            AppendResult::RunNotFound => Err(Error::RunNotFound(run)),
            AppendResult::RunEnded => Err(self.run_ended_error(run).await),
            AppendResult::Conflict | AppendResult::Fenced | AppendResult::Refused(_) => Ok(false),
        }
    }

    /// Returns the command that resumes a run with higher budget caps. If a child run waits for the
    /// budget of its tree (the root run and all descendants) and the root has ended, the command
    /// raises the budget of the tree.
    ///
    /// # Errors
    ///
    /// A cap is missing or above the new one, or the raise must go through the root of the tree.
    pub(super) async fn resume_and_raise(
        &self,
        run: RunId,
        raise: BudgetRaise,
        by: String,
    ) -> Result<RunCommand> {
        let newest = self.newest_run_of_chain(run).await?.unwrap_or(run);
        let (folded, _) = replay_run_state(&self.services, newest).await?;
        let resume = |raises_tree| RunCommand::Resume { by, raise: Some(raise), raises_tree };
        // Sending this command to a run that has ended fails with an error that says so.
        if folded.outcome().is_some() {
            return Ok(resume(false));
        }
        let (control, task) = (folded.control(), folded.task());
        let account = self.services.records.budget_account(task.root).await?.unwrap_or_default();
        let raises_shared_cap = raise.micro_usd.is_some() || raise.tokens.is_some();
        let is_at_cap_of_tree =
            task.is_child() && raises_shared_cap && control.budget.is_exhausted_in(&account);
        if is_at_cap_of_tree && !self.has_run_tree_ended(task.root).await? {
            return Err(Rejection::TreeBudgetExhausted(task.root).into());
        }
        let mut caps = control.budget.caps;
        if !task.is_child() || is_at_cap_of_tree {
            let (micro_usd, tokens) = (account.cap_micro_usd, account.cap_tokens);
            caps = Budget { micro_usd, tokens, ..caps };
        }
        check_caps_can_be_raised(&caps, raise)?;
        Ok(resume(is_at_cap_of_tree))
    }

    /// Returns the CLI command that raises the budget of the tree (the root run and all
    /// descendants) through this child run, because the root has ended. `None` if the root is open,
    /// or if the run does not wait for this budget.
    pub(super) async fn raise_budget_command(&self, run: &Run) -> Result<Option<String>> {
        let Some(command) = command_to_raise_shared_budget(run) else { return Ok(None) };
        let has_ended = self.has_run_tree_ended(run.task().root).await?;
        Ok(Some(command).filter(|_| has_ended))
    }

    /// Returns whether the root run of a tree has ended and, if it belongs to a chain, whether the
    /// newest run of the chain has ended.
    async fn has_run_tree_ended(&self, root: RunId) -> Result<bool> {
        let store = &self.services.store;
        let Some(row) = store.get_run(root).await? else { return Ok(true) };
        let newest = match row.chain {
            Some(chain) => store.get_run(chain.current).await?,
            None => Some(row),
        };
        Ok(newest.is_none_or(|row| row.status.is_terminal()))
    }
}

/// Returns an error if a raise would lower a cap or names a cap that does not exist. An equal cap is
/// no error, so that a request can be repeated.
fn check_caps_can_be_raised(caps: &Budget, raise: BudgetRaise) -> Result<(), Rejection> {
    let new_caps = Budget::default().with_replaced_caps(raise);
    for kind in BudgetCap::ALL {
        let Some(new) = new_caps.limit_of_cap(kind) else { continue };
        let cap = kind.name();
        let current = caps.limit_of_cap(kind).ok_or(Rejection::NoCapToRaise(cap))?;
        if new < current {
            let current = match kind {
                BudgetCap::Money => format!("${}", dollars_text(current)),
                BudgetCap::Tokens | BudgetCap::Turns => current.to_string(),
                BudgetCap::ActiveTime => format!("{current} ms"),
            };
            return Err(Rejection::BudgetNotRaised { cap, current });
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_raise_names_an_existing_cap_and_does_not_lower_it() {
        let caps = Budget { turns: Some(20), ..Budget::default() };
        let check = |raise: BudgetRaise, expected: &str| {
            let result = check_caps_can_be_raised(&caps, raise);
            assert_eq!(result.err().map_or_else(String::new, |error| error.to_string()), expected);
        };
        let turns = |turns| BudgetRaise { turns: Some(turns), ..BudgetRaise::default() };
        check(turns(20), "");
        check(turns(21), "");
        check(turns(19), "the budget of turns is 20 already, and a raise does not lower it");
        let tokens = BudgetRaise { tokens: Some(5), ..BudgetRaise::default() };
        check(tokens, "the run has no limit of tokens that could be raised");
    }
}
