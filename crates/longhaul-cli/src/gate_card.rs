//! The card of a gate: the text that a person sees before the decision, with exactly what will
//! happen. The card says if lines are omitted.

use longhaul_api::gate::GateView;
use longhaul_core::form::are_options_numbered;
use longhaul_core::policy::gate::GateKind;
use longhaul_core::time::{Clock as _, Millis, Timestamp};
use longhaul_engine::clock::SystemClock;
use serde_json::Value;

use crate::event_printer::format_date_time;
use crate::form_prompt::form_description_lines;
use crate::format::{json_text, rule_pattern_text};
use crate::sanitize::sanitize_line;
use crate::terminal;

/// Number of lines of a short card, which leaves space for the commands on a terminal of 24 lines. If
/// there is a diff, the input of the call is left out.
pub(crate) const SHORT: usize = 17;

/// Number of lines of a card with the full diff and the full input of the call.
pub(crate) const FULL: usize = usize::MAX;

/// Minimum number of lines of the diff or the input on a short card.
const DETAILS_MIN: usize = 1;

/// Rows of a terminal for the commands and the line that a person types.
const COMMAND_ROWS: usize = 4;

/// Maximum number of lines of the question on a short card.
const ASK_LINES_MAX: usize = 4;

/// Maximum width of an input line, in characters, unless the terminal is narrower. Longer lines are
/// wrapped.
const LINE_WIDTH: usize = 76;

/// Columns of a terminal that are not for the text of a card.
const MARGIN: usize = 16;
const NARROW_MARGIN: usize = 4;

/// How long after its due time the automatic approval of a gate is still expected. Later it counts
/// as stopped.
const AUTO_APPROVAL_DELAY_MAX: Millis = Millis::from_secs(30);

/// Truncates the lines to `lines_max`. If lines are omitted, a last line says how many.
fn truncate_lines(mut lines: Vec<String>, gate: &GateView, lines_max: usize) -> Vec<String> {
    if lines.len() > lines_max {
        let omitted = lines.len() - lines_max;
        lines.truncate(lines_max);
        lines.push(format!("… {omitted} more lines: longhaul gates show {}", gate.id));
    }
    lines
}

/// Returns the lines of a gate's card (the text that a person sees before the decision), with the
/// question last. A card that would have more than `lines_max` lines is shortened.
pub(crate) fn gate_card(gate: &GateView, lines_max: usize) -> Vec<String> {
    let mut ask = terminal::wrap_line(&sanitize_line(&gate.ask), line_width());
    if lines_max < FULL && ask.len() > ASK_LINES_MAX {
        ask = truncate_lines(ask, gate, ASK_LINES_MAX - 1);
    }
    let facts = call_fact_lines(gate);
    let footer = footer_lines(gate);
    let values = gate.values_from_earlier_calls();
    let diff = diff_lines(gate);
    let has_input = lines_max == FULL || diff.is_empty();
    let input = gate.input.as_ref().filter(|_| has_input);
    let input: Vec<String> =
        input.map(|input| call_input_lines(&input.to_value())).unwrap_or_default();
    let others = 1 + ask.len() + facts.len() + footer.len() + values.len();
    let lists =
        1.max(values.len() + usize::from(!input.is_empty()) + usize::from(!diff.is_empty()));
    // Each list that is shortened has a line that says so.
    let list_lines = (lines_max.saturating_sub(others) / lists).saturating_sub(1).max(DETAILS_MIN);
    let title = format!("{}  {}", gate.id, card_title(gate));
    let is_short = lines_max < FULL;
    let mut lines = if is_short { Vec::new() } else { vec![title.clone()] };
    lines.extend(facts);
    for (description, value) in values {
        lines.push(format!("  passes on an earlier result: {}", sanitize_line(&description)));
        let value = value.lines().flat_map(|line| wrap_line(&sanitize_line(line))).collect();
        let value = truncate_lines(value, gate, list_lines).into_iter();
        lines.extend(value.map(|line| format!("  ┆ {line}")));
    }
    let diff = truncate_lines(diff, gate, list_lines).into_iter();
    lines.extend(diff.map(|line| format!("  ┊ {line}")));
    let input = truncate_lines(input, gate, list_lines).into_iter();
    lines.extend(input.map(|line| format!("  │ {line}")));
    lines.extend(footer);
    // On a short card next to the question, because its start may leave a small screen.
    lines.extend(is_short.then_some(title));
    lines.extend(ask.into_iter().map(|line| format!("  {line}")));
    lines
}

fn card_title(gate: &GateView) -> String {
    match (&gate.kind, &gate.tool) {
        (GateKind::Approval, Some(tool)) => format!("may the run call {tool}?"),
        (GateKind::InDoubt, Some(tool)) => format!("what was the outcome of {tool}?"),
        (GateKind::Result, _) => "is this result good?".to_owned(),
        (GateKind::Question, _) => "the run asks a question".to_owned(),
        (GateKind::Blocked, _) => "the run is blocked".to_owned(),
        (GateKind::Signal, _) => "the run waits for a signal".to_owned(),
        (GateKind::Approval | GateKind::InDoubt, None) => "may the run continue?".to_owned(),
    }
}

/// Returns the lines below the diff and the input: what else the answer depends on or applies to.
fn footer_lines(gate: &GateView) -> Vec<String> {
    let injected = gate.injected_rule_match_texts.iter();
    let mut lines: Vec<String> = injected
        .map(|text| format!("  set by the runtime, not by the model: {}", sanitize_line(text)))
        .collect();
    if let Some(editor) = &gate.edited_by {
        lines.push(format!("  input changed by {}", sanitize_line(editor)));
    }
    let has_numbers = are_options_numbered(&gate.options);
    for (number, option) in (1..).zip(&gate.options) {
        let number = if has_numbers { format!("{number}.") } else { "-".to_owned() };
        lines.push(format!("  {number} {}", sanitize_line(option)));
    }
    lines.extend(form_description_lines(gate).iter().map(|field| format!("  - {field}")));
    let wider_scopes = gate.scopes.iter().skip(1);
    let flags: Vec<_> = wider_scopes.map(|scope| format!("--for {}", scope.as_str())).collect();
    if let (Some(pattern), false) = (&gate.pattern, flags.is_empty()) {
        let (flags, calls) = (flags.join(" · "), rule_pattern_text(pattern));
        lines.push(format!("  {flags} would also approve: {calls}"));
    }
    if let Some(at) = gate.auto_approves_at.filter(|_| will_chain_auto_approve(gate)) {
        let (at, run) = (format_date_time(at), gate.run);
        lines.push(format!(
            "  The chain approves the result at {at}; stop it: longhaul pause {run}"
        ));
    }
    let approvers = (gate.approvers > 1).then(|| format!("{} people must agree", gate.approvers));
    let tags = sanitize_line(&gate.tags.join(", "));
    let parts = [
        approvers,
        (!tags.is_empty()).then(|| format!("tags {tags}")),
        gate.deadline.map(|deadline| format!("until {}", format_date_time(deadline))),
        gate.digest.map(|digest| format!("digest {}", &digest.to_string()[..12])),
    ];
    let parts: Vec<String> = parts.into_iter().flatten().collect();
    if !parts.is_empty() {
        lines.push(format!("  {}", parts.join(" · ")));
    }
    lines
}

/// Returns what the tool call would change, a line for each kind of effect.
fn call_fact_lines(gate: &GateView) -> Vec<String> {
    let has_other_input = gate.facts.is_some() && gate.edited_by.is_some();
    let note = "  effects of the original input, before it was changed:".to_owned();
    let rows = gate.call_effect_rows().into_iter();
    let rows =
        rows.map(|(label, text)| format!("  {}: {}", label.to_lowercase(), sanitize_line(&text)));
    has_other_input.then_some(note).into_iter().chain(rows).collect()
}

fn diff_lines(gate: &GateView) -> Vec<String> {
    let diff = gate.diff.iter().flat_map(|diff| diff.lines());
    let lines = diff.flat_map(|line| {
        // The rest of a long line is marked, since it could look like a line of the diff.
        let parts = wrap_line(&sanitize_line(line)).into_iter().enumerate();
        parts.map(|(index, part)| if index == 0 { part } else { format!("↪ {part}") })
    });
    lines.collect()
}

/// Formats the call's input as lines: an object field by field, any other value as JSON or text.
fn call_input_lines(value: &Value) -> Vec<String> {
    let mut lines = Vec::new();
    if let Value::Object(fields) = value {
        for (name, field) in fields {
            let text = json_text(field);
            let mut parts = text.lines().map(sanitize_line);
            let first = parts.next().unwrap_or_default();
            lines.push(format!("{}: {first}", sanitize_line(name)));
            lines.extend(parts.map(|part| format!("    {part}")));
        }
    } else {
        lines.extend(json_text(value).lines().map(sanitize_line));
    }
    lines.iter().flat_map(|line| wrap_line(line)).collect()
}

fn wrap_line(line: &str) -> Vec<String> {
    let chars: Vec<char> = line.chars().collect();
    if chars.is_empty() {
        return vec![String::new()];
    }
    chars.chunks(line_width()).map(|chunk| chunk.iter().collect()).collect()
}

/// Returns the longest short card that fits a terminal with its commands. `rows_of` returns the number
/// of rows of a line.
pub(crate) fn fitted_gate_card(gate: &GateView, rows_of: impl Fn(&str) -> usize) -> Vec<String> {
    let height = terminal::rows().saturating_sub(COMMAND_ROWS);
    let cards = (1..=SHORT).rev().map(|lines_max| gate_card(gate, lines_max));
    let mut cards = cards.skip_while(|card| {
        let rows: usize = card.iter().map(|line| rows_of(line)).sum();
        rows > height
    });
    cards.next().unwrap_or_else(|| gate_card(gate, 1))
}

/// Returns the number of columns for the text of a card.
fn line_width() -> usize {
    let margin = if terminal::is_narrow() { NARROW_MARGIN } else { MARGIN };
    match terminal::is_open() {
        true => terminal::columns().saturating_sub(margin).clamp(8, LINE_WIDTH),
        false => LINE_WIDTH,
    }
}

/// Returns whether the run's chain will approve the gate automatically. False if the gate is still
/// open long after that approval was due, because a pause of the run has stopped the approval.
pub(crate) fn will_chain_auto_approve(gate: &GateView) -> bool {
    let is_recent = |at: Timestamp| at.plus(AUTO_APPROVAL_DELAY_MAX) > SystemClock.now();
    gate.auto_approves_at.is_some_and(is_recent)
}

#[cfg(test)]
mod tests {
    use longhaul_api::gate::GateView;
    use serde_json::{Value, json};

    use super::{FULL, SHORT, gate_card};

    fn test_gate(facts: Value, diff: &str, edited_by: Option<&str>) -> GateView {
        let gate = json!({
            "id": "gate_00000000000000000000000001", "run": "run_00000000000000000000000001",
            "kind": "approval", "status": "open", "ask": "May it?", "reason": null,
            "tool": "edit_file", "input": null, "facts": facts, "diff": diff, "digest": null,
            "decisions": [], "pattern": null, "deadline": null, "on_timeout": "reject",
            "options": [], "approvers": 1, "edited_by": edited_by, "tags": [], "answers": [],
            "raised_at": "2026-01-01T00:00:00Z",
        });
        serde_json::from_value(gate).unwrap()
    }

    #[test]
    fn a_card_shows_effects_safely_and_says_what_is_omitted() {
        let facts =
            json!({ "network": ["a\u{1b}[2J.example"], "protected_paths": [".git\nundo: x"] });
        let diff = format!("+{}-forged\n{}", "x".repeat(75), "+y\n".repeat(30));
        let lines = gate_card(&test_gate(facts, &diff, Some("anna")), SHORT);
        let expected = [
            "  effects of the original input, before it was changed:",
            "  files: not known before the call",
            "  network: a·[2J.example",
            "  protected: .git·undo: x",
            "  undo: not known before the call",
            &format!("  ┊ +{}", "x".repeat(75)),
            "  ┊ ↪ -forged",
        ];
        assert_eq!(lines[0..7], expected);
        assert_eq!(lines.len(), SHORT, "{lines:#?}");
        let omitted_line =
            "  ┊ … 24 more lines: longhaul gates show gate_00000000000000000000000001";
        assert_eq!(lines[SHORT - 4], omitted_line);
        assert_eq!(lines[SHORT - 1], "  May it?");
    }

    #[test]
    fn a_card_shows_the_values_that_are_passed_on() {
        let mut view = test_gate(Value::Null, "", None);
        let value = format!("Hello.\n{}\u{1b}[8mtransfer", "\n".repeat(30));
        view.key = Some("pay:1\n2".to_owned());
        view.outputs = serde_json::from_value(json!([{
            "at": "/text", "call": "t1.1", "bytes": 5_000, "preview": value, "hash": "0".repeat(64),
        }]))
        .unwrap();
        let card = gate_card(&view, FULL);
        assert_eq!(card[1], "  key: pay:1·2");
        let size = format!("5000 bytes; only its first {} bytes are shown", value.len());
        assert!(
            card[3].starts_with(
                "  passes on an earlier result: the input at /text is the output of the call t1.1, "
            ),
            "{card:#?}"
        );
        assert!(card[3].contains(&size), "{card:#?}");
        assert_eq!(card[4], "  ┆ Hello.");
        assert!(card.iter().any(|line| line == "  ┆ ·[8mtransfer"), "{card:#?}");
        let card = gate_card(&view, SHORT);
        let is_omitted = |line: &String| line.starts_with("  ┆ … ") && line.contains("gates show");
        assert!(card.len() <= SHORT && card.iter().any(is_omitted), "{card:#?}");
    }

    #[test]
    fn unknown_effects_are_shown_as_unknown() {
        let lines = gate_card(&test_gate(Value::Null, "", None), FULL);
        assert_eq!(lines[1], "  effects: not known before the call");
        assert_eq!(lines[2], "  May it?");
    }
}
