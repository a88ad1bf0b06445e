//! The tool `write_file`, which creates or replaces a file.
//!
//! Invariant: a file is written completely or not at all. Repeating a call with the same input has
//! no further effect.

use async_trait::async_trait;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;

use longhaul_core::event::tool::ToolOutput;
use longhaul_core::policy::effect::EffectClass;
use longhaul_core::policy::effect_facts::{FileContent, PredictedEffects};
use longhaul_core::port::tool::{ToolContext, ToolFailure};
use longhaul_core::time::Millis;

use crate::files::protected::PathAccess;
use crate::files::workspace::{Workspace, file_error_hint};
use crate::tool_support::{TIMEOUT, predict_on_blocking_thread, run_on_blocking_thread};
use crate::typed::TypedTool;

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

#[async_trait]
impl TypedTool for WriteFileTool {
    type Input = WriteFileInput;
    const NAME: &'static str = "write_file";
    const DESCRIPTION: &'static str = "Writes a whole text file of the workspace, at most 5 MB: \
        creates it, or replaces its content. To change a part of a file use edit_file.";
    const CLASS: EffectClass = EffectClass::Keyed;
    const TIMEOUT: Option<Millis> = TIMEOUT;

    fn rule_match_texts_from_json(&self, input: &Value) -> Vec<String> {
        self.0.rule_match_texts(input)
    }

    async fn predict_effects(&self, input: WriteFileInput, _ctx: &ToolContext) -> PredictedEffects {
        let workspace = self.0.clone();
        let after = FileContent::Text(input.content);
        predict_on_blocking_thread(move || workspace.predict_write(&input.path, |_| Some(after)))
            .await
    }

    async fn call(
        &self,
        input: WriteFileInput,
        _ctx: &ToolContext,
    ) -> Result<ToolOutput, ToolFailure> {
        let workspace = self.0.clone();
        run_on_blocking_thread(move || write_file(&workspace, &input)).await
    }
}

fn write_file(workspace: &Workspace, input: &WriteFileInput) -> Result<ToolOutput, ToolFailure> {
    let refuse = |reason: String| ToolFailure::new(format!("The file was not written: {reason}."));
    let bytes = input.content.as_bytes();
    if bytes.len() > CONTENT_BYTES_MAX {
        let reason = format!(
            "the content is {} bytes, but at most {CONTENT_BYTES_MAX} are allowed; split it into several files",
            bytes.len()
        );
        return Err(refuse(reason));
    }
    let target = workspace.checked_file_path(&input.path, PathAccess::Write);
    let target = target.map_err(|error| refuse(error.to_string()))?;
    let display_path = &target.display;
    let error = |error| refuse(format!("`{display_path}`: {error}{}", file_error_hint(&error)));
    let writer = workspace.open_writer(&target).map_err(error)?;
    let before = writer.read_current_file(target.file_name(), CONTENT_BYTES_MAX);
    let before = before.map_err(error)?;
    let count = bytes.len();
    let verb = match &before {
        None => "Created",
        Some(before) if !before.is_truncated && before.bytes == bytes => {
            let message =
                format!("`{display_path}` already has exactly this content ({count} bytes).");
            return Ok(ToolOutput::text(message));
        }
        Some(before) if before.is_read_only() => {
            return Err(refuse(format!("`{display_path}` is read-only")));
        }
        Some(_) => "Replaced",
    };
    let result = writer.replace_file(target.file_name(), bytes, before.as_ref());
    result.map_err(error)?;
    Ok(ToolOutput::text(format!("{verb} `{display_path}` ({count} bytes).")))
}
