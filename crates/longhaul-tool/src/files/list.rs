//! `list_files`: what is in a folder, or everything below it that fits a glob.
//!
//! Never: without a bound, and never silent about what it left out.

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
use crate::files::path::joined;
use crate::files::protected::Access;
use crate::files::walk::{Walk, WalkControl};
use crate::files::workspace::{Workspace, error_hint};
use crate::tool_support::{TIMEOUT, run_blocking};
use crate::typed::TypedTool;

/// How many entries are shown.
const SHOWN_MAX: usize = 1_000;

/// Lists files.
#[derive(Debug)]
pub(crate) struct ListFiles {
    pub(crate) workspace: Workspace,
    pub(crate) clock: Arc<dyn Clock>,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Input {
    /// The folder, from the workspace's top, such as `src`; the top itself unless given
    path: Option<String>,
    /// List the files in all folders below that fit, such as `*.rs`, `src/**/*.md` or `**` for
    /// all of them
    glob: Option<String>,
}

#[async_trait]
impl TypedTool for ListFiles {
    type Input = Input;
    const NAME: &'static str = "list_files";
    const DESCRIPTION: &'static str = "Lists what is in a folder of the workspace, one path a line \
        from the workspace's top, folders with a `/` at the end. With a glob it lists the files \
        that fit, in this folder and all below it. Shows 1000 at most.";
    const CLASS: EffectClass = EffectClass::Pure;
    const TIMEOUT: Option<Millis> = TIMEOUT;

    /// The folder; `.` stands for the whole workspace.
    fn raw_subjects(&self, input: &Value) -> Vec<String> {
        self.workspace.subjects(input)
    }

    async fn call(&self, input: Input, _ctx: &ToolContext) -> Result<ToolOutput, ToolFailure> {
        let (space, clock) = (self.workspace.clone(), Arc::clone(&self.clock));
        run_blocking(move || list(&space, &input, clock)).await
    }
}

fn list(
    space: &Workspace,
    input: &Input,
    clock: Arc<dyn Clock>,
) -> Result<ToolOutput, ToolFailure> {
    let refuse = |why: String| ToolFailure::new(format!("Nothing was listed: {why}."));
    let text = input.path.as_deref().unwrap_or_default();
    let parts = space.parts(text, Access::Read);
    let parts = parts.map_err(|bad| refuse(bad.to_string()))?;
    // Models send an empty text for what they leave out.
    let glob = input.glob.as_deref().filter(|glob| !glob.is_empty());
    let glob = glob.map(Glob::new).transpose().map_err(refuse)?;
    let mut lines: Vec<String> = Vec::new();
    let mut more = false;
    let mut walk = Walk::new(space, glob.as_ref(), clock);
    let walked = walk.run(&parts, glob.is_some(), &mut |_, met| {
        if lines.len() == SHOWN_MAX {
            more = true;
            return WalkControl::Stop;
        }
        let path = &met.path;
        lines.push(match met.kind {
            FileType::RegularFile => path.clone(),
            FileType::Directory => format!("{path}/"),
            FileType::Symlink => format!("{path} (a link, not followed)"),
            FileType::Fifo
            | FileType::Socket
            | FileType::CharacterDevice
            | FileType::BlockDevice
            | FileType::Unknown => format!("{path} (not a plain file)"),
        });
        WalkControl::Continue
    });
    let said = joined(&parts);
    walked.map_err(|trouble| refuse(format!("`{said}` {trouble}{}", error_hint(&trouble))))?;
    let mut notes = walk.notes();
    if more {
        let note = format!(
            "There is more: only the first {SHOWN_MAX} are shown; narrow it by path or glob."
        );
        notes.insert(0, note);
    }
    if lines.is_empty() {
        lines.push(match glob {
            Some(_) => "[No file fits.]".into(),
            None => "[The folder is empty.]".into(),
        });
    }
    lines.extend(notes.iter().map(|note| format!("[{note}]")));
    Ok(ToolOutput::text(lines.join("\n")))
}
