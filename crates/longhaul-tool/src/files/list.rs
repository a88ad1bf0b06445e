//! `list_files`: what is in a folder, or everything below it that fits a glob.
//!
//! Never: without a bound, and never silent about what it left out.

use std::sync::Arc;

use async_trait::async_trait;
use rustix::fs::FileType;
use serde::Deserialize;
use serde_json::{Value, json};

use longhaul_core::event::tool::ToolOutput;
use longhaul_core::id::BadId;
use longhaul_core::policy::effect::EffectClass;
use longhaul_core::port::tool::{Tool, ToolCard, ToolContext, ToolFailure};
use longhaul_core::time::Clock;

use crate::ask::{aside, card, typed};
use crate::files::closed::Wish;
use crate::files::glob::Glob;
use crate::files::path::joined;
use crate::files::walk::{Go, Walk};
use crate::files::workspace::{Workspace, hint};

/// How many entries are shown.
const SHOWN_MAX: usize = 1_000;

/// Lists files.
#[derive(Debug)]
pub(crate) struct ListFiles {
    card: ToolCard,
    space: Workspace,
    clock: Arc<dyn Clock>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Input {
    path: Option<String>,
    glob: Option<String>,
}

impl ListFiles {
    /// The tool over this workspace.
    pub(crate) fn new(space: Workspace, clock: Arc<dyn Clock>) -> Result<Self, BadId> {
        let properties = json!({
            "path": {
                "type": "string",
                "description": "The folder, from the workspace's top, such as `src`; the top itself unless given",
            },
            "glob": {
                "type": "string",
                "description": "List the files in all folders below that fit, such as `*.rs`, \
                    `src/**/*.md` or `**` for all of them",
            },
        });
        let description = "Lists what is in a folder of the workspace, one path a line from the \
            workspace's top, folders with a `/` at the end. With a glob it lists the files that \
            fit, in this folder and all below it. Shows 1000 at most.";
        Ok(Self {
            card: card("list_files", description, properties, &[])?,
            space,
            clock,
        })
    }
}

#[async_trait]
impl Tool for ListFiles {
    fn card(&self) -> &ToolCard {
        &self.card
    }

    fn class(&self, _input: &Value) -> EffectClass {
        EffectClass::Pure
    }

    /// The folder; `.` stands for the whole workspace.
    fn subjects(&self, input: &Value) -> Vec<String> {
        self.space.subjects(input)
    }

    async fn call(&self, input: Value, _around: &ToolContext) -> Result<ToolOutput, ToolFailure> {
        let input: Input = typed(&self.card, input)?;
        let (space, clock) = (self.space.clone(), Arc::clone(&self.clock));
        aside(move || list(&space, &input, clock)).await
    }
}

fn list(
    space: &Workspace,
    input: &Input,
    clock: Arc<dyn Clock>,
) -> Result<ToolOutput, ToolFailure> {
    let refuse = |why: String| ToolFailure::new(format!("Nothing was listed: {why}."));
    let text = input.path.as_deref().unwrap_or_default();
    let parts = space.parts(text, Wish::Read);
    let parts = parts.map_err(|bad| refuse(bad.to_string()))?;
    // Models send an empty text for what they leave out.
    let glob = input.glob.as_deref().filter(|glob| !glob.is_empty());
    let glob = glob.map(Glob::new).transpose().map_err(refuse)?;
    let mut lines: Vec<String> = Vec::new();
    let mut more = false;
    let mut walk = Walk::new(space, glob.as_ref(), clock);
    let walked = walk.go(&parts, glob.is_some(), &mut |_, met| {
        if lines.len() == SHOWN_MAX {
            more = true;
            return Go::Stop;
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
        Go::On
    });
    let said = joined(&parts);
    walked.map_err(|trouble| refuse(format!("`{said}` {trouble}{}", hint(&trouble))))?;
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
