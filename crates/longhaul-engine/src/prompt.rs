//! The system prompt, section by section: who the agent is, what its world is like,
//! what it can read, what binds it, and how things stand.
//!
//! Never: the same words in another order. What changes from run to run comes last,
//! so that what stands before it stays in the caches of providers.

use longhaul_core::policy::budget::Budget;
use longhaul_core::port::model::CURRENT_STATE_HEADING;
use longhaul_core::raw::RawJson;
use longhaul_core::time::{Millis, Timestamp};
use longhaul_run::Run;
use serde_json::Value;

use crate::agent::config::Skill;
use crate::output_schema::OutputSchema;

/// So much of a world is shown.
const WORLD_BYTES_MAX: usize = 32 * 1024;

/// What begins the words about a world that was looked at again.
pub(crate) const WORLD_UPDATE_HEADING: &str = "[longhaul] The world around you, as it is now:\n\n";

/// A schema that is longer is not written out: the tool `finish` has it.
const SCHEMA_BYTES_MAX: usize = 4 * 1024;

/// What a prompt is made of. Each section stands in it only when it says something.
#[derive(Debug)]
pub(crate) struct PromptSections<'a> {
    /// The agent's own words, filled in.
    pub(crate) identity: &'a str,
    /// The world, unless the agent's own words speak of it.
    pub(crate) world: Option<&'a RawJson>,
    /// What it may read up.
    pub(crate) skills: &'a [Skill],
    /// Whether it can keep notes, and find them again.
    pub(crate) notes: bool,
    /// The rules of the folder that it works in.
    pub(crate) rules: &'a str,
    /// What its result must be.
    pub(crate) output_schema: Option<&'a OutputSchema>,
    /// The kind of event that made the run.
    pub(crate) event: Option<&'a str>,
    /// The time.
    pub(crate) now: Timestamp,
}

impl PromptSections<'_> {
    /// The prompt of this run.
    pub(crate) fn render(&self, run: &Run) -> String {
        let mut text = self.identity.trim_end().to_owned();
        let mut add = |heading: &str, words: &str| {
            let gap = if text.is_empty() { "" } else { "\n\n" };
            text.push_str(&format!("{gap}## {heading}\n\n{words}"));
        };
        if let Some(world) = self.world {
            add("The world around you", &world_text(world));
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
        let gap = if text.is_empty() { "" } else { "\n\n" };
        text.push_str(gap);
        text.push_str(CURRENT_STATE_HEADING);
        for line in self.state_lines(run) {
            text.push('\n');
            text.push_str(&line);
        }
        text
    }

    /// How things stand, a line for each.
    fn state_lines(&self, run: &Run) -> Vec<String> {
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
            (None, Some(resource)) => lines.push(format!("- This is about `{resource}`.")),
            (None, None) => {}
        }
        if let Some(event) = self.event {
            lines.push(format!("- An event made this run: `{event}`."));
        }
        if let Some(limits) = limits_text(&run.control().caps, task.policy.max_turns) {
            lines.push(format!("- Your limits: {limits}."));
        }
        if let Some(contract) = self.output_schema {
            lines.push(result_instructions(contract));
        }
        lines
    }
}

const MEMORY_INSTRUCTIONS: &str = "Your notes outlive this run: `remember` keeps one, `recall` finds what you \
    kept before. Look there before you ask for what you may know already.";

/// A world in words: a text as it is, a summary before the rest, anything else as JSON.
pub(crate) fn world_text(world: &RawJson) -> String {
    let whole = match world.to_value() {
        Value::String(text) => text,
        Value::Object(fields) => match fields.get("summary").and_then(Value::as_str) {
            Some(summary) => format!("{summary}\n\n{}", world.as_str()),
            None => world.as_str().to_owned(),
        },
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Array(_) => {
            world.as_str().to_owned()
        }
    };
    if whole.len() <= WORLD_BYTES_MAX {
        return whole;
    }
    let shown = &whole[..whole.floor_char_boundary(WORLD_BYTES_MAX)];
    let left = whole.len() - shown.len();
    format!("{shown}\n\n[longhaul] {left} bytes more are left out here.")
}

fn skills_text(skills: &[Skill]) -> String {
    let rows =
        skills.iter().map(|skill| format!("- `{}`: {}", skill.name, one_line(&skill.description)));
    let rows: Vec<String> = rows.collect();
    format!(
        "What others have found out about doing things well. When one of these fits the work, \
         read it first with `read_skill`.\n\n{}",
        rows.join("\n")
    )
}

fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// A time as people say it, to the minute.
fn format_time(now: Timestamp) -> String {
    const DAYS: [&str; 7] =
        ["Thursday", "Friday", "Saturday", "Sunday", "Monday", "Tuesday", "Wednesday"];
    let text = now.to_string();
    let Some((date, time)) = text.split_once('T') else {
        return text;
    };
    // The first day of 1970 was a Thursday.
    let day = now.as_micros().div_euclid(86_400_000_000).rem_euclid(7);
    let day = DAYS[usize::try_from(day).unwrap_or_default()];
    let time = time.get(..5).unwrap_or(time);
    format!("{date} {time} UTC, a {day}")
}

/// What a run may use up, in words; none: nothing binds it.
fn limits_text(caps: &Budget, max_turns: Option<u32>) -> Option<String> {
    let turns = match (caps.turns, max_turns) {
        (Some(a), Some(b)) => Some(a.min(b)),
        (a, b) => a.or(b),
    };
    let money = caps.micro_usd.map(|micros| {
        let cents = micros.0 / 10_000;
        format!("${}.{:02}", cents / 100, cents % 100)
    });
    let tokens = caps.tokens.map(|tokens| format!("{tokens} tokens"));
    let turns = turns.map(|turns| format!("{turns} turns"));
    let active = caps.active.map(|span| format!("{} of work", format_duration(span)));
    let all = [turns, money, tokens, active].into_iter().flatten();
    let all: Vec<String> = all.collect();
    (!all.is_empty()).then(|| all.join(", "))
}

fn format_duration(span: Millis) -> String {
    let seconds = span.0 / 1_000;
    match (seconds / 3_600, seconds / 60 % 60, seconds % 60) {
        (0, 0, seconds) => format!("{seconds} s"),
        (0, minutes, _) => format!("{minutes} min"),
        (hours, 0, _) => format!("{hours} h"),
        (hours, minutes, _) => format!("{hours} h {minutes} min"),
    }
}

/// What the result must be.
fn result_instructions(contract: &OutputSchema) -> String {
    let schema = contract.schema();
    let fits = match schema.as_str().len() {
        0..=SCHEMA_BYTES_MAX => format!("fits this JSON Schema: {}", schema.as_str()),
        _ => "fits the schema of the tool `finish`".to_owned(),
    };
    format!(
        "- Your result is data that {fits}\n- End with the tool `finish`, with that data as its \
         `output`; an answer that is nothing but the JSON is taken too."
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prompt_times_are_rounded_to_the_minute() {
        let at = |text: &str| format_time(text.parse().unwrap());
        assert_eq!(at("1970-01-01T00:00:59Z"), "1970-01-01 00:00 UTC, a Thursday");
        assert_eq!(at("2026-11-15T15:23:58Z"), "2026-11-15 15:23 UTC, a Sunday");
        assert_eq!(at("1969-12-31T23:00:00Z"), "1969-12-31 23:00 UTC, a Wednesday");
    }

    #[test]
    fn limits_are_rendered_as_text() {
        let said = limits_text(&Budget::PROJECT_DEFAULT, Some(6));
        assert_eq!(said.as_deref(), Some("6 turns, $5.00, 4 h of work"));
        assert_eq!(limits_text(&Budget::default(), None), None);
        assert_eq!(format_duration(Millis::from_secs(5_400)), "1 h 30 min");
    }

    #[test]
    fn a_long_world_is_truncated() {
        let words = |world: Value| world_text(&RawJson::from_serialize(&world));
        assert_eq!(words("It rains.".into()), "It rains.");
        let cave = RawJson::parse(r#"{"exits":2,"summary":"A cave."}"#).unwrap();
        let told = "A cave.\n\n{\"exits\":2,\"summary\":\"A cave.\"}";
        assert_eq!(world_text(&cave), told);
        let long = words("ü".repeat(WORLD_BYTES_MAX).into());
        assert!(long.ends_with("[longhaul] 32768 bytes more are left out here."));
    }
}
