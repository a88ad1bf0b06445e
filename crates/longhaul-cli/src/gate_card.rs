//! The card of a gate: the text that a person sees before the decision, with exactly what will
//! happen. The card says if lines are omitted.

use longhaul_api::gate::GateView;
use longhaul_core::policy::gate::GateKind;
use serde_json::Value;

use crate::event_printer::format_date_time;
use crate::form_prompt::form_lines;
use crate::sanitize;

/// Maximum number of lines of the call's input on a short card.
const LINES_MAX: usize = 24;

/// Maximum width of an input line, in characters. Longer lines are wrapped.
const LINE_WIDTH: usize = 76;

/// Returns the lines of a gate's card. A long input of the call is truncated.
pub(crate) fn short_gate_card(gate: &GateView) -> Vec<String> {
    let input = gate.input.as_ref().map(|input| call_input_lines(&input.to_value()));
    let mut input = input.unwrap_or_default();
    if input.len() > LINES_MAX {
        let left = input.len() - LINES_MAX;
        input.truncate(LINES_MAX);
        let id = gate.id;
        input.push(format!("… {left} more lines: longhaul gates show {id}"));
    }
    gate_card_lines(gate, input)
}

/// Returns the lines of a gate's card with the full input of the call.
pub(crate) fn full_gate_card(gate: &GateView) -> Vec<String> {
    let input = gate.input.as_ref().map(|input| call_input_lines(&input.to_value()));
    gate_card_lines(gate, input.unwrap_or_default())
}

fn gate_card_lines(gate: &GateView, input: Vec<String>) -> Vec<String> {
    let mut lines = vec![format!("{}", gate.id)];
    let title = match (&gate.kind, &gate.tool) {
        (GateKind::Approval, Some(tool)) => format!("may the run call {tool}?"),
        (GateKind::InDoubt, Some(tool)) => format!("what was the outcome of {tool}?"),
        (GateKind::Result, _) => "is this result good?".to_owned(),
        (GateKind::Question, _) => "the run asks a question".to_owned(),
        (GateKind::Blocked, _) => "the run is blocked".to_owned(),
        (GateKind::Signal, _) => "the run waits for a signal".to_owned(),
        (GateKind::Approval | GateKind::InDoubt, None) => "may the run continue?".to_owned(),
    };
    lines[0] = format!("{}  {title}", lines[0]);
    lines.push(format!("  {}", sanitize::sanitize_line(&gate.ask)));
    lines.extend(input.into_iter().map(|line| format!("  │ {line}")));
    for subject in &gate.injected_subjects {
        lines.push(format!(
            "  set by the runtime, not by the model: {}",
            sanitize::sanitize_line(subject)
        ));
    }
    if let Some(editor) = &gate.edited_by {
        lines.push(format!("  input changed by {}", sanitize::sanitize_line(editor)));
    }
    for option in &gate.options {
        lines.push(format!("  - {}", sanitize::sanitize_line(option)));
    }
    lines.extend(form_lines(gate).iter().map(|field| format!("  - {field}")));
    let mut foot = Vec::new();
    if gate.approvers > 1 {
        foot.push(format!("{} people must agree", gate.approvers));
    }
    if !gate.tags.is_empty() {
        foot.push(format!("tags {}", sanitize::sanitize_line(&gate.tags.join(", "))));
    }
    if let Some(deadline) = gate.deadline {
        foot.push(format!("until {}", format_date_time(deadline)));
    }
    if let Some(digest) = gate.digest {
        foot.push(format!("digest {}", &digest.to_string()[..12]));
    }
    if !foot.is_empty() {
        lines.push(format!("  {}", foot.join(" · ")));
    }
    lines
}

/// Formats the call's input as lines: an object field by field, any other value as JSON or text.
fn call_input_lines(value: &Value) -> Vec<String> {
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
                lines.push(format!(
                    "{}: {}",
                    sanitize::sanitize_line(name),
                    sanitize::sanitize_line(first)
                ));
                lines.extend(parts.map(|part| format!("    {}", sanitize::sanitize_line(part))));
            }
        }
        Value::String(text) => lines.extend(text.lines().map(sanitize::sanitize_line)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Array(_) => {
            lines.push(sanitize::sanitize_line(&value.to_string()));
        }
    }
    lines.iter().flat_map(|line| wrap_line(line)).collect()
}

fn wrap_line(line: &str) -> Vec<String> {
    let chars: Vec<char> = line.chars().collect();
    if chars.is_empty() {
        return vec![String::new()];
    }
    chars.chunks(LINE_WIDTH).map(|chunk| chunk.iter().collect()).collect()
}
