//! `vault_read`: one note as it stands in its file.
//!
//! Never: more of it than a model can use.

use async_trait::async_trait;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;

use longhaul_core::event::tool::ToolOutput;
use longhaul_core::policy::effect::EffectClass;
use longhaul_core::port::tool::{ToolContext, ToolFailure};
use longhaul_core::time::Millis;

use crate::safe_dir::{FsError, SafeDir};
use crate::tool_support::{TIMEOUT, run_blocking};
use crate::typed::TypedTool;
use crate::vault::note::replace_error;
use crate::vault::{locate, name, note_input};

/// How much of a note is read, in bytes.
pub(crate) const READ_BYTES_MAX: usize = 256 * 1024;
/// What to do about a note that is not replaced.
pub(crate) const REPLACE_HINT: &str = "write under another title, or let a person mend the file";

/// Reads notes.
#[derive(Debug)]
pub(crate) struct VaultRead(pub(crate) SafeDir);

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Input {
    /// Folder in the vault, such as `Tasks` or `Projects/Alpha`. Empty for the vault itself.
    folder: String,
    /// The note's name, without `.md`
    title: String,
}

#[async_trait]
impl TypedTool for VaultRead {
    type Input = Input;
    const NAME: &'static str = "vault_read";
    const DESCRIPTION: &'static str = "Reads a note of the vault: its front matter (tags, \
        confidence, created, updated, run) and its Markdown.";
    const CLASS: EffectClass = EffectClass::Pure;
    const TIMEOUT: Option<Millis> = TIMEOUT;

    fn raw_subjects(&self, input: &Value) -> Vec<String> {
        note_input::note_subjects(input)
    }

    async fn call(&self, input: Input, _ctx: &ToolContext) -> Result<ToolOutput, ToolFailure> {
        let place = self.0.clone();
        run_blocking(move || read(&place, &input)).await
    }
}

fn read(place: &SafeDir, input: &Input) -> Result<ToolOutput, ToolFailure> {
    let refuse = |why: String| ToolFailure::new(format!("The note was not read: {why}."));
    let parts = name::parse_folder(&input.folder).map_err(|bad| refuse(bad.to_string()))?;
    let file = name::note_file(&input.title).map_err(|bad| refuse(bad.to_string()))?;
    let found = locate::existing_parts(place, &parts)
        .and_then(|parts| place.open_dir(&parts))
        .and_then(|folder| folder.read(&locate::existing_name(&folder, &file)?, READ_BYTES_MAX));
    let taken = found.map_err(|trouble| {
        let subject = name::nfc(&note_input::subject(&input.folder, &input.title));
        let hint =
            if matches!(trouble, FsError::NotFound) { "; vault_list shows what is" } else { "" };
        let trouble = note_input::with_title(trouble);
        refuse(format!("`{subject}` {trouble}{hint}"))
    })?;
    let mut text = taken.text();
    if taken.is_truncated {
        text.push_str(&format!(
            "\n\n[The note is longer: only its first {READ_BYTES_MAX} bytes are shown.]"
        ));
    }
    if let Some(fault) = replace_error(&taken) {
        text.push_str(&format!(
            "\n\n[The note {fault}, so vault_write does not replace it: {REPLACE_HINT}.]"
        ));
    }
    Ok(ToolOutput::text(text))
}
