//! Kills a stdio server when its worker process is killed. A shell process reads from a pipe that
//! the worker holds open. When the worker is gone, the read ends and the shell kills the server.
//!
//! The shell is started before the server and leads the process group that the server is started
//! in. So there is no moment at which a worker can be killed and its server goes on.

use std::fs::File;
use std::io::{self, Write as _};
use std::process::Stdio;

use rustix::process::Pid;
use tokio::process::{Child, Command};

/// Shell script that waits for the end of its stdin and then kills two process groups: the one whose
/// id is the first line of its stdin, if there is one, and its own.
const SCRIPT: &str = r#"trap '' HUP INT QUIT TERM
read -r server; read -r _
[ -z "$server" ] || kill -s KILL -- -"$server"
kill -s KILL 0"#;

/// A helper process that kills a server when this process ends, however it ends. Dropping the guard
/// stops the helper and kills no server.
#[derive(Debug)]
pub(super) struct ServerGuard {
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
        match start_shell() {
            Ok(guard) => guard,
            Err(why) => {
                tracing::warn!(%why, "can't start a guard: the MCP server may outlive a killed worker");
                None
            }
        }
    }

    pub(super) fn group(&self) -> Pid {
        self.group
    }

    /// Tells the helper the server's process id, for a server that makes itself the leader of a
    /// process group of its own.
    pub(super) fn send_server_id(&mut self, server: Pid) {
        if let Err(why) = writeln!(self.stdin, "{}", server.as_raw_nonzero()) {
            tracing::warn!(%why, "can't tell the guard the id of the MCP server");
        }
    }
}

/// Returns `None` if the shell has already exited.
fn start_shell() -> io::Result<Option<ServerGuard>> {
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
