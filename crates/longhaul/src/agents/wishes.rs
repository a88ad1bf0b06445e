//! Reads what an agent asks of the runtime: skills, a sandbox, guards, perception,
//! events.
//!
//! Never: judges whether a wish can be granted here; `later` does.

use longhaul_engine::agent::Agent;
use longhaul_engine::agent::wish::{Every, Eye, Guards, Isolation, Sandboxed, Sight, Skill};

use crate::agents::program;
use crate::agents::sheet::{Fields, Sheet};
use crate::agents::shelf::Shelf;
use crate::agents::template::Names;
use crate::like;
use crate::written::{Content, Entry, Place};

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

/// Reads all of these fields.
pub(crate) fn read(sheet: &mut Sheet, agent: &mut Agent, fields: &Fields<'_>, shelf: &Shelf<'_>) {
    if let Some(entry) = fields.get("skills") {
        agent.skills = skills(sheet, entry, shelf);
    }
    if let Some(entry) = fields.get("sandbox") {
        agent.sandbox = sandbox(sheet, entry);
    }
    if let Some(entry) = fields.get("guards") {
        agent.guards = guards(sheet, entry);
    }
    if let Some(entry) = fields.get("perception") {
        agent.perception = perception(sheet, entry, shelf);
    }
    if let Some(entry) = fields.get("events") {
        events(sheet, agent, entry);
    }
}

fn skills(sheet: &mut Sheet, entry: &Entry, shelf: &Shelf<'_>) -> Vec<Skill> {
    let named = match &entry.node.content {
        Content::Text(text) if text == ALL => vec![(entry.node.place, ALL.to_owned())],
        Content::Text(_)
        | Content::Nothing
        | Content::Flag(_)
        | Content::Whole(_)
        | Content::Real(_)
        | Content::List(_)
        | Content::Table(_) => sheet.texts(entry),
    };
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
    let known: Vec<&str> = shelf
        .skills
        .iter()
        .map(|skill| skill.name.as_str())
        .collect();
    let way = match known.is_empty() {
        true => format!(": write skills/{name}/SKILL.md"),
        false => String::new(),
    };
    Err(format!("{}{way}", like::unknown("skill", name, &known)))
}

/// Reads a sandbox.
pub(crate) fn sandbox(sheet: &mut Sheet, entry: &Entry) -> Option<Sandboxed> {
    let fields = sheet.table(entry, &[&["isolation"], SANDBOX_LATER].concat())?;
    sheet.all_later(&fields, SANDBOX_LATER);
    let isolation = fields.get("isolation");
    let isolation = isolation.and_then(|entry| self::isolation(sheet, entry));
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
    if matches!(entry.node.content, Content::Text(_)) {
        let off = sheet.word(entry, &[("off", ())]);
        return off.map(|()| Guards {
            identical_calls: None,
        });
    }
    let fields = sheet.table(entry, &["identical_calls"])?;
    let Some(calls) = fields.get("identical_calls") else {
        let message = "`guards` says nothing: write `identical_calls: 16`, or `guards: off`";
        sheet.fault(entry.node.place, message);
        return None;
    };
    let identical_calls = match &calls.node.content {
        Content::Text(_) => {
            sheet.word(calls, &[("off", ())])?;
            None
        }
        Content::Nothing
        | Content::Flag(_)
        | Content::Whole(_)
        | Content::Real(_)
        | Content::List(_)
        | Content::Table(_) => Some(sheet.whole(calls, 2)?),
    };
    Some(Guards { identical_calls })
}

fn perception(sheet: &mut Sheet, entry: &Entry, shelf: &Shelf<'_>) -> Option<Sight> {
    let fields = sheet.table(entry, &["command", "url", "every"])?;
    let every = fields.get("every");
    let every = every.and_then(|entry| sheet.word(entry, EVERY));
    let eye = match (fields.get("command"), fields.get("url")) {
        (Some(command), None) => self::command(sheet, command, shelf)?,
        (None, Some(url)) => self::url(sheet, url)?,
        (None, None) | (Some(_), Some(_)) => {
            sheet.fault(entry.place, "`perception` needs one of `command` and `url`");
            return None;
        }
    };
    Some(Sight {
        eye,
        every: every.unwrap_or_default(),
    })
}

fn command(sheet: &mut Sheet, entry: &Entry, shelf: &Shelf<'_>) -> Option<Eye> {
    let before = sheet.found.len();
    let words = sheet.words(entry);
    if sheet.found.len() > before {
        return None;
    }
    let Some(name) = words.first() else {
        let message = "`command` names no program: write `command: [./look]`";
        sheet.fault(entry.node.place, message);
        return None;
    };
    let place = match &entry.node.content {
        Content::List(list) => list.first().map(|first| first.place),
        Content::Nothing
        | Content::Flag(_)
        | Content::Whole(_)
        | Content::Real(_)
        | Content::Text(_)
        | Content::Table(_) => None,
    };
    program::look(sheet, place.unwrap_or(entry.node.place), name, shelf.root);
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

fn events(sheet: &mut Sheet, agent: &mut Agent, entry: &Entry) {
    let Content::Table(events) = &entry.node.content else {
        let message = "`events` is a table: write `KIND: \"what the model reads\"`";
        return sheet.fault(entry.node.place, message);
    };
    for event in events {
        if event.key.trim().is_empty() {
            named(sheet, event.place);
        } else if let Some(text) = sheet.template(event, Names::Any) {
            agent.events.insert(event.key.clone(), text);
        }
    }
}

fn named(sheet: &mut Sheet, place: Place) {
    sheet.fault(
        place,
        "an event has no kind: write `KIND: \"what the model reads\"`",
    );
}
