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
use crate::agents::template::{self, LANE_NAMES, Names, prompt_names};
use crate::agents::tools;
use crate::agents::{output, wishes};
use crate::config::settings::{hundredths, micros, percent};
use crate::written::{Content, Entry, Node, Place, yaml};

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
    let perceives = match yaml::read(&parts.front) {
        Ok(node) => front(sheet, &mut agent, node, shelf),
        Err(malformed) => {
            sheet.fault(malformed.place, malformed.message);
            true
        }
    };
    body(sheet, &mut agent, parts, &prompt_names(perceives));
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
    let Some(mut fields) = Fields::new(sheet, &whole, "name") else {
        return false;
    };
    identity(&mut fields, agent);
    agent.tools = fields
        .read("tools", |sheet, entry| tools::read(sheet, entry, shelf))
        .unwrap_or_default();
    limits(&mut fields, agent);
    people(&mut fields, agent);
    lanes(&mut fields, agent);
    wishes::read(&mut fields, agent, shelf);
    agent.output = fields.read("output", |sheet, entry| output::read(sheet, entry, shelf));
    fields.later(&["outcome", "compaction"]);
    let commands = fields.get("sandbox").or_else(|| fields.get("tools"));
    later::shell(fields.sheet, agent, commands);
    let perceives = fields.get("perception").is_some();
    fields.end();
    perceives
}

fn identity(fields: &mut Fields<'_, '_>, agent: &mut Agent) {
    if let Some(entry) = fields.get("name")
        && let Some(name) = fields.sheet.text(entry)
        && name != agent.name.as_str()
    {
        let message = format!(
            "the name `{name}` is not the file's: rename the file to `{name}.md` or write `name: {}`",
            agent.name
        );
        fields.sheet.fault(entry.node.place, message);
    }
    agent.description = fields.read("description", Sheet::text).unwrap_or_default();
    agent.models = fields.read("model", models).unwrap_or_default();
    agent.idle_models = fields.read("idle_model", models).unwrap_or_default();
    agent.context = fields.read("context", Sheet::texts).unwrap_or_default();
}

/// One model, or several in the order in which they are tried.
fn models(sheet: &mut Sheet, entry: &Entry) -> Option<Vec<String>> {
    let Some(list) = entry.node.list() else {
        return sheet.text(entry).map(|model| vec![model]);
    };
    if list.is_empty() {
        let key = &entry.key;
        let message = format!("`{key}` names no model: name one, or leave the line out");
        sheet.fault(entry.node.place, message);
    }
    sheet.texts(entry)
}

fn limits(fields: &mut Fields<'_, '_>, agent: &mut Agent) {
    let turns = (fields.get("max_turns"), fields.get("maxTurns"));
    if let (Some(_), Some(second)) = turns {
        fields.sheet.fault(
            second.place,
            "`max_turns` and `maxTurns` are the same: write one of them",
        );
    }
    if let Some(entry) = turns.0.or(turns.1) {
        agent.max_turns = fields.sheet.whole(entry, 1);
    }
    agent.budget = fields.read("budget", budget).unwrap_or_default();
    agent.retry = fields.read("retry", retry).unwrap_or_default();
    agent.keep_open = fields.read("keep_open", Sheet::span);
}

fn budget(sheet: &mut Sheet, entry: &Entry) -> Option<BudgetPatch> {
    let mut fields = Fields::new(sheet, entry, "usd")?;
    let usd = fields.read("usd", |sheet, entry| sheet.real(entry, 0.0, 1e9));
    let active = fields.read("active_time", Sheet::span);
    let turns = fields.read("turns", |sheet, entry| sheet.whole(entry, 1));
    let tokens = fields.read("tokens", |sheet, entry| sheet.whole(entry, 1));
    let warn = fields.read("warn_at", |sheet, entry| sheet.real(entry, 0.0, 1.0));
    fields.end();
    Some(BudgetPatch {
        caps: Raise {
            micros: usd.map(micros),
            tokens,
            turns,
            active,
        },
        warn_percent: warn.map(percent),
    })
}

fn retry(sheet: &mut Sheet, entry: &Entry) -> Option<RetryPatch> {
    let mut fields = Fields::new(sheet, entry, "max_retries")?;
    let multiplier = |sheet: &mut Sheet, entry: &Entry| sheet.real(entry, 1.0, 1_000.0);
    let retry = RetryPatch {
        max_retries: fields.read("max_retries", |sheet, entry| sheet.whole(entry, 0)),
        initial_delay: fields.read("initial_delay", Sheet::span),
        max_delay: fields.read("max_delay", Sheet::span),
        multiplier_percent: fields.read("multiplier", multiplier).map(hundredths),
        ..RetryPatch::default()
    };
    for key in ["soft_timeout", "hard_timeout"] {
        if let Some(entry) = fields.get(key) {
            let message = format!(
                "`{key}` is understood, but this build can't do it yet: remove it; \
                 `budget: {{ active_time: 4h }}` limits a run"
            );
            fields.sheet.not_yet(entry.place, message);
        }
    }
    fields.end();
    Some(retry)
}

fn people(fields: &mut Fields<'_, '_>, agent: &mut Agent) {
    let rules = |sheet: &mut Sheet, entry: &Entry| sheet.each(entry, rule::rule);
    agent.rules = fields.read("approve", rules).unwrap_or_default();
    let effects = |sheet: &mut Sheet, entry: &Entry| sheet.each(entry, rule::effect);
    agent.effects = fields.read("effects", effects).unwrap_or_default();
    agent.in_doubt = fields.read("in_doubt", rule::in_doubt);
    let asked = fields.read("approve_result", Sheet::flag);
    agent.result_gate = asked.unwrap_or_default().then(|| ResultGate {
        ask: RESULT_ASK.to_owned(),
        timeout: GATE_TIMEOUT,
        on_timeout: OnTimeout::default(),
    });
}

fn lanes(fields: &mut Fields<'_, '_>, agent: &mut Agent) {
    agent.lane = fields.read("lane", |sheet, entry| {
        sheet.template(entry, Names::Only(LANE_NAMES))
    });
    let on_park = |sheet: &mut Sheet, entry: &Entry| sheet.word(entry, LANE_ON_PARK);
    agent.lane_on_park = fields.read("lane_on_park", on_park).unwrap_or_default();
    if let Some(entry) = fields.get("lane_busy")
        && fields.sheet.word(entry, LANE_BUSY) == Some(false)
    {
        let said = entry.node.text().unwrap_or_default();
        fields
            .sheet
            .later(entry.place, &format!("lane_busy: {said}"));
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
