//! `longhaul agents show`: everything that one agent is.
//!
//! Never: leaves a field out that its file set.

use anyhow::bail;
use clap::Args;
use longhaul::agents::loaded::{AgentError, Loaded};
use longhaul::agents::verbatim;
use longhaul::{span, written};
use longhaul_core::policy::LaneOnPark;
use longhaul_core::policy::effect::{EffectClass, InDoubt};
use longhaul_core::policy::gate::{GATE_TIMEOUT, GateRule, OnTimeout, ResultGate, Verdict};
use longhaul_core::raw::RawJson;
use longhaul_core::usage::Micros;
use longhaul_engine::agent::wish::{Every, Eye, Guards, Isolation, Sandboxed, Sight};
use longhaul_engine::agent::{Agent, BudgetPatch, EffectRule, RetryPatch};
use serde_json::json;

use crate::{plain, say};

/// Prints what one agent is.
#[derive(Debug, Args)]
pub(crate) struct Show {
    /// Which
    name: String,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

impl Show {
    pub(crate) fn run(&self, loaded: &Loaded) -> anyhow::Result<()> {
        let one = match loaded.find(&self.name) {
            Ok(one) => one,
            Err(AgentError::Unknown(said)) => bail!("{said}\n`longhaul agents` lists them"),
            Err(error @ AgentError::Broken { .. }) => bail!("{error}"),
        };
        let agent = &one.agent;
        if self.json {
            let source = one.source.as_str();
            let shown = json!({
                "version": agent.version(), "path": one.path, "source": source,
                "notes": one.notes, "agent": agent,
            });
            return say::json(&shown);
        }
        let line = |name: &str, text: String| match text.is_empty() {
            true => Ok(()),
            false => say::words(&format!("{name:12}{}", written::plain(&text))),
        };
        line("name", agent.name.to_string())?;
        line("file", plain::line(&one.path.display().to_string()))?;
        line("source", one.source.as_str().to_owned())?;
        line("version", agent.version().to_string())?;
        for (name, text) in described(agent) {
            line(name, text)?;
        }
        for note in &one.notes {
            line("note", note.clone())?;
        }
        if agent.prompt.is_empty() {
            return Ok(());
        }
        let prompt = verbatim::text(&agent.prompt);
        say::words(&format!("\n{}", written::plain(&prompt)))
    }
}

/// What an agent says of itself, a line for each.
fn described(agent: &Agent) -> Vec<(&'static str, String)> {
    let names = agent.skills.iter().map(|skill| skill.name.as_str());
    let rules = match agent.house_rules.len() {
        0 => String::new(),
        bytes => format!("those of AGENTS.md, {bytes} bytes"),
    };
    let mut lines = vec![
        ("about", agent.description.trim_end().to_owned()),
        ("model", agent.models.join(", then ")),
        ("idle model", agent.idle_models.join(", then ")),
        ("tools", agent.tools.join(", ")),
        ("skills", names.collect::<Vec<_>>().join(", ")),
        ("context", agent.context.join(", ")),
        (
            "max turns",
            text(agent.max_turns, |turns| turns.to_string()),
        ),
        ("budget", budget(agent.budget)),
        ("retry", retry(agent.retry)),
        ("sandbox", text(agent.sandbox.as_ref(), sandbox)),
        ("guards", text(agent.guards, guards)),
        ("keep open", text(agent.keep_open, span::write)),
        ("in doubt", text(agent.in_doubt, in_doubt)),
        ("result", text(agent.result_gate.as_ref(), result_gate)),
        ("lane", agent.lane.clone().unwrap_or_default()),
        ("parked", parked(agent)),
        ("perception", text(agent.perception.as_ref(), sight)),
        ("output", text(agent.output.as_ref(), output)),
        ("rules", rules),
    ];
    lines.extend(agent.rules.iter().map(|rule| ("rule", ruled(rule))));
    let effects = agent.effects.iter();
    lines.extend(effects.map(|effect| ("effect", effected(effect))));
    let events = agent.events.iter();
    lines.extend(events.map(|(kind, text)| ("event", format!("{kind}: {text}"))));
    lines
}

/// A value as text; empty where there is none.
fn text<T>(value: Option<T>, write: impl Fn(T) -> String) -> String {
    value.map(write).unwrap_or_default()
}

/// What is said, each with its name, without what is not.
fn joined(parts: &[(&str, String)]) -> String {
    let said = parts.iter().filter(|(_, text)| !text.is_empty());
    let said = said.map(|(name, text)| format!("{name} {text}").trim().to_owned());
    said.collect::<Vec<_>>().join(", ")
}

fn budget(budget: BudgetPatch) -> String {
    let caps = budget.caps;
    let usd = |micros: Micros| (micros.0 as f64 / 1e6).to_string();
    joined(&[
        ("usd", text(caps.micros, usd)),
        ("tokens", text(caps.tokens, |tokens| tokens.to_string())),
        ("turns", text(caps.turns, |turns| turns.to_string())),
        ("active time", text(caps.active, span::write)),
        (
            "warned at",
            text(budget.warn_percent, |percent| format!("{percent} %")),
        ),
    ])
}

fn retry(retry: RetryPatch) -> String {
    let times = |percent| (f64::from(percent) / 100.0).to_string();
    joined(&[
        (
            "retries",
            text(retry.max_retries, |retries| retries.to_string()),
        ),
        ("first after", text(retry.initial_delay, span::write)),
        ("times", text(retry.multiplier_percent, times)),
        ("at most", text(retry.max_delay, span::write)),
    ])
}

fn result_gate(gate: &ResultGate) -> String {
    format!("asks \"{}\"", gate.ask)
}

fn output(schema: &RawJson) -> String {
    schema.as_str().to_owned()
}

fn sandbox(sandbox: &Sandboxed) -> String {
    match sandbox.isolation {
        Isolation::Walled => String::new(),
        Isolation::None => "without walls".to_owned(),
    }
}

fn guards(guards: Guards) -> String {
    match guards.identical_calls {
        Some(calls) => format!("stopped after {calls} identical calls"),
        None => "off".to_owned(),
    }
}

fn in_doubt(in_doubt: InDoubt) -> String {
    let text = match in_doubt {
        InDoubt::Tell => "the model is told",
        InDoubt::Ask => "a person is asked",
        InDoubt::Fail => "the run fails",
    };
    text.to_owned()
}

fn parked(agent: &Agent) -> String {
    let parked = match agent.lane_on_park {
        LaneOnPark::Keep => "",
        LaneOnPark::Release => "lets go of its lane",
    };
    parked.to_owned()
}

fn sight(sight: &Sight) -> String {
    let who = match &sight.eye {
        Eye::Command(words) => words.join(" "),
        Eye::Url(url) => url.clone(),
        Eye::Named(name) => name.clone(),
    };
    match sight.every {
        Every::Run => format!("{who}, once a run"),
        Every::Turn => format!("{who}, before each turn"),
    }
}

fn ruled(rule: &GateRule) -> String {
    let what = rule.subject.as_ref();
    let what = what.map_or_else(|| rule.tool.clone(), |what| format!("{} {what}", rule.tool));
    match &rule.verdict {
        Verdict::Allow => format!("{what}: allowed"),
        Verdict::Deny(why) => format!("{what}: denied, {why}"),
        Verdict::Ask(ask) => {
            let timeout = span::write(rule.timeout.unwrap_or(GATE_TIMEOUT));
            let then = match rule.on_timeout {
                OnTimeout::Reject => "then no",
                OnTimeout::Approve => "then yes",
                OnTimeout::Fail => "then the run fails",
                OnTimeout::Pause => "then it pauses",
            };
            let who = rule.approvers;
            let count = (who.count != 1).then_some(who.count);
            let other = who.not_submitter.then_some("not by the submitter");
            let more = joined(&[
                ("approvers", text(count, |count| count.to_string())),
                ("", text(other, str::to_owned)),
                ("reminds after", text(rule.remind, span::write)),
            ]);
            let more = match more.as_str() {
                "" => String::new(),
                more => format!(", {more}"),
            };
            format!("{what}: asks \"{ask}\", for {timeout}, {then}{more}")
        }
    }
}

fn effected(effect: &EffectRule) -> String {
    let what = effect.subject.as_deref().unwrap_or_default();
    let class = match effect.class {
        EffectClass::Pure => "pure",
        EffectClass::Keyed => "keyed",
        EffectClass::Once => "once",
        EffectClass::Session => "session",
    };
    format!("{}: {class}", format!("{} {what}", effect.tool).trim_end())
}
