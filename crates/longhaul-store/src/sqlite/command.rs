//! Commands that are executed by the writer thread.
//!
//! Invariant: a command is answered only after its commit is durable.

use longhaul_core::port::store::StoreError;
use tokio::sync::oneshot;

use crate::sqlite::error::{CommitError, WriteCommandError};
use crate::sqlite::tx::Tx;

/// Outcome of a command, with the response for the caller.
#[derive(Debug)]
pub(crate) enum CommandOutcome<T> {
    /// The command wrote something that watchers must be notified of.
    Changed(T),
    /// The command wrote nothing, or nothing that watchers must be notified of.
    Silent(T),
    /// The writes of the command must be rolled back.
    Rollback(T),
}

/// Outcome of a command, without the response for the caller.
#[derive(Debug)]
pub(crate) enum CommandOutcomeKind {
    /// The command wrote something that watchers must be notified of.
    Changed,
    /// The command wrote nothing, or nothing that watchers must be notified of.
    Silent,
    /// The writes of the command must be rolled back.
    Rollback,
    /// The command failed and its writes must be rolled back.
    Failed(CommitError),
}

/// A command that the writer thread can run and answer, whatever the type of its response.
pub(crate) trait WriteCommand: Send {
    /// Runs the command inside a transaction. May be called again after a rollback. `location` is
    /// the location of the store, for errors.
    fn run_in_transaction(&mut self, tx: &Tx<'_>, location: &str) -> CommandOutcomeKind;

    /// Sends the response to the caller after the commit. If the commit failed, sends
    /// `commit_error` instead.
    fn respond_to_caller(self: Box<Self>, commit_error: Option<StoreError>);
}

/// A command whose caller waits for the response.
pub(crate) struct PendingWriteCommand<T, F> {
    run: F,
    result: Option<Result<T, StoreError>>,
    caller: oneshot::Sender<Result<T, StoreError>>,
}

impl<T, F> PendingWriteCommand<T, F> {
    /// Creates a command whose response is sent to `caller`.
    pub(crate) const fn new(work: F, caller: oneshot::Sender<Result<T, StoreError>>) -> Self {
        Self { run: work, result: None, caller }
    }
}

impl<T, F> WriteCommand for PendingWriteCommand<T, F>
where
    T: Send,
    F: Fn(&Tx<'_>) -> Result<CommandOutcome<T>, WriteCommandError> + Send,
{
    fn run_in_transaction(&mut self, tx: &Tx<'_>, location: &str) -> CommandOutcomeKind {
        let (kind, result) = match (self.run)(tx) {
            Ok(CommandOutcome::Changed(value)) => (CommandOutcomeKind::Changed, Ok(value)),
            Ok(CommandOutcome::Silent(value)) => (CommandOutcomeKind::Silent, Ok(value)),
            Ok(CommandOutcome::Rollback(value)) => (CommandOutcomeKind::Rollback, Ok(value)),
            Err(error) => (
                CommandOutcomeKind::Failed(error.to_commit_error()),
                Err(error.into_store_error(location)),
            ),
        };
        self.result = Some(result);
        kind
    }

    fn respond_to_caller(self: Box<Self>, commit_error: Option<StoreError>) {
        let result = match commit_error {
            Some(error) => Some(Err(error)),
            None => self.result,
        };
        // The caller may have been dropped.
        if let Some(result) = result {
            _ = self.caller.send(result);
        }
    }
}
