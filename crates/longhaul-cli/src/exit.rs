//! The exit codes of every command: a contract with scripts.
//!
//! Never: 0 for a run that did not complete.

use std::process::ExitCode;

use longhaul_api::run::RunView;
use longhaul_core::status::Status;

/// How a command ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Exit {
    /// It did what was asked.
    Done,
    /// The run failed.
    RunFailed,
    /// Usage or configuration.
    Usage,
    /// A person is needed.
    NeedsPerson,
    /// A limit stopped the run.
    Limit,
    /// Busy or not reachable: safe to try again.
    Busy,
    /// Not allowed.
    NotAllowed,
    /// The run was cancelled.
    Cancelled,
    /// The time given has passed; the run goes on.
    TimedOut,
    /// Detached; the run goes on or is saved.
    Interrupted,
}

/// A command that returns nothing has done what was asked.
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
    /// What a run that is no longer followed means.
    pub(crate) fn from_run(run: &RunView) -> Self {
        let code = run.error.as_ref().map(|fault| fault.code.as_str());
        match (run.status, code) {
            (Status::Completed, _) => Self::Done,
            (Status::Cancelled, _) => Self::Cancelled,
            (Status::Failed, Some("turn_limit" | "budget" | "time_limit")) => Self::Limit,
            (Status::Failed, _) => Self::RunFailed,
            (Status::Waiting, _) if run.reason.as_deref() == Some("budget") => Self::Limit,
            (Status::Waiting | Status::Blocked | Status::Paused, _) => Self::NeedsPerson,
            (Status::Pending | Status::Running, _) => Self::Interrupted,
        }
    }
}
