//! Command-line arguments that describe a task.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use clap::Args;
use longhaul_api::history::{HISTORY_BYTES_MAX, parse_history};
use longhaul_api::task::Task;
use longhaul_core::id::{InboxName, LaneKey, ResourceKey, ThreadKey};
use longhaul_core::message::Message;
use longhaul_core::policy::budget::{BudgetPatch, BudgetRaise};
use longhaul_core::raw::{RawJson, check_json_parses};
use longhaul_core::repo::RepoSource;
use longhaul_core::time::Millis;
use longhaul_core::usage::MicroUsd;
use longhaul_engine::handle::check_idempotency_key;
use serde_json::Value;

use crate::error::CliError;
use crate::output;

/// Maximum length of a task's input read from the command line or stdin, in bytes.
pub(crate) const INPUT_BYTES_MAX: u64 = 1024 * 1024;

/// Command-line arguments that describe a task: agent, input and options.
#[derive(Debug, Clone, Args)]
pub(crate) struct TaskArgs {
    /// Agent to run, as in agents/AGENT.md. With --chain there is no agent, and all words are the
    /// input
    #[arg(required_unless_present = "chain")]
    agent: Option<String>,
    /// Input of the task; `-` reads it from stdin. A JSON object or list is passed on as JSON
    input: Vec<String>,
    #[command(flatten)]
    run: RunArgs,
    /// Chain to run instead of an agent, as in chains/NAME.toml
    #[arg(long, value_name = "NAME")]
    pub(crate) chain: Option<String>,
    /// Run only the step of the chain with this name
    #[arg(long, value_name = "NAME", requires = "chain")]
    pub(crate) step: Option<String>,
    /// Git repository to work on, as a URL or a path; the sandbox of the run contains a clone of it
    #[arg(long, value_name = "URL|PATH")]
    repo: Option<String>,
    /// Branch, tag or commit of the repository to begin with. Default: the default branch
    #[arg(long, value_name = "REV", requires = "repo")]
    rev: Option<String>,
    /// Model to use instead of the agent's model, such as scripted/tidy
    #[arg(long)]
    pub(crate) model: Option<String>,
    /// Inbox in which the run is queued
    #[arg(long)]
    inbox: Option<InboxName>,
    /// Caps of the budget: dollars, or a list such as usd=2,turns=20,tokens=100000,active_time=10m
    #[arg(long, value_parser = parse_budget_caps)]
    budget: Option<BudgetRaise>,
    /// Type of the task, such as idle_tick; workers can take only certain types (`longhaul worker
    /// --type`), and an agent file can have a template for the text that the model reads about
    /// tasks of a type
    #[arg(long = "type", value_name = "KIND", conflicts_with = "event")]
    kind: Option<String>,
    /// Submit the task as an event of this kind, such as player_action; the agent reads a text that
    /// is made from the kind and the input
    #[arg(long, value_name = "KIND")]
    event: Option<String>,
    /// File with the conversation to continue, or `-` for stdin: a JSON list of {"role": "user" or
    /// "assistant", "content": TEXT}
    #[arg(long, value_name = "FILE")]
    history: Option<PathBuf>,
    /// Label to find the run by; may be repeated
    #[arg(long, value_name = "LABEL")]
    tag: Vec<String>,
}

/// Command-line arguments that describe the run of a task.
#[derive(Debug, Clone, Args)]
pub(crate) struct RunArgs {
    #[command(flatten)]
    pub(crate) format: InputFormatArgs,
    /// Lane of the run; only one run of a lane is active at a time
    #[arg(long)]
    lane: Option<LaneKey>,
    /// Conversation (thread) that the run belongs to
    #[arg(long)]
    thread: Option<ThreadKey>,
    /// Person or thing that the conversation is about
    #[arg(long)]
    resource: Option<ResourceKey>,
    /// Context for tools, as name and value, which the model does not see; may be repeated
    #[arg(long, value_name = "NAME=VALUE")]
    context: Vec<String>,
    /// Person on whose behalf the run acts: a name, or JSON such as {"name": "Ada"}
    #[arg(long, value_name = "JSON")]
    actor: Option<String>,
    /// Reference to a related object in another system, as name and value; may be repeated
    #[arg(long, value_name = "NAME=VALUE")]
    link: Vec<String>,
    /// Priority of the run; runs with a higher priority start first
    #[arg(long, default_value_t = 0, allow_negative_numbers = true)]
    priority: i32,
    /// Idempotency key: submit the task only once, even if this command is repeated with the same key
    #[arg(long, value_name = "KEY", value_parser = parse_idempotency_key)]
    idempotency_key: Option<String>,
}

impl RunArgs {
    /// Builds a task of these arguments with this input.
    pub(crate) fn build_task(&self, input: &str) -> anyhow::Result<Task> {
        Ok(Task {
            input: self.format.parse_input(input)?,
            context: parse_context_args(&self.context)?,
            thread: self.thread.clone(),
            resource: self.resource.clone(),
            lane: self.lane.clone(),
            priority: self.priority,
            actor: self.actor.as_deref().map(parse_actor).transpose()?,
            links: parse_links(&self.link)?,
            idempotency_key: self.idempotency_key.clone(),
            ..Task::default()
        })
    }
}

impl TaskArgs {
    /// Returns the name of the agent to run. Empty if a chain is run.
    pub(crate) fn agent_name(&self) -> &str {
        let agent = self.agent.as_deref().filter(|_| self.chain.is_none());
        agent.unwrap_or_default()
    }

    /// Returns the first argument of the input of a chain if other arguments follow, because it may
    /// have been meant as an agent.
    pub(crate) fn argument_possibly_meant_as_agent(&self) -> Option<&str> {
        let is_alone = self.chain.is_none() || self.input.is_empty();
        self.agent.as_deref().filter(|_| !is_alone)
    }

    /// Returns the arguments that form the input. With `--chain`, the first argument is not an
    /// agent but part of the input.
    fn input_args(&self) -> Vec<String> {
        let first_arg = self.agent.iter().filter(|_| self.chain.is_some());
        first_arg.chain(&self.input).cloned().collect()
    }

    /// Returns the budget that the command line sets.
    pub(crate) fn budget(&self) -> BudgetPatch {
        BudgetPatch { caps: self.budget.unwrap_or_default(), warn_percent: None }
    }

    /// Builds the task from the command-line arguments.
    pub(crate) fn build_task(&self) -> anyhow::Result<Task> {
        let history = match &self.history {
            Some(file) => read_history_file(file, self.input_args() == ["-"])?,
            None => Vec::new(),
        };
        let args = self.input_args();
        let input = output::join_args_or_read_stdin(&args, INPUT_BYTES_MAX + 1, "the input")?;
        Ok(Task {
            agent: self.chain.is_none().then(|| self.agent_name().to_owned()),
            chain: self.chain.as_deref().map(Into::into),
            step: self.step.clone(),
            history,
            inbox: self.inbox.clone(),
            kind: self.kind.clone(),
            event: self.event.clone(),
            model: self.model.clone(),
            budget: self.budget(),
            tags: self.tag.clone(),
            repo: self
                .repo
                .as_deref()
                .map(|repo| parse_repo(repo, self.rev.clone()))
                .transpose()?,
            ..self.run.build_task(&input)?
        })
    }
}

/// Parses the repository of a task. A path of an existing folder becomes absolute.
fn parse_repo(text: &str, rev: Option<String>) -> anyhow::Result<RepoSource> {
    let url = match std::fs::canonicalize(text) {
        Ok(path) if path.is_dir() => path.to_string_lossy().into_owned(),
        Ok(_) | Err(_) => text.to_owned(),
    };
    let repo = RepoSource { url, rev };
    let invalid = |error| CliError::usage_error(format!("--repo: {error}"));
    repo.check().map_err(invalid)?;
    Ok(repo)
}

/// Checks an idempotency key on the command line.
pub(crate) fn parse_idempotency_key(text: &str) -> Result<String, longhaul_engine::Error> {
    check_idempotency_key(text).map(|()| text.to_owned())
}

/// Command-line option for the form in which an input is passed on.
#[derive(Debug, Clone, Copy, Args)]
pub(crate) struct InputFormatArgs {
    /// Pass the input on as text, even if it begins like JSON
    #[arg(long = "text")]
    is_text: bool,
}

impl InputFormatArgs {
    /// Parses the input of a task: a JSON object or list, or else a text. A text that begins like
    /// JSON is an error unless `--text` is set, because most likely the JSON has a mistake.
    pub(crate) fn parse_input(self, text: &str) -> anyhow::Result<RawJson> {
        if text.len() as u64 > INPUT_BYTES_MAX {
            let message = format!("the input is longer than {INPUT_BYTES_MAX} bytes");
            return Err(CliError::usage_error(message).into());
        }
        let is_object_or_list = text.trim_start().starts_with(['{', '[']);
        if self.is_text || !is_object_or_list {
            return Ok(RawJson::from_serialize(&text));
        }
        // A text such as `[draft] Write ...` was not meant as JSON, which has a quote, a brace or a
        // number after the brackets.
        let rest = text.trim_start();
        let value = rest.trim_start_matches(|c: char| c == '[' || c.is_whitespace());
        let is_number = value.trim_start_matches('-').starts_with(|c: char| c.is_ascii_digit());
        let is_probably_json = rest.starts_with('{') || value.starts_with(['"', '{']) || is_number;
        let parse_error = match RawJson::parse(text).map_err(|error| error.to_string()) {
            Ok(json) => match check_json_parses(json.as_str()) {
                Ok(()) => return Ok(json),
                Err(error) => error.to_string(),
            },
            Err(_) if !is_probably_json => return Ok(RawJson::from_serialize(&text)),
            Err(error) => error,
        };
        let message = format!("the input begins like JSON and is not valid JSON: {parse_error}");
        let failure = CliError::usage_error(message);
        Err(failure.with_hint("correct the JSON, or pass the input on as text", "--text").into())
    }
}

/// Splits the value of an option that sets a name and its value.
fn split_pair<'a>(option: &str, text: &'a str) -> anyhow::Result<(&'a str, &'a str)> {
    let pair = text.split_once('=').filter(|(name, _)| !name.is_empty());
    let message =
        || CliError::usage_error(format!("{option} {text} must be written as NAME=VALUE"));
    Ok(pair.ok_or_else(message)?)
}

/// Parses references to objects in other systems, given as name and value, to a JSON object. A name
/// that is repeated has a list of values. `None` if there are no references.
fn parse_links(args: &[String]) -> anyhow::Result<Option<RawJson>> {
    let mut links: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for text in args {
        let (name, value) = split_pair("--link", text)?;
        links.entry(name).or_default().push(value);
    }
    let to_value = |(name, values): (&str, Vec<&str>)| match values.as_slice() {
        [value] => (name.to_owned(), Value::from(*value)),
        values => (name.to_owned(), Value::from(values)),
    };
    let links: serde_json::Map<String, Value> = links.into_iter().map(to_value).collect();
    Ok((!links.is_empty()).then(|| RawJson::from_serialize(&links)))
}

/// Parses JSON. The error of invalid JSON names the position of the mistake.
pub(crate) fn parse_json(text: &str) -> Result<RawJson, String> {
    check_json_parses(text).map_err(|error| error.to_string())?;
    RawJson::parse(text).map_err(|error| error.to_string())
}

/// Parses the person on whose behalf a run acts: a JSON object, or else a name.
fn parse_actor(text: &str) -> anyhow::Result<RawJson> {
    if !text.trim_start().starts_with('{') {
        return Ok(RawJson::from_serialize(&serde_json::json!({ "name": text })));
    }
    parse_json(text.trim()).map_err(|error| {
        let example = "expected JSON such as {\"name\": \"Ada\"}";
        CliError::usage_error(format!("--actor is invalid: {error}; {example}")).into()
    })
}

fn parse_context_args(args: &[String]) -> anyhow::Result<BTreeMap<String, RawJson>> {
    let parse_pair = |text: &String| {
        let (name, value) = split_pair("--context", text)?;
        if value.starts_with("env:") {
            let message = format!(
                "--context {name}: context values are stored with the run and shown to people who \
                 approve its calls, so they are not read from environment variables"
            );
            return Err(CliError::usage_error(message)
                .with_hint(
                    "not a secret: let the shell insert it",
                    format!("--context {name}=\"$NAME\""),
                )
                .with_hint("a secret for an MCP server", "use ${NAME} in .mcp.json")
                .into());
        }
        Ok((name.to_owned(), RawJson::from_serialize(&value)))
    };
    args.iter().map(parse_pair).collect()
}

/// Parses the caps of a budget: dollars, or a list of names and values.
pub(crate) fn parse_budget_caps(input: &str) -> Result<BudgetRaise, String> {
    let mut raise = BudgetRaise::default();
    for part in input.split(',') {
        let (name, value) = part.split_once('=').unwrap_or(("usd", part));
        let is_valid = match name {
            "usd" => {
                let micros = value.parse().map_or(0.0, |usd: f64| (usd * 1e6).round());
                raise.micro_usd = Some(MicroUsd(micros as u64));
                // Less than a millionth of a dollar would be a budget of zero.
                (1.0..=1e15).contains(&micros)
            }
            "turns" => {
                raise.turns = value.parse().ok().filter(|turns| *turns > 0);
                raise.turns.is_some()
            }
            "tokens" => {
                raise.tokens = value.parse().ok().filter(|tokens| *tokens > 0);
                raise.tokens.is_some()
            }
            "active_time" => {
                let time = longhaul_core::duration::parse_duration(value);
                raise.active = time.filter(|time| *time > Millis::ZERO);
                raise.active.is_some()
            }
            _ => false,
        };
        if !is_valid {
            return Err(format!(
                "`{part}`: write dollars such as 10, or a list such as \
                 usd=10,turns=50,tokens=1000000,active_time=4h"
            ));
        }
    }
    Ok(raise)
}

/// Value of `--history` that stands for stdin instead of a file.
const STDIN: &str = "-";

/// Reads an earlier conversation from a file, or from stdin. Fails if the file is `-` but stdin
/// already provides the task's input.
fn read_history_file(file: &Path, is_stdin_used: bool) -> anyhow::Result<Vec<Message>> {
    let history_error =
        |reason: String| CliError::usage_error(format!("--history {}: {reason}", file.display()));
    if is_stdin_used && file == Path::new(STDIN) {
        let reason = "stdin is used for the input already: put one of them in a file";
        return Err(history_error(reason.to_owned()).into());
    }
    // One byte more than is allowed, so that a file that is too long is detected.
    let bytes = output::read_bytes(file, HISTORY_BYTES_MAX as u64 + 1);
    let bytes = bytes.map_err(|error| history_error(format!("can't be read: {error}")))?;
    Ok(parse_history(&bytes).map_err(|error| history_error(error.to_string()))?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn input_that_is_probably_json_is_json_or_an_error() {
        let parse = |text: &str, is_text| InputFormatArgs { is_text }.parse_input(text);
        for json in [r#"{"a": 1}"#, " [1, 2]\n", "{}", "[]"] {
            let parsed = parse(json, false).unwrap();
            assert_eq!(parsed.to_value(), serde_json::from_str::<Value>(json).unwrap());
            assert_eq!(parse(json, true).unwrap().to_value(), json);
        }
        for (text, place) in [
            (r#"{"version": "1.2",}"#, "line 1 column 19"),
            ("{version: 1}", "line 1 column 2"),
            ("\n{\"a\": 1}\n{\"b\": 2}", "line 3 column 1"),
            (r#"["a", "b""#, "line 1 column 9"),
            ("[1, 2", "line 1 column 5"),
            ("[[-1,]]", "line 1 column 6"),
            ("[{'a': 1}]", "line 1 column 3"),
        ] {
            let error = parse(text, false).unwrap_err().to_string();
            assert!(error.contains(place) && error.contains("--text"), "{text}: {error}");
            assert_eq!(parse(text, true).unwrap().to_value(), text);
        }
        for text in
            ["[draft] Write it", "[ ] buy milk", "[[Note]] summarise", "\"quoted\"", "1", ""]
        {
            assert_eq!(parse(text, false).unwrap().to_value(), text);
        }
    }
}
