//! The tool `vault_read`, which reads one note.

use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;

use longhaul_core::event::tool::ToolOutput;
use longhaul_core::policy::effect::EffectClass;
use longhaul_core::port::tool::ToolContext;

use crate::disk_tool::{DiskTool, Reason};
use crate::safe_dir::{FsError, SafeDir};
use crate::vault::note::note_replacement_error;
use crate::vault::note_path::{self, NotePath};

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

impl DiskTool for VaultReadTool {
    type Input = VaultReadInput;
    const NAME: &'static str = "vault_read";
    const DESCRIPTION: &'static str = "Reads a note of the vault: its front matter (tags, \
        confidence, created, updated, run) and its Markdown.";
    const CLASS: EffectClass = EffectClass::Pure;
    const FAILURE: &'static str = "The note was not read";

    fn rule_match_texts(&self, input: &Value) -> Vec<String> {
        note_path::rule_match_texts(input)
    }

    fn call(&self, input: VaultReadInput, _ctx: &ToolContext) -> Result<ToolOutput, Reason> {
        let note = NotePath::parse(&input.folder, &input.title)?;
        let file = note.open(&self.0).and_then(|file| file.read_snapshot(READ_BYTES_MAX));
        let snapshot = file.map_err(|error| {
            let is_missing = matches!(error, FsError::NotFound);
            let hint = if is_missing { "; use vault_list to see which notes exist" } else { "" };
            note.fs_error(error) + hint
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
}
