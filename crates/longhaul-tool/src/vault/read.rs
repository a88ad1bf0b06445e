//! The tool `vault_read`, which reads one note.

use async_trait::async_trait;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;

use longhaul_core::event::tool::ToolOutput;
use longhaul_core::policy::effect::EffectClass;
use longhaul_core::port::tool::{ToolContext, ToolFailure};
use longhaul_core::time::Millis;

use crate::safe_dir::{FsError, SafeDir};
use crate::tool_support::{TIMEOUT, run_on_blocking_thread};
use crate::typed::TypedTool;
use crate::vault::note::note_replacement_error;
use crate::vault::{locate, name, note_input};

/// Maximum number of bytes read of a note.
pub(crate) const READ_BYTES_MAX: usize = 256 * 1024;
/// Hint in the error message for a note that can't be replaced.
pub(crate) const REPLACE_HINT: &str = "use another title, or let a person fix the file";

#[derive(Debug)]
pub(crate) struct VaultReadTool(pub(crate) SafeDir);

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct VaultReadInput {
    /// Folder in the vault, such as `Tasks` or `Projects/Alpha`. Empty for the vault itself.
    folder: String,
    /// The note's name, without `.md`
    title: String,
}

#[async_trait]
impl TypedTool for VaultReadTool {
    type Input = VaultReadInput;
    const NAME: &'static str = "vault_read";
    const DESCRIPTION: &'static str = "Reads a note of the vault: its front matter (tags, \
        confidence, created, updated, run) and its Markdown.";
    const CLASS: EffectClass = EffectClass::Pure;
    const TIMEOUT: Option<Millis> = TIMEOUT;

    fn rule_match_texts_from_json(&self, input: &Value) -> Vec<String> {
        note_input::note_input_rule_match_texts(input)
    }

    async fn call(
        &self,
        input: VaultReadInput,
        _ctx: &ToolContext,
    ) -> Result<ToolOutput, ToolFailure> {
        let dir = self.0.clone();
        run_on_blocking_thread(move || read_note(&dir, &input)).await
    }
}

fn read_note(dir: &SafeDir, input: &VaultReadInput) -> Result<ToolOutput, ToolFailure> {
    let refuse = |reason: String| ToolFailure::new(format!("The note was not read: {reason}."));
    let parts =
        name::parse_note_folder(&input.folder).map_err(|error| refuse(error.to_string()))?;
    let file = name::note_file_name(&input.title).map_err(|error| refuse(error.to_string()))?;
    let result = locate::path_parts_as_stored_on_disk(dir, &parts)
        .and_then(|parts| dir.open_dir(&parts))
        .and_then(|folder| {
            folder.read_file(&locate::entry_name_as_stored_on_disk(&folder, &file)?, READ_BYTES_MAX)
        });
    let snapshot = result.map_err(|error| {
        let note_path =
            name::normalize_nfc(&note_input::note_rule_match_text(&input.folder, &input.title));
        let hint = if matches!(error, FsError::NotFound) {
            "; use vault_list to see which notes exist"
        } else {
            ""
        };
        let error = note_input::strip_md_suffix_in_wrong_case_error(error);
        refuse(format!("`{note_path}`: {error}{hint}"))
    })?;
    let mut text = snapshot.lossy_text();
    if snapshot.is_truncated {
        text.push_str(&format!(
            "\n\n[The note is longer: only its first {READ_BYTES_MAX} bytes are shown.]"
        ));
    }
    if let Some(reason) = note_replacement_error(&snapshot) {
        text.push_str(&format!(
            "\n\n[vault_write does not replace this note, because {reason}: {REPLACE_HINT}.]"
        ));
    }
    Ok(ToolOutput::text(text))
}
