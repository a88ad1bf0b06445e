//! What keeps a run from going on, and whether a person can bring it.
//!
//! Never: a reason without what helps.

use longhaul_run::Input;

/// Why a run can't go on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Blocker {
    /// What, and what helps.
    pub(crate) message: String,
    /// What is wrong is part of the run: only another run is without it.
    pub(crate) is_permanent: bool,
}

impl Blocker {
    /// Something that is part of the run.
    pub(crate) const fn permanent(sentence: String) -> Self {
        let lasts = true;
        Self { message: sentence, is_permanent: lasts }
    }

    /// What the run is told of it.
    pub(crate) fn into_input(self) -> Input {
        match self.is_permanent {
            true => Input::Unrunnable(self.message),
            false => Input::MissingDependency(self.message),
        }
    }
}

impl From<String> for Blocker {
    /// Something that somebody can bring.
    fn from(sentence: String) -> Self {
        let lasts = false;
        Self { message: sentence, is_permanent: lasts }
    }
}
