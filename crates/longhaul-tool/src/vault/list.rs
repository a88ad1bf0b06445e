//! The tool `vault_list`, which lists notes by folder, tag and text.
//!
//! Invariant: the output is limited and says what was left out.

use async_trait::async_trait;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use longhaul_core::event::tool::ToolOutput;
use longhaul_core::policy::effect::EffectClass;
use longhaul_core::port::tool::{ToolContext, ToolFailure};
use longhaul_core::time::Millis;

use crate::safe_dir::{DirHandle, FileSnapshot, FsError, SafeDir};
use crate::tool_support::{TIMEOUT, run_on_blocking_thread};
use crate::typed::TypedTool;
use crate::vault::note::{ParsedNote, note_replacement_error};
use crate::vault::read::READ_BYTES_MAX;
use crate::vault::{front_matter, locate, name, note_input};

/// Maximum number of notes that are listed.
const SHOWN_MAX: usize = 100;
/// Maximum length of the tool's output in bytes.
const SHOWN_BYTES_MAX: usize = 32 * 1024;
/// Maximum number of note files that are opened for one listing.
const FILES_MAX: usize = 20_000;
/// Maximum number of characters shown of a line that contains the searched text.
const LINE_CHARS_MAX: usize = 160;

#[derive(Debug)]
pub(crate) struct VaultListTool(pub(crate) SafeDir);

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct VaultListInput {
    /// Folder in the vault, such as `Tasks` or `Projects/Alpha`, including all folders below it
    folder: Option<String>,
    /// Only notes with this tag or a tag nested below it
    tag: Option<String>,
    /// Only notes with this text in title or content, ignoring case
    text: Option<String>,
}

#[async_trait]
impl TypedTool for VaultListTool {
    type Input = VaultListInput;
    const NAME: &'static str = "vault_list";
    const DESCRIPTION: &'static str = "Lists the notes of the vault as JSON, by folder, tag and \
        text; all notes if no filter is given.";
    const CLASS: EffectClass = EffectClass::Pure;
    const TIMEOUT: Option<Millis> = TIMEOUT;

    /// Returns the folder as the text that approval rules match; `/` means the whole vault.
    fn rule_match_texts_from_json(&self, input: &Value) -> Vec<String> {
        let folder = input["folder"].as_str().filter(|folder| !folder.is_empty());
        vec![name::normalize_nfc(folder.unwrap_or("/"))]
    }

    async fn call(
        &self,
        input: VaultListInput,
        _ctx: &ToolContext,
    ) -> Result<ToolOutput, ToolFailure> {
        let dir = self.0.clone();
        run_on_blocking_thread(move || list_notes(&dir, input)).await
    }
}

fn list_notes(dir: &SafeDir, input: VaultListInput) -> Result<ToolOutput, ToolFailure> {
    let refuse = |reason: String| ToolFailure::new(format!("Nothing was listed: {reason}."));
    let folder_path = input.folder.unwrap_or_default();
    let parts = name::parse_note_folder(&folder_path).map_err(|error| refuse(error.to_string()))?;
    // Models send an empty text for fields they leave out.
    let tag = input.tag.as_deref().filter(|tag| !tag.is_empty());
    let tag = tag.map(name::parse_tag).transpose();
    let mut walk = NoteLister {
        tag: tag.map_err(|error| refuse(error.to_string()))?,
        text: input.text.map(|text| text.to_lowercase()).filter(|text| !text.is_empty()),
        notes: Vec::new(),
        opened_count: 0,
        skipped_count: 0,
        is_stopped: false,
    };
    match locate::path_parts_as_stored_on_disk(dir, &parts).and_then(|parts| dir.open_dir(&parts)) {
        Ok(folder) => walk
            .visit_folder(&folder, &parts)
            .map_err(|error| refuse(format!("the vault can't be read: {error}")))?,
        // A vault without notes has no directory yet.
        Err(FsError::NotFound) if parts.is_empty() => {}
        Err(error) => {
            let hint = "call vault_list without a folder to see all";
            return Err(refuse(format!("the folder `{folder_path}`: {error}; {hint}")));
        }
    }
    Ok(ToolOutput::text(walk.into_json().to_string()))
}

/// A note in a folder listing: its file name without the folder, and its title.
#[derive(Debug, Clone, Copy)]
struct NoteFile<'a> {
    file: &'a str,
    title: &'a str,
    is_shadowed: bool,
}

impl NoteFile<'_> {
    fn note_problem(&self, snapshot: &FileSnapshot) -> Option<String> {
        let problem = "the name differs only in code points from that of another note, which is the \
                       one that is read and written; a person has to rename one of them";
        let problem = self.is_shadowed.then(|| problem.to_owned());
        problem.or_else(|| note_replacement_error(snapshot))
    }
}

/// State of a walk that lists the notes of a vault.
#[derive(Debug)]
struct NoteLister {
    tag: Option<String>,
    text: Option<String>,
    /// The notes found so far, each as its path and the JSON that is shown for it.
    notes: Vec<(String, Value)>,
    opened_count: usize,
    skipped_count: usize,
    is_stopped: bool,
}

impl NoteLister {
    fn visit_folder(&mut self, folder: &DirHandle, parts: &[String]) -> Result<(), FsError> {
        let mut names = folder.visible_entry_names()?;
        names.sort_unstable();
        for entry_name in &names {
            if let Some(title) = entry_name.strip_suffix(".md") {
                if self.opened_count == FILES_MAX {
                    self.is_stopped = true;
                    return Ok(());
                }
                self.opened_count += 1;
                // Another note with the same normalized name takes precedence, so no call can name
                // this one.
                let title = name::normalize_nfc(title);
                let file = format!("{title}.md");
                let is_hidden = *entry_name != file && names.binary_search(&file).is_ok();
                let note_file =
                    NoteFile { file: entry_name, title: &title, is_shadowed: is_hidden };
                self.visit_note(folder, parts, note_file);
            } else {
                self.visit_child_folder(folder, parts, entry_name);
            }
        }
        Ok(())
    }

    fn visit_child_folder(&mut self, folder: &DirHandle, parts: &[String], entry_name: &str) {
        let child = match folder.open_child_folder_without_name_check(entry_name) {
            Ok(child) => child,
            Err(error) => {
                // Another kind of file, a symbolic link, or removed since.
                let is_none =
                    matches!(error, FsError::NotRegular | FsError::NotFound | FsError::IsDirectory);
                self.skipped_count += usize::from(!is_none);
                return;
            }
        };
        let mut parts = parts.to_vec();
        parts.push(name::normalize_nfc(entry_name));
        // Too deep, not readable, or with a name that no call could use.
        let is_named = name::parse_note_folder(&parts.join("/")).is_ok();
        if !is_named || self.visit_folder(&child, &parts).is_err() {
            self.skipped_count += 1;
        }
    }

    fn visit_note(&mut self, folder: &DirHandle, parts: &[String], note_file: NoteFile<'_>) {
        let title = note_file.title;
        if name::note_file_name(title).is_err() {
            self.skipped_count += 1;
            return;
        }
        let bytes_max = match self.text {
            Some(_) => READ_BYTES_MAX,
            None => front_matter::FRONT_MATTER_BYTES_MAX + 64,
        };
        let snapshot = match folder.read_file_without_name_check(note_file.file, bytes_max) {
            Ok(snapshot) => snapshot,
            Err(error) => {
                // It may have been removed since the folder was read.
                self.skipped_count += usize::from(!matches!(error, FsError::NotFound));
                return;
            }
        };
        let text = snapshot.lossy_text();
        let note = ParsedNote::parse(&text);
        if self.tag.as_deref().is_some_and(|tag| !note.has_tag(tag)) {
            return;
        }
        let line = match &self.text {
            Some(text) => match first_matching_line(text, title, note.body) {
                Some(line) => Some(line),
                None => return,
            },
            None => None,
        };
        let folder = parts.join("/");
        let path = note_input::note_rule_match_text(&folder, title);
        let mut entry = Map::new();
        entry.insert("folder".into(), json!(folder));
        entry.insert("title".into(), json!(title));
        entry.insert("tags".into(), json!(note.tags));
        let optional_fields = [
            ("confidence", note.confidence),
            ("updated", note.updated),
            ("line", line.map(Value::String)),
            ("problem", note_file.note_problem(&snapshot).map(Value::String)),
        ];
        for (key, value) in optional_fields {
            entry.extend(value.map(|value| (key.to_owned(), value)));
        }
        self.notes.push((path, Value::Object(entry)));
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
        let omitted = found - notes.len();
        let mut result = json!({ "notes": notes, "found": found });
        if omitted > 0 {
            result["left_out"] = json!(omitted);
            result["hint"] = json!("narrow the list by folder, tag or text to see the others");
        }
        if self.skipped_count > 0 {
            result["unreadable"] = json!(self.skipped_count);
        }
        if self.is_stopped {
            result["stopped"] =
                json!(format!("the list stops after {FILES_MAX} notes; narrow it by folder"));
        }
        result
    }
}

/// Returns the first line of the note that contains the searched text, or else the title if it
/// contains the text. Empty if the text spans several lines; `None` if the note lacks the text.
fn first_matching_line(searched_text: &str, title: &str, body: &str) -> Option<String> {
    let contains_text = |line: &str| line.to_lowercase().contains(searched_text);
    let line = body.lines().find(|line| contains_text(line));
    let line = line.or_else(|| contains_text(title).then_some(title));
    match line {
        Some(line) => Some(line.trim().chars().take(LINE_CHARS_MAX).collect()),
        // The text may span several lines.
        None => contains_text(body).then(String::new),
    }
}
