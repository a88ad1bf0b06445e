//! One run as a page for people: how it stands, the facts, and what came of it.
//!
//! Never: a figure without its unit, or a number that nobody knows.

use longhaul_api::run::{RunView, UsageView};
use longhaul_api::why::WhyView;
use longhaul_core::time::Millis;

use crate::event_printer::first_line;
use crate::format::{format_counts, format_duration, format_usd};
use crate::sanitize;
use crate::status_label::StatusLabel;
use crate::style::{Styler, Tone};

/// So many letters of an agent's version stand on the page.
const VERSION_CHARS: usize = 12;

/// The lines of a run's page, safe for a terminal.
pub(crate) fn render(run: &RunView, why: &WhyView, stands: &StatusLabel) -> Vec<String> {
    let paint = Styler::for_stdout();
    let head = paint.apply(stands.tone, &stands.text);
    let mut lines = vec![
        format!("{}  {}  {head}", run.id, sanitize::line(&run.agent)),
        format!("  {}", sanitize::line(&why.message)),
    ];
    // What this page itself is, is no help.
    if !why.command.is_empty() && !why.command.starts_with("longhaul show") {
        lines.push(format!("    {}", why.command));
    }
    lines.push(String::new());
    for (name, value) in detail_rows(run) {
        let name = paint.apply(Tone::Dim, &format!("{name:<9}"));
        lines.push(format!("  {name} {}", sanitize::line(&value)));
    }
    if let Some(output) = &run.output {
        lines.push(String::new());
        lines.push(sanitize::text(&output.text));
    }
    if let Some(error) = &run.error {
        lines.push(String::new());
        let (code, message) = (sanitize::line(&error.code), sanitize::text(&error.message));
        lines.push(format!("{code}: {message}"));
        if !error.hint.is_empty() {
            lines.push(format!("  {}", sanitize::line(&error.hint)));
        }
    }
    lines
}

fn detail_rows(run: &RunView) -> Vec<(&'static str, String)> {
    let version = run.agent_version.to_string();
    let version = version.get(..VERSION_CHARS).unwrap_or(&version);
    let span = |millis| format_duration(Millis(millis));
    let mut facts = vec![
        ("agent", format!("{} {version}", run.agent)),
        ("asked", first_line(&input_text(run))),
    ];
    if let Some(model) = &run.model {
        facts.push(("model", model.clone()));
    }
    facts.push(("turns", used_of_cap(run.turns.into(), run.budget.turns.map(u64::from))));
    if !run.tools_called.is_empty() {
        facts.push(("tools", format_counts(&run.tools_called)));
    }
    facts.push(("tokens", tokens_text(&run.usage)));
    facts.push(("cost", cost_text(run)));
    let (active, waiting) = (span(run.active_ms), span(run.waiting_ms));
    facts.push(("time", format!("{active} active, {waiting} waiting")));
    facts.push(("attempt", run.attempt.to_string()));
    let optional = [("lane", &run.lane), ("thread", &run.thread), ("resource", &run.resource)];
    for (name, value) in optional {
        facts.extend(value.clone().map(|value| (name, value)));
    }
    facts.extend(run.parent.map(|parent| ("parent", parent.to_string())));
    if !run.tags.is_empty() {
        facts.push(("tags", run.tags.join(", ")));
    }
    if !run.gates.is_empty() {
        let gates: Vec<String> = run.gates.iter().map(ToString::to_string).collect();
        facts.push(("gates", gates.join(", ")));
    }
    facts.push(("created", run.created_at.to_string()));
    facts.extend(run.finished_at.map(|at| ("finished", at.to_string())));
    facts
}

/// What was asked, in words.
fn input_text(run: &RunView) -> String {
    match run.input.to_value() {
        serde_json::Value::String(text) => text,
        other @ (serde_json::Value::Null
        | serde_json::Value::Bool(_)
        | serde_json::Value::Number(_)
        | serde_json::Value::Array(_)
        | serde_json::Value::Object(_)) => other.to_string(),
    }
}

fn used_of_cap(used: u64, cap: Option<u64>) -> String {
    match cap {
        Some(cap) => format!("{used} of {cap}"),
        None => used.to_string(),
    }
}

/// All tokens that cost something, so that a cost can be reckoned by hand.
fn tokens_text(usage: &UsageView) -> String {
    let mut said = format!("{} in, {} out", usage.input_tokens, usage.output_tokens);
    for (count, way) in [(usage.cached_tokens, "from"), (usage.cache_write_tokens, "to")] {
        if count > 0 {
            said.push_str(&format!(", {count} {way} a cache"));
        }
    }
    said
}

fn cost_text(run: &RunView) -> String {
    let scripted = run.model.as_deref().is_some_and(|model| model.starts_with("scripted/"));
    if scripted {
        return "$0.00 (scripted)".to_owned();
    }
    let cap = run.budget.usd.map(|cap| format_usd(Some(cap)));
    match (run.cost_usd, cap) {
        (Some(usd), Some(cap)) => format!("{} of {cap}", format_usd(Some(usd))),
        (Some(usd), None) => format_usd(Some(usd)),
        (None, Some(cap)) => {
            format!("not known: the model has no price here, and the budget of {cap} can't hold it")
        }
        (None, None) => "not known: the model has no price here".to_owned(),
    }
}
