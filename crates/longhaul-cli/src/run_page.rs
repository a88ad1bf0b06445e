//! One run as a page for people: its status, details and result.

use longhaul_api::fork::ForkedFromView;
use longhaul_api::run::{GradingVerdictView, RunChainView, RunView, UsageView};
use longhaul_api::transcript::RunExplanation;
use longhaul_core::time::Millis;

use crate::event_printer::{first_line, verdict_text};
use crate::format::{format_duration, format_name_counts, format_usd, json_text};
use crate::run_status::StatusLabel;
use crate::sanitize;
use crate::style::{Styler, TextTone};

/// Number of characters of an agent's version that are shown.
const VERSION_CHARS: usize = 12;

/// Returns the lines of a run's page, with untrusted text made safe for a terminal.
pub(crate) fn render_run_page(
    run: &RunView,
    explanation: &RunExplanation,
    label: &StatusLabel,
) -> Vec<String> {
    let styler = Styler::for_stdout();
    let status = styler.apply_tone(label.tone, &label.text);
    let mut lines = vec![
        format!("{}  {}  {status}", run.id, sanitize::sanitize_line(&run.agent)),
        format!("  {}", sanitize::sanitize_line(&explanation.message)),
    ];
    // The command that prints this page is no help here.
    if !explanation.command.is_empty() && !explanation.command.starts_with("longhaul show") {
        lines.push(format!("    {}", explanation.command));
    }
    lines.push(String::new());
    let late = run.late.iter().map(|late| ("late", format!("{}: {}", late.call, late.text)));
    let verdicts =
        run.verdicts.iter().map(|GradingVerdictView { round, verdict, note, .. }| {
            ("outcome", format!("round {round}: {}: {note}", verdict_text(*verdict)))
        });
    for (name, value) in run_detail_rows(run).into_iter().chain(late).chain(verdicts) {
        let name = styler.apply_tone(TextTone::Dim, &format!("{name:<9}"));
        lines.push(format!("  {name} {}", sanitize::sanitize_line(&value)));
    }
    if let Some(output) = &run.output {
        lines.push(String::new());
        lines.push(sanitize::sanitize_text(&output.text));
        // The answer with which a person approved the result.
        if let Some(answer) = &output.answer {
            let verb = if answer.decision == "edit" { "edited" } else { "approved" };
            let note = answer.note.as_ref().map(|note| format!(": {note}")).unwrap_or_default();
            let payload = answer.payload.as_ref().map(|data| format!("   data {}", data.as_str()));
            let line = format!("  {verb} by {}{note}{}", answer.by, payload.unwrap_or_default());
            lines.push(sanitize::sanitize_line(&line));
        }
    }
    if let Some(error) = &run.error {
        lines.push(String::new());
        let (code, message) =
            (sanitize::sanitize_line(&error.code), sanitize::sanitize_text(&error.message));
        lines.push(format!("{code}: {message}"));
        if !error.hint.is_empty() {
            lines.push(format!("  {}", sanitize::sanitize_line(&error.hint)));
        }
    }
    lines
}

fn run_detail_rows(run: &RunView) -> Vec<(&'static str, String)> {
    let version = run.agent_version.to_string();
    let version = version.get(..VERSION_CHARS).unwrap_or(&version);
    let duration = |millis| format_duration(Millis(millis));
    let mut rows = vec![
        ("agent", format!("{} {version}", run.agent)),
        ("asked", first_line(&json_text(&run.input.to_value()))),
    ];
    if let Some(model) = &run.model {
        rows.push(("model", model.clone()));
    }
    let cap = run.budget.turns.map(|cap| format!(" of {cap}")).unwrap_or_default();
    rows.push(("turns", format!("{}{cap}", run.turns)));
    if !run.tools_called.is_empty() {
        rows.push(("tools", format_name_counts(&run.tools_called)));
    }
    rows.push(("tokens", token_usage_text(&run.usage)));
    rows.push(("cost", run_cost_text(run)));
    let (active, waiting) = (duration(run.active_ms), duration(run.waiting_ms));
    rows.push(("time", format!("{active} active, {waiting} waiting")));
    rows.push(("attempt", format_attempt_number(run)));
    rows.extend(run.retry_of.as_ref().map(|failed_run| {
        ("retry of", format!("{failed_run}, whose turns, tokens, cost and time are not shown here"))
    }));
    rows.extend(run.forked_from.as_ref().map(|origin| {
        let note = if origin.note.is_empty() { "" } else { ": " };
        let ForkedFromView { run, through, note: text } = origin;
        ("fork of", format!("{run} up to its event {through}{note}{text}"))
    }));
    let optional = [("lane", &run.lane), ("thread", &run.thread), ("resource", &run.resource)];
    for (name, value) in optional {
        rows.extend(value.clone().map(|value| (name, value)));
    }
    rows.extend(run.chain.as_ref().map(|chain| ("chain", chain_position_text(run, chain))));
    rows.extend(run.parent.map(|parent| ("parent", parent.to_string())));
    rows.extend(run.batch.map(|batch| ("batch", batch.to_string())));
    if !run.tags.is_empty() {
        rows.push(("tags", run.tags.join(", ")));
    }
    if !run.gates.is_empty() {
        let gates: Vec<String> = run.gates.iter().map(ToString::to_string).collect();
        rows.push(("gates", gates.join(", ")));
    }
    rows.push(("created", run.created_at.to_string()));
    rows.extend(run.finished_at.map(|at| ("finished", at.to_string())));
    rows
}

/// Describes the position of a run in its chain (a sequence of steps, each of which is a run), and
/// the state of the chain.
fn chain_position_text(run: &RunView, chain: &RunChainView) -> String {
    let chain_name = chain.name.as_deref().map(|name| format!("{name}, ")).unwrap_or_default();
    let newest_run_note = match chain.current == run.id {
        true => String::new(),
        false => format!(", newest run {}", chain.current),
    };
    let (step, step_count, status) = (chain.step, chain.of, chain.status.as_str());
    format!("{chain_name}step {step} of {step_count}; {status}{newest_run_note}")
}

/// Formats the number of the run's attempt, and the numbers of model retries, tool retries and
/// takeovers by another worker, which do not count as attempts.
fn format_attempt_number(run: &RunView) -> String {
    let mut text = run.attempt.to_string();
    for (count, name) in [
        (run.retries.model_calls, "model retries"),
        (run.retries.tool_calls, "tool retries"),
        (run.retries.takeovers, "takeovers"),
    ] {
        if count > 0 {
            text.push_str(&format!(", {name}: {count}"));
        }
    }
    text
}

/// Formats all token counts that cost money, so that the cost can be verified by hand.
fn token_usage_text(usage: &UsageView) -> String {
    let mut text = format!("{} in, {} out", usage.input_tokens, usage.output_tokens);
    for (tokens, preposition) in [(usage.cached_tokens, "from"), (usage.cache_write_tokens, "to")] {
        if tokens > 0 {
            text.push_str(&format!(", {tokens} {preposition} cache"));
        }
    }
    text
}

fn run_cost_text(run: &RunView) -> String {
    let is_scripted = run.model.as_deref().is_some_and(|model| model.starts_with("scripted/"));
    if is_scripted {
        return "$0.00 (scripted)".to_owned();
    }
    let cap = run.budget.usd.map(|cap| format_usd(Some(cap)));
    match (run.cost_usd, cap) {
        (Some(usd), Some(cap)) => format!("{} of {cap}", format_usd(Some(usd))),
        (Some(usd), None) => format_usd(Some(usd)),
        (None, Some(cap)) => {
            format!(
                "unknown: the model has no price, so the budget of {cap} does not limit the run"
            )
        }
        (None, None) => "unknown: the model has no price".to_owned(),
    }
}
