//! Errors as printed for people: the message, its causes and commands that help. The hints for an
//! engine, store or server error depend only on the error code, so an error reads the same from the
//! local store and from a server.

use std::error::Error as StdError;
use std::fmt;
use std::path::Path;

use longhaul_api::problem::Problem;
use longhaul_core::access::Role;
use longhaul_core::port::store::StoreError;
use longhaul_engine::Error as EngineError;
use longhaul_project::assemble::AssembleError;
use longhaul_project::private_file::PrivateFileError;

use crate::exit::Exit;

/// An error with hints for the user and an exit code.
#[derive(Debug, Clone)]
pub(crate) struct CliError {
    text: String,
    /// Hints, each with a description and the command that helps.
    hints: Vec<(String, String)>,
    pub(crate) exit: Exit,
}

impl CliError {
    /// Creates an error with the exit code for usage errors.
    pub(crate) fn usage_error(text: impl Into<String>) -> Self {
        Self { text: text.into(), hints: Vec::new(), exit: Exit::Usage }
    }

    /// Creates the error for an item of the project that the user has not trusted.
    pub(crate) fn not_trusted(reason: impl Into<String>) -> Self {
        let error = Self::usage_error(reason).with_exit_code(Exit::NotAllowed);
        error.with_hint("review it and decide", "longhaul trust")
    }

    /// Sets the exit code of the command that fails with this error.
    #[must_use]
    pub(crate) fn with_exit_code(self, exit: Exit) -> Self {
        Self { exit, ..self }
    }

    /// Adds a hint with a description and the command that helps.
    #[must_use]
    pub(crate) fn with_hint(mut self, label: &str, command: impl Into<String>) -> Self {
        self.hints.push((label.to_owned(), command.into()));
        self
    }

    /// Adds several hints, each with a description and a command.
    fn with_hints(self, labels_and_commands: &[(&str, &str)]) -> Self {
        let add = |error: Self, (label, command): &(&str, &str)| error.with_hint(label, *command);
        labels_and_commands.iter().fold(self, add)
    }

    /// Converts one error of an error's chain of causes to an error with hints. `None` means that
    /// no hints are known for it, so it is printed as it is.
    fn from_cause_with_hints(error: &(dyn StdError + 'static)) -> Option<Self> {
        if let Some(error) = error.downcast_ref::<Self>() {
            return Some(error.clone());
        }
        if let Some(error) = error.downcast_ref::<StoreError>() {
            return Some(from_store_error(error));
        }
        if let Some(problem) = error.downcast_ref::<Problem>() {
            // A problem of the API in this process has the error of the engine as its source.
            let source = problem.source().and_then(Self::from_cause_with_hints);
            return Some(source.unwrap_or_else(|| from_api_problem(problem)));
        }
        if let Some(longhaul::Error::Store(error)) = error.downcast_ref() {
            return Some(from_store_error(error));
        }
        if error.is::<AssembleError>() || error.is::<longhaul::Error>() {
            let hint = ("see what is set", "longhaul config show --origin");
            return Some(Self::usage_error(error.to_string()).with_hints(&[hint]));
        }
        let error = error.downcast_ref::<EngineError>()?;
        let problem = Problem::new(error.code(), error.to_string());
        #[expect(clippy::wildcard_enum_match_arm, reason = "the code identifies most errors")]
        Some(match error {
            EngineError::Store(error) => from_store_error(error),
            EngineError::AgentNotFound { suggestion, .. }
            | EngineError::ChainNotFound { suggestion, .. }
            | EngineError::CapNotFound { suggestion, .. } => {
                from_api_problem(&Problem { suggestion: suggestion.clone(), ..problem })
            }
            _ => from_api_problem(&problem),
        })
    }
}

impl fmt::Display for CliError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)?;
        let width = self.hints.iter().map(|(label, _)| label.len()).max();
        for (label, command) in &self.hints {
            let line = format!("  {label:width$}   {command}", width = width.unwrap_or(0));
            write!(f, "\n{}", line.trim_end())?;
        }
        Ok(())
    }
}

impl StdError for CliError {}

/// Formats an error with its causes, up to and including the first cause that has its own hints.
pub(crate) fn message_with_causes(error: &anyhow::Error) -> String {
    let mut text = String::new();
    for cause in error.chain() {
        let cli_error = CliError::from_cause_with_hints(cause);
        let separator = if text.is_empty() { "" } else { ": " };
        match cli_error {
            Some(cli_error) => return format!("{text}{separator}{cli_error}"),
            None => text = format!("{text}{separator}{cause}"),
        }
    }
    text
}

/// Returns the exit code of a command that fails with this error.
pub(crate) fn exit_for_error(error: &anyhow::Error) -> Exit {
    let cli_error = error.chain().find_map(CliError::from_cause_with_hints);
    cli_error.map_or(Exit::Usage, |cli_error| cli_error.exit)
}

/// Replaces a placeholder such as `RUN` with an id in the commands that an error suggests.
pub(crate) fn fill_hint<T, E: Into<anyhow::Error>>(
    result: Result<T, E>,
    placeholder: &str,
    id: impl fmt::Display,
) -> anyhow::Result<T> {
    result.map_err(|error| {
        let error = error.into();
        match error.chain().find_map(CliError::from_cause_with_hints) {
            Some(mut cli_error) => {
                for (_, command) in &mut cli_error.hints {
                    *command = command.replace(placeholder, &id.to_string());
                }
                cli_error.into()
            }
            None => error,
        }
    })
}

/// Converts an error of the store and adds hints.
pub(crate) fn from_store_error(error: &StoreError) -> CliError {
    let causes = anyhow::Chain::new(error).map(ToString::to_string);
    let failure = CliError::usage_error(causes.collect::<Vec<_>>().join(": "));
    let other_store = ("or use another store", "LONGHAUL_STORE=sqlite:OTHER.db longhaul ...");
    let setting = ("see where it is set", "longhaul config show --origin");
    match error {
        StoreError::DiskFull { .. } => failure.with_hint(
            "free disk space, or use another store",
            "LONGHAUL_STORE=sqlite:/other/disk/longhaul.db longhaul ...",
        ),
        StoreError::ReadOnly { location, .. } => failure
            .with_hint("check the permissions", format!("ls -ld {location}"))
            .with_hint("or use another store", "LONGHAUL_DATA=/some/folder longhaul ..."),
        StoreError::Corrupt { .. } => failure.with_hints(&[
            ("see what is damaged", "longhaul db check"),
            ("restore a backup; the damaged store is kept", "longhaul db restore FILE"),
            other_store,
        ]),
        StoreError::AlreadyDriven { holder, .. } => {
            let drives_own_run =
                holder.ends_with("longhaul run") || holder.ends_with("longhaul watch");
            let pid = holder.strip_prefix("pid ").and_then(|rest| rest.split(',').next());
            let failure = match pid.filter(|_| drives_own_run) {
                Some(pid) => failure.with_hint(
                    "it drives only its own run; stop it, which saves the run",
                    format!("kill -INT {pid}"),
                ),
                None => failure.with_hint("submit tasks to it", "longhaul submit AGENT INPUT"),
            };
            failure.with_hint("see what it does", "longhaul ls").with_exit_code(Exit::Busy)
        }
        StoreError::Busy { .. } => failure.with_exit_code(Exit::Busy),
        StoreError::InvalidUrl { .. } => failure.with_hints(&[setting]),
        StoreError::NewerSchema { .. } | StoreError::InvalidEvent { .. } => {
            failure.with_hint("see which build this is", "longhaul version")
        }
        StoreError::Closed { .. } | StoreError::Database { .. } => {
            failure.with_hints(&[setting, other_store])
        }
        StoreError::NotDriver { .. } => failure,
    }
}

/// Returns an error with a hint: a description and the command that helps.
pub(crate) fn fail<T>(
    text: impl Into<String>,
    label: &str,
    command: impl Into<String>,
) -> anyhow::Result<T> {
    Err(CliError::usage_error(text).with_hint(label, command).into())
}

/// Converts an error about the file with this machine's local API key, and adds a hint.
pub(crate) fn from_local_key_error(error: &PrivateFileError, key_file: &Path) -> CliError {
    let command = format!("rm {}", key_file.display());
    CliError::usage_error(error.to_string())
        .with_hint("delete it; the next server creates a new one", command)
}

/// Converts a problem (code, message and hint) from the engine or a server into an error of this
/// program.
fn from_api_problem(problem: &Problem) -> CliError {
    let Problem { code, detail, suggestion, .. } = problem;
    let is_listed = |codes: &str| codes.split(' ').any(|one| one == code);
    let exit = match is_listed(BUSY_CODES) {
        true => Exit::Busy,
        false if is_listed(NOT_ALLOWED_CODES) => Exit::NotAllowed,
        false => Exit::Usage,
    };
    let failure = CliError::usage_error(detail).with_exit_code(exit);
    let mut hints = HINTS.iter().filter(|(codes, ..)| is_listed(codes)).peekable();
    if hints.peek().is_none() && !is_listed(CODES_WITHOUT_HINTS) && !problem.hint.is_empty() {
        return failure.with_hint(&problem.hint, "");
    }
    let is_new_project = || !Path::new("agents").exists() && !Path::new(".claude").exists();
    let hints = hints.filter(|(.., command)| match *command {
        "longhaul init" => is_new_project(),
        command => suggestion.is_some() || !command.contains("SUGGESTION"),
    });
    hints.fold(failure, |failure, (_, label, command)| {
        let command = command.replace("SUGGESTION", suggestion.as_deref().unwrap_or_default());
        failure.with_hint(label, command.replace("ROLE", required_role(detail)))
    })
}

/// Returns the role that the caller of a request needs, taken from the server's message that the
/// caller does not have it. If the message names none, an operator is assumed.
fn required_role(detail: &str) -> &'static str {
    let is_needed = |role: &&Role| detail.contains(&format!("needs the role {},", role.as_str()));
    Role::ALL.iter().find(is_needed).unwrap_or(&Role::Operator).as_str()
}

/// Codes of problems whose message is enough.
const CODES_WITHOUT_HINTS: &str = "self_approval contention lane_full busy draining timeout \
    rate_limited request_in_progress too_long empty invalid_task invalid_schedule invalid_script \
    steer_settled steer_not_found invalid_state call_not_running";

/// Codes of problems after which the command can be repeated safely.
const BUSY_CODES: &str = "steers_full unreachable response_lost contention lane_full lane_busy \
    over_cap busy draining timeout rate_limited request_in_progress";

/// Codes of problems about what the caller may not do.
const NOT_ALLOWED_CODES: &str = "self_approval unauthorized forbidden wrong_host";

const NEW_KEY_LABEL: &str = "create a key on the server's machine";

/// The hints for problems: codes, description and command. The message of a problem in
/// `CODES_WITHOUT_HINTS` is enough; a server's hint is for API clients.
const HINTS: &[(&str, &str, &str)] = &[
    ("run_not_found", "all runs", "longhaul ls --all"),
    ("gate_not_found", "what waits for an answer", "longhaul gates"),
    ("signal_not_awaited", "what runs wait for", "longhaul gates"),
    ("batch_not_found", "submit one", "longhaul batch submit FILE.jsonl"),
    ("over_cap invalid_raise", "see the caps", "longhaul spend"),
    ("lane_busy", "see the lanes", "longhaul lanes"),
    ("agent_not_found", "did you mean", "longhaul run SUGGESTION ..."),
    ("agent_not_found", "all agents", "longhaul agents"),
    ("agent_not_found", "create one", "longhaul agents new NAME"),
    ("agent_not_found", "or begin with a project that runs", "longhaul init"),
    ("chain_not_found", "did you mean", "longhaul run --chain SUGGESTION ..."),
    ("chain_not_found", "all chains", "longhaul chains"),
    ("cap_not_found", "did you mean", "longhaul spend raise SUGGESTION ..."),
    ("cap_not_found", "see the caps", "longhaul spend"),
    ("key_not_found", "all keys", "longhaul keys ls"),
    ("schedule_not_found", "all schedules", "longhaul schedules"),
    ("schedule_exists", "change it", "longhaul schedules edit NAME ..."),
    ("schedule_exists", "remove that schedule first", "longhaul schedules rm NAME"),
    ("key_taken", "revoke that key first", "longhaul keys revoke NAME"),
    ("template", "check the agent", "longhaul agents check AGENT"),
    ("model_unavailable", "see providers and keys", "longhaul models"),
    ("model_unavailable", "see what is set", "longhaul config show --origin"),
    ("model_unavailable", "or try the scripted demo", "longhaul demo"),
    ("idempotency_key_reused", "use another key", "--idempotency-key OTHER"),
    ("run_ended", "see the result", "longhaul show RUN"),
    ("already_answered gate_expired already_voted", "see its answers", "longhaul gates show GATE"),
    ("digest_missing digest_changed", "show the gate", "longhaul gates show GATE"),
    ("invalid_answer", "see the valid answers", "longhaul gates show GATE"),
    ("invalid_decision", "see what it asks", "longhaul gates show GATE"),
    ("scope_not_offered", "approve it once", "longhaul approve GATE"),
    ("rules_full", "revoke some of them", "longhaul rules"),
    ("rule_revoked rule_not_found", "see all of them", "longhaul rules --all"),
    ("not_open already_in_state not_failed", "see its status", "longhaul why RUN"),
    ("not_paused stopping budget_not_raised", "see its status", "longhaul why RUN"),
    ("key_not_in_doubt", "see its calls", "longhaul show RUN --events"),
    ("open_gate", "see the gate", "longhaul gates --run RUN"),
    ("steers_full", "see the messages", "longhaul steer RUN --status"),
    ("unauthorized forbidden", NEW_KEY_LABEL, "longhaul keys new NAME --role ROLE"),
    ("unauthorized forbidden", "and use it", "LONGHAUL_KEY=lh_... longhaul ..."),
    ("unreachable", "start the server where the store is", "longhaul serve"),
    ("unreachable", "or use the store of this folder", "LONGHAUL_URL= longhaul ..."),
    ("response_lost", "check before you retry", "longhaul ls"),
    ("unexpected_response", "see what answers there", "curl -i $LONGHAUL_URL/version"),
    ("wrong_host", "add it in the server's longhaul.toml", "[server] hosts = [\"HOST\"]"),
];

#[cfg(test)]
mod tests {
    use longhaul_core::id::RunId;

    use super::*;

    #[test]
    fn the_hint_for_a_missing_role_names_that_role() {
        let detail =
            |role| format!("this request needs the role {role}, but your key has the role viewer");
        for role in ["operator", "approver", "admin"] {
            assert_eq!(required_role(&detail(role)), role);
        }
        assert_eq!(required_role("authentication required"), "operator");
    }

    #[test]
    fn a_problem_maps_to_the_same_error_from_engine_and_server() {
        for (code, exit, hint) in [
            ("run_not_found", Exit::Usage, "longhaul ls --all"),
            ("gate_not_found", Exit::Usage, "longhaul gates"),
            ("agent_not_found", Exit::Usage, "longhaul run writer ..."),
            ("run_ended", Exit::Usage, "longhaul show run_"),
            ("already_answered", Exit::Usage, "longhaul gates show"),
            ("digest_changed", Exit::Usage, "longhaul gates show"),
            ("self_approval", Exit::NotAllowed, ""),
            ("steers_full", Exit::Busy, "longhaul steer run_"),
            ("lane_full", Exit::Busy, ""),
            ("over_cap", Exit::Busy, "longhaul spend"),
            ("cap_not_found", Exit::Usage, "longhaul spend"),
            ("rate_limited", Exit::Busy, ""),
            ("draining", Exit::Busy, ""),
            ("unauthorized", Exit::NotAllowed, "longhaul keys new NAME"),
            ("forbidden", Exit::NotAllowed, "LONGHAUL_KEY=lh_..."),
            ("unreachable", Exit::Busy, "LONGHAUL_URL= longhaul"),
            ("response_lost", Exit::Busy, "longhaul ls"),
            ("unexpected_response", Exit::Usage, "/version"),
            ("key_not_found", Exit::Usage, "longhaul keys ls"),
            ("schedule_not_found", Exit::Usage, "longhaul schedules"),
            ("schedule_exists", Exit::Usage, "longhaul schedules rm NAME"),
            ("key_taken", Exit::Usage, "longhaul keys revoke NAME"),
            ("invalid", Exit::Usage, "write it better"),
        ] {
            let body = serde_json::json!({
                "type": "about:blank", "title": "No", "status": 400, "detail": "it is wrong",
                "code": code, "hint": "write it better", "suggestion": "writer", "request_id": "r",
            });
            let problem: Problem = serde_json::from_value(body).unwrap();
            let result: Result<(), _> = Err(problem);
            let error = fill_hint(result, "RUN", RunId::from_bits(7)).unwrap_err();
            assert_eq!(super::exit_for_error(&error), exit, "{code}");
            let message = message_with_causes(&error);
            assert!(message.starts_with("it is wrong"), "{code}: {message}");
            assert!(message.contains(hint), "{code}: {message}");
            assert!(message.lines().all(|line| line.trim_end() == line), "{message:?}");
        }
    }

    #[test]
    fn engine_and_server_errors_print_the_same() {
        let suggestion = Some("writer".to_owned());
        let name = "writr".to_owned();
        let process_env = EngineError::AgentNotFound { name, suggestion };
        let detail = "there is no agent named `writr`";
        let remote = Problem {
            suggestion: Some("writer".to_owned()),
            hint: "a server's own words".to_owned(),
            ..Problem::new("agent_not_found", detail)
        };
        assert_eq!(message_with_causes(&process_env.into()), message_with_causes(&remote.into()));
    }
}
