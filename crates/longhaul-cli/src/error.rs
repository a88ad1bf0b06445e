//! An error as a person reads it: what, why, and commands that help. What an error of the engine,
//! of the store or of a server means is said in this one place, from its code alone, so that a
//! refusal reads the same whoever refused.

use std::error::Error as StdError;
use std::fmt;
use std::path::Path;

use longhaul::assemble::AssembleError;
use longhaul::private_file::PrivateFileError;
use longhaul_api::problem::Problem;
use longhaul_core::port::store::StoreError;
use longhaul_engine::Error as EngineError;

use crate::exit::Exit;

/// An error with hints and an exit code.
#[derive(Debug, Clone)]
pub(crate) struct CliError {
    text: String,
    /// A few words and the command that they are about.
    hints: Vec<(String, String)>,
    pub(crate) exit: Exit,
}

impl CliError {
    /// A mistake of whoever typed.
    pub(crate) fn usage(text: impl Into<String>) -> Self {
        Self { text: text.into(), hints: Vec::new(), exit: Exit::Usage }
    }

    /// The same with another exit code.
    #[must_use]
    pub(crate) fn with_exit(self, exit: Exit) -> Self {
        Self { exit, ..self }
    }

    /// The same with a command that helps.
    #[must_use]
    pub(crate) fn hint(mut self, words: &str, command: impl Into<String>) -> Self {
        self.hints.push((words.to_owned(), command.into()));
        self
    }

    /// The same with several commands that help.
    fn hints(self, hints: &[(&str, &str)]) -> Self {
        let add = |error: Self, (words, command): &(&str, &str)| error.hint(words, *command);
        hints.iter().fold(self, add)
    }

    /// The same with a placeholder such as `RUN` in its commands filled in.
    fn fill_placeholder(mut self, placeholder: &str, id: &str) -> Self {
        for (_, command) in &mut self.hints {
            *command = command.replace(placeholder, id);
        }
        self
    }

    /// What one error in a chain means to a person; none: it says all itself.
    fn explain(error: &(dyn StdError + 'static)) -> Option<Self> {
        if let Some(error) = error.downcast_ref::<Self>() {
            return Some(error.clone());
        }
        if let Some(error) = error.downcast_ref::<StoreError>() {
            return Some(from_store_error(error));
        }
        if let Some(problem) = error.downcast_ref::<Problem>() {
            return Some(from_problem(problem));
        }
        if let Some(error) = error.downcast_ref::<AssembleError>() {
            let setting = ("see what is set", "longhaul config show --origin");
            return Some(match error {
                AssembleError::Store(error) => from_store_error(error),
                AssembleError::Tool(_)
                | AssembleError::BuiltInTool(_)
                | AssembleError::InvalidId(_)
                | AssembleError::Setting(_)
                | AssembleError::Unsupported(_)
                | AssembleError::Agent { .. } => Self::usage(error.to_string()).hints(&[setting]),
            });
        }
        let error = error.downcast_ref::<EngineError>()?;
        let problem = Problem::new(error.code(), error.to_string());
        #[expect(clippy::wildcard_enum_match_arm, reason = "most are known by their code")]
        Some(match error {
            EngineError::Store(error) => from_store_error(error),
            EngineError::AgentNotFound { suggestion: like, .. } => {
                from_problem(&Problem { suggestion: like.clone(), ..problem })
            }
            _ => from_problem(&problem),
        })
    }
}

impl fmt::Display for CliError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)?;
        let width = self.hints.iter().map(|(words, _)| words.len()).max();
        for (words, command) in &self.hints {
            let line = format!("  {words:width$}   {command}", width = width.unwrap_or(0));
            write!(f, "\n{}", line.trim_end())?;
        }
        Ok(())
    }
}

impl StdError for CliError {}

/// What went wrong and why, one cause after the other.
pub(crate) fn full_message(error: &anyhow::Error) -> String {
    let mut text = String::new();
    for cause in error.chain() {
        let known = CliError::explain(cause);
        let separator = if text.is_empty() { "" } else { ": " };
        match known {
            Some(known) => return format!("{text}{separator}{known}"),
            None => text = format!("{text}{separator}{cause}"),
        }
    }
    text
}

/// The exit code of a command that failed.
pub(crate) fn exit_for_error(error: &anyhow::Error) -> Exit {
    let known = error.chain().find_map(CliError::explain);
    known.map_or(Exit::Usage, |known| known.exit)
}

/// Says what an error is about.
pub(crate) trait ResultExt<T> {
    /// Fills a placeholder such as `RUN` in the commands of an error's hints.
    fn fill_placeholder(self, placeholder: &str, id: impl fmt::Display) -> anyhow::Result<T>;
}

impl<T, E: Into<anyhow::Error>> ResultExt<T> for Result<T, E> {
    fn fill_placeholder(self, placeholder: &str, id: impl fmt::Display) -> anyhow::Result<T> {
        self.map_err(|error| {
            let error = error.into();
            match error.chain().find_map(CliError::explain) {
                Some(known) => known.fill_placeholder(placeholder, &id.to_string()).into(),
                None => error,
            }
        })
    }
}

/// What a failure of the store means to a person.
pub(crate) fn from_store_error(error: &StoreError) -> CliError {
    let build = ("see which build this is", "longhaul version");
    let setting = ("see where it is set", "longhaul config show --origin");
    let elsewhere = "or keep runs elsewhere";
    let other = (elsewhere, "LONGHAUL_STORE=sqlite:OTHER.db longhaul ...");
    let causes = anyhow::Chain::new(error).map(ToString::to_string);
    let failure = CliError::usage(causes.collect::<Vec<_>>().join(": "));
    match error {
        StoreError::DiskFull { .. } => failure.hint(
            "make room on that disk, or keep runs elsewhere",
            "LONGHAUL_STORE=sqlite:/other/disk/longhaul.db longhaul ...",
        ),
        StoreError::ReadOnly { at, .. } => failure
            .hint("look who may write there", format!("ls -ld {at}"))
            .hint(elsewhere, "LONGHAUL_DATA=/some/folder longhaul ..."),
        StoreError::Corrupt { at, .. } => failure
            .hint("it was not touched; look what it is", format!("file {at}"))
            .hints(&[other]),
        StoreError::AlreadyDriven { .. } => failure.with_exit(Exit::Busy).hints(&[
            ("hand it work while it drives", "longhaul submit AGENT INPUT"),
            ("see what it does", "longhaul ls"),
        ]),
        StoreError::Busy { .. } => failure.with_exit(Exit::Busy),
        StoreError::InvalidUrl { .. } => failure.hints(&[setting]),
        StoreError::NewerSchema { .. } | StoreError::InvalidEvent { .. } => failure.hints(&[build]),
        StoreError::Closed { .. } | StoreError::Database { .. } => failure.hints(&[setting, other]),
        StoreError::NotDriver { .. } => failure,
    }
}

/// The error of a wall clock before 1970.
pub(crate) fn clock_before_1970() -> CliError {
    let what = "nothing can be done: the clock of this machine is before 1970, and no time before \
                that can be stored";
    CliError::usage(what).hint("set the clock", "timedatectl set-ntp true")
}

/// Why the machine's own key can't be used.
pub(crate) fn from_local_key_error(error: &PrivateFileError, at: &Path) -> CliError {
    let command = format!("rm {}", at.display());
    CliError::usage(error.to_string()).hint("make a new one with the next server", command)
}

/// What a refusal means to a person.
fn from_problem(problem: &Problem) -> CliError {
    let code = problem.code.as_str();
    let failure = CliError::usage(&problem.detail).with_exit(exit_for_code(code));
    let failure = match &problem.suggestion {
        Some(like) if code == "no_agent" => {
            failure.hint("did you mean", format!("longhaul run {like} ..."))
        }
        Some(_) | None => failure,
    };
    match hints_for_code(code) {
        Some(hints) => failure.hints(hints),
        None if problem.hint.is_empty() => failure,
        None => failure.hint(&problem.hint, ""),
    }
}

/// The hints for a refusal's code; none: nothing is known of it here.
fn hints_for_code(code: &str) -> Option<&'static [(&'static str, &'static str)]> {
    const SHOW_KEY: (&str, &str) = ("and show it", "LONGHAUL_KEY=lh_... longhaul ...");
    const NEW_KEY: &str = "make a key where the server runs";
    const NEW_ROLE: &str = "make a key that may, where the server runs";
    Some(match code {
        "no_run" => &[("all runs", "longhaul ls --all")],
        "no_gate" => &[("what waits for an answer", "longhaul gates")],
        "no_agent" => &[("all agents", "longhaul agents")],
        "no_key" => &[("all keys", "longhaul keys ls")],
        "key_taken" => &[("end that one first", "longhaul keys revoke NAME")],
        "template" => &[("look at the agent", "longhaul agents check AGENT")],
        "no_model" => &[
            ("see providers and keys", "longhaul models"),
            ("see what is set", "longhaul config show --origin"),
            ("or try the scripted demo", "longhaul demo"),
        ],
        "idempotency_key_reused" => &[("take another key", "--idempotency-key OTHER")],
        "run_ended" => &[("see how", "longhaul show RUN")],
        "already_answered" | "gate_expired" | "already_voted" => {
            &[("see who and when", "longhaul gates show GATE")]
        }
        "digest_missing" | "digest_changed" => &[("look again", "longhaul gates show GATE")],
        "invalid_decision" => &[("see what it asks", "longhaul gates show GATE")],
        "scope_not_offered" => &[("approve it once", "longhaul approve GATE")],
        "already_in_state" | "stopping" => &[("see how it stands", "longhaul why RUN")],
        "steers_full" => &[("see them", "longhaul steer RUN --status")],
        "unauthorized" => &[(NEW_KEY, "longhaul keys new NAME --role operator"), SHOW_KEY],
        "forbidden" => &[(NEW_ROLE, "longhaul keys new NAME --role approver"), SHOW_KEY],
        "unreachable" => &[
            ("start it where the store is", "longhaul serve"),
            ("or ask the store of this folder", "LONGHAUL_URL= longhaul ..."),
        ],
        "response_lost" => &[("look before it is said again", "longhaul ls")],
        "unexpected_response" => &[("see what answers there", "curl -i $LONGHAUL_URL/version")],
        "wrong_host" => &[("name it in the server's longhaul.toml", "[server] hosts = [\"HOST\"]")],
        // The sentence says it all; a server's hint is for whoever writes requests.
        "self_approval"
        | "contention"
        | "lane_full"
        | "busy"
        | "draining"
        | "timeout"
        | "rate_limited"
        | "idempotency_running"
        | "too_long"
        | "empty"
        | "invalid_task"
        | "bad_script"
        | "steer_settled"
        | "no_steer"
        | "invalid_state"
        | "call_not_running" => &[],
        _ => return None,
    })
}

/// The exit code of a refusal.
fn exit_for_code(code: &str) -> Exit {
    match code {
        "self_approval" | "unauthorized" | "forbidden" | "wrong_host" => Exit::NotAllowed,
        "steers_full"
        | "unreachable"
        | "response_lost"
        | "contention"
        | "lane_full"
        | "busy"
        | "draining"
        | "timeout"
        | "rate_limited"
        | "idempotency_running" => Exit::Busy,
        _ => Exit::Usage,
    }
}

#[cfg(test)]
mod tests {
    use longhaul_core::id::RunId;

    use super::*;

    #[test]
    fn a_problem_maps_to_the_same_error_from_engine_and_server() {
        for (code, exit, hint) in [
            ("no_run", Exit::Usage, "longhaul ls --all"),
            ("no_gate", Exit::Usage, "longhaul gates"),
            ("no_agent", Exit::Usage, "longhaul run writer ..."),
            ("run_ended", Exit::Usage, "longhaul show run_"),
            ("already_answered", Exit::Usage, "longhaul gates show"),
            ("digest_changed", Exit::Usage, "longhaul gates show"),
            ("self_approval", Exit::NotAllowed, ""),
            ("steers_full", Exit::Busy, "longhaul steer run_"),
            ("lane_full", Exit::Busy, ""),
            ("rate_limited", Exit::Busy, ""),
            ("draining", Exit::Busy, ""),
            ("unauthorized", Exit::NotAllowed, "longhaul keys new NAME"),
            ("forbidden", Exit::NotAllowed, "LONGHAUL_KEY=lh_..."),
            ("unreachable", Exit::Busy, "LONGHAUL_URL= longhaul"),
            ("response_lost", Exit::Busy, "longhaul ls"),
            ("unexpected_response", Exit::Usage, "/version"),
            ("no_key", Exit::Usage, "longhaul keys ls"),
            ("key_taken", Exit::Usage, "longhaul keys revoke NAME"),
            ("invalid", Exit::Usage, "write it better"),
        ] {
            let body = serde_json::json!({
                "type": "about:blank", "title": "No", "status": 400, "detail": "it is wrong",
                "code": code, "hint": "write it better", "suggestion": "writer", "request_id": "r",
            });
            let problem: Problem = serde_json::from_value(body).unwrap();
            let refused: Result<(), _> = Err(problem);
            let error = refused.fill_placeholder("RUN", RunId::from_bits(7)).unwrap_err();
            assert_eq!(super::exit_for_error(&error), exit, "{code}");
            let said = full_message(&error);
            assert!(said.starts_with("it is wrong"), "{code}: {said}");
            assert!(said.contains(hint), "{code}: {said}");
            assert!(said.lines().all(|line| line.trim_end() == line), "{said:?}");
        }
    }

    #[test]
    fn engine_and_server_errors_print_the_same() {
        let like = Some("writer".to_owned());
        let name = "writr".to_owned();
        let here = EngineError::AgentNotFound { name, suggestion: like };
        let detail = "there is no agent named `writr`";
        let there = Problem {
            suggestion: Some("writer".to_owned()),
            hint: "a server's own words".to_owned(),
            ..Problem::new("no_agent", detail)
        };
        assert_eq!(full_message(&here.into()), full_message(&there.into()));
    }
}
