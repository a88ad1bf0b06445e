//! The tool `list_files`: the entries of a folder, or all files below it that match a glob.
//!
//! Invariant: the output is limited and says what was left out.

use std::sync::Arc;

use async_trait::async_trait;
use rustix::fs::FileType;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;

use longhaul_core::event::tool::ToolOutput;
use longhaul_core::policy::effect::EffectClass;
use longhaul_core::port::tool::{ToolContext, ToolFailure};
use longhaul_core::time::{Clock, Millis};

use crate::files::glob::Glob;
use crate::files::path::join_path_parts;
use crate::files::protected::PathAccess;
use crate::files::walk::{FolderWalk, WalkControl};
use crate::files::workspace::{Workspace, file_error_hint};
use crate::tool_support::{TIMEOUT, run_on_blocking_thread};
use crate::typed::TypedTool;

/// Maximum number of entries that are listed.
const SHOWN_MAX: usize = 1_000;

/// The tool `list_files`, which lists a folder or matching files.
#[derive(Debug)]
pub(crate) struct ListFilesTool {
    pub(crate) workspace: Workspace,
    pub(crate) clock: Arc<dyn Clock>,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ListFilesInput {
    /// The folder, relative to the top of the workspace, such as `src`; default: the top
    path: Option<String>,
    /// List the matching files in all folders below, such as `*.rs`, `src/**/*.md` or `**` for all
    /// files
    glob: Option<String>,
}

#[async_trait]
impl TypedTool for ListFilesTool {
    type Input = ListFilesInput;
    const NAME: &'static str = "list_files";
    const DESCRIPTION: &'static str = "Lists the entries of a folder of the workspace, one path per line \
        relative to the top of the workspace, folders with a `/` at the end. With a glob it lists the \
        matching files in this folder and all below it. Shows at most 1000.";
    const CLASS: EffectClass = EffectClass::Pure;
    const TIMEOUT: Option<Millis> = TIMEOUT;

    /// Returns the folder as the text that approval rules match; `.` means the whole workspace.
    fn rule_match_texts_from_json(&self, input: &Value) -> Vec<String> {
        self.workspace.rule_match_texts(input)
    }

    async fn call(
        &self,
        input: ListFilesInput,
        _ctx: &ToolContext,
    ) -> Result<ToolOutput, ToolFailure> {
        let (workspace, clock) = (self.workspace.clone(), Arc::clone(&self.clock));
        run_on_blocking_thread(move || list_workspace_entries(&workspace, &input, clock)).await
    }
}

fn list_workspace_entries(
    workspace: &Workspace,
    input: &ListFilesInput,
    clock: Arc<dyn Clock>,
) -> Result<ToolOutput, ToolFailure> {
    let refuse = |reason: String| ToolFailure::new(format!("Nothing was listed: {reason}."));
    let text = input.path.as_deref().unwrap_or_default();
    let parts = workspace.parse_accessible_path(text, PathAccess::Read);
    let parts = parts.map_err(|error| refuse(error.to_string()))?;
    // Models send an empty text for fields they leave out.
    let glob = input.glob.as_deref().filter(|glob| !glob.is_empty());
    let glob = glob.map(Glob::new).transpose().map_err(refuse)?;
    let mut lines: Vec<String> = Vec::new();
    let mut is_truncated = false;
    let mut walk = FolderWalk::new(workspace, glob.as_ref(), clock);
    let result = walk.visit_entries(&parts, glob.is_some(), &mut |_, entry| {
        if lines.len() == SHOWN_MAX {
            is_truncated = true;
            return WalkControl::Stop;
        }
        let path = &entry.path;
        lines.push(match entry.kind {
            FileType::RegularFile => path.clone(),
            FileType::Directory => format!("{path}/"),
            FileType::Symlink => format!("{path} (a symbolic link, not followed)"),
            FileType::Fifo
            | FileType::Socket
            | FileType::CharacterDevice
            | FileType::BlockDevice
            | FileType::Unknown => format!("{path} (not a regular file)"),
        });
        WalkControl::Continue
    });
    let display_path = join_path_parts(&parts);
    result
        .map_err(|error| refuse(format!("`{display_path}`: {error}{}", file_error_hint(&error))))?;
    let mut notes = walk.omission_notes();
    if is_truncated {
        let note = format!(
            "There is more: only the first {SHOWN_MAX} are shown; narrow the search by path or glob."
        );
        notes.insert(0, note);
    }
    if lines.is_empty() {
        lines.push(match glob {
            Some(_) => "[No file matches.]".into(),
            None => "[The folder is empty.]".into(),
        });
    }
    lines.extend(notes.iter().map(|note| format!("[{note}]")));
    Ok(ToolOutput::text(lines.join("\n")))
}
