//! What a desk says that can't do what it was asked: a word for programs and a
//! sentence for people, whoever said it.
//!
//! Never: a hint or an exit code of this command line; those are made in one
//! place, from the word.

use longhaul_core::port::store::StoreError;
use longhaul_engine::Error;
use serde::Deserialize;

/// Why it was not done.
#[derive(Debug)]
pub(crate) enum No {
    /// The store in this process's own hands failed.
    Store(StoreError),
    /// It was refused, here or by a server.
    Refused(Problem),
}

/// A refusal: what a server answers as `application/problem+json`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub(crate) struct Problem {
    /// A word for programs.
    pub(crate) code: String,
    /// What is wrong.
    pub(crate) detail: String,
    /// What may have been meant.
    #[serde(default)]
    pub(crate) like: Option<String>,
    /// What helps, in a server's words.
    #[serde(default)]
    pub(crate) hint: Option<String>,
}

impl Problem {
    /// A refusal with nothing but its word and its sentence.
    pub(crate) fn new(code: &str, detail: impl Into<String>) -> Self {
        Self {
            code: code.to_owned(),
            detail: detail.into(),
            like: None,
            hint: None,
        }
    }
}

impl From<Problem> for No {
    fn from(problem: Problem) -> Self {
        Self::Refused(problem)
    }
}

impl From<Error> for No {
    fn from(error: Error) -> Self {
        let problem = Problem::new(error.code(), error.to_string());
        match error {
            Error::Store(error) => Self::Store(error),
            Error::NoAgent { like, .. } => Self::Refused(Problem { like, ..problem }),
            Error::Misfit(_)
            | Error::Refused(_)
            | Error::NoRun(_)
            | Error::NoGate(_)
            | Error::NoSteer(_)
            | Error::NoKey(_)
            | Error::KeyTaken(_)
            | Error::NoChance
            | Error::KeyReused
            | Error::LaneFull(_)
            | Error::Crowded(_)
            | Error::Template { .. }
            | Error::Stuck { .. } => Self::Refused(problem),
        }
    }
}
