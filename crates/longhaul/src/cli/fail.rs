//! An error as a person reads it: what, why, and commands that help.
//!
//! Never: an error without a way on where there is one.

use std::fmt;

use longhaul::assemble::AssembleError;
use longhaul_core::id::RunId;
use longhaul_core::policy::gate::GateRow;
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

    /// The same, with `RUN` or `GATE` in its commands filled in.
    #[must_use]
    pub(crate) fn about(mut self, what: &str, id: impl fmt::Display) -> Self {
        let id = id.to_string();
        for (_, command) in &mut self.hints {
            *command = command.replace(what, &id);
        }
        self
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
    let failure = Failure::usage(with_causes(error));
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
        StoreError::Event { .. } => failure.hint("see which build this is", "longhaul version"),
        StoreError::Closed { .. } | StoreError::Database { .. } => failure
            .hint("see where it is set", "longhaul config show --origin")
            .hint(
                "or keep runs elsewhere",
                "LONGHAUL_STORE=sqlite:OTHER.db longhaul ...",
            ),
        StoreError::Outsider { .. } => failure,
    }
}

/// An error and what lies behind it, in one line.
fn with_causes(error: &dyn std::error::Error) -> String {
    let mut said = error.to_string();
    let mut cause = error.source();
    while let Some(deeper) = cause {
        said = format!("{said}: {deeper}");
        cause = deeper.source();
    }
    said
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
    no(error).into()
}

/// The same, said of this run.
pub(crate) fn about_run(run: RunId) -> impl Fn(Error) -> anyhow::Error {
    move |error| no(error).about("RUN", run).into()
}

/// The same, said of this gate.
pub(crate) fn about_gate(gate: &GateRow) -> impl Fn(Error) -> anyhow::Error {
    let (run, gate) = (gate.run, gate.spec.id);
    move |error| no(error).about("RUN", run).about("GATE", gate).into()
}

fn no(error: Error) -> Failure {
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
        Refusal::WrongDecision { .. } => {
            failure.hint("see what it asks", "longhaul gates show GATE")
        }
        Refusal::ScopeNotOffered => failure.hint("approve it once", "longhaul approve GATE"),
        Refusal::VotedBefore(_) => failure.hint("see who and when", "longhaul gates show GATE"),
        Refusal::Already(_) | Refusal::Stopping => {
            failure.hint("see how it stands", "longhaul why RUN")
        }
        Refusal::OwnRun => failure.exit(Exit::NotAllowed),
        Refusal::SteersFull(_) => failure
            .exit(Exit::Busy)
            .hint("see them", "longhaul steer RUN --status"),
        Refusal::OutOfPlace { .. }
        | Refusal::NoSuchCall(_)
        | Refusal::SteerSettled(_)
        | Refusal::TooLong { .. }
        | Refusal::Empty(_)
        | Refusal::BadTask(_) => failure,
    }
}
