//! The demo's worker: this same program as a process of its own.
//!
//! Never: outlives the demo. It ends when its stdin closes, however the demo dies.

use std::path::Path;
use std::process::Stdio;

use anyhow::Context as _;
use tokio::io::AsyncReadExt as _;
use tokio::process::{Child, ChildStdin, Command};

use crate::error::CliError;
use crate::exit::Exit;

/// The variables that it sees, and those that begin with `LC_` or `XDG_`. No key is among
/// them, whatever it is called.
const VARIABLES: &[&str] = &[
    "HOME",
    "LANG",
    "LOGNAME",
    "NO_COLOR",
    "PATH",
    "RUST_BACKTRACE",
    "SUDO_UID",
    "TERM",
    "TMPDIR",
    "TZ",
    "USER",
];

/// A worker process.
#[derive(Debug)]
pub(crate) struct WorkerProcess {
    child: Child,
    /// Held open while it shall live: waiting for a child would close its own.
    line: Option<ChildStdin>,
}

impl WorkerProcess {
    /// Starts one that drives the project in this folder.
    pub(crate) fn start(folder: &Path) -> anyhow::Result<Self> {
        let program = std::env::current_exe().context("this program can't find itself")?;
        let mut command = Command::new(program);
        command
            .args(["worker", "--quiet", "--until-eof"])
            .current_dir(folder)
            .env_clear()
            .envs(std::env::vars_os().filter(|(name, _)| name.to_str().is_some_and(is_seen)))
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .kill_on_drop(true);
        let mut child = command.spawn().context("the worker can't be started")?;
        let line = child.stdin.take();
        Ok(Self { child, line })
    }

    /// Kills it with SIGKILL and sees it dead.
    pub(crate) async fn kill(&mut self) -> anyhow::Result<()> {
        self.child
            .kill()
            .await
            .context("the worker can't be killed")
    }

    /// Lets it end in good order.
    pub(crate) async fn end(&mut self) -> anyhow::Result<()> {
        drop(self.line.take());
        self.child
            .wait()
            .await
            .context("the worker can't be awaited")?;
        Ok(())
    }

    /// Returns when it has ended by itself, with what it said.
    pub(crate) async fn ended(&mut self) -> anyhow::Error {
        let status = self.child.wait().await;
        let mut said = String::new();
        if let Some(mut words) = self.child.stderr.take() {
            _ = words.read_to_string(&mut said).await;
        }
        let code = status.ok().and_then(|status| status.code());
        let exit = if code == Some(5) {
            Exit::Busy
        } else {
            Exit::Usage
        };
        let said = said.trim();
        let said = said.strip_prefix("error: ").unwrap_or(said);
        CliError::usage(format!("the demo's worker ended: {said}"))
            .exit(exit)
            .into()
    }
}

/// Whether the worker sees this variable.
pub(crate) fn is_seen(name: &str) -> bool {
    VARIABLES.contains(&name) || name.starts_with("LC_") || name.starts_with("XDG_")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_key_of_the_user_s_is_seen() {
        for known in longhaul::config::known::KNOWN {
            assert!(!known.key_env.iter().any(|name| is_seen(name)), "{known:?}");
        }
        for hidden in ["MY_TOKEN", "LONGHAUL_TRUST", "OLLAMA_HOST", "SSH_AUTH_SOCK"] {
            assert!(!is_seen(hidden), "{hidden}");
        }
        for seen in ["PATH", "HOME", "LC_ALL", "XDG_STATE_HOME"] {
            assert!(is_seen(seen), "{seen}");
        }
    }
}
