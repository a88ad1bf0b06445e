//! `vault_list`: which notes there are, by folder, tag and text.
//!
//! Never: without a bound, and never silent about what it left out.

use async_trait::async_trait;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use longhaul_core::event::tool::ToolOutput;
use longhaul_core::policy::effect::EffectClass;
use longhaul_core::port::tool::{ToolContext, ToolFailure};
use longhaul_core::time::Millis;

use crate::ask::{TIMEOUT, aside};
use crate::place::{Folder, Place, Taken, Trouble};
use crate::typed::TypedTool;
use crate::vault::note::{Seen, fault};
use crate::vault::read::READ_BYTES_MAX;
use crate::vault::{ask, name, spot, yaml};

/// How many notes are shown.
const SHOWN_MAX: usize = 100;
/// How long the answer may be, in bytes.
const SHOWN_BYTES_MAX: usize = 32 * 1024;
/// How many files are opened.
const OPENED_MAX: usize = 20_000;
/// How much of a matching line is shown, in characters.
const LINE_MAX: usize = 160;

/// Lists notes.
#[derive(Debug)]
pub(crate) struct VaultList(pub(crate) Place);

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Input {
    /// Folder in the vault, such as `Tasks` or `Projects/Alpha`. With all folders below it.
    folder: Option<String>,
    /// Only notes with this tag or one below it
    tag: Option<String>,
    /// Only notes with this in title or content, whatever the case
    text: Option<String>,
}

#[async_trait]
impl TypedTool for VaultList {
    type Input = Input;
    const NAME: &'static str = "vault_list";
    const DESCRIPTION: &'static str = "Lists the notes of the vault as JSON, by folder, tag and \
        text; all of them when none is given.";
    const CLASS: EffectClass = EffectClass::Pure;
    const TIMEOUT: Option<Millis> = TIMEOUT;

    /// The folder; `/` stands for the whole vault.
    fn raw_subjects(&self, input: &Value) -> Vec<String> {
        let folder = input["folder"].as_str().filter(|folder| !folder.is_empty());
        vec![name::composed(folder.unwrap_or("/"))]
    }

    async fn call(&self, input: Input, _ctx: &ToolContext) -> Result<ToolOutput, ToolFailure> {
        let place = self.0.clone();
        aside(move || list(&place, input)).await
    }
}

fn list(place: &Place, input: Input) -> Result<ToolOutput, ToolFailure> {
    let refuse = |why: String| ToolFailure::new(format!("Nothing was listed: {why}."));
    let wanted = input.folder.unwrap_or_default();
    let parts = name::folder(&wanted).map_err(|bad| refuse(bad.to_string()))?;
    // Models send an empty text for what they leave out.
    let tag = input.tag.as_deref().filter(|tag| !tag.is_empty());
    let tag = tag.map(name::tag).transpose();
    let mut walk = Walk {
        tag: tag.map_err(|bad| refuse(bad.to_string()))?,
        text: input
            .text
            .map(|text| text.to_lowercase())
            .filter(|text| !text.is_empty()),
        notes: Vec::new(),
        opened: 0,
        skipped: 0,
        stopped: false,
    };
    match spot::parts(place, &parts).and_then(|parts| place.folder(&parts)) {
        Ok(folder) => walk
            .visit(&folder, &parts)
            .map_err(|trouble| refuse(format!("the vault {trouble}")))?,
        // A vault without notes has no directory yet.
        Err(Trouble::Missing) if parts.is_empty() => {}
        Err(trouble) => {
            let hint = "call vault_list without a folder to see all";
            return Err(refuse(format!("the folder `{wanted}` {trouble}; {hint}")));
        }
    }
    Ok(ToolOutput::text(walk.answer().to_string()))
}

/// A note in its folder.
#[derive(Debug, Clone, Copy)]
struct Found<'a> {
    file: &'a str,
    title: &'a str,
    is_hidden: bool,
}

impl Found<'_> {
    fn problem(&self, taken: &Taken) -> Option<String> {
        let twin = "is spelled with other code points than its twin beside it, which is the one \
                    that is read and written; a person has to rename one of them";
        let twin = self.is_hidden.then(|| twin.to_owned());
        twin.or_else(|| fault(taken))
    }
}

/// One walk through the folders.
#[derive(Debug)]
struct Walk {
    tag: Option<String>,
    text: Option<String>,
    /// What was found, by path.
    notes: Vec<(String, Value)>,
    opened: usize,
    skipped: usize,
    stopped: bool,
}

impl Walk {
    fn visit(&mut self, folder: &Folder, parts: &[String]) -> Result<(), Trouble> {
        let mut names = folder.names()?;
        names.sort_unstable();
        for found in &names {
            if let Some(title) = found.strip_suffix(".md") {
                if self.opened == OPENED_MAX {
                    self.stopped = true;
                    return Ok(());
                }
                self.opened += 1;
                // Beside a note of the same letters no call can name it.
                let title = name::composed(title);
                let file = format!("{title}.md");
                let is_hidden = *found != file && names.binary_search(&file).is_ok();
                let found = Found {
                    file: found,
                    title: &title,
                    is_hidden,
                };
                self.note(folder, parts, found);
            } else {
                self.below(folder, parts, found);
            }
        }
        Ok(())
    }

    fn below(&mut self, folder: &Folder, parts: &[String], found: &str) {
        let below = match folder.enter(found) {
            Ok(below) => below,
            Err(trouble) => {
                // A picture, a link, or removed since.
                let is_none = matches!(
                    trouble,
                    Trouble::Strange | Trouble::Missing | Trouble::Folder
                );
                self.skipped += usize::from(!is_none);
                return;
            }
        };
        let mut parts = parts.to_vec();
        parts.push(name::composed(found));
        // Too deep, closed to us, or named as no call could name it.
        let is_named = name::folder(&parts.join("/")).is_ok();
        if !is_named || self.visit(&below, &parts).is_err() {
            self.skipped += 1;
        }
    }

    fn note(&mut self, folder: &Folder, parts: &[String], found: Found<'_>) {
        let title = found.title;
        if name::file(title).is_err() {
            self.skipped += 1;
            return;
        }
        let bytes_max = match self.text {
            Some(_) => READ_BYTES_MAX,
            None => yaml::HEAD_BYTES_MAX + 64,
        };
        let taken = match folder.take(found.file, bytes_max) {
            Ok(taken) => taken,
            Err(trouble) => {
                // It may have been removed since the folder was read.
                self.skipped += usize::from(!matches!(trouble, Trouble::Missing));
                return;
            }
        };
        let text = taken.text();
        let seen = Seen::of(&text);
        if self.tag.as_deref().is_some_and(|tag| !seen.has_tag(tag)) {
            return;
        }
        let line = match &self.text {
            Some(text) => match matching(text, title, seen.body) {
                Some(line) => Some(line),
                None => return,
            },
            None => None,
        };
        let folder = parts.join("/");
        let path = ask::subject(&folder, title);
        let mut shown = Map::new();
        shown.insert("folder".into(), json!(folder));
        shown.insert("title".into(), json!(title));
        shown.insert("tags".into(), json!(seen.tags));
        let more = [
            ("confidence", seen.confidence),
            ("updated", seen.updated),
            ("line", line.map(Value::String)),
            ("problem", found.problem(&taken).map(Value::String)),
        ];
        for (key, value) in more {
            shown.extend(value.map(|value| (key.to_owned(), value)));
        }
        self.notes.push((path, Value::Object(shown)));
    }

    fn answer(mut self) -> Value {
        self.notes.sort_by(|one, other| one.0.cmp(&other.0));
        let found = self.notes.len();
        let mut bytes = 0;
        let notes: Vec<Value> = self
            .notes
            .into_iter()
            .map(|(_, note)| note)
            .take(SHOWN_MAX)
            .take_while(|note| {
                bytes += note.to_string().len();
                bytes <= SHOWN_BYTES_MAX
            })
            .collect();
        let left_out = found - notes.len();
        let mut answer = json!({ "notes": notes, "found": found });
        if left_out > 0 {
            answer["left_out"] = json!(left_out);
            answer["hint"] = json!("narrow the list by folder, tag or text to see the others");
        }
        if self.skipped > 0 {
            answer["unreadable"] = json!(self.skipped);
        }
        if self.stopped {
            answer["stopped"] = json!(format!("after {OPENED_MAX} notes; narrow it by folder"));
        }
        answer
    }
}

/// The line that has the text, or the title when that does.
fn matching(text: &str, title: &str, body: &str) -> Option<String> {
    let has = |line: &str| line.to_lowercase().contains(text);
    let line = body.lines().find(|line| has(line));
    let line = line.or_else(|| has(title).then_some(title));
    match line {
        Some(line) => Some(line.trim().chars().take(LINE_MAX).collect()),
        // What was looked for may itself go over several lines.
        None => has(body).then(String::new),
    }
}
