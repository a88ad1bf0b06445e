//! Reads front matter and body into an agent, with every problem on the way.
//!
//! Never: gives an agent of a file with a problem to somebody who would run it;
//! the caller looks at the sheet first.

use longhaul_core::id::AgentName;
use longhaul_core::policy::LaneOnPark;
use longhaul_core::policy::budget::Raise;
use longhaul_core::policy::gate::{GATE_TIMEOUT, OnTimeout, ResultGate};
use longhaul_engine::agent::{Agent, BudgetPatch, RetryPatch};

use crate::agents::cut::{self, Parts};
use crate::agents::later;
use crate::agents::rule;
use crate::agents::sheet::{Fields, Sheet};
use crate::agents::shelf::Shelf;
use crate::agents::template::{self, Names};
use crate::agents::tools;
use crate::agents::{output, wishes};
use crate::config::settings::{hundredths, micros, percent};
use crate::written::{Content, Entry, Node, Place, yaml};

/// The keys that are read here.
const KEYS: &[&str] = &[
    "name",
    "description",
    "model",
    "idle_model",
    "tools",
    "skills",
    "max_turns",
    "maxTurns",
    "sandbox",
    "budget",
    "retry",
    "approve",
    "effects",
    "guards",
    "keep_open",
    "in_doubt",
    "approve_result",
    "lane",
    "lane_on_park",
    "lane_busy",
    "context",
    "perception",
    "output",
    "events",
    "outcome",
    "compaction",
];

/// What `lane_busy` may say, and whether this build can do it.
const LANE_BUSY: &[(&str, bool)] = &[
    ("enqueue", true),
    ("steer", false),
    ("collect", false),
    ("interrupt", false),
    ("reject", false),
];

const LANE_ON_PARK: &[(&str, LaneOnPark)] =
    &[("keep", LaneOnPark::Keep), ("release", LaneOnPark::Release)];

/// What a person is asked where the result is a gate.
const RESULT_ASK: &str = "Is this result good?";

/// Reads a file's bytes; `stem` is the file's name without `.md`.
pub(crate) fn read(sheet: &mut Sheet, stem: &AgentName, bytes: &[u8], shelf: &Shelf<'_>) -> Agent {
    let mut agent = Agent::new(stem.clone());
    let parts = match cut::cut(bytes) {
        Ok(parts) => parts,
        Err((place, message)) => {
            sheet.fault(place, message);
            return agent;
        }
    };
    let mut names = vec!["input", "context", "memory"];
    match yaml::read(&parts.front) {
        Ok(node) => {
            let perceives = front(sheet, &mut agent, node, shelf);
            names.extend(perceives.then_some("perception"));
        }
        Err(malformed) => {
            sheet.fault(malformed.place, malformed.message);
            names.push("perception");
        }
    }
    body(sheet, &mut agent, parts, &names);
    agent
}

/// Reads all fields, and says whether `perception` is among them.
fn front(sheet: &mut Sheet, agent: &mut Agent, node: Node, shelf: &Shelf<'_>) -> bool {
    if node.content == Content::Nothing {
        return false;
    }
    let whole = Entry {
        key: "front matter".to_owned(),
        place: node.place,
        node,
    };
    let Some(fields) = sheet.table(&whole, KEYS) else {
        return false;
    };
    identity(sheet, agent, &fields);
    if let Some(entry) = fields.get("tools") {
        agent.tools = tools::read(sheet, entry, shelf);
    }
    limits(sheet, agent, &fields);
    people(sheet, agent, &fields);
    lanes(sheet, agent, &fields);
    wishes::read(sheet, agent, &fields, shelf);
    if let Some(entry) = fields.get("output") {
        agent.output = output::read(sheet, entry, shelf);
    }
    sheet.all_later(&fields, &["outcome", "compaction"]);
    later::read(sheet, agent, &fields);
    fields.get("perception").is_some()
}

fn identity(sheet: &mut Sheet, agent: &mut Agent, fields: &Fields<'_>) {
    if let Some(entry) = fields.get("name")
        && let Some(name) = sheet.text(entry)
        && name != agent.name.as_str()
    {
        let message = format!(
            "the name `{name}` is not the file's: rename the file to `{name}.md` or write `name: {}`",
            agent.name
        );
        sheet.fault(entry.node.place, message);
    }
    if let Some(entry) = fields.get("description") {
        agent.description = sheet.text(entry).unwrap_or_default();
    }
    if let Some(entry) = fields.get("model") {
        agent.models = models(sheet, entry);
    }
    if let Some(entry) = fields.get("idle_model") {
        agent.idle_models = models(sheet, entry);
    }
    if let Some(entry) = fields.get("context") {
        let names = sheet.texts(entry);
        agent.context = names.into_iter().map(|(_, name)| name).collect();
    }
}

/// One model, or several in the order in which they are tried.
fn models(sheet: &mut Sheet, entry: &Entry) -> Vec<String> {
    let Content::List(list) = &entry.node.content else {
        return sheet.text(entry).into_iter().collect();
    };
    if list.is_empty() {
        let key = &entry.key;
        let message = format!("`{key}` names no model: name one, or leave the line out");
        sheet.fault(entry.node.place, message);
    }
    let models = sheet.texts(entry);
    models.into_iter().map(|(_, model)| model).collect()
}

fn limits(sheet: &mut Sheet, agent: &mut Agent, fields: &Fields<'_>) {
    let turns = (fields.get("max_turns"), fields.get("maxTurns"));
    if let (Some(_), Some(second)) = turns {
        sheet.fault(
            second.place,
            "`max_turns` and `maxTurns` are the same: write one of them",
        );
    }
    if let Some(entry) = turns.0.or(turns.1) {
        agent.max_turns = sheet.whole(entry, 1);
    }
    if let Some(entry) = fields.get("budget") {
        agent.budget = budget(sheet, entry);
    }
    if let Some(entry) = fields.get("retry") {
        agent.retry = retry(sheet, entry);
    }
    if let Some(entry) = fields.get("keep_open") {
        agent.keep_open = sheet.span(entry);
    }
}

fn budget(sheet: &mut Sheet, entry: &Entry) -> BudgetPatch {
    let known = ["usd", "active_time", "turns", "tokens", "warn_at"];
    let Some(fields) = sheet.table(entry, &known) else {
        return BudgetPatch::default();
    };
    let usd = fields
        .get("usd")
        .and_then(|entry| sheet.real(entry, 0.0, 1e9));
    let warn = fields
        .get("warn_at")
        .and_then(|entry| sheet.real(entry, 0.0, 1.0));
    BudgetPatch {
        caps: Raise {
            micros: usd.map(micros),
            tokens: fields.get("tokens").and_then(|entry| sheet.whole(entry, 1)),
            turns: fields.get("turns").and_then(|entry| sheet.whole(entry, 1)),
            active: fields
                .get("active_time")
                .and_then(|entry| sheet.span(entry)),
        },
        warn_percent: warn.map(percent),
    }
}

fn retry(sheet: &mut Sheet, entry: &Entry) -> RetryPatch {
    let known = [
        "max_retries",
        "initial_delay",
        "max_delay",
        "multiplier",
        "soft_timeout",
        "hard_timeout",
    ];
    let Some(fields) = sheet.table(entry, &known) else {
        return RetryPatch::default();
    };
    for entry in ["soft_timeout", "hard_timeout"].map(|key| fields.get(key)) {
        let Some(entry) = entry else { continue };
        let message = format!(
            "`{}` is understood, but this build can't do it yet: remove it; \
             `budget: {{ active_time: 4h }}` limits a run",
            entry.key
        );
        sheet.not_yet(entry.place, message);
    }
    let multiplier = fields.get("multiplier");
    let multiplier = multiplier.and_then(|entry| sheet.real(entry, 1.0, 1_000.0));
    let mut span = |key| fields.get(key).and_then(|entry| sheet.span(entry));
    RetryPatch {
        initial_delay: span("initial_delay"),
        max_delay: span("max_delay"),
        multiplier_percent: multiplier.map(hundredths),
        max_retries: fields
            .get("max_retries")
            .and_then(|entry| sheet.whole(entry, 0)),
        ..RetryPatch::default()
    }
}

fn people(sheet: &mut Sheet, agent: &mut Agent, fields: &Fields<'_>) {
    if let Some(entry) = fields.get("approve") {
        agent.rules = rule::rules(sheet, entry);
    }
    if let Some(entry) = fields.get("effects") {
        agent.effects = rule::effects(sheet, entry);
    }
    if let Some(entry) = fields.get("in_doubt") {
        agent.in_doubt = sheet.word(entry, rule::IN_DOUBT);
    }
    if let Some(entry) = fields.get("approve_result") {
        let asked = sheet.flag(entry).unwrap_or_default();
        agent.result_gate = asked.then(|| ResultGate {
            ask: RESULT_ASK.to_owned(),
            timeout: GATE_TIMEOUT,
            on_timeout: OnTimeout::default(),
        });
    }
}

fn lanes(sheet: &mut Sheet, agent: &mut Agent, fields: &Fields<'_>) {
    if let Some(entry) = fields.get("lane") {
        agent.lane = sheet.template(entry, Names::Only(&["input", "context"]));
    }
    if let Some(entry) = fields.get("lane_on_park") {
        agent.lane_on_park = sheet.word(entry, LANE_ON_PARK).unwrap_or_default();
    }
    if let Some(entry) = fields.get("lane_busy")
        && let Some(can) = sheet.word(entry, LANE_BUSY)
        && !can
    {
        let said = sheet.text(entry).unwrap_or_default();
        sheet.later(entry.place, &format!("lane_busy: {said}"));
    }
}

fn body(sheet: &mut Sheet, agent: &mut Agent, parts: Parts, names: &[&str]) {
    if let Some(fault) = template::fault(&parts.body, Names::Only(names)) {
        let place = Place {
            line: parts.body_line + fault.place.line - 1,
            ..fault.place
        };
        sheet.fault(place, fault.message);
    }
    agent.prompt = parts.body;
}
