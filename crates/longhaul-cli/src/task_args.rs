//! What can be said about a task on the command line.
//!
//! Never: guesses. What can't be read is refused with an example.

use std::collections::BTreeMap;

use clap::Args;
use longhaul_core::id::{InboxName, LaneKey, ResourceKey, ThreadKey};
use longhaul_core::policy::budget::BudgetRaise;
use longhaul_core::raw::{RawJson, check_readable};
use longhaul_core::time::Millis;
use longhaul_core::usage::MicroUsd;
use longhaul_engine::Task;
use longhaul_engine::agent::BudgetPatch;
use serde_json::Value;

use crate::caller_name::caller_name;
use crate::error::CliError;
use crate::output;

/// The longest input that is read.
const INPUT_BYTES_MAX: u64 = 1024 * 1024;

/// Who is to do what.
#[derive(Debug, Clone, Args)]
pub(crate) struct TaskArgs {
    /// The agent: a file agents/AGENT.md
    agent: String,
    /// What it is to do; `-` reads it from stdin. A JSON object or list is taken as such
    input: Vec<String>,
    /// Ask this model instead of the agent's, such as scripted/tidy
    #[arg(long)]
    model: Option<String>,
    /// Only one run of a lane goes at a time
    #[arg(long)]
    lane: Option<LaneKey>,
    /// The conversation it belongs to
    #[arg(long)]
    thread: Option<ThreadKey>,
    /// Whom the conversation is about
    #[arg(long)]
    resource: Option<ResourceKey>,
    /// Where it queues
    #[arg(long)]
    inbox: Option<InboxName>,
    /// Caps: dollars, or a list such as usd=2,turns=20,tokens=100000,active_time=10m
    #[arg(long, value_parser = parse_caps)]
    budget: Option<BudgetRaise>,
    /// A name and a value that tools get and the model can't see; may be repeated
    #[arg(long, value_name = "NAME=VALUE")]
    context: Vec<String>,
    /// What kind of task it is, such as idle_tick: inboxes filter by it, events are told by it
    #[arg(long = "type", value_name = "KIND")]
    kind: Option<String>,
    /// On whose behalf, as JSON such as {"name": "Ada"}, or a name
    #[arg(long, value_name = "JSON")]
    actor: Option<String>,
    /// Higher goes first
    #[arg(long, default_value_t = 0, allow_negative_numbers = true)]
    priority: i32,
    /// A label to find it by; may be repeated
    #[arg(long, value_name = "LABEL")]
    tag: Vec<String>,
    /// Submit once, however often this command is repeated
    #[arg(long, value_name = "KEY")]
    idempotency_key: Option<String>,
}

impl TaskArgs {
    /// The agent that is named.
    pub(crate) fn agent(&self) -> &str {
        &self.agent
    }

    /// The same task, asked of this model.
    pub(crate) fn set_model(&mut self, model: String) {
        self.model = Some(model);
    }

    /// The model that is named.
    pub(crate) fn model(&self) -> Option<&str> {
        self.model.as_deref()
    }

    /// Whether what is to be done is read from stdin.
    pub(crate) fn reads_stdin(&self) -> bool {
        self.input == ["-"]
    }

    /// The task that was typed.
    pub(crate) fn task(&self) -> anyhow::Result<Task> {
        let mut task = Task::new(&self.agent, Value::Null);
        task.input = self.input()?;
        task.model.clone_from(&self.model);
        task.priority = self.priority;
        task.kind.clone_from(&self.kind);
        task.actor = self.actor.as_deref().map(parse_actor).transpose()?;
        task.tags.clone_from(&self.tag);
        task.idempotency_key.clone_from(&self.idempotency_key);
        task.submitter = Some(caller_name());
        task.lane.clone_from(&self.lane);
        task.thread.clone_from(&self.thread);
        task.resource.clone_from(&self.resource);
        task.inbox.clone_from(&self.inbox);
        if let Some(caps) = self.budget {
            task.budget = BudgetPatch { caps, warn_percent: None };
        }
        task.context = parse_context(&self.context)?;
        Ok(task)
    }

    fn input(&self) -> anyhow::Result<RawJson> {
        let text = output::text_or_stdin(&self.input, INPUT_BYTES_MAX + 1, "the input")?;
        if text.len() as u64 > INPUT_BYTES_MAX {
            let words = format!("the input is longer than {INPUT_BYTES_MAX} bytes");
            return Err(CliError::usage(words).into());
        }
        let shaped = text.trim_start().starts_with(['{', '[']);
        match RawJson::parse(text.trim()) {
            Ok(json) if shaped => {
                check_readable(json.as_str())
                    .map_err(|bad| CliError::usage(format!("the input can't be read: {bad}")))?;
                Ok(json)
            }
            Ok(_) | Err(_) => Ok(RawJson::from_serialize(&text)),
        }
    }
}

/// Whoever is meant: an object as it is, anything else is a name.
fn parse_actor(text: &str) -> anyhow::Result<RawJson> {
    if !text.trim_start().starts_with('{') {
        return Ok(RawJson::from_serialize(&serde_json::json!({ "name": text })));
    }
    let wrong =
        |why: String| CliError::usage(format!("--actor: {why}; as in {{\"name\": \"Ada\"}}"));
    check_readable(text.trim()).map_err(|why| wrong(why.to_string()))?;
    RawJson::parse(text.trim()).map_err(|why| wrong(why.to_string()).into())
}

fn parse_context(said: &[String]) -> anyhow::Result<BTreeMap<String, RawJson>> {
    let pair = |text: &String| {
        let (name, value) = text
            .split_once('=')
            .filter(|(name, _)| !name.is_empty())
            .ok_or_else(|| CliError::usage(format!("--context {text}: write it as NAME=VALUE")))?;
        if value.starts_with("env:") {
            let words = format!(
                "--context {name}: a value of the context is kept with its run and shown to whoever \
                 approves a call, so none is read from the environment by its name"
            );
            return Err(CliError::usage(words)
                .hint("no secret: let your shell fill it in", format!("--context {name}=\"$NAME\""))
                .hint("a secret of a server's tools", "name it as ${NAME} in .mcp.json")
                .into());
        }
        Ok((name.to_owned(), RawJson::from_serialize(&value)))
    };
    said.iter().map(pair).collect()
}

/// Caps as they are typed: dollars, or names and values.
pub(crate) fn parse_caps(said: &str) -> Result<BudgetRaise, String> {
    let wrong = |part: &str| {
        format!(
            "`{part}`: write dollars such as 10, or a list such as \
             usd=10,turns=50,tokens=1000000,active_time=4h"
        )
    };
    let dollars = |text: &str| {
        let usd: f64 = text.parse().map_err(|_| wrong(text))?;
        let fits = usd.is_finite() && usd > 0.0 && usd <= 1e9;
        fits.then_some(MicroUsd((usd * 1e6).round() as u64)).ok_or_else(|| wrong(text))
    };
    let mut raise = BudgetRaise::default();
    for part in said.split(',') {
        match part.split_once('=') {
            None => raise.micro_usd = Some(dollars(part)?),
            Some(("usd", value)) => raise.micro_usd = Some(dollars(value)?),
            Some(("turns", value)) => raise.turns = Some(value.parse().map_err(|_| wrong(part))?),
            Some(("tokens", value)) => raise.tokens = Some(value.parse().map_err(|_| wrong(part))?),
            Some(("active_time", value)) => {
                raise.active = Some(longhaul::duration::parse(value).ok_or_else(|| wrong(part))?);
            }
            Some(_) => return Err(wrong(part)),
        }
    }
    let nothing =
        raise.turns == Some(0) || raise.tokens == Some(0) || raise.active == Some(Millis::ZERO);
    if nothing {
        return Err(wrong(said));
    }
    Ok(raise)
}
