//! A command on its way through the writer: run inside a commit, answered after it.
//!
//! Never: an answer before the commit stands.

use longhaul_core::port::store::StoreError;
use tokio::sync::oneshot;

use crate::sqlite::error::{CommandError, CommitError};
use crate::sqlite::tx::Tx;

/// What a command did, with its answer.
#[derive(Debug)]
pub(crate) enum CommandOutcome<T> {
    /// It wrote something that others may wait for.
    Changed(T),
    /// It wrote nothing, or nothing that anybody waits for.
    Silent(T),
    /// What it wrote is to be undone.
    Rollback(T),
}

/// What a command did, without its answer.
#[derive(Debug)]
pub(crate) enum CommandStatus {
    /// It wrote something that others may wait for.
    Changed,
    /// It wrote nothing that anybody waits for.
    Silent,
    /// What it wrote is to be undone.
    Rollback,
    /// It broke; what it wrote is to be undone.
    Failed(CommitError),
}

/// A command that the writer can run and answer without knowing what it is.
pub(crate) trait WriteCommand: Send {
    /// Does it, inside the commit. It may be done again if that was rolled back.
    fn run(&mut self, tx: &Tx<'_>, at: &str) -> CommandStatus;

    /// Tells its caller, after the commit; `lost` says that there was none.
    fn respond(self: Box<Self>, lost: Option<StoreError>);
}

/// A command with its caller.
pub(crate) struct PendingCommand<T, F> {
    run: F,
    result: Option<Result<T, StoreError>>,
    caller: oneshot::Sender<Result<T, StoreError>>,
}

impl<T, F> PendingCommand<T, F> {
    /// A command whose answer goes to `caller`.
    pub(crate) const fn new(work: F, caller: oneshot::Sender<Result<T, StoreError>>) -> Self {
        Self { run: work, result: None, caller }
    }
}

impl<T, F> WriteCommand for PendingCommand<T, F>
where
    T: Send,
    F: Fn(&Tx<'_>) -> Result<CommandOutcome<T>, CommandError> + Send,
{
    fn run(&mut self, tx: &Tx<'_>, at: &str) -> CommandStatus {
        let (ran, done) = match (self.run)(tx) {
            Ok(CommandOutcome::Changed(value)) => (CommandStatus::Changed, Ok(value)),
            Ok(CommandOutcome::Silent(value)) => (CommandStatus::Silent, Ok(value)),
            Ok(CommandOutcome::Rollback(value)) => (CommandStatus::Rollback, Ok(value)),
            Err(fault) => {
                (CommandStatus::Failed(fault.to_commit_error()), Err(fault.into_store_error(at)))
            }
        };
        self.result = Some(done);
        ran
    }

    fn respond(self: Box<Self>, lost: Option<StoreError>) {
        let done = match lost {
            Some(error) => Some(Err(error)),
            None => self.result,
        };
        // A caller that has gone away does not want to know.
        if let Some(done) = done {
            _ = self.caller.send(done);
        }
    }
}
