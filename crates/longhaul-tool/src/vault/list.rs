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

use crate::safe_dir::{DirHandle, FileSnapshot, FsError, SafeDir};
use crate::tool_support::{TIMEOUT, run_blocking};
use crate::typed::TypedTool;
use crate::vault::note::{ParsedNote, replace_error};
use crate::vault::read::READ_BYTES_MAX;
use crate::vault::{front_matter, locate, name, note_input};

/// How many notes are shown.
const SHOWN_MAX: usize = 100;
/// How long the answer may be, in bytes.
const SHOWN_BYTES_MAX: usize = 32 * 1024;
/// How many files are opened.
const FILES_MAX: usize = 20_000;
/// How much of a matching line is shown, in characters.
const LINE_CHARS_MAX: usize = 160;

/// Lists notes.
#[derive(Debug)]
pub(crate) struct VaultList(pub(crate) SafeDir);

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
        vec![name::nfc(folder.unwrap_or("/"))]
    }

    async fn call(&self, input: Input, _ctx: &ToolContext) -> Result<ToolOutput, ToolFailure> {
        let place = self.0.clone();
        run_blocking(move || list(&place, input)).await
    }
}

fn list(place: &SafeDir, input: Input) -> Result<ToolOutput, ToolFailure> {
    let refuse = |why: String| ToolFailure::new(format!("Nothing was listed: {why}."));
    let wanted = input.folder.unwrap_or_default();
    let parts = name::parse_folder(&wanted).map_err(|bad| refuse(bad.to_string()))?;
    // Models send an empty text for what they leave out.
    let tag = input.tag.as_deref().filter(|tag| !tag.is_empty());
    let tag = tag.map(name::parse_tag).transpose();
    let mut walk = NoteLister {
        tag: tag.map_err(|bad| refuse(bad.to_string()))?,
        text: input.text.map(|text| text.to_lowercase()).filter(|text| !text.is_empty()),
        notes: Vec::new(),
        opened_count: 0,
        skipped_count: 0,
        is_stopped: false,
    };
    match locate::existing_parts(place, &parts).and_then(|parts| place.open_dir(&parts)) {
        Ok(folder) => {
            walk.visit(&folder, &parts).map_err(|trouble| refuse(format!("the vault {trouble}")))?
        }
        // A vault without notes has no directory yet.
        Err(FsError::NotFound) if parts.is_empty() => {}
        Err(trouble) => {
            let hint = "call vault_list without a folder to see all";
            return Err(refuse(format!("the folder `{wanted}` {trouble}; {hint}")));
        }
    }
    Ok(ToolOutput::text(walk.into_json().to_string()))
}

/// A note in its folder.
#[derive(Debug, Clone, Copy)]
struct NoteFile<'a> {
    file: &'a str,
    title: &'a str,
    is_shadowed: bool,
}

impl NoteFile<'_> {
    fn problem(&self, taken: &FileSnapshot) -> Option<String> {
        let twin = "is spelled with other code points than its twin beside it, which is the one \
                    that is read and written; a person has to rename one of them";
        let twin = self.is_shadowed.then(|| twin.to_owned());
        twin.or_else(|| replace_error(taken))
    }
}

/// One walk through the folders.
#[derive(Debug)]
struct NoteLister {
    tag: Option<String>,
    text: Option<String>,
    /// What was found, by path.
    notes: Vec<(String, Value)>,
    opened_count: usize,
    skipped_count: usize,
    is_stopped: bool,
}

impl NoteLister {
    fn visit(&mut self, folder: &DirHandle, parts: &[String]) -> Result<(), FsError> {
        let mut names = folder.visible_names()?;
        names.sort_unstable();
        for found in &names {
            if let Some(title) = found.strip_suffix(".md") {
                if self.opened_count == FILES_MAX {
                    self.is_stopped = true;
                    return Ok(());
                }
                self.opened_count += 1;
                // Beside a note of the same letters no call can name it.
                let title = name::nfc(title);
                let file = format!("{title}.md");
                let is_hidden = *found != file && names.binary_search(&file).is_ok();
                let found = NoteFile { file: found, title: &title, is_shadowed: is_hidden };
                self.visit_note(folder, parts, found);
            } else {
                self.visit_child(folder, parts, found);
            }
        }
        Ok(())
    }

    fn visit_child(&mut self, folder: &DirHandle, parts: &[String], found: &str) {
        let below = match folder.enter_known(found) {
            Ok(below) => below,
            Err(trouble) => {
                // A picture, a link, or removed since.
                let is_none = matches!(
                    trouble,
                    FsError::NotRegular | FsError::NotFound | FsError::IsDirectory
                );
                self.skipped_count += usize::from(!is_none);
                return;
            }
        };
        let mut parts = parts.to_vec();
        parts.push(name::nfc(found));
        // Too deep, closed to us, or named as no call could name it.
        let is_named = name::parse_folder(&parts.join("/")).is_ok();
        if !is_named || self.visit(&below, &parts).is_err() {
            self.skipped_count += 1;
        }
    }

    fn visit_note(&mut self, folder: &DirHandle, parts: &[String], found: NoteFile<'_>) {
        let title = found.title;
        if name::note_file(title).is_err() {
            self.skipped_count += 1;
            return;
        }
        let bytes_max = match self.text {
            Some(_) => READ_BYTES_MAX,
            None => front_matter::FRONT_MATTER_BYTES_MAX + 64,
        };
        let taken = match folder.read_known(found.file, bytes_max) {
            Ok(taken) => taken,
            Err(trouble) => {
                // It may have been removed since the folder was read.
                self.skipped_count += usize::from(!matches!(trouble, FsError::NotFound));
                return;
            }
        };
        let text = taken.text();
        let seen = ParsedNote::parse(&text);
        if self.tag.as_deref().is_some_and(|tag| !seen.has_tag(tag)) {
            return;
        }
        let line = match &self.text {
            Some(text) => match matching_line(text, title, seen.body) {
                Some(line) => Some(line),
                None => return,
            },
            None => None,
        };
        let folder = parts.join("/");
        let path = note_input::subject(&folder, title);
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

    fn into_json(mut self) -> Value {
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
        if self.skipped_count > 0 {
            answer["unreadable"] = json!(self.skipped_count);
        }
        if self.is_stopped {
            answer["stopped"] = json!(format!("after {FILES_MAX} notes; narrow it by folder"));
        }
        answer
    }
}

/// The line that has the text, or the title when that does.
fn matching_line(text: &str, title: &str, body: &str) -> Option<String> {
    let has = |line: &str| line.to_lowercase().contains(text);
    let line = body.lines().find(|line| has(line));
    let line = line.or_else(|| has(title).then_some(title));
    match line {
        Some(line) => Some(line.trim().chars().take(LINE_CHARS_MAX).collect()),
        // What was looked for may itself go over several lines.
        None => has(body).then(String::new),
    }
}
