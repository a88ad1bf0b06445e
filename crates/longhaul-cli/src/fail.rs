//! An error as a person reads it: what, why, and commands that help.
//!
//! Never: an error without a way on where there is one.

use std::fmt;
use std::path::Path;

use longhaul::assemble::AssembleError;
use longhaul::private_file::PrivateFileError;
use longhaul_api::gate::GateView;
use longhaul_api::problem::Problem;
use longhaul_core::id::RunId;
use longhaul_core::port::store::StoreError;

use crate::exit::Exit;
use crate::no::No;

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
            let line = format!("  {words:width$}   {command}", width = width.unwrap_or(0));
            write!(f, "\n{}", line.trim_end())?;
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
        other @ (AssembleError::Tool(_)
        | AssembleError::BuiltIn(_)
        | AssembleError::Name(_)
        | AssembleError::Setting(_)
        | AssembleError::NotYet(_)
        | AssembleError::Agent { .. }) => Failure::usage(other.to_string())
            .hint("see what is set", "longhaul config show --origin")
            .into(),
    }
}

/// The wall clock is before 1970.
pub(crate) fn clock_before_1970() -> anyhow::Error {
    let what = "nothing can be done: the clock of this machine is before 1970, and no time before \
                that can be stored";
    Failure::usage(what)
        .hint("set the clock", "timedatectl set-ntp true")
        .into()
}

/// What a desk's no, or the engine's, means to a person.
pub(crate) fn engine(error: impl Into<No>) -> anyhow::Error {
    no(&error.into()).into()
}

/// The same, said of this run.
pub(crate) fn about_run(run: RunId) -> impl Fn(No) -> anyhow::Error {
    move |error| no(&error).about("RUN", run).into()
}

/// The same, said of this gate.
pub(crate) fn about_gate(gate: &GateView) -> impl Fn(No) -> anyhow::Error {
    let (run, gate) = (gate.run, gate.id);
    move |error| no(&error).about("RUN", run).about("GATE", gate).into()
}

/// The same, said of this key.
pub(crate) fn about_key(name: &str) -> impl Fn(No) -> anyhow::Error {
    move |error| no(&error).about("NAME", name).into()
}

/// The same, said of this agent.
pub(crate) fn about_agent(name: &str) -> impl Fn(No) -> anyhow::Error {
    move |error| no(&error).about("AGENT", name).into()
}

/// Why the machine's own key is none.
pub(crate) fn local_key(error: &PrivateFileError, at: &Path) -> Failure {
    let command = format!("rm {}", at.display());
    Failure::usage(error.to_string()).hint("make a new one with the next server", command)
}

fn no(error: &No) -> Failure {
    match error {
        No::Store(error) => store(error),
        No::Refused(problem) => refused(problem),
    }
}

/// What a refusal means is known by its word alone, so that it reads the same
/// whoever refused.
fn refused(problem: &Problem) -> Failure {
    let failure = Failure::usage(&problem.detail);
    match problem.code.as_str() {
        "no_run" => failure.hint("all runs", "longhaul ls --all"),
        "no_gate" => failure.hint("what waits for an answer", "longhaul gates"),
        "no_agent" => {
            let failure = match &problem.like {
                Some(like) => failure.hint("did you mean", format!("longhaul run {like} ...")),
                None => failure,
            };
            failure.hint("all agents", "longhaul agents")
        }
        "no_key" => failure.hint("all keys", "longhaul keys ls"),
        "key_taken" => failure.hint("end that one first", "longhaul keys revoke NAME"),
        "template" => failure.hint("look at the agent", "longhaul agents check AGENT"),
        "no_model" => failure
            .hint("see providers and keys", "longhaul models")
            .hint("see what is set", "longhaul config show --origin")
            .hint("or try the scripted demo", "longhaul demo"),
        "idempotency_key_reused" => failure.hint("take another key", "--idempotency-key OTHER"),
        "run_ended" => failure.hint("see how", "longhaul show RUN"),
        "already_answered" | "gate_expired" | "voted_before" => {
            failure.hint("see who and when", "longhaul gates show GATE")
        }
        "digest_missing" | "digest_changed" => {
            failure.hint("look again", "longhaul gates show GATE")
        }
        "wrong_decision" => failure.hint("see what it asks", "longhaul gates show GATE"),
        "scope_not_offered" => failure.hint("approve it once", "longhaul approve GATE"),
        "already" | "stopping" => failure.hint("see how it stands", "longhaul why RUN"),
        "own_run" => failure.exit(Exit::NotAllowed),
        "steers_full" => failure
            .exit(Exit::Busy)
            .hint("see them", "longhaul steer RUN --status"),
        "unauthorized" | "forbidden" | "unreachable" | "lost" | "strange" | "wrong_host" => {
            far(failure, problem)
        }
        "crowded"
        | "lane_full"
        | "busy"
        | "draining"
        | "timeout"
        | "rate_limited"
        | "idempotency_running" => failure.exit(Exit::Busy),
        // The sentence says it all; a server's hint is for whoever writes requests.
        "too_long" | "empty" | "bad_task" | "bad_script" | "steer_settled" | "no_steer"
        | "out_of_place" | "no_such_call" => failure,
        _ => match problem.hint.as_str() {
            "" => failure,
            hint => failure.hint(hint, ""),
        },
    }
}

/// What only servers say, and what is said when there is none.
fn far(failure: Failure, problem: &Problem) -> Failure {
    match problem.code.as_str() {
        "unauthorized" => failure
            .exit(Exit::NotAllowed)
            .hint(
                "make a key where the server runs",
                "longhaul keys new NAME --role operator",
            )
            .hint("and show it", "LONGHAUL_KEY=lh_... longhaul ..."),
        "forbidden" => failure
            .exit(Exit::NotAllowed)
            .hint(
                "make a key that may, where the server runs",
                "longhaul keys new NAME --role approver",
            )
            .hint("and show it", "LONGHAUL_KEY=lh_... longhaul ..."),
        "lost" => failure
            .exit(Exit::Busy)
            .hint("look before it is said again", "longhaul ls"),
        "strange" => failure.hint("see what answers there", "curl -i $LONGHAUL_URL/version"),
        "wrong_host" => failure.exit(Exit::NotAllowed).hint(
            "name it in the server's longhaul.toml",
            "[server] hosts = [\"HOST\"]",
        ),
        _ => failure
            .exit(Exit::Busy)
            .hint("start it where the store is", "longhaul serve")
            .hint(
                "or ask the store of this folder",
                "LONGHAUL_URL= longhaul ...",
            ),
    }
}

#[cfg(test)]
mod tests {
    use longhaul_engine::Error;

    use super::*;

    #[test]
    fn a_refusal_means_the_same_whoever_refused() {
        for (code, exit, hint) in [
            ("no_run", Exit::Usage, "longhaul ls --all"),
            ("no_gate", Exit::Usage, "longhaul gates"),
            ("no_agent", Exit::Usage, "longhaul run writer ..."),
            ("run_ended", Exit::Usage, "longhaul show run_"),
            ("already_answered", Exit::Usage, "longhaul gates show"),
            ("digest_changed", Exit::Usage, "longhaul gates show"),
            ("own_run", Exit::NotAllowed, ""),
            ("steers_full", Exit::Busy, "longhaul steer run_"),
            ("lane_full", Exit::Busy, ""),
            ("rate_limited", Exit::Busy, ""),
            ("draining", Exit::Busy, ""),
            ("unauthorized", Exit::NotAllowed, "longhaul keys new NAME"),
            ("forbidden", Exit::NotAllowed, "LONGHAUL_KEY=lh_..."),
            ("unreachable", Exit::Busy, "LONGHAUL_URL= longhaul"),
            ("lost", Exit::Busy, "longhaul ls"),
            ("strange", Exit::Usage, "/version"),
            ("no_key", Exit::Usage, "longhaul keys ls"),
            ("key_taken", Exit::Usage, "longhaul keys revoke NAME"),
            ("invalid", Exit::Usage, "write it better"),
        ] {
            let body = serde_json::json!({
                "type": "about:blank", "title": "No", "status": 400, "detail": "it is wrong",
                "code": code, "hint": "write it better", "like": "writer", "request_id": "r",
            });
            let problem: Problem = serde_json::from_value(body).unwrap();
            let error = about_run(RunId::from_bits(7))(problem.into());
            let failure = error.downcast_ref::<Failure>().unwrap();
            assert_eq!(failure.exit, exit, "{code}");
            let said = failure.to_string();
            assert!(said.starts_with("it is wrong"), "{code}: {said}");
            assert!(said.contains(hint), "{code}: {said}");
            assert!(said.lines().all(|line| line.trim_end() == line), "{said:?}");
        }
    }

    #[test]
    fn what_the_engine_refuses_reads_as_what_a_server_refuses() {
        let like = Some("writer".to_owned());
        let name = "writr".to_owned();
        let here = Error::NoAgent { name, like };
        let detail = "there is no agent named `writr`";
        let there = Problem {
            like: Some("writer".to_owned()),
            hint: "a server's own words".to_owned(),
            ..Problem::new("no_agent", detail)
        };
        assert_eq!(engine(here).to_string(), engine(there).to_string());
    }
}
