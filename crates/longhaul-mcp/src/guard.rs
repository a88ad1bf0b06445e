//! Kills a stdio server when its worker process is killed. A shell process reads from a pipe that
//! the worker holds open. When the worker is gone, the read ends and the shell kills the server.
//!
//! The shell is started before the server and leads the process group that the server is started
//! in. So it kills the server even if the worker is killed while it starts the server. A server that
//! makes a process group of its own is killed too, once the worker has sent the server's id.

use std::fs::File;
use std::io::{self, Write as _};
use std::process::Stdio;

use rustix::process::Pid;
use tokio::process::{Child, Command};

/// Shell script that waits for the end of its stdin. Then it kills the process whose id is the first
/// line of its stdin, if there is one, the process group with that id, and its own process group.
/// Ignores what a server may send to its process group.
const SCRIPT: &str = r#"trap '' HUP INT QUIT TERM USR1 USR2 ALRM PIPE TSTP TTIN TTOU VTALRM PROF XCPU XFSZ
read -r server_id; read -r _
[ -z "$server_id" ] || kill -s KILL -- "$server_id" -"$server_id"
kill -s KILL 0"#;

/// A helper process that kills a server when this process ends, however it ends. Dropping the guard
/// stops the helper and kills no server.
#[derive(Debug)]
pub(super) struct ServerGuard {
    /// The helper process. Declared before `stdin`, because fields are dropped in this order: if
    /// stdin were closed first, the helper would kill the server.
    _shell: Child,
    /// Id of the process group that the helper leads.
    group: Pid,
    /// Stdin of the helper. It stays open as long as this process lives.
    stdin: File,
}

impl ServerGuard {
    /// Starts the helper. Returns `None` if it can't be started. Then the server has to notice by
    /// itself that its stdin was closed.
    pub(super) fn start() -> Option<Self> {
        match start_guard_shell() {
            Ok(guard) => guard,
            Err(error) => {
                tracing::warn!(
                    %error,
                    "can't start a guard: the MCP server may outlive a killed worker"
                );
                None
            }
        }
    }

    pub(super) fn group(&self) -> Pid {
        self.group
    }

    /// Tells the helper the server's process id, for a server that makes itself the leader of a
    /// process group of its own.
    pub(super) fn send_server_id(&mut self, server_id: Pid) {
        let line = format!("{}\n", server_id.as_raw_nonzero());
        if let Err(error) = self.stdin.write_all(line.as_bytes()) {
            tracing::warn!(%error, "the guard has ended: the MCP server may outlive a killed worker");
        }
    }
}

/// Returns `None` if the process has no id or no stdin.
fn start_guard_shell() -> io::Result<Option<ServerGuard>> {
    let mut shell = Command::new("/bin/sh")
        .args(["-c", SCRIPT, "longhaul-guard"])
        .env_clear()
        .current_dir("/")
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        // A signal to our own process group must not end the guard before this process.
        .process_group(0)
        .kill_on_drop(true)
        .spawn()?;
    let (Some(group), Some(stdin)) = (process_id(&shell), shell.stdin.take()) else {
        return Ok(None);
    };
    Ok(Some(ServerGuard { _shell: shell, group, stdin: stdin.into_owned_fd()?.into() }))
}

/// Returns the id of a process that has not been reaped yet.
pub(super) fn process_id(child: &Child) -> Option<Pid> {
    Pid::from_raw(i32::try_from(child.id()?).ok()?)
}
