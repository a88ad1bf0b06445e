//! The demo's worker: this same program as a process of its own.
//!
//! Never: outlives the demo. It ends when its stdin closes, however the demo dies.

use std::path::Path;
use std::process::Stdio;

use anyhow::Context as _;
use tokio::io::AsyncReadExt as _;
use tokio::process::{Child, ChildStdin, Command};

use crate::cli::exit::Exit;
use crate::cli::fail::Failure;

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
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .kill_on_drop(true);
        for (name, _) in std::env::vars_os() {
            if name.to_string_lossy().starts_with("LONGHAUL_") {
                command.env_remove(name);
            }
        }
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
        Failure::usage(format!("the demo's worker ended: {said}"))
            .exit(exit)
            .into()
    }
}
