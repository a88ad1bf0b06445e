//! The tool `write_file`, which creates or replaces a file.
//!
//! Invariant: a file is written completely or not at all. Repeating a call with the same input has
//! no further effect.

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;

use longhaul_core::event::tool::ToolOutput;
use longhaul_core::policy::effect::EffectClass;
use longhaul_core::policy::effect_facts::{FileContent, PredictedEffects};
use longhaul_core::port::tool::ToolContext;

use crate::disk_tool::{DiskTool, Reason};
use crate::files::protected::PathAccess;
use crate::files::workspace::Workspace;

/// Maximum length of the content of a written file in bytes.
pub(crate) const CONTENT_BYTES_MAX: usize = 5 * 1024 * 1024;

#[derive(Debug)]
pub(crate) struct WriteFileTool(pub(crate) Workspace);

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct WriteFileInput {
    /// The file, relative to the top of the workspace, such as `src/main.rs`; missing folders are
    /// created
    path: String,
    /// The whole content of the file
    content: String,
}

impl DiskTool for WriteFileTool {
    type Input = WriteFileInput;
    const NAME: &'static str = "write_file";
    const DESCRIPTION: &'static str = "Writes a whole text file of the workspace, at most 5 MB: \
        creates it, or replaces its content. To change a part of a file use edit_file.";
    const CLASS: EffectClass = EffectClass::Keyed;
    const FAILURE: &'static str = "The file was not written";

    fn in_sandbox(&self, work_folder: PathBuf) -> Option<Self> {
        Some(Self(self.0.in_sandbox(work_folder)))
    }

    fn rule_match_texts(&self, input: &Value) -> Vec<String> {
        self.0.rule_match_texts(input)
    }

    fn predict_effects(&self, input: WriteFileInput, _ctx: &ToolContext) -> PredictedEffects {
        self.0.predict_write(&input.path, |_| Some(FileContent::Text(input.content)))
    }

    fn call(&self, input: WriteFileInput, _ctx: &ToolContext) -> Result<ToolOutput, Reason> {
        let bytes = input.content.as_bytes();
        let count = bytes.len();
        if count > CONTENT_BYTES_MAX {
            return Err(format!(
                "the content is {count} bytes, but at most {CONTENT_BYTES_MAX} are allowed; split it into several files"
            )
            .into());
        }
        let target = self.0.checked_file_path(&input.path, PathAccess::Write)?;
        let fs_error = |error| target.fs_error(error);
        let writer = self.0.open_writer(&target).map_err(fs_error)?;
        let before = writer.read_current_file(&target.file, CONTENT_BYTES_MAX).map_err(fs_error)?;
        let display_path = &target.display;
        let verb = match &before {
            None => "Created",
            Some(before) if !before.is_truncated && before.bytes == bytes => {
                let message =
                    format!("`{display_path}` already has exactly this content ({count} bytes).");
                return Ok(ToolOutput::text(message));
            }
            Some(before) if before.is_read_only() => {
                return Err(format!("`{display_path}` is read-only").into());
            }
            Some(_) => "Replaced",
        };
        writer.replace_file(&target.file, bytes, before.as_ref()).map_err(fs_error)?;
        Ok(ToolOutput::text(format!("{verb} `{display_path}` ({count} bytes).")))
    }
}
