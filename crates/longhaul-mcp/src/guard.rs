//! Ends a server whose driver was killed: a shell that waits for the end of its input,
//! which comes when the driver is gone, and then kills the server's process group.

use std::process::Stdio;

use tokio::process::{Child, Command};

/// The group's number is the first argument.
const SCRIPT: &str = r#"read -r _; kill -s KILL -- -"$1""#;

/// A process that kills a process group when this process ends, however it ends.
/// Dropped, it kills nobody.
#[derive(Debug)]
pub(super) struct ProcessGroupGuard {
    /// Its input stays open as long as this process lives.
    _shell: Child,
}

impl ProcessGroupGuard {
    /// Watches over the group that this process leads. `None` where there is no shell:
    /// then a server has to notice by itself that its input was closed.
    pub(super) fn new(leader: &Child) -> Option<Self> {
        let mut command = Command::new("/bin/sh");
        command
            .args(["-c", SCRIPT, "longhaul-guard", &leader.id()?.to_string()])
            .env_clear()
            .current_dir("/")
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            // A signal to the driver's own group must not end it before the driver.
            .process_group(0)
            .kill_on_drop(true);
        match command.spawn() {
            Ok(shell) => Some(Self { _shell: shell }),
            Err(why) => {
                tracing::warn!(%why, "an MCP server may outlive a driver that is killed");
                None
            }
        }
    }
}
