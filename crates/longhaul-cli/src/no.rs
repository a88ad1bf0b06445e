//! What a desk says that can't do what it was asked: a word for programs and a
//! sentence for people, whoever said it.
//!
//! Never: a hint or an exit code of this command line; those are made in one
//! place, from the word.

use longhaul_api::problem::Problem;
use longhaul_core::port::store::StoreError;
use longhaul_engine::Error;

/// Why it was not done.
#[derive(Debug)]
pub(crate) enum No {
    /// The store in this process's own hands failed.
    Store(StoreError),
    /// It was refused, here or by a server.
    Refused(Problem),
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
