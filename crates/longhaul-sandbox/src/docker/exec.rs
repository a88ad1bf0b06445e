//! Commands in a container: their start, their streams, and the end of all their processes.
//!
//! The engine can't kill a command. Therefore each command has a mark in its environment, which
//! its processes inherit, and a script in the container kills the processes with this mark.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bollard::container::LogOutput;
use bollard::exec::StartExecResults;
use bollard::models::{ExecConfig, ExecInspectResponse};
use bollard::query_parameters::StopContainerOptionsBuilder;
use futures_util::StreamExt as _;
use longhaul_core::id::Epoch;
use longhaul_core::port::sandbox::{
    EPOCH_VAR, ExecStatus, OutputReceiver, OutputStream, SandboxCommand, SandboxError, WORKSPACE,
};
use tokio::io::AsyncWriteExt as _;

use super::engine::{Engine, error_of, is_conflict};
use super::kill_script::KILL_SCRIPT;
use crate::local::path::normalize;

/// Environment variable with the mark of a command: its epoch, a dot and a random number, followed
/// by a semicolon.
pub(super) const MARK_VAR: &str = "LONGHAUL_EXEC";
/// Value of the mark of processes that are no command.
pub(super) const INIT_MARK: &str = "init;";

/// Runs a command as the child of a shell, which keeps the mark whatever the command does to its
/// environment. In a subshell, `exec` starts a program and never a builtin of the shell.
const RUN_SCRIPT: &str = r#"cd "$1" || exit 126; shift; (exec "$@"); exit $?"#;
/// Time within which the processes of a command must be gone. Then the container is restarted.
const KILL_TIMEOUT: Duration = Duration::from_secs(10);
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// A container in which commands run.
#[derive(Debug, Clone)]
pub(super) struct Commands {
    pub(super) engine: Arc<Engine>,
    /// Identifier of the container, which no other container gets.
    pub(super) container: String,
    /// Environment variables of all commands.
    pub(super) env: BTreeMap<String, String>,
}

impl Commands {
    /// Runs a command until it has ended or its timeout has passed. If the future is dropped, a
    /// task of the engine kills the processes of the command.
    pub(super) async fn run(
        &self,
        command: &SandboxCommand,
        on_output: OutputReceiver<'_>,
    ) -> Result<ExecStatus, SandboxError> {
        let mark = format!("{}.{:032x}", command.epoch.0, random_number()?);
        let config = self.config(command, &mark)?;
        let mut guard = KillGuard { commands: self, mark, exec: None };
        let attached = self.run_attached(config, &command.stdin, (&mut guard, on_output));
        let ended = match command.timeout {
            Some(timeout) => tokio::time::timeout(timeout.into(), attached).await,
            None => Ok(attached.await),
        };
        if let Ok(ended) = ended {
            if ended.is_ok() {
                guard.exec = None;
            }
            return ended.map(ExecStatus::Exited);
        }
        if let Some(exec) = guard.exec.clone() {
            self.kill(&guard.mark, &exec).await?;
            guard.exec = None;
        }
        Ok(ExecStatus::TimedOut)
    }

    /// Starts a command, passes its streams on, and returns its exit code.
    async fn run_attached(
        &self,
        config: ExecConfig,
        stdin: &[u8],
        (guard, on_output): (&mut KillGuard<'_>, OutputReceiver<'_>),
    ) -> Result<i32, SandboxError> {
        let client = self.engine.client().await?;
        let failed = |error| run_error(&error);
        let exec = client.create_exec(&self.container, config).await.map_err(failed)?.id;
        guard.exec = Some(exec.clone());
        let started = client.start_exec(&exec, None).await.map_err(failed)?;
        let StartExecResults::Attached { mut output, mut input } = started else {
            return Err(SandboxError::Unavailable(
                "the Docker engine has not attached the streams of a command".to_owned(),
            ));
        };
        // A command may end without reading its input, so errors are ignored.
        let feed = async {
            _ = input.write_all(stdin).await;
            _ = input.shutdown().await;
        };
        let mut feed = Box::pin(feed);
        let mut is_fed = stdin.is_empty();
        loop {
            tokio::select! {
                () = &mut feed, if !is_fed => is_fed = true,
                item = output.next() => match item {
                    Some(Ok(LogOutput::StdErr { message })) => {
                        on_output(OutputStream::Stderr, &message);
                    }
                    Some(Ok(item)) => on_output(OutputStream::Stdout, &item.into_bytes()),
                    Some(Err(error)) => return Err(failed(error)),
                    None => break,
                },
            }
        }
        // The output can end before the input is written. An engine may wait for the end of both.
        drop(feed);
        drop((input, output));
        self.wait_for_exit(&exec).await
    }

    /// Waits until the engine knows the exit code, which may be after the end of the output.
    async fn wait_for_exit(&self, exec: &str) -> Result<i32, SandboxError> {
        loop {
            let ExecInspectResponse { running, exit_code, .. } = self.inspect(exec).await?;
            if let (Some(false), Some(code)) = (running, exit_code) {
                return Ok(i32::try_from(code).unwrap_or(-1));
            }
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    }

    async fn inspect(&self, exec: &str) -> Result<ExecInspectResponse, SandboxError> {
        let client = self.engine.client().await?;
        client.inspect_exec(exec).await.map_err(|error| run_error(&error))
    }

    /// Returns the request that prepares a command.
    fn config(&self, command: &SandboxCommand, mark: &str) -> Result<ExecConfig, SandboxError> {
        if command.argv.is_empty() {
            return refuse("the command is empty: it needs at least the name of a program");
        }
        let mut env = self.env.clone();
        env.extend(command.env.clone());
        env.insert(EPOCH_VAR.to_owned(), command.epoch.0.to_string());
        env.insert(MARK_VAR.to_owned(), format!("{mark};"));
        if let Some(name) = env.keys().find(|name| !is_variable_name(name)) {
            return refuse(&format!(
                "{name:?} can't be an environment variable: use letters, digits and underscores"
            ));
        }
        let cwd = normalize(command.cwd.as_deref().unwrap_or(WORKSPACE))?;
        let cwd = cwd.to_string_lossy();
        let mut argv = ["/bin/sh", "-c", RUN_SCRIPT, "sh", &cwd].map(str::to_owned).to_vec();
        argv.extend(command.argv.iter().cloned());
        if argv.iter().chain(env.values()).any(|text| text.contains('\0')) {
            return refuse("arguments and environment variables can't contain a NUL byte");
        }
        let mut config = exec_config(argv, env);
        config.attach_stdin = Some(!command.stdin.is_empty());
        Ok(config)
    }

    /// Kills all processes of the command with this mark, and waits until they are gone.
    async fn kill(&self, mark: &str, exec: &str) -> Result<(), SandboxError> {
        let kill = async {
            loop {
                self.run_kill_script("command", mark).await?;
                // The engine may have been about to start the command.
                match self.inspect(exec).await {
                    Ok(ExecInspectResponse { exit_code: Some(_), .. })
                    | Err(SandboxError::NotFound) => return Ok(()),
                    Ok(_) => tokio::time::sleep(POLL_INTERVAL).await,
                    Err(error) => return Err(error),
                }
            }
        };
        self.kill_or_restart(kill).await
    }

    /// Kills all processes of commands of earlier claims than `epoch`.
    pub(super) async fn kill_before(&self, epoch: Epoch) -> Result<(), SandboxError> {
        // The arithmetic of shells ends there.
        let epoch = epoch.0.min(i64::MAX as u64).to_string();
        self.kill_or_restart(self.run_kill_script("before", &epoch)).await
    }

    /// Awaits `kill`, which kills processes. If it does not succeed in time, for example because a
    /// command starts processes faster than they are killed, restarts the container.
    async fn kill_or_restart(
        &self,
        kill: impl Future<Output = Result<(), SandboxError>>,
    ) -> Result<(), SandboxError> {
        match tokio::time::timeout(KILL_TIMEOUT, kill).await {
            // The container is gone or stopped, with all its processes.
            Ok(Ok(()) | Err(SandboxError::NotFound)) => return Ok(()),
            Ok(Err(error)) => tracing::warn!(%error, "can't kill a command in a container"),
            Err(_) => tracing::warn!("a command in a container survives: restarting the container"),
        }
        let client = self.engine.client().await?;
        let inspected = client.inspect_container(&self.container, None).await;
        let state = inspected.map_err(|error| error_of("describe a container", &error));
        match state.map(|container| container.state.and_then(|state| state.running)) {
            Ok(Some(true)) => {}
            Ok(_) | Err(SandboxError::NotFound) => return Ok(()),
            Err(error) => return Err(error),
        }
        let failed = |error| error_of("restart the container of a sandbox", &error);
        let at_once = StopContainerOptionsBuilder::new().t(0).build();
        client.stop_container(&self.container, Some(at_once)).await.map_err(failed)?;
        client.start_container(&self.container, None).await.map_err(failed)
    }

    /// Runs the script until no process is left that it should kill.
    async fn run_kill_script(&self, mode: &str, operand: &str) -> Result<(), SandboxError> {
        let env = BTreeMap::from([(MARK_VAR.to_owned(), INIT_MARK.to_owned())]);
        let argv = ["/bin/sh", "-c", KILL_SCRIPT, "sh", mode, operand].map(str::to_owned).to_vec();
        loop {
            let client = self.engine.client().await?;
            let created =
                client.create_exec(&self.container, exec_config(argv.clone(), env.clone()));
            let exec = created.await.map_err(|error| run_error(&error))?.id;
            let started =
                client.start_exec(&exec, None).await.map_err(|error| run_error(&error))?;
            if let StartExecResults::Attached { mut output, .. } = started {
                while output.next().await.is_some() {}
            }
            match self.wait_for_exit(&exec).await? {
                0 => return Ok(()),
                1 => tokio::time::sleep(POLL_INTERVAL).await,
                code => {
                    let text = format!("the script that kills commands ended with {code}");
                    return Err(SandboxError::Unavailable(text));
                }
            }
        }
    }
}

/// Kills the processes of a command when it is dropped, unless the command has ended.
struct KillGuard<'a> {
    commands: &'a Commands,
    mark: String,
    /// Identifier of the command at the engine. `None` means that nothing is to be killed.
    exec: Option<String>,
}

impl Drop for KillGuard<'_> {
    fn drop(&mut self) {
        let Some(exec) = self.exec.take() else { return };
        // Without a runtime the process ends. The next claim kills the commands of this one.
        let Ok(runtime) = tokio::runtime::Handle::try_current() else { return };
        let (commands, mark) = (self.commands.clone(), std::mem::take(&mut self.mark));
        let kill = async move {
            if let Err(error) = commands.kill(&mark, &exec).await {
                tracing::warn!(%error, "a command in a container may go on");
            }
        };
        self.commands.engine.kills.spawn_on(kill, &runtime);
    }
}

fn exec_config(argv: Vec<String>, env: BTreeMap<String, String>) -> ExecConfig {
    ExecConfig {
        attach_stdout: Some(true),
        attach_stderr: Some(true),
        cmd: Some(argv),
        env: Some(env.into_iter().map(|(name, value)| format!("{name}={value}")).collect()),
        ..ExecConfig::default()
    }
}

/// Returns whether a shell passes a variable with this name on to its commands.
fn is_variable_name(name: &str) -> bool {
    let is_word = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    name.bytes().all(is_word) && name.bytes().next().is_some_and(|byte| !byte.is_ascii_digit())
}

fn run_error(error: &bollard::errors::Error) -> SandboxError {
    if is_conflict(error) {
        return SandboxError::Unavailable(
            "the container of the sandbox is not running: start the sandbox first".to_owned(),
        );
    }
    error_of("run a command", error)
}

pub(super) fn random_number() -> Result<u128, SandboxError> {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes).map_err(|error| {
        SandboxError::Unavailable(format!("the operating system has no random number: {error}"))
    })?;
    Ok(u128::from_ne_bytes(bytes))
}

fn refuse<T>(message: &str) -> Result<T, SandboxError> {
    Err(SandboxError::Refused(message.to_owned()))
}
