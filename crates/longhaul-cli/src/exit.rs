//! Exit codes of every command, which scripts depend on.
//!
//! Invariant: a command that follows a run exits with 0 only if the run completed, or has a result
//! and stays open for messages.

use std::process::ExitCode;

use longhaul_api::run::RunView;
use longhaul_core::status::Status;

/// Exit code of a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Exit {
    /// The command succeeded.
    Done = 0,
    /// The run failed, or a check found a problem.
    RunFailed = 1,
    /// The command line or the configuration is invalid.
    Usage = 2,
    /// The run waits for a person, or for a provider that is unavailable.
    NeedsPerson = 3,
    /// A limit, such as the budget or a spend cap, stopped the run or makes it wait.
    Limit = 4,
    /// The store or the server is busy, unreachable or gone. Everything acknowledged is stored.
    Busy = 5,
    /// The command is not allowed, such as with an invalid API key.
    NotAllowed = 6,
    /// The run was cancelled.
    Cancelled = 7,
    /// The timeout of the command has passed. A followed run continues.
    TimedOut = 124,
    /// The user interrupted the command. The run continues or is saved.
    Interrupted = 130,
}

/// Converts the return value `()` of a command to the exit code for success.
impl From<()> for Exit {
    fn from((): ()) -> Self {
        Self::Done
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit as u8)
    }
}

impl Exit {
    /// Returns the exit code for the status of a run when the command stops following it.
    pub(crate) fn from_run(run: &RunView) -> Self {
        let code = run.error.as_ref().map(|error| error.code.as_str());
        match (run.status, code) {
            (Status::Completed, _) => Self::Done,
            (Status::Cancelled, _) => Self::Cancelled,
            (Status::Failed, Some("turn_limit" | "budget" | "time_limit")) => Self::Limit,
            (Status::Failed, _) => Self::RunFailed,
            (Status::Waiting, _) if matches!(run.reason.as_deref(), Some("budget" | "cap")) => {
                Self::Limit
            }
            (Status::Waiting | Status::Blocked | Status::Paused, _) => Self::NeedsPerson,
            (Status::Pending | Status::Running, _) => Self::Interrupted,
        }
    }
}
