//! Reads what an agent asks of the runtime: skills, a sandbox, guards, perception,
//! events.
//!
//! Never: judges whether a wish can be granted here; `later` does.

use std::collections::BTreeMap;

use longhaul_core::suggest;
use longhaul_engine::agent::Agent;
use longhaul_engine::agent::wish::{Every, Eye, Guards, Isolation, Sandboxed, Sight, Skill};

use crate::agents::program;
use crate::agents::sheet::{Fields, Sheet};
use crate::agents::shelf::Shelf;
use crate::agents::template::Names;
use crate::written::Entry;

/// All skills of the project.
const ALL: &str = "*";

/// What this build can't give a sandbox, since it makes none.
const SANDBOX_LATER: &[&str] = &[
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

const EVERY: &[(&str, Every)] = &[("run", Every::Run), ("turn", Every::Turn)];

/// The word for what is not looked after.
const OFF: &[(&str, ())] = &[("off", ())];

/// Reads all of these fields.
pub(crate) fn read(fields: &mut Fields<'_, '_>, agent: &mut Agent, shelf: &Shelf<'_>) {
    agent.skills = fields
        .read("skills", |sheet, entry| Some(skills(sheet, entry, shelf)))
        .unwrap_or_default();
    agent.sandbox = fields.read("sandbox", sandbox);
    agent.guards = fields.read("guards", guards);
    agent.perception = fields.read("perception", |sheet, entry| perception(sheet, entry, shelf));
    agent.events = fields.read("events", events).unwrap_or_default();
}

fn skills(sheet: &mut Sheet, entry: &Entry, shelf: &Shelf<'_>) -> Vec<Skill> {
    if entry.node.text() == Some(ALL) {
        return shelf.skills.to_vec();
    }
    let named = sheet.placed_texts(entry);
    if named.iter().any(|(_, name)| name == ALL) {
        return shelf.skills.to_vec();
    }
    let mut skills = Vec::new();
    for (place, name) in named {
        match skill(&name, shelf) {
            Ok(skill) => skills.push(skill),
            Err(message) => sheet.fault(place, message),
        }
    }
    skills
}

/// The skill of this name, or why it can't be had.
pub(crate) fn skill(name: &str, shelf: &Shelf<'_>) -> Result<Skill, String> {
    if let Some(skill) = shelf.skills.iter().find(|skill| skill.name == name) {
        return Ok(skill.clone());
    }
    if shelf.broken_skills.iter().any(|broken| broken == name) {
        return Err(format!(
            "the skill `{name}` can't be used: mend its SKILL.md first"
        ));
    }
    let known = shelf.skills.iter().map(|skill| skill.name.as_str());
    let known: Vec<&str> = known.collect();
    let way = match known.is_empty() {
        true => format!(": write skills/{name}/SKILL.md"),
        false => String::new(),
    };
    Err(format!("{}{way}", suggest::unknown("skill", name, &known)))
}

/// Reads a sandbox.
pub(crate) fn sandbox(sheet: &mut Sheet, entry: &Entry) -> Option<Sandboxed> {
    let mut fields = Fields::new(sheet, entry, "isolation")?;
    let isolation = fields.read("isolation", isolation);
    fields.later(SANDBOX_LATER);
    fields.end();
    Some(Sandboxed {
        isolation: isolation.unwrap_or_default(),
        ..Sandboxed::default()
    })
}

fn isolation(sheet: &mut Sheet, entry: &Entry) -> Option<Isolation> {
    let text = sheet.text(entry)?;
    if text == "none" {
        return Some(Isolation::None);
    }
    let message = format!(
        "`isolation: {text}` says nothing: leave it out for walls, or write `none` for a run without any"
    );
    sheet.fault(entry.node.place, message);
    None
}

fn guards(sheet: &mut Sheet, entry: &Entry) -> Option<Guards> {
    const NONE: Guards = Guards {
        identical_calls: None,
    };
    if entry.node.text().is_some() {
        return sheet.word(entry, OFF).map(|()| NONE);
    }
    let mut fields = Fields::new(sheet, entry, "identical_calls")?;
    let Some(calls) = fields.get("identical_calls") else {
        let message = "`guards` says nothing: write `identical_calls: 16`, or `guards: off`";
        fields.sheet.fault(entry.node.place, message);
        fields.end();
        return None;
    };
    let guards = match calls.node.text() {
        Some(_) => fields.sheet.word(calls, OFF).map(|()| NONE),
        None => fields.sheet.whole(calls, 2).map(|calls| Guards {
            identical_calls: Some(calls),
        }),
    };
    fields.end();
    guards
}

fn perception(sheet: &mut Sheet, entry: &Entry, shelf: &Shelf<'_>) -> Option<Sight> {
    let mut fields = Fields::new(sheet, entry, "command")?;
    let eye = match (fields.get("command"), fields.get("url")) {
        (Some(entry), None) => command(fields.sheet, entry, shelf),
        (None, Some(entry)) => url(fields.sheet, entry),
        (None, None) | (Some(_), Some(_)) => {
            let message = "`perception` needs one of `command` and `url`";
            fields.sheet.fault(entry.place, message);
            None
        }
    };
    let every = fields.read("every", |sheet, entry| sheet.word(entry, EVERY));
    fields.end();
    Some(Sight {
        eye: eye?,
        every: every.unwrap_or_default(),
    })
}

fn command(sheet: &mut Sheet, entry: &Entry, shelf: &Shelf<'_>) -> Option<Eye> {
    let elements = sheet.list(entry)?;
    // Every word is read before one that can't be ends this: each problem is told.
    let read: Vec<Option<String>> = elements.iter().map(|word| sheet.text(word)).collect();
    let words: Vec<String> = read.into_iter().collect::<Option<_>>()?;
    let (Some(first), Some(program)) = (elements.first(), words.first()) else {
        let message = "`command` names no program: write `command: [./look]`";
        sheet.fault(entry.node.place, message);
        return None;
    };
    program::look(sheet, first.place, program, shelf.root);
    Some(Eye::Command(words))
}

fn url(sheet: &mut Sheet, entry: &Entry) -> Option<Eye> {
    let text = sheet.text(entry)?;
    let read = reqwest::Url::parse(&text).ok();
    let right = |url: &reqwest::Url| matches!(url.scheme(), "http" | "https") && url.has_host();
    if !read.as_ref().is_some_and(right) {
        let message = "`url` is no address: write one that begins with http:// or https://";
        sheet.fault(entry.node.place, message);
        return None;
    }
    Some(Eye::Url(text))
}

fn events(sheet: &mut Sheet, entry: &Entry) -> Option<BTreeMap<String, String>> {
    const RIGHT: &str = "write `KIND: \"what the model reads\"`";
    let Some(events) = entry.node.table() else {
        sheet.fault(entry.node.place, format!("`events` is a table: {RIGHT}"));
        return None;
    };
    let mut read = BTreeMap::new();
    for event in events {
        if event.key.trim().is_empty() {
            sheet.fault(event.place, format!("an event has no kind: {RIGHT}"));
        } else if let Some(text) = sheet.template(event, Names::Any) {
            read.insert(event.key.clone(), text);
        }
    }
    Some(read)
}
