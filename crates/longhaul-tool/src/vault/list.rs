//! The tool `vault_list`, which lists notes by folder, tag and text.
//!
//! Invariant: the output is limited and says what was left out.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use longhaul_core::event::tool::ToolOutput;
use longhaul_core::policy::effect::EffectClass;
use longhaul_core::port::tool::ToolContext;

use crate::disk_tool::{DiskTool, Reason};
use crate::safe_dir::{DirHandle, FsError, SafeDir};
use crate::vault::note::{ParsedNote, READ_BYTES_MAX, note_replacement_error};
use crate::vault::{front_matter, name, note_path};

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

impl DiskTool for VaultListTool {
    type Input = VaultListInput;
    const NAME: &'static str = "vault_list";
    const DESCRIPTION: &'static str = "Lists the notes of the vault as JSON, by folder, tag and \
        text; all notes if no filter is given.";
    const CLASS: EffectClass = EffectClass::Pure;
    const FAILURE: &'static str = "Nothing was listed";

    /// Returns the folder as the text that approval rules match; `/` means the whole vault.
    fn rule_match_texts(&self, input: &Value) -> Vec<String> {
        let folder = input["folder"].as_str().filter(|folder| !folder.is_empty());
        vec![name::normalize_nfc(folder.unwrap_or("/"))]
    }

    fn call(&self, input: VaultListInput, _ctx: &ToolContext) -> Result<ToolOutput, Reason> {
        let dir = &self.0;
        let folder_path = input.folder.unwrap_or_default();
        let parts = name::parse_note_folder(&folder_path)?;
        // Models send an empty text for fields they leave out.
        let tag = input.tag.as_deref().filter(|tag| !tag.is_empty());
        let mut lister = NoteLister {
            tag: tag.map(name::parse_tag).transpose()?,
            text: input.text.map(|text| text.to_lowercase()).filter(|text| !text.is_empty()),
            notes: Vec::new(),
            opened_count: 0,
            skipped_count: 0,
        };
        let folder = note_path::folder_as_stored(dir, &parts);
        match folder.and_then(|parts| dir.open_dir(&parts)) {
            Ok(folder) => lister
                .visit_folder(&folder, &parts)
                .map_err(|error| format!("the vault can't be read: {error}"))?,
            // A vault without notes has no directory yet.
            Err(FsError::NotFound) if parts.is_empty() => {}
            Err(error) => {
                let hint = "call vault_list without a folder to see all";
                return Err(format!("the folder `{folder_path}`: {error}; {hint}").into());
            }
        }
        Ok(ToolOutput::text(lister.into_json().to_string()))
    }
}

/// A note in the list.
#[derive(Debug, Serialize)]
struct ListedNote {
    folder: String,
    title: String,
    tags: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    confidence: Option<Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    updated: Option<Value>,
    /// The first line with the searched text.
    #[serde(skip_serializing_if = "Option::is_none")]
    line: Option<String>,
    /// Why the note can't be replaced, or not be read by its title.
    #[serde(skip_serializing_if = "Option::is_none")]
    problem: Option<String>,
}

/// State of a walk that lists the notes of a vault.
#[derive(Debug)]
struct NoteLister {
    tag: Option<String>,
    text: Option<String>,
    notes: Vec<ListedNote>,
    opened_count: usize,
    skipped_count: usize,
}

impl NoteLister {
    fn visit_folder(&mut self, folder: &DirHandle, parts: &[String]) -> Result<(), FsError> {
        let mut names = folder.entry_names()?;
        names.retain(|name| !name.starts_with('.'));
        names.sort_unstable();
        for entry_name in &names {
            let Some(title) = entry_name.strip_suffix(".md") else {
                self.visit_child_folder(folder, parts, entry_name);
                continue;
            };
            self.opened_count += 1;
            if self.opened_count > FILES_MAX {
                return Ok(());
            }
            // Another note with the same normalized name takes precedence, so no call can name
            // this one.
            let title = name::normalize_nfc(title);
            let file = format!("{title}.md");
            let is_shadowed = *entry_name != file && names.binary_search(&file).is_ok();
            let shadowed_problem = is_shadowed.then(|| {
                "the name differs only in code points from that of another note, which is the one \
                 that is read and written; a person has to rename one of them"
                    .to_owned()
            });
            match self.read_note((folder, entry_name), parts, title) {
                Ok(Some(note)) => {
                    let problem = shadowed_problem.or(note.problem);
                    self.notes.push(ListedNote { problem, ..note });
                }
                // It may have been removed since the folder was read.
                Ok(None) | Err(FsError::NotFound) => {}
                Err(_) => self.skipped_count += 1,
            }
        }
        Ok(())
    }

    fn visit_child_folder(&mut self, folder: &DirHandle, parts: &[String], entry_name: &str) {
        let mut parts = parts.to_vec();
        parts.push(name::normalize_nfc(entry_name));
        match folder.open_listed_folder(entry_name) {
            Ok(child) => {
                // Too deep, not readable, or with a name that no call could use.
                let is_named = name::parse_note_folder(&parts.join("/")).is_ok();
                let is_listed = is_named && self.visit_folder(&child, &parts).is_ok();
                self.skipped_count += usize::from(!is_listed);
            }
            // Another kind of file, a symbolic link, or removed since.
            Err(FsError::NotRegular | FsError::NotFound | FsError::IsDirectory) => {}
            Err(_) => self.skipped_count += 1,
        }
    }

    /// Reads a note for the list. `None` if the filters exclude it.
    fn read_note(
        &self,
        (folder, file): (&DirHandle, &str),
        parts: &[String],
        title: String,
    ) -> Result<Option<ListedNote>, FsError> {
        if name::note_file_name(&title).is_err() {
            return Err(FsError::NotRegular);
        }
        let bytes_max = match self.text {
            Some(_) => READ_BYTES_MAX,
            None => front_matter::FRONT_MATTER_BYTES_MAX + 64,
        };
        let snapshot = folder.open_listed_file(file)?.read_snapshot(bytes_max)?;
        let text = snapshot.lossy_text();
        let note = ParsedNote::parse(&text);
        let line = self.text.as_ref().map(|text| first_matching_line(text, &title, note.body));
        let is_excluded = self.tag.as_deref().is_some_and(|tag| !note.has_tag(tag));
        if is_excluded || matches!(line, Some(None)) {
            return Ok(None);
        }
        Ok(Some(ListedNote {
            folder: parts.join("/"),
            title,
            tags: note.tags,
            confidence: note.confidence,
            updated: note.updated,
            line: line.flatten(),
            problem: note_replacement_error(&snapshot),
        }))
    }

    fn into_json(mut self) -> Value {
        self.notes.sort_by_key(|note| note_path::joined(&note.folder, &note.title));
        let found = self.notes.len();
        let mut bytes = 0;
        let notes = self.notes.into_iter().take(SHOWN_MAX).map(|note| json!(note));
        let notes: Vec<Value> = notes
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
        if self.opened_count > FILES_MAX {
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
