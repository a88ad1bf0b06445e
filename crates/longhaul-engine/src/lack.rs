//! What keeps a run from going on, and whether a person can bring it.
//!
//! Never: a reason without what helps.

use longhaul_run::Input;

/// Why a run can't go on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Lack {
    /// What, and what helps.
    pub(crate) sentence: String,
    /// What is wrong is part of the run: only another run is without it.
    pub(crate) lasts: bool,
}

impl Lack {
    /// Something that is part of the run.
    pub(crate) const fn lasting(sentence: String) -> Self {
        let lasts = true;
        Self { sentence, lasts }
    }

    /// What the run is told of it.
    pub(crate) fn told(self) -> Input {
        match self.lasts {
            true => Input::Unfit(self.sentence),
            false => Input::Missing(self.sentence),
        }
    }
}

impl From<String> for Lack {
    /// Something that somebody can bring.
    fn from(sentence: String) -> Self {
        let lasts = false;
        Self { sentence, lasts }
    }
}
