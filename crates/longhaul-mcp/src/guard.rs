//! Kills a stdio server when its worker process is killed. A shell process reads from a pipe that
//! the worker holds open. When the worker is gone, the read ends and the shell kills the server's
//! process group.

use std::process::Stdio;

use tokio::process::{Child, Command};

/// Shell script that waits for the end of its stdin and then kills the process group given as its
/// first argument.
const SCRIPT: &str = r#"read -r _; kill -s KILL -- -"$1""#;

/// A helper process that kills a process group when this process ends, however it ends. Dropping
/// the guard stops the helper and kills no group.
#[derive(Debug)]
pub(super) struct ProcessGroupGuard {
    /// The helper process. Its stdin stays open as long as this process lives.
    _shell: Child,
}

impl ProcessGroupGuard {
    /// Starts the helper for the process group that `leader` leads. Returns `None` if no shell can
    /// be started. Then the server has to notice by itself that its stdin was closed.
    pub(super) fn start_for_group_leader(leader: &Child) -> Option<Self> {
        let mut command = Command::new("/bin/sh");
        command
            .args(["-c", SCRIPT, "longhaul-guard", &leader.id()?.to_string()])
            .env_clear()
            .current_dir("/")
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            // A signal to our own process group must not end the guard before this process.
            .process_group(0)
            .kill_on_drop(true);
        match command.spawn() {
            Ok(shell) => Some(Self { _shell: shell }),
            Err(why) => {
                tracing::warn!(%why, "can't start a guard: the MCP server may outlive a killed worker");
                None
            }
        }
    }
}
