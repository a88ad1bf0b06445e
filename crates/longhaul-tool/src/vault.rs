//! The vault tools: a directory of Markdown notes that agents write and people read.
//!
//! Invariant: the tools stay in the directory, follow no symbolic link, and change a note
//! completely or not at all.

pub(crate) mod front_matter;
mod list;
mod name;
mod note;
mod note_path;
mod write;

use std::sync::Arc;

use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;

use longhaul_core::event::tool::ToolOutput;
use longhaul_core::policy::effect::EffectClass;
use longhaul_core::port::tool::{Tool, ToolContext};
use longhaul_core::time::Clock;

use crate::disk_tool::{DiskTool, Reason, disk_tool};
use crate::location::FileLocation;
use crate::safe_dir::{FsError, SafeDir};
use crate::typed::TypedToolError;
use crate::vault::list::VaultListTool;
use crate::vault::note::{READ_BYTES_MAX, REPLACE_HINT, note_replacement_error};
use crate::vault::note_path::NotePath;
use crate::vault::write::VaultWriteTool;

/// Returns `vault_write`, `vault_read` and `vault_list` for a directory of notes. The directory is
/// created with the first note.
pub fn vault_tools(
    root: impl Into<FileLocation>,
    clock: Arc<dyn Clock>,
) -> Result<Vec<Arc<dyn Tool>>, TypedToolError> {
    let dir = SafeDir::new_private(root);
    Ok(vec![
        disk_tool(VaultWriteTool { dir: dir.clone(), clock })?,
        disk_tool(VaultReadTool(dir.clone()))?,
        disk_tool(VaultListTool(dir))?,
    ])
}

/// The tool `vault_read`, which reads one note.
#[derive(Debug)]
struct VaultReadTool(SafeDir);

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct VaultReadInput {
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
