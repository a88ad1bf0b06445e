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
use longhaul_core::policy::gate::{GATE_TIMEOUT, GateRule, OnTimeout, Verdict};
use longhaul_core::time::Millis;
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
        ("max turns", number(agent.max_turns)),
        ("budget", budget(agent.budget)),
        ("retry", retry(agent.retry)),
        (
            "sandbox",
            agent
                .sandbox
                .as_ref()
                .map(sandbox)
                .unwrap_or_default()
                .to_owned(),
        ),
        ("guards", agent.guards.map(guards).unwrap_or_default()),
        ("keep open", time(agent.keep_open)),
        (
            "in doubt",
            agent.in_doubt.map(in_doubt).unwrap_or_default().to_owned(),
        ),
        (
            "result",
            agent
                .result_gate
                .as_ref()
                .map(|gate| format!("asks \"{}\"", gate.ask))
                .unwrap_or_default(),
        ),
        ("lane", agent.lane.clone().unwrap_or_default()),
        ("parked", parked(agent)),
        (
            "perception",
            agent.perception.as_ref().map(sight).unwrap_or_default(),
        ),
        (
            "output",
            agent
                .output
                .as_ref()
                .map(|schema| schema.as_str().to_owned())
                .unwrap_or_default(),
        ),
        ("rules", rules),
    ];
    lines.extend(agent.rules.iter().map(|rule| ("rule", ruled(rule))));
    lines.extend(
        agent
            .effects
            .iter()
            .map(|effect| ("effect", effected(effect))),
    );
    let events = agent.events.iter();
    lines.extend(events.map(|(kind, text)| ("event", format!("{kind}: {text}"))));
    lines
}

fn number(number: Option<u32>) -> String {
    number.map(|number| number.to_string()).unwrap_or_default()
}

fn time(time: Option<Millis>) -> String {
    time.map(span::write).unwrap_or_default()
}

/// What is said, each with its name, without what is not.
fn joined(parts: &[(&str, String)]) -> String {
    let said = parts.iter().filter(|(_, text)| !text.is_empty());
    let said = said.map(|(name, text)| format!("{name} {text}").trim().to_owned());
    said.collect::<Vec<_>>().join(", ")
}

fn budget(budget: BudgetPatch) -> String {
    let caps = budget.caps;
    let usd = caps
        .micros
        .map(|micros| (micros.0 as f64 / 1e6).to_string());
    let tokens = caps.tokens.map(|tokens| tokens.to_string());
    let warned = budget.warn_percent.map(|percent| format!("{percent} %"));
    joined(&[
        ("usd", usd.unwrap_or_default()),
        ("tokens", tokens.unwrap_or_default()),
        ("turns", number(caps.turns)),
        ("active time", time(caps.active)),
        ("warned at", warned.unwrap_or_default()),
    ])
}

fn retry(retry: RetryPatch) -> String {
    let factor = retry
        .multiplier_percent
        .map(|factor| f64::from(factor) / 100.0);
    joined(&[
        ("retries", number(retry.max_retries)),
        ("first after", time(retry.initial_delay)),
        (
            "times",
            factor.map(|factor| factor.to_string()).unwrap_or_default(),
        ),
        ("at most", time(retry.max_delay)),
    ])
}

const fn sandbox(sandbox: &Sandboxed) -> &'static str {
    match sandbox.isolation {
        Isolation::Walled => "",
        Isolation::None => "without walls",
    }
}

fn guards(guards: Guards) -> String {
    match guards.identical_calls {
        Some(calls) => format!("stopped after {calls} identical calls"),
        None => "off".to_owned(),
    }
}

const fn in_doubt(in_doubt: InDoubt) -> &'static str {
    match in_doubt {
        InDoubt::Tell => "the model is told",
        InDoubt::Ask => "a person is asked",
        InDoubt::Fail => "the run fails",
    }
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
            let count = if who.count == 1 {
                String::new()
            } else {
                who.count.to_string()
            };
            let other = if who.not_submitter {
                "not by the submitter"
            } else {
                ""
            };
            let more = joined(&[
                ("approvers", count),
                ("", other.to_owned()),
                ("reminds after", time(rule.remind)),
            ]);
            let more = if more.is_empty() {
                more
            } else {
                format!(", {more}")
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
