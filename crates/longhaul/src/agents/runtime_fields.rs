//! Reads what an agent asks of the runtime: skills, a sandbox, guards, perception,
//! events.
//!
//! Never: judges whether a wish can be granted here; `later` does.

use std::collections::BTreeMap;

use longhaul_core::suggest;
use longhaul_engine::agent::Agent;
use longhaul_engine::agent::config::{
    Isolation, LoopGuardConfig, PerceptionConfig, PerceptionInterval, PerceptionSource,
    SandboxConfig, Skill,
};

use crate::agents::diagnostics::{Diagnostics, FieldReader};
use crate::agents::executable;
use crate::agents::load_context::LoadContext;
use crate::agents::template::AllowedNames;
use crate::spanned::TableEntry;

/// All skills of the project.
const ALL_SKILLS: &str = "*";

/// What this build can't give a sandbox, since it makes none.
const UNSUPPORTED_SANDBOX_FIELDS: &[&str] = &[
    "provider",
    "image",
    "network",
    "cache",
    "min_isolation",
    "idle_stop",
    "auto_stop",
    "keep",
    "volume",
    "env_file",
];

const PERCEPTION_INTERVALS: &[(&str, PerceptionInterval)] =
    &[("run", PerceptionInterval::Run), ("turn", PerceptionInterval::Turn)];

/// The word for what is not looked after.
const OFF: &[(&str, ())] = &[("off", ())];

/// Reads all of these fields.
pub(crate) fn parse(fields: &mut FieldReader<'_, '_>, agent: &mut Agent, shelf: &LoadContext<'_>) {
    agent.skills = fields
        .parse("skills", |sheet, entry| Some(parse_skills(sheet, entry, shelf)))
        .unwrap_or_default();
    agent.sandbox = fields.parse("sandbox", parse_sandbox);
    agent.guards = fields.parse("guards", parse_guards);
    agent.perception =
        fields.parse("perception", |sheet, entry| parse_perception(sheet, entry, shelf));
    agent.events = fields.parse("events", parse_events).unwrap_or_default();
}

fn parse_skills(
    sheet: &mut Diagnostics,
    entry: &TableEntry,
    shelf: &LoadContext<'_>,
) -> Vec<Skill> {
    if entry.node.text() == Some(ALL_SKILLS) {
        return shelf.skills.to_vec();
    }
    let named = sheet.texts_with_positions(entry);
    if named.iter().any(|(_, name)| name == ALL_SKILLS) {
        return shelf.skills.to_vec();
    }
    let mut skills = Vec::new();
    for (place, name) in named {
        match find_skill(&name, shelf) {
            Ok(skill) => skills.push(skill),
            Err(message) => sheet.invalid(place, message),
        }
    }
    skills
}

/// The skill of this name, or why it can't be had.
pub(crate) fn find_skill(name: &str, shelf: &LoadContext<'_>) -> Result<Skill, String> {
    if let Some(skill) = shelf.skills.iter().find(|skill| skill.name == name) {
        return Ok(skill.clone());
    }
    if shelf.broken_skills.iter().any(|broken| broken == name) {
        return Err(format!("the skill `{name}` can't be used: mend its SKILL.md first"));
    }
    let known = shelf.skills.iter().map(|skill| skill.name.as_str());
    let known: Vec<&str> = known.collect();
    let way = match known.is_empty() {
        true => format!(": write skills/{name}/SKILL.md"),
        false => String::new(),
    };
    Err(format!("{}{way}", suggest::unknown_message("skill", name, &known)))
}

/// Reads a sandbox.
pub(crate) fn parse_sandbox(sheet: &mut Diagnostics, entry: &TableEntry) -> Option<SandboxConfig> {
    let mut fields = FieldReader::new(sheet, entry, "isolation")?;
    let isolation = fields.parse("isolation", parse_isolation);
    fields.unsupported(UNSUPPORTED_SANDBOX_FIELDS);
    fields.finish();
    Some(SandboxConfig { isolation: isolation.unwrap_or_default(), ..SandboxConfig::default() })
}

fn parse_isolation(sheet: &mut Diagnostics, entry: &TableEntry) -> Option<Isolation> {
    let text = sheet.text(entry)?;
    if text == "none" {
        return Some(Isolation::None);
    }
    let message = format!(
        "`isolation: {text}` says nothing: leave it out for walls, or write `none` for a run without any"
    );
    sheet.invalid(entry.node.position, message);
    None
}

fn parse_guards(sheet: &mut Diagnostics, entry: &TableEntry) -> Option<LoopGuardConfig> {
    const NO_GUARDS: LoopGuardConfig = LoopGuardConfig { identical_calls: None };
    if entry.node.text().is_some() {
        return sheet.one_of(entry, OFF).map(|()| NO_GUARDS);
    }
    let mut fields = FieldReader::new(sheet, entry, "identical_calls")?;
    let Some(calls) = fields.get("identical_calls") else {
        let message = "`guards` says nothing: write `identical_calls: 16`, or `guards: off`";
        fields.diagnostics.invalid(entry.node.position, message);
        fields.finish();
        return None;
    };
    let guards = match calls.node.text() {
        Some(_) => fields.diagnostics.one_of(calls, OFF).map(|()| NO_GUARDS),
        None => fields
            .diagnostics
            .integer(calls, 2)
            .map(|calls| LoopGuardConfig { identical_calls: Some(calls) }),
    };
    fields.finish();
    guards
}

fn parse_perception(
    sheet: &mut Diagnostics,
    entry: &TableEntry,
    shelf: &LoadContext<'_>,
) -> Option<PerceptionConfig> {
    let mut fields = FieldReader::new(sheet, entry, "command")?;
    let eye = match (fields.get("command"), fields.get("url")) {
        (Some(entry), None) => parse_command(fields.diagnostics, entry, shelf),
        (None, Some(entry)) => parse_url(fields.diagnostics, entry),
        (None, None) | (Some(_), Some(_)) => {
            let message = "`perception` needs one of `command` and `url`";
            fields.diagnostics.invalid(entry.position, message);
            None
        }
    };
    let every = fields.parse("every", |sheet, entry| sheet.one_of(entry, PERCEPTION_INTERVALS));
    fields.finish();
    Some(PerceptionConfig { source: eye?, every: every.unwrap_or_default() })
}

fn parse_command(
    sheet: &mut Diagnostics,
    entry: &TableEntry,
    shelf: &LoadContext<'_>,
) -> Option<PerceptionSource> {
    let elements = sheet.list(entry)?;
    // Every word is read before one that can't be ends this: each problem is told.
    let read: Vec<Option<String>> = elements.iter().map(|word| sheet.text(word)).collect();
    let words: Vec<String> = read.into_iter().collect::<Option<_>>()?;
    let (Some(first), Some(program)) = (elements.first(), words.first()) else {
        let message = "`command` names no program: write `command: [./look]`";
        sheet.invalid(entry.node.position, message);
        return None;
    };
    executable::check(sheet, first.position, program, shelf.root);
    Some(PerceptionSource::Command(words))
}

fn parse_url(sheet: &mut Diagnostics, entry: &TableEntry) -> Option<PerceptionSource> {
    let text = sheet.text(entry)?;
    let read = reqwest::Url::parse(&text).ok();
    let right = |url: &reqwest::Url| matches!(url.scheme(), "http" | "https") && url.has_host();
    if !read.as_ref().is_some_and(right) {
        let message = "`url` is no address: write one that begins with http:// or https://";
        sheet.invalid(entry.node.position, message);
        return None;
    }
    Some(PerceptionSource::Url(text))
}

fn parse_events(sheet: &mut Diagnostics, entry: &TableEntry) -> Option<BTreeMap<String, String>> {
    const EXPECTED_FORM: &str = "write `KIND: \"what the model reads\"`";
    let Some(events) = entry.node.table() else {
        sheet.invalid(entry.node.position, format!("`events` is a table: {EXPECTED_FORM}"));
        return None;
    };
    let mut read = BTreeMap::new();
    for event in events {
        if event.key.trim().is_empty() {
            sheet.invalid(event.position, format!("an event has no kind: {EXPECTED_FORM}"));
        } else if let Some(text) = sheet.template(event, AllowedNames::Any) {
            read.insert(event.key.clone(), text);
        }
    }
    Some(read)
}
