//! An error as a person reads it: what, why, and commands that help.
//!
//! Never: an error without a way on where there is one.

use std::fmt;

use longhaul::assemble::AssembleError;
use longhaul_core::port::store::StoreError;
use longhaul_engine::Error;
use longhaul_run::Refusal;

use crate::cli::exit::Exit;

/// What went wrong.
#[derive(Debug)]
pub(crate) struct Failure {
    said: String,
    /// A few words and the command that they are about.
    hints: Vec<(String, String)>,
    /// How the command ends.
    pub(crate) exit: Exit,
}

impl Failure {
    /// A mistake of whoever typed.
    pub(crate) fn usage(said: impl Into<String>) -> Self {
        Self {
            said: said.into(),
            hints: Vec::new(),
            exit: Exit::Usage,
        }
    }

    /// The same, ending otherwise.
    #[must_use]
    pub(crate) fn exit(self, exit: Exit) -> Self {
        Self { exit, ..self }
    }

    /// The same, with a way on.
    #[must_use]
    pub(crate) fn hint(mut self, words: &str, command: impl Into<String>) -> Self {
        self.hints.push((words.to_owned(), command.into()));
        self
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.said)?;
        let width = self.hints.iter().map(|(words, _)| words.len()).max();
        for (words, command) in &self.hints {
            write!(
                f,
                "\n  {words:width$}   {command}",
                width = width.unwrap_or(0)
            )?;
        }
        Ok(())
    }
}

impl std::error::Error for Failure {}

/// What a fault of the store means to a person.
pub(crate) fn store(error: &StoreError) -> Failure {
    let failure = Failure::usage(error.to_string());
    match error {
        StoreError::Full { .. } => failure.hint(
            "make room on that disk, or keep runs elsewhere",
            "LONGHAUL_STORE=sqlite:/other/disk/longhaul.db longhaul ...",
        ),
        StoreError::ReadOnly { at, .. } => failure
            .hint("look who may write there", format!("ls -ld {at}"))
            .hint(
                "or keep runs elsewhere",
                "LONGHAUL_DATA=/some/folder longhaul ...",
            ),
        StoreError::Corrupt { at, .. } => failure
            .hint("it was not touched; look what it is", format!("file {at}"))
            .hint(
                "or keep runs elsewhere",
                "LONGHAUL_STORE=sqlite:OTHER.db longhaul ...",
            ),
        StoreError::Newer { .. } => failure.hint("see which build this is", "longhaul version"),
        StoreError::Driven { .. } => failure
            .exit(Exit::Busy)
            .hint(
                "hand it work while it drives",
                "longhaul submit AGENT INPUT",
            )
            .hint("see what it does", "longhaul ls"),
        StoreError::Busy { .. } => failure.exit(Exit::Busy),
        StoreError::Url { .. } => {
            failure.hint("see where it is set", "longhaul config show --origin")
        }
        StoreError::Outsider { .. }
        | StoreError::Event { .. }
        | StoreError::Closed { .. }
        | StoreError::Database { .. } => failure,
    }
}

/// What a fault of putting the program together means to a person.
pub(crate) fn assemble(error: AssembleError) -> anyhow::Error {
    match error {
        AssembleError::Store(error) => store(&error).into(),
        other @ (AssembleError::Tool(_) | AssembleError::Name(_) | AssembleError::NotYet(_)) => {
            Failure::usage(other.to_string())
                .hint("see what is set", "longhaul config show --origin")
                .into()
        }
    }
}

/// What the engine's no means to a person.
pub(crate) fn engine(error: Error) -> anyhow::Error {
    let failure = Failure::usage(error.to_string());
    match error {
        Error::Store(error) => store(&error),
        Error::NoRun(_) => failure.hint("all runs", "longhaul ls --all"),
        Error::NoGate(_) => failure.hint("what waits for an answer", "longhaul gates"),
        Error::NoAgent { like, .. } => {
            let failure = match like {
                Some(like) => failure.hint("did you mean", format!("longhaul run {like} ...")),
                None => failure,
            };
            failure.hint("all agents", "longhaul agents")
        }
        Error::Refused(refusal) => refused(failure, &refusal),
        Error::Template { agent, .. } => failure.hint(
            "look at the agent",
            format!("longhaul agents check {agent}"),
        ),
        Error::Crowded(_) | Error::LaneFull(_) => failure.exit(Exit::Busy),
        Error::KeyReused | Error::Misfit(_) | Error::Stuck { .. } => failure,
    }
    .into()
}

fn refused(failure: Failure, refusal: &Refusal) -> Failure {
    match refusal {
        Refusal::Ended(_) => failure.hint("see how", "longhaul show RUN"),
        Refusal::GateClosed { gate, .. } | Refusal::GateExpired(gate) => {
            failure.hint("see who and when", format!("longhaul gates show {gate}"))
        }
        Refusal::DigestMissing | Refusal::DigestChanged => {
            failure.hint("look again", "longhaul gates show GATE")
        }
        Refusal::OwnRun => failure.exit(Exit::NotAllowed),
        Refusal::SteersFull(_) => failure.exit(Exit::Busy),
        Refusal::OutOfPlace { .. }
        | Refusal::NoSuchCall(_)
        | Refusal::Stopping
        | Refusal::WrongDecision { .. }
        | Refusal::ScopeNotOffered
        | Refusal::VotedBefore(_)
        | Refusal::SteerSettled(_)
        | Refusal::TooLong { .. }
        | Refusal::Empty(_)
        | Refusal::BadTask(_)
        | Refusal::Already(_) => failure,
    }
}
