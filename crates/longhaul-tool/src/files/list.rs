//! The tool `list_files`: the entries of a folder, or all files below it that match a glob.
//!
//! Invariant: the output is limited and says what was left out.

use std::ops::ControlFlow;
use std::path::PathBuf;

use rustix::fs::FileType;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;

use longhaul_core::event::tool::ToolOutput;
use longhaul_core::policy::effect::EffectClass;
use longhaul_core::port::tool::ToolContext;

use crate::disk_tool::{DiskTool, Reason};
use crate::files::glob::Glob;
use crate::files::path::join_parts;
use crate::files::protected::PathAccess;
use crate::files::walk::FolderWalk;
use crate::files::workspace::{Workspace, fs_error_message};

/// Maximum number of entries that are listed.
const SHOWN_MAX: usize = 1_000;

/// The tool `list_files`, which lists a folder or matching files.
#[derive(Debug)]
pub(crate) struct ListFilesTool(pub(crate) Workspace);

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ListFilesInput {
    /// The folder, relative to the top of the workspace, such as `src`; default: the top
    path: Option<String>,
    /// List the matching files in all folders below, such as `*.rs`, `src/**/*.md` or `**` for all
    /// files
    glob: Option<String>,
}

impl DiskTool for ListFilesTool {
    type Input = ListFilesInput;
    const NAME: &'static str = "list_files";
    const DESCRIPTION: &'static str = "Lists the entries of a folder of the workspace, one path per line \
        relative to the top of the workspace, folders with a `/` at the end. With a glob it lists the \
        matching files in this folder and all below it. Shows at most 1000.";
    const CLASS: EffectClass = EffectClass::Pure;
    const FAILURE: &'static str = "Nothing was listed";

    fn in_sandbox(&self, work_folder: PathBuf) -> Option<Self> {
        Some(Self(self.0.in_sandbox(work_folder)))
    }

    /// Returns the folder as the text that approval rules match; `.` means the whole workspace.
    fn rule_match_texts(&self, input: &Value) -> Vec<String> {
        self.0.rule_match_texts(input)
    }

    fn call(&self, input: ListFilesInput, _ctx: &ToolContext) -> Result<ToolOutput, Reason> {
        let path = input.path.unwrap_or_default();
        let parts = self.0.parse_accessible_path(&path, PathAccess::Read)?;
        let glob = Glob::parse_optional(input.glob.as_deref())?;
        let mut lines: Vec<String> = Vec::new();
        let mut is_truncated = false;
        let mut walk = FolderWalk::new(&self.0, glob.as_ref());
        let result = walk.visit_entries(&parts, glob.is_some(), &mut |_, entry| {
            if lines.len() == SHOWN_MAX {
                is_truncated = true;
                return ControlFlow::Break(());
            }
            let path = &entry.path;
            let marks = [
                (FileType::RegularFile, ""),
                (FileType::Directory, "/"),
                (FileType::Symlink, " (a symbolic link, not followed)"),
            ];
            let mark = marks.iter().find(|(kind, _)| *kind == entry.kind);
            lines.push(format!("{path}{}", mark.map_or(" (not a regular file)", |(_, mark)| mark)));
            ControlFlow::Continue(())
        });
        result.map_err(|error| fs_error_message(&join_parts(&parts), &error))?;
        if lines.is_empty() {
            lines.push(match glob {
                Some(_) => "[No file matches.]".into(),
                None => "[The folder is empty.]".into(),
            });
        }
        if is_truncated {
            lines.push(format!(
                "[There is more: only the first {SHOWN_MAX} are shown; narrow the search by path or glob.]"
            ));
        }
        lines.extend(walk.omission_notes());
        Ok(ToolOutput::text(lines.join("\n")))
    }
}
