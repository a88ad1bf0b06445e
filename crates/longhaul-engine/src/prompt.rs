//! Builds the system prompt of a run from its sections.
//!
//! Invariant: the order of the sections is fixed, and what changes from run to run comes last, so
//! that providers can cache the part before it.

pub(crate) mod event_text;
pub(crate) mod grading;
mod identifiers;
pub(crate) mod setup;
pub(crate) mod summary;
mod thread_window;

use longhaul_core::duration::format_duration;
use longhaul_core::policy::budget::Budget;
use longhaul_core::port::model::CURRENT_STATE_HEADING;
use longhaul_core::raw::RawJson;
use longhaul_core::time::Timestamp;
use longhaul_run::Run;
use serde_json::Value;

use crate::agent::config::Skill;
use crate::tools::output_schema::OutputSchema;

/// Maximum size in bytes of the state of the world (what the agent works with) in a prompt. The
/// rest is left out.
const WORLD_BYTES_MAX: usize = 32 * 1024;

/// Heading of the message with which the model gets a new state of the world (what the agent works
/// with) during a run.
pub(crate) const WORLD_UPDATE_HEADING: &str = "[longhaul] The world around you, as it is now:\n\n";

/// Maximum size of an output schema in the prompt, in bytes. A longer schema is only in the spec of
/// `finish`.
const SCHEMA_BYTES_MAX: usize = 4 * 1024;

/// The sections of a system prompt. Empty sections are left out.
#[derive(Debug)]
pub(crate) struct PromptSections<'a> {
    /// Prompt from the agent file, rendered for this run.
    pub(crate) identity: &'a str,
    /// State of the world (what the agent works with) from the context provider. `None` if there is
    /// no state, or if the agent's prompt already contains it.
    pub(crate) world: Option<&'a RawJson>,
    /// Skills that the agent can read.
    pub(crate) skills: &'a [Skill],
    /// Whether the agent can save and search notes.
    pub(crate) notes: bool,
    /// Instructions from the `AGENTS.md` file of the project folder.
    pub(crate) rules: &'a str,
    /// Output schema of the agent.
    pub(crate) output_schema: Option<&'a OutputSchema>,
    /// Kind of the event that started the run. `None` if a task started it.
    pub(crate) event: Option<&'a str>,
    /// Current time, shown to the model.
    pub(crate) now: Timestamp,
}

impl PromptSections<'_> {
    pub(crate) fn render_system_prompt(&self, run: &Run) -> String {
        let mut text = self.identity.trim_end().to_owned();
        let mut add = |heading: &str, content: &str| {
            let separator = if text.is_empty() { "" } else { "\n\n" };
            text.push_str(&format!("{separator}## {heading}\n\n{content}"));
        };
        if let Some(world) = self.world {
            add("The world around you", &format_world_state(world));
        }
        if !self.skills.is_empty() {
            add("Skills", &skills_text(self.skills));
        }
        if self.notes {
            add("Memory", MEMORY_INSTRUCTIONS);
        }
        if !self.rules.trim().is_empty() {
            add("Rules", self.rules.trim());
        }
        let separator = if text.is_empty() { "" } else { "\n\n" };
        text.push_str(separator);
        text.push_str(CURRENT_STATE_HEADING);
        for line in self.run_state_lines(run) {
            text.push('\n');
            text.push_str(&line);
        }
        text
    }

    /// Returns the lines of the prompt about the state of the run: agent, conversation, limits,
    /// time.
    fn run_state_lines(&self, run: &Run) -> Vec<String> {
        let task = run.task();
        let mut lines = vec![
            format!("- Now: {}.", format_time(self.now)),
            format!("- You are the agent `{}` in {}.", task.agent, run.id()),
        ];
        match (&task.thread, &task.resource) {
            (Some(thread), Some(resource)) => {
                lines.push(format!("- This is the conversation `{thread}`, about `{resource}`."))
            }
            (Some(thread), None) => lines.push(format!("- This is the conversation `{thread}`.")),
            (None, Some(resource)) => lines.push(format!("- This run is about `{resource}`.")),
            (None, None) => {}
        }
        if let Some(event) = self.event {
            lines.push(format!("- This run was started by the event `{event}`."));
        }
        if let Some(limits) = limits_text(&run.control().budget.caps, task.policy.max_turns) {
            lines.push(format!("- Your limits: {limits}."));
        }
        if let Some(output_schema) = self.output_schema {
            lines.push(result_instructions(output_schema));
        }
        lines
    }
}

const MEMORY_INSTRUCTIONS: &str = "Your notes outlive this run: `remember` saves a note, `recall` finds saved \
    notes. Search them before you ask for something that you may already know.";

/// Formats the state of the world (what the agent works with) for the model: text as it is,
/// anything else as JSON. The field `summary` of an object comes first.
pub(crate) fn format_world_state(world: &RawJson) -> String {
    let value = world.to_value();
    let text = match (&value, value.get("summary").and_then(Value::as_str)) {
        (Value::String(text), _) => text.clone(),
        (_, Some(summary)) => format!("{summary}\n\n{}", world.as_str()),
        (_, None) => world.as_str().to_owned(),
    };
    if text.len() <= WORLD_BYTES_MAX {
        return text;
    }
    let shown = &text[..text.floor_char_boundary(WORLD_BYTES_MAX)];
    let omitted = text.len() - shown.len();
    format!("{shown}\n\n[longhaul] {omitted} more bytes are left out here.")
}

fn skills_text(skills: &[Skill]) -> String {
    let rows = skills.iter().map(|skill| {
        let parts: Vec<&str> = skill.description.split_whitespace().collect();
        format!("- `{}`: {}", skill.name, parts.join(" "))
    });
    let rows: Vec<String> = rows.collect();
    format!(
        "Instructions for specific kinds of work. When one of these fits your task, \
         read it first with `read_skill`.\n\n{}",
        rows.join("\n")
    )
}

/// Formats a time for the model, to the minute and with the day of the week.
fn format_time(now: Timestamp) -> String {
    jiff::Timestamp::from_microsecond(now.as_micros()).map_or_else(
        |_| now.to_string(),
        |now| now.strftime("%Y-%m-%d %H:%M UTC, a %A").to_string(),
    )
}

/// Formats the limits of a run for the model. `None` if the run has no limits.
fn limits_text(caps: &Budget, max_turns: Option<u32>) -> Option<String> {
    // Rounded down: the model must not count on more than there is.
    let cents = caps.micro_usd.map(|micros| micros.0 / 10_000);
    let money = cents.map(|cents| format!("${}.{:02}", cents / 100, cents % 100));
    let tokens = caps.tokens.map(|tokens| format!("{tokens} tokens"));
    let turns = caps.turns.into_iter().chain(max_turns).min();
    let turns = turns.map(|allowed| format!("{allowed} turns"));
    let active = caps.active.map(|duration| format!("{} of work", format_duration(duration)));
    let all: Vec<String> = [turns, money, tokens, active].into_iter().flatten().collect();
    (!all.is_empty()).then(|| all.join(", "))
}

/// Returns the lines of the prompt that tell the model how to give a result that matches the
/// schema.
fn result_instructions(output_schema: &OutputSchema) -> String {
    let schema = output_schema.schema();
    let requirement = match schema.as_str().len() {
        0..=SCHEMA_BYTES_MAX => format!("matches this JSON Schema: {}", schema.as_str()),
        _ => "matches the schema of the tool `finish`".to_owned(),
    };
    format!(
        "- Your result must be data that {requirement}\n- End with the tool `finish`, with that \
         data as its `output`; an answer that is only the JSON is accepted, too."
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prompt_times_are_rounded_to_the_minute() {
        let parse_and_format = |text: &str| format_time(text.parse().unwrap());
        assert_eq!(parse_and_format("1970-01-01T00:00:59Z"), "1970-01-01 00:00 UTC, a Thursday");
        assert_eq!(parse_and_format("2026-11-15T15:23:58Z"), "2026-11-15 15:23 UTC, a Sunday");
        assert_eq!(parse_and_format("1969-12-31T23:00:00Z"), "1969-12-31 23:00 UTC, a Wednesday");
    }

    #[test]
    fn run_limits_are_rendered_as_text() {
        let text = limits_text(&Budget::PROJECT_DEFAULT, Some(6));
        assert_eq!(text.as_deref(), Some("6 turns, $5.00, 4h of work"));
        assert_eq!(limits_text(&Budget::default(), None), None);
    }

    #[test]
    fn a_long_perceived_state_is_truncated() {
        let render = |world: Value| format_world_state(&RawJson::from_serialize(&world));
        assert_eq!(render("It rains.".into()), "It rains.");
        let cave = RawJson::parse(r#"{"exits":2,"summary":"A cave."}"#).unwrap();
        let expected = "A cave.\n\n{\"exits\":2,\"summary\":\"A cave.\"}";
        assert_eq!(format_world_state(&cave), expected);
        let long = render("ü".repeat(WORLD_BYTES_MAX).into());
        assert!(long.ends_with("[longhaul] 32768 more bytes are left out here."));
    }
}
