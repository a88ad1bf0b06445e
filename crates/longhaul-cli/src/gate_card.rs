//! A gate as a person sees it before they decide: what will happen, exactly.
//!
//! Never: leaves out a part of what is frozen without saying so.

use longhaul_api::gate::GateView;
use longhaul_core::policy::gate::GateKind;
use serde_json::Value;

use crate::event_printer::date_time;
use crate::sanitize;

/// So many lines of what is frozen are shown.
const LINES_MAX: usize = 24;

/// So wide is a line.
const LINE_WIDTH: usize = 76;

/// The lines of a gate's card; of a long input its beginning.
pub(crate) fn short_card(gate: &GateView) -> Vec<String> {
    let input = gate.input.as_ref().map(|input| input_lines(&input.to_value()));
    let mut input = input.unwrap_or_default();
    if input.len() > LINES_MAX {
        let left = input.len() - LINES_MAX;
        input.truncate(LINES_MAX);
        let id = gate.id;
        input.push(format!("… {left} lines more: longhaul gates show {id}"));
    }
    card_lines(gate, input)
}

/// The lines of a gate's card with all that is frozen.
pub(crate) fn full_card(gate: &GateView) -> Vec<String> {
    let input = gate.input.as_ref().map(|input| input_lines(&input.to_value()));
    card_lines(gate, input.unwrap_or_default())
}

fn card_lines(gate: &GateView, input: Vec<String>) -> Vec<String> {
    let mut lines = vec![format!("{}", gate.id)];
    let title = match (&gate.kind, &gate.tool) {
        (GateKind::Approval, Some(tool)) => format!("may it call {tool}?"),
        (GateKind::InDoubt, Some(tool)) => format!("what came of {tool}?"),
        (GateKind::Result, _) => "is this result good?".to_owned(),
        (GateKind::Question, _) => "a question".to_owned(),
        (GateKind::Blocked, _) => "it can't go on".to_owned(),
        (GateKind::Signal, _) => "a program's word".to_owned(),
        (GateKind::Approval | GateKind::InDoubt, None) => "may it go on?".to_owned(),
    };
    lines[0] = format!("{}  {title}", lines[0]);
    lines.push(format!("  {}", sanitize::line(&gate.ask)));
    lines.extend(input.into_iter().map(|line| format!("  │ {line}")));
    for told in &gate.injected_subjects {
        lines.push(format!("  set for it, not by the model: {}", sanitize::line(told)));
    }
    if let Some(editor) = &gate.edited_by {
        lines.push(format!("  changed by {}", sanitize::line(editor)));
    }
    for option in &gate.options {
        lines.push(format!("  - {}", sanitize::line(option)));
    }
    let mut foot = Vec::new();
    if gate.approvers > 1 {
        foot.push(format!("{} people must agree", gate.approvers));
    }
    if let Some(deadline) = gate.deadline {
        foot.push(format!("until {}", date_time(deadline)));
    }
    if let Some(digest) = gate.digest {
        foot.push(format!("digest {}", &digest.to_string()[..12]));
    }
    if !foot.is_empty() {
        lines.push(format!("  {}", foot.join(" · ")));
    }
    lines
}

/// What is frozen: the fields of an object one by one, anything else as it is.
fn input_lines(value: &Value) -> Vec<String> {
    let mut lines = Vec::new();
    match value {
        Value::Object(fields) => {
            for (name, field) in fields {
                let text = match field {
                    Value::String(text) => text.clone(),
                    Value::Null
                    | Value::Bool(_)
                    | Value::Number(_)
                    | Value::Array(_)
                    | Value::Object(_) => field.to_string(),
                };
                let mut parts = text.lines();
                let first = parts.next().unwrap_or_default();
                lines.push(format!("{}: {}", sanitize::line(name), sanitize::line(first)));
                lines.extend(parts.map(|part| format!("    {}", sanitize::line(part))));
            }
        }
        Value::String(text) => lines.extend(text.lines().map(sanitize::line)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Array(_) => {
            lines.push(sanitize::line(&value.to_string()));
        }
    }
    lines.iter().flat_map(|line| wrap_line(line)).collect()
}

fn wrap_line(line: &str) -> Vec<String> {
    let letters: Vec<char> = line.chars().collect();
    if letters.is_empty() {
        return vec![String::new()];
    }
    letters.chunks(LINE_WIDTH).map(|chunk| chunk.iter().collect()).collect()
}
