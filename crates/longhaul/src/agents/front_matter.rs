//! Reads front matter and body into an agent, with every problem on the way.
//!
//! Never: gives an agent of a file with a problem to somebody who would run it;
//! the caller looks at the sheet first.

use longhaul_core::id::AgentName;
use longhaul_core::policy::LaneOnPark;
use longhaul_core::policy::budget::BudgetRaise;
use longhaul_core::policy::gate::{GATE_TIMEOUT, OnTimeout, ResultGate};
use longhaul_engine::agent::{Agent, BudgetPatch, RetryPatch};

use crate::agents::diagnostics::{Diagnostics, FieldReader};
use crate::agents::load_context::LoadContext;
use crate::agents::rule;
use crate::agents::shell_check;
use crate::agents::split::{self, Parts};
use crate::agents::template::{self, AllowedNames, LANE_NAMES, prompt_names};
use crate::agents::tools;
use crate::agents::{output, runtime_fields};
use crate::config::settings::{factor_to_percent, fraction_to_percent, usd_to_micros};
use crate::spanned::{Node, NodeValue, Position, TableEntry, yaml};

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
const RESULT_GATE_QUESTION: &str = "Is this result good?";

/// Reads a file's bytes; `stem` is the file's name without `.md`.
pub(crate) fn parse(
    sheet: &mut Diagnostics,
    stem: &AgentName,
    bytes: &[u8],
    shelf: &LoadContext<'_>,
) -> Agent {
    let mut agent = Agent::new(stem.clone());
    let parts = match split::split_file(bytes) {
        Ok(parts) => parts,
        Err((place, message)) => {
            sheet.invalid(place, message);
            return agent;
        }
    };
    let perceives = match yaml::parse(&parts.front_matter) {
        Ok(node) => parse_fields(sheet, &mut agent, node, shelf),
        Err(malformed) => {
            sheet.invalid(malformed.position, malformed.message);
            true
        }
    };
    parse_body(sheet, &mut agent, parts, &prompt_names(perceives));
    agent
}

/// Reads all fields, and says whether `perception` is among them.
fn parse_fields(
    sheet: &mut Diagnostics,
    agent: &mut Agent,
    node: Node,
    shelf: &LoadContext<'_>,
) -> bool {
    if node.value == NodeValue::Null {
        return false;
    }
    let whole = TableEntry { key: "front matter".to_owned(), position: node.position, node };
    let Some(mut fields) = FieldReader::new(sheet, &whole, "name") else {
        return false;
    };
    parse_identity(&mut fields, agent);
    agent.tools =
        fields.parse("tools", |sheet, entry| tools::parse(sheet, entry, shelf)).unwrap_or_default();
    parse_limits(&mut fields, agent);
    parse_approval(&mut fields, agent);
    parse_lanes(&mut fields, agent);
    runtime_fields::parse(&mut fields, agent, shelf);
    agent.output = fields.parse("output", |sheet, entry| output::parse(sheet, entry, shelf));
    fields.unsupported(&["outcome", "compaction"]);
    let commands = fields.get("sandbox").or_else(|| fields.get("tools"));
    shell_check::check_shell(fields.diagnostics, agent, commands);
    let perceives = fields.get("perception").is_some();
    fields.finish();
    perceives
}

fn parse_identity(fields: &mut FieldReader<'_, '_>, agent: &mut Agent) {
    if let Some(entry) = fields.get("name")
        && let Some(name) = fields.diagnostics.text(entry)
        && name != agent.name.as_str()
    {
        let message = format!(
            "the name `{name}` is not the file's: rename the file to `{name}.md` or write `name: {}`",
            agent.name
        );
        fields.diagnostics.invalid(entry.node.position, message);
    }
    agent.description = fields.parse("description", Diagnostics::text).unwrap_or_default();
    agent.models = fields.parse("model", parse_models).unwrap_or_default();
    agent.idle_models = fields.parse("idle_model", parse_models).unwrap_or_default();
    agent.context = fields.parse("context", Diagnostics::texts).unwrap_or_default();
}

/// One model, or several in the order in which they are tried.
fn parse_models(sheet: &mut Diagnostics, entry: &TableEntry) -> Option<Vec<String>> {
    let Some(list) = entry.node.list() else {
        return sheet.text(entry).map(|model| vec![model]);
    };
    if list.is_empty() {
        let key = &entry.key;
        let message = format!("`{key}` names no model: name one, or leave the line out");
        sheet.invalid(entry.node.position, message);
    }
    sheet.texts(entry)
}

fn parse_limits(fields: &mut FieldReader<'_, '_>, agent: &mut Agent) {
    let turns = (fields.get("max_turns"), fields.get("maxTurns"));
    if let (Some(_), Some(second)) = turns {
        fields
            .diagnostics
            .invalid(second.position, "`max_turns` and `maxTurns` are the same: write one of them");
    }
    if let Some(entry) = turns.0.or(turns.1) {
        agent.max_turns = fields.diagnostics.integer(entry, 1);
    }
    agent.budget = fields.parse("budget", parse_budget).unwrap_or_default();
    agent.retry = fields.parse("retry", parse_retry).unwrap_or_default();
    agent.keep_open = fields.parse("keep_open", Diagnostics::duration);
}

fn parse_budget(sheet: &mut Diagnostics, entry: &TableEntry) -> Option<BudgetPatch> {
    let mut fields = FieldReader::new(sheet, entry, "usd")?;
    let usd = fields.parse("usd", |sheet, entry| sheet.number(entry, 0.0, 1e9));
    let active = fields.parse("active_time", Diagnostics::duration);
    let turns = fields.parse("turns", |sheet, entry| sheet.integer(entry, 1));
    let tokens = fields.parse("tokens", |sheet, entry| sheet.integer(entry, 1));
    let warn = fields.parse("warn_at", |sheet, entry| sheet.number(entry, 0.0, 1.0));
    fields.finish();
    Some(BudgetPatch {
        caps: BudgetRaise { micro_usd: usd.map(usd_to_micros), tokens, turns, active },
        warn_percent: warn.map(fraction_to_percent),
    })
}

fn parse_retry(sheet: &mut Diagnostics, entry: &TableEntry) -> Option<RetryPatch> {
    let mut fields = FieldReader::new(sheet, entry, "max_retries")?;
    let multiplier =
        |sheet: &mut Diagnostics, entry: &TableEntry| sheet.number(entry, 1.0, 1_000.0);
    let retry = RetryPatch {
        max_retries: fields.parse("max_retries", |sheet, entry| sheet.integer(entry, 0)),
        initial_delay: fields.parse("initial_delay", Diagnostics::duration),
        max_delay: fields.parse("max_delay", Diagnostics::duration),
        multiplier_percent: fields.parse("multiplier", multiplier).map(factor_to_percent),
        ..RetryPatch::default()
    };
    for key in ["soft_timeout", "hard_timeout"] {
        if let Some(entry) = fields.get(key) {
            let message = format!(
                "`{key}` is understood, but this build can't do it yet: remove it; \
                 `budget: {{ active_time: 4h }}` limits a run"
            );
            fields.diagnostics.unsupported(entry.position, message);
        }
    }
    fields.finish();
    Some(retry)
}

fn parse_approval(fields: &mut FieldReader<'_, '_>, agent: &mut Agent) {
    let rules =
        |sheet: &mut Diagnostics, entry: &TableEntry| sheet.parse_each(entry, rule::parse_rule);
    agent.rules = fields.parse("approve", rules).unwrap_or_default();
    let effects =
        |sheet: &mut Diagnostics, entry: &TableEntry| sheet.parse_each(entry, rule::parse_effect);
    agent.effects = fields.parse("effects", effects).unwrap_or_default();
    agent.in_doubt = fields.parse("in_doubt", rule::parse_in_doubt);
    let asked = fields.parse("approve_result", Diagnostics::boolean);
    agent.result_gate = asked.unwrap_or_default().then(|| ResultGate {
        ask: RESULT_GATE_QUESTION.to_owned(),
        timeout: GATE_TIMEOUT,
        on_timeout: OnTimeout::default(),
    });
}

fn parse_lanes(fields: &mut FieldReader<'_, '_>, agent: &mut Agent) {
    agent.lane =
        fields.parse("lane", |sheet, entry| sheet.template(entry, AllowedNames::Only(LANE_NAMES)));
    let on_park = |sheet: &mut Diagnostics, entry: &TableEntry| sheet.one_of(entry, LANE_ON_PARK);
    agent.lane_on_park = fields.parse("lane_on_park", on_park).unwrap_or_default();
    if let Some(entry) = fields.get("lane_busy")
        && fields.diagnostics.one_of(entry, LANE_BUSY) == Some(false)
    {
        let said = entry.node.text().unwrap_or_default();
        fields.diagnostics.unsupported_field(entry.position, &format!("lane_busy: {said}"));
    }
}

fn parse_body(sheet: &mut Diagnostics, agent: &mut Agent, parts: Parts, names: &[&str]) {
    if let Some(fault) = template::find_error(&parts.body, AllowedNames::Only(names)) {
        let place = Position { line: parts.body_line + fault.position.line - 1, ..fault.position };
        sheet.invalid(place, fault.message);
    }
    agent.prompt = parts.body;
}
