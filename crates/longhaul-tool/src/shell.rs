//! `shell`: a command line in the workspace, run by `/bin/sh -c`.
//!
//! Never: a wall. What a command reaches is what this process's user reaches,
//! so only agents whose file spells out `isolation: none` have it; rules on
//! commands are a courtesy. Never a secret of ours in its environment.

mod process;
mod split;

use std::path::PathBuf;
use std::sync::Arc;

use async_trait::async_trait;
use serde::Deserialize;
use serde_json::{Value, json};

use longhaul_core::event::tool::ToolOutput;
use longhaul_core::id::IdError;
use longhaul_core::port::tool::{Tool, ToolContext, ToolFailure, ToolSpec};
use longhaul_core::time::{Clock, Millis};

use crate::files::path::joined;
use crate::files::protected::Access;
use crate::files::workspace::{Workspace, error_hint};
use crate::shell::process::ShellProcess;
use crate::tool_support::{parse_input, tool_spec};

/// How long a command may take where the model does not say.
const TIMEOUT_SECS: u64 = 2 * 60;
/// How long it may take at most.
const TIMEOUT_SECS_MAX: u64 = 30 * 60;
/// The longest command, in bytes.
const COMMAND_BYTES_MAX: usize = 64 * 1024;
/// Where programs are looked for if we ourselves were not told.
const DEFAULT_PATH: &str = "/usr/local/bin:/usr/bin:/bin";
/// What of our own environment a command sees, and what it sees where we have none.
const INHERITED_ENV: [(&str, Option<&str>); 3] =
    [("PATH", Some(DEFAULT_PATH)), ("HOME", None), ("LANG", Some("C.UTF-8"))];

/// Runs commands.
#[derive(Debug)]
pub struct Shell {
    spec: ToolSpec,
    root: PathBuf,
    workspace: Workspace,
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
    ) -> Result<Self, IdError> {
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
                "maximum": TIMEOUT_SECS_MAX,
                "description": "After so many seconds it is killed, a whole number from 1 to 1800 such \
                    as `30`; 120 unless given",
            },
        });
        let description = "Runs a shell command in the workspace and gives back what it printed, \
            output and errors as they came, and its exit code in the last line. Of an \
            output of more than 10 MB the beginning and the end are kept.";
        let card = tool_spec("shell", description, properties, &["command"])?;
        Ok(Self {
            spec: card,
            workspace: Workspace::new(root.clone(), kept.into_iter().collect()),
            root,
            clock,
        })
    }

    /// The folder that a command begins in.
    fn working_dir(&self, cwd: Option<&str>) -> Result<PathBuf, ToolFailure> {
        let text = cwd.unwrap_or_default();
        let parts = self.workspace.parts(text, Access::Read);
        let parts = parts.map_err(|bad| failure(bad.to_string()))?;
        // Each step is tried, so that no link on the way leads out.
        self.workspace.folder(&parts).map_err(|trouble| {
            let said = joined(&parts);
            failure(format!("`{said}` {trouble}{}", error_hint(&trouble)))
        })?;
        let mut folder = self.root.clone();
        folder.extend(parts);
        Ok(folder)
    }
}

#[async_trait]
impl Tool for Shell {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    /// The commands in the command line; rules try each.
    fn subjects(&self, input: &Value) -> Vec<String> {
        input["command"].as_str().map_or_else(Vec::new, split::commands)
    }

    fn is_opaque(&self, input: &Value) -> bool {
        input["command"].as_str().is_some_and(split::is_opaque)
    }

    fn timeout(&self, input: &Value) -> Option<Millis> {
        let seconds = input["timeout"].as_u64().unwrap_or(TIMEOUT_SECS);
        Some(Millis::from_secs(seconds.clamp(1, TIMEOUT_SECS_MAX)))
    }

    /// Its processes are killed when its call is dropped.
    fn is_cancel_safe(&self) -> bool {
        true
    }

    /// Nobody kills them when the worker is killed itself.
    fn may_outlive_worker(&self) -> bool {
        true
    }

    fn is_unsandboxed(&self) -> bool {
        true
    }

    async fn call(&self, input: Value, around: &ToolContext) -> Result<ToolOutput, ToolFailure> {
        let input: Input = parse_input(&self.spec, input)?;
        if input.command.trim().is_empty() {
            return Err(failure("it is empty"));
        }
        if input.command.len() > COMMAND_BYTES_MAX {
            return Err(failure(format!(
                "it is longer than {COMMAND_BYTES_MAX} bytes; write it into a file and run that"
            )));
        }
        if input.command.contains('\0') {
            return Err(failure("it holds a NUL character"));
        }
        let folder = self.working_dir(input.cwd.as_deref())?;
        let mut command = tokio::process::Command::new("/bin/sh");
        command.arg("-c").arg(&input.command).current_dir(folder);
        command.env_clear().envs(command_env(around));
        let job = ShellProcess::start(command, around).map_err(|why| failure(why.to_string()))?;
        job.run(&*self.clock).await
    }
}

/// All that a command sees of an environment.
fn command_env(around: &ToolContext) -> Vec<(&'static str, std::ffi::OsString)> {
    let ours = INHERITED_ENV.into_iter().filter_map(|(name, usual)| {
        let value = std::env::var_os(name).or_else(|| usual.map(Into::into));
        Some((name, value?))
    });
    let mut env: Vec<_> = ours.collect();
    env.push(("TERM", "dumb".into()));
    env.push(("LONGHAUL_RUN", around.run.to_string().into()));
    env.push(("LONGHAUL_EPOCH", around.epoch.0.to_string().into()));
    env
}

fn failure(why: impl std::fmt::Display) -> ToolFailure {
    ToolFailure::new(format!("The command was not run: {why}."))
}
