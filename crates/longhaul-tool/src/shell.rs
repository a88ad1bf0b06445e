//! `shell`: a command line in the workspace, run by `/bin/sh -c`.
//!
//! Never: a wall. What a command reaches is what this process's user reaches,
//! so only agents whose file spells out `isolation: none` have it; rules on
//! commands are a courtesy. Never a secret of ours in its environment.

mod job;
mod parts;

use std::path::PathBuf;
use std::sync::Arc;

use async_trait::async_trait;
use serde::Deserialize;
use serde_json::{Value, json};

use longhaul_core::event::tool::ToolOutput;
use longhaul_core::id::BadId;
use longhaul_core::port::tool::{Tool, ToolCard, ToolContext, ToolFailure};
use longhaul_core::time::{Clock, Millis};

use crate::ask::{card, typed};
use crate::files::closed::Wish;
use crate::files::path::joined;
use crate::files::workspace::{Workspace, hint};
use crate::shell::job::Job;

/// How long a command may take where the model does not say.
const SECONDS: u64 = 2 * 60;
/// How long it may take at most.
const SECONDS_MAX: u64 = 30 * 60;
/// The longest command, in bytes.
const COMMAND_BYTES_MAX: usize = 64 * 1024;
/// Where programs are looked for if we ourselves were not told.
const PATH: &str = "/usr/local/bin:/usr/bin:/bin";
/// What of our own environment a command sees, and what it sees where we have none.
const ENV: [(&str, Option<&str>); 3] = [
    ("PATH", Some(PATH)),
    ("HOME", None),
    ("LANG", Some("C.UTF-8")),
];

/// Runs commands.
#[derive(Debug)]
pub struct Shell {
    card: ToolCard,
    root: PathBuf,
    space: Workspace,
    clock: Arc<dyn Clock>,
}

/// How long it may take is read before the call, and held by whoever makes it.
#[derive(Debug, Deserialize)]
struct Input {
    command: String,
    cwd: Option<String>,
}

impl Shell {
    /// The tool over the workspace in the directory `root`, none of whose
    /// commands begin in these folders.
    pub fn new(
        root: impl Into<PathBuf>,
        kept: impl IntoIterator<Item = PathBuf>,
        clock: Arc<dyn Clock>,
    ) -> Result<Self, BadId> {
        let root = root.into();
        let properties = json!({
            "command": {
                "type": "string",
                "description": "What `/bin/sh -c` runs. Nobody types into it, and what it leaves in \
                    the background ends with it",
            },
            "cwd": {
                "type": "string",
                "description": "The folder it begins in, from the workspace's top, such as `src`; the \
                    top itself unless given",
            },
            "timeout": {
                "type": "integer",
                "minimum": 1,
                "maximum": SECONDS_MAX,
                "description": "After so many seconds it is killed, a whole number from 1 to 1800 such \
                    as `30`; 120 unless given",
            },
        });
        let description = "Runs a shell command in the workspace and gives back what it printed, \
            output and errors as they came, and its exit code in the last line. Of an \
            output of more than 10 MB the beginning and the end are kept.";
        let card = card("shell", description, properties, &["command"])?;
        Ok(Self {
            card,
            space: Workspace::new(root.clone(), kept.into_iter().collect()),
            root,
            clock,
        })
    }

    /// The folder that a command begins in.
    fn folder(&self, cwd: Option<&str>) -> Result<PathBuf, ToolFailure> {
        let text = cwd.unwrap_or_default();
        let parts = self.space.parts(text, Wish::Read);
        let parts = parts.map_err(|bad| refusal(bad.to_string()))?;
        // Each step is tried, so that no link on the way leads out.
        self.space.folder(&parts).map_err(|trouble| {
            let said = joined(&parts);
            refusal(format!("`{said}` {trouble}{}", hint(&trouble)))
        })?;
        let mut folder = self.root.clone();
        folder.extend(parts);
        Ok(folder)
    }
}

#[async_trait]
impl Tool for Shell {
    fn card(&self) -> &ToolCard {
        &self.card
    }

    /// The commands in the command line; rules try each.
    fn subjects(&self, input: &Value) -> Vec<String> {
        input["command"].as_str().map_or_else(Vec::new, parts::of)
    }

    fn is_opaque(&self, input: &Value) -> bool {
        input["command"].as_str().is_some_and(parts::are_hidden)
    }

    fn timeout(&self, input: &Value) -> Option<Millis> {
        let seconds = input["timeout"].as_u64().unwrap_or(SECONDS);
        Some(Millis::from_secs(seconds.clamp(1, SECONDS_MAX)))
    }

    /// Its processes are killed when its call is dropped.
    fn stops_cleanly(&self) -> bool {
        true
    }

    /// Nobody kills them when the worker is killed itself.
    fn outlives(&self) -> bool {
        true
    }

    fn is_unwalled(&self) -> bool {
        true
    }

    async fn call(&self, input: Value, around: &ToolContext) -> Result<ToolOutput, ToolFailure> {
        let input: Input = typed(&self.card, input)?;
        if input.command.trim().is_empty() {
            return Err(refusal("it is empty"));
        }
        if input.command.len() > COMMAND_BYTES_MAX {
            return Err(refusal(format!(
                "it is longer than {COMMAND_BYTES_MAX} bytes; write it into a file and run that"
            )));
        }
        if input.command.contains('\0') {
            return Err(refusal("it holds a NUL character"));
        }
        let folder = self.folder(input.cwd.as_deref())?;
        let mut command = tokio::process::Command::new("/bin/sh");
        command.arg("-c").arg(&input.command).current_dir(folder);
        command.env_clear().envs(env(around));
        let job = Job::start(command, around).map_err(|why| refusal(why.to_string()))?;
        job.run(&*self.clock).await
    }
}

/// All that a command sees of an environment.
fn env(around: &ToolContext) -> Vec<(&'static str, std::ffi::OsString)> {
    let ours = ENV.into_iter().filter_map(|(name, usual)| {
        let value = std::env::var_os(name).or_else(|| usual.map(Into::into));
        Some((name, value?))
    });
    let mut env: Vec<_> = ours.collect();
    env.push(("TERM", "dumb".into()));
    env.push(("LONGHAUL_RUN", around.run.to_string().into()));
    env.push(("LONGHAUL_EPOCH", around.epoch.0.to_string().into()));
    env
}

fn refusal(why: impl std::fmt::Display) -> ToolFailure {
    ToolFailure::new(format!("The command was not run: {why}."))
}
