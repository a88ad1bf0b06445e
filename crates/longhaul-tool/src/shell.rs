//! The tool `shell`, which runs a command line with `/bin/sh -c`, in the sandbox of the run or in the
//! workspace of this machine.
//!
//! Without a sandbox, a command can access whatever the user of this process can. So only agents with
//! `isolation: none` in their file run commands in this way. Rules on commands are no security
//! boundary.
//!
//! Invariant: the environment of a command contains none of our secrets.

mod process;
mod sandboxed;
mod split;

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;

use async_trait::async_trait;
use schemars::JsonSchema;
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::Value;

use longhaul_core::event::tool::ToolOutput;
use longhaul_core::policy::effect_facts::{ANY_HOST, PredictedEffects};
use longhaul_core::port::tool::{Tool, ToolContext, ToolFailure, ToolSpec};
use longhaul_core::time::{Clock, Millis};

use crate::command::DEFAULT_PATH;
use crate::files::path::join_parts;
use crate::files::protected::PathAccess;
use crate::files::workspace::{Workspace, fs_error_message};
use crate::shell::process::{ShellProcess, shell_failure};
use crate::shell::sandboxed::run_in_sandbox;
use crate::typed::{TypedToolError, parse_input, tool_spec};

/// Default timeout of a command in seconds.
const TIMEOUT_SECS: u64 = 2 * 60;
/// Maximum timeout of a command in seconds.
const TIMEOUT_SECS_MAX: u64 = 30 * 60;
/// Maximum length of a command line in bytes.
const COMMAND_BYTES_MAX: usize = 64 * 1024;
/// Environment variables that a command inherits from this process, each with the value that is
/// used if the variable is not set. `None` means that the command then does not have it either.
const INHERITED_ENV: [(&str, Option<&str>); 3] =
    [("PATH", Some(DEFAULT_PATH)), ("HOME", None), ("LANG", Some("C.UTF-8"))];

/// The tool `shell`, which runs a command line.
#[derive(Debug)]
pub struct ShellTool {
    spec: ToolSpec,
    root: PathBuf,
    workspace: Workspace,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct ShellInput {
    /// The command for `/bin/sh -c`. It has no input, and processes it leaves in the background are
    /// killed when it exits
    command: String,
    /// The working directory, relative to the top of the workspace, such as `src`; default: the top
    cwd: Option<String>,
    /// Timeout in seconds, a whole number from 1 to 1800 such as `30`; default: 120
    #[schemars(with = "Option<u64>", range(min = 1, max = TIMEOUT_SECS_MAX))]
    #[expect(dead_code, reason = "the caller of the tool enforces the timeout")]
    timeout: Option<IgnoredAny>,
}

impl ShellTool {
    /// Creates the tool for the workspace in `root`. Commands can't start in the protected folders.
    pub fn new(
        root: impl Into<PathBuf>,
        protected: impl IntoIterator<Item = PathBuf>,
        clock: Arc<dyn Clock>,
    ) -> Result<Self, TypedToolError> {
        let root = root.into();
        let description = "Runs a shell command in the workspace and returns its output, \
            stdout and stderr in order, and its exit code in the last line. Of an \
            output of more than 10 MB the beginning and the end are kept.";
        Ok(Self {
            spec: tool_spec::<ShellInput>("shell", description)?,
            workspace: Workspace::new(root.clone(), protected.into_iter().collect(), clock),
            root,
        })
    }

    /// Returns the working directory of a command. `cwd` is relative to the workspace; `None` means
    /// the workspace itself.
    fn working_dir(&self, cwd: Option<&str>) -> Result<PathBuf, ToolFailure> {
        let text = cwd.unwrap_or_default();
        let parts = self.workspace.parse_accessible_path(text, PathAccess::Read);
        let parts = parts.map_err(|error| shell_failure(error.to_string()))?;
        // Each component is opened, so that no symbolic link in the path leads out.
        self.workspace
            .open_folder(&parts)
            .map_err(|error| shell_failure(fs_error_message(&join_parts(&parts), &error)))?;
        let mut folder = self.root.clone();
        folder.extend(parts);
        Ok(folder)
    }
}

#[async_trait]
impl Tool for ShellTool {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    /// Returns the commands in the command line; approval rules match each of them.
    fn rule_match_texts(&self, input: &Value) -> Vec<String> {
        input["command"].as_str().map_or_else(Vec::new, split::split_commands)
    }

    fn are_rule_match_texts_unknown(&self, input: &Value) -> bool {
        input["command"].as_str().is_some_and(split::has_hidden_commands)
    }

    /// Returns the protected paths that the command names. Without a sandbox, nothing limits the
    /// files and hosts that it accesses.
    async fn predict_effects(&self, input: &Value, _ctx: &ToolContext) -> PredictedEffects {
        let command = input["command"].as_str().unwrap_or_default();
        let arguments =
            command.split(|c: char| c.is_whitespace() || "\"'`=;|&<>(){}$,:".contains(c));
        let paths: BTreeSet<&str> =
            arguments.filter(|part| self.workspace.is_protected_path_argument(part)).collect();
        PredictedEffects {
            network: Some(vec![ANY_HOST.to_owned()]),
            protected_paths: paths.into_iter().map(str::to_owned).collect(),
            ..PredictedEffects::default()
        }
    }

    fn timeout(&self, input: &Value) -> Option<Millis> {
        let seconds = input["timeout"].as_u64().unwrap_or(TIMEOUT_SECS);
        Some(Millis::from_secs(seconds.clamp(1, TIMEOUT_SECS_MAX)))
    }

    /// Returns `true`: the processes are killed when the call is dropped.
    fn is_cancel_safe(&self) -> bool {
        true
    }

    /// Returns `true`: nothing kills the processes if the worker itself is killed.
    fn may_outlive_worker(&self) -> bool {
        true
    }

    fn is_unsandboxed(&self) -> bool {
        true
    }

    fn works_in_sandbox(&self) -> bool {
        true
    }

    async fn call(&self, input: Value, ctx: &ToolContext) -> Result<ToolOutput, ToolFailure> {
        let input: ShellInput = parse_input(&self.spec, input)?;
        if input.command.trim().is_empty() {
            return Err(shell_failure("the command is empty"));
        }
        if input.command.len() > COMMAND_BYTES_MAX {
            return Err(shell_failure(format!(
                "the command is longer than {COMMAND_BYTES_MAX} bytes; run it from a file"
            )));
        }
        if input.command.contains('\0') {
            return Err(shell_failure("the command contains a NUL character"));
        }
        if let Some(sandbox) = &ctx.sandbox {
            let command = (&*input.command, input.cwd.as_deref());
            return run_in_sandbox(sandbox, command, (ctx, &*self.workspace.clock)).await;
        }
        let folder = self.working_dir(input.cwd.as_deref())?;
        let mut command = tokio::process::Command::new("/bin/sh");
        command.arg("-c").arg(&input.command).current_dir(folder);
        command.env_clear().envs(command_env(ctx));
        let process = ShellProcess::start_command(command, ctx)
            .map_err(|error| shell_failure(error.to_string()))?;
        process.run_until_exit(&*self.workspace.clock).await
    }
}

/// Returns the environment variables of a command.
fn command_env(ctx: &ToolContext) -> Vec<(&'static str, std::ffi::OsString)> {
    let inherited = INHERITED_ENV.into_iter().filter_map(|(name, default_value)| {
        let value = std::env::var_os(name).or_else(|| default_value.map(Into::into));
        Some((name, value?))
    });
    let mut env: Vec<_> = inherited.collect();
    env.push(("TERM", "dumb".into()));
    env.push(("LONGHAUL_RUN", ctx.run.to_string().into()));
    env.push(("LONGHAUL_EPOCH", ctx.epoch.0.to_string().into()));
    env
}
