//! `vault_read`: one note as it stands in its file.
//!
//! Never: more of it than a model can use.

use async_trait::async_trait;
use serde::Deserialize;
use serde_json::{Value, json};

use longhaul_core::event::tool::ToolOutput;
use longhaul_core::id::BadId;
use longhaul_core::policy::effect::EffectClass;
use longhaul_core::port::tool::{Tool, ToolCard, ToolContext, ToolFailure};

use crate::ask::{aside, card, typed};
use crate::place::{Place, Trouble};
use crate::vault::note::fault;
use crate::vault::{ask, name, spot};

/// How much of a note is read, in bytes.
pub(crate) const READ_BYTES_MAX: usize = 256 * 1024;
/// What to do about a note that is not replaced.
pub(crate) const MEND: &str = "write under another title, or let a person mend the file";

/// Reads notes.
#[derive(Debug)]
pub(crate) struct VaultRead {
    card: ToolCard,
    place: Place,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Input {
    folder: String,
    title: String,
}

impl VaultRead {
    /// The tool over the vault in this place.
    pub(crate) fn new(place: Place) -> Result<Self, BadId> {
        let properties = json!({
            "folder": ask::folder_property("Empty for the vault itself."),
            "title": { "type": "string", "description": "The note's name, without `.md`" },
        });
        let description = "Reads a note of the vault: its front matter (tags, confidence, \
            created, updated, run) and its Markdown.";
        let required = ["folder", "title"];
        Ok(Self {
            card: card("vault_read", description, properties, &required)?,
            place,
        })
    }
}

#[async_trait]
impl Tool for VaultRead {
    fn card(&self) -> &ToolCard {
        &self.card
    }

    fn class(&self, _input: &Value) -> EffectClass {
        EffectClass::Pure
    }

    fn subjects(&self, input: &Value) -> Vec<String> {
        ask::note_subjects(input)
    }

    async fn call(&self, input: Value, _around: &ToolContext) -> Result<ToolOutput, ToolFailure> {
        let input: Input = typed(&self.card, input)?;
        let place = self.place.clone();
        aside(move || read(&place, &input)).await
    }
}

fn read(place: &Place, input: &Input) -> Result<ToolOutput, ToolFailure> {
    let refuse = |why: String| ToolFailure::new(format!("The note was not read: {why}."));
    let parts = name::folder(&input.folder).map_err(|bad| refuse(bad.to_string()))?;
    let file = name::file(&input.title).map_err(|bad| refuse(bad.to_string()))?;
    let found = spot::parts(place, &parts)
        .and_then(|parts| place.folder(&parts))
        .and_then(|folder| folder.read(&spot::name(&folder, &file)?, READ_BYTES_MAX));
    let taken = found.map_err(|trouble| {
        let subject = name::composed(&ask::subject(&input.folder, &input.title));
        let hint = match trouble {
            Trouble::Missing => "; vault_list shows what is",
            Trouble::Strange
            | Trouble::Folder
            | Trouble::Kept
            | Trouble::Spelled(_)
            | Trouble::Folded
            | Trouble::Busy
            | Trouble::Changed
            | Trouble::Io(_) => "",
        };
        let trouble = ask::of_note(trouble);
        refuse(format!("`{subject}` {trouble}{hint}"))
    })?;
    let mut text = taken.text();
    if taken.cut {
        text.push_str(&format!(
            "\n\n[The note is longer: only its first {READ_BYTES_MAX} bytes are shown.]"
        ));
    }
    if let Some(fault) = fault(&taken) {
        text.push_str(&format!(
            "\n\n[The note {fault}, so vault_write does not replace it: {MEND}.]"
        ));
    }
    Ok(ToolOutput::text(text))
}
