//! Why a run is blocked, and whether the cause is permanent.
//!
//! A blocked run waits until a person has removed the cause.

use longhaul_run::RunInput;

/// The reason why a run cannot continue.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RunBlocker {
    /// Message for people: what is missing and how to fix it.
    pub(crate) message: String,
    /// Whether the cause is part of the run itself, so that only a new run can succeed.
    pub(crate) is_permanent: bool,
}

impl RunBlocker {
    /// Creates a blocker with a permanent cause, which no person can remove.
    pub(crate) const fn permanent(message: String) -> Self {
        let is_permanent = true;
        Self { message, is_permanent }
    }

    /// Converts the blocker into the state machine's input that blocks the run.
    pub(crate) fn into_input(self) -> RunInput {
        match self.is_permanent {
            true => RunInput::Unrunnable(self.message),
            false => RunInput::MissingDependency(self.message),
        }
    }
}

impl From<String> for RunBlocker {
    /// Creates a blocker whose cause a person can remove.
    fn from(message: String) -> Self {
        let is_permanent = false;
        Self { message, is_permanent }
    }
}
