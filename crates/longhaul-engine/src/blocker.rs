//! Why a run is blocked, and whether the cause is permanent.
//!
//! A blocked run waits until a person has removed the cause.

use longhaul_run::Input;

/// The reason why a run cannot continue.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Blocker {
    /// Message for people: what is missing and how to fix it.
    pub(crate) message: String,
    /// Whether the cause is part of the run itself, so that only a new run can succeed.
    pub(crate) is_permanent: bool,
}

impl Blocker {
    /// Creates a blocker with a permanent cause, which no person can remove.
    pub(crate) const fn permanent(message: String) -> Self {
        let lasts = true;
        Self { message, is_permanent: lasts }
    }

    /// Converts the blocker into the state machine's input that blocks the run.
    pub(crate) fn into_input(self) -> Input {
        match self.is_permanent {
            true => Input::Unrunnable(self.message),
            false => Input::MissingDependency(self.message),
        }
    }
}

impl From<String> for Blocker {
    /// Creates a blocker whose cause a person can remove.
    fn from(message: String) -> Self {
        let lasts = false;
        Self { message, is_permanent: lasts }
    }
}
