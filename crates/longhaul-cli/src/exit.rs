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
    Done,
    /// The run failed, or a check found a problem.
    RunFailed,
    /// The command line or the configuration is invalid.
    Usage,
    /// The run waits for a person, or for a provider that is unavailable.
    NeedsPerson,
    /// A limit, such as the budget or a spend cap, stopped the run or makes it wait.
    Limit,
    /// The store or the server is busy or unreachable. The command can be repeated safely.
    Busy,
    /// The command is not allowed, such as with an invalid API key.
    NotAllowed,
    /// The run was cancelled.
    Cancelled,
    /// The timeout of the command has passed. A followed run continues.
    TimedOut,
    /// The user interrupted the command. The run continues or is saved.
    Interrupted,
}

/// Converts the return value `()` of a command to the exit code for success.
impl From<()> for Exit {
    fn from((): ()) -> Self {
        Self::Done
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(match exit {
            Exit::Done => 0,
            Exit::RunFailed => 1,
            Exit::Usage => 2,
            Exit::NeedsPerson => 3,
            Exit::Limit => 4,
            Exit::Busy => 5,
            Exit::NotAllowed => 6,
            Exit::Cancelled => 7,
            Exit::TimedOut => 124,
            Exit::Interrupted => 130,
        })
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
