//! A server that is started here: a group of processes, spoken to over pipes.
//!
//! Never: leaves a process behind, hands on our environment, or waits for a
//! server that does not end. What it is dropped with, it kills.

use std::convert::Infallible;
use std::path::Path;
use std::process::{ExitStatus, Stdio as Pipe};
use std::sync::Arc;
use std::time::Duration;

use rmcp::RoleClient;
use rmcp::model::{ClientJsonRpcMessage, JsonRpcMessage, ServerJsonRpcMessage};
use rmcp::transport::Transport;
use rustix::process::{Pid, Signal, kill_process_group};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::process::{Child, ChildStderr, ChildStdin, ChildStdout, Command};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::fate::Fate;
use crate::guard::Guard;
use crate::lines::{Line, Lines, MESSAGE_BYTES_MAX};
use crate::spec::Way;

/// So many messages wait to be written.
const QUEUE: usize = 64;

/// So many lines in a row may be no message.
const STRAY_LINES_MAX: u32 = 1_000;

/// So much may come that is no answer to anything.
const UNASKED_BYTES_MAX: usize = 4 * MESSAGE_BYTES_MAX;

/// What a process that is gone has still said is waited for so long.
const LINGER: Duration = Duration::from_millis(500);

/// How long each way to ask a server to end is given: its input is closed, then it
/// is told to, then it is killed. Together less than whoever closes waits.
const ENDS: Duration = Duration::from_secs(2);

/// A server over pipes.
pub(super) struct Stdio {
    lines: Lines<ChildStdout>,
    out: Option<mpsc::Sender<Vec<u8>>>,
    process: ServerProcess,
    fate: Arc<Fate>,
    /// Those who write to it and hear its error output; they end with this.
    tasks: JoinSet<()>,
    stray: u32,
    unasked: usize,
}

/// The process of a server and the process group that it leads. Dropped, it kills the
/// whole group.
struct ServerProcess {
    /// `None` once the group was killed: later the number may be another's.
    group: Option<Pid>,
    child: Child,
    status: Option<ExitStatus>,
    /// Kills the group when this process is killed.
    guard: Option<Guard>,
}

impl ServerProcess {
    fn new(child: Child) -> Self {
        let id = child.id().and_then(|id| i32::try_from(id).ok());
        Self {
            group: id.and_then(Pid::from_raw),
            guard: Guard::new(&child),
            child,
            status: None,
        }
    }

    /// Waits for the process to end. What is left of its group ends with it.
    async fn wait(&mut self) -> Option<ExitStatus> {
        if self.status.is_none() {
            self.status = self.child.wait().await.ok();
            if self.status.is_some() {
                self.kill();
                self.guard = None;
            }
        }
        self.status
    }

    fn signal(&self, signal: Signal) {
        if let Some(group) = self.group {
            // An error says that nobody is left.
            _ = kill_process_group(group, signal);
        }
    }

    fn kill(&mut self) {
        self.signal(Signal::KILL);
        self.group = None;
    }
}

impl Drop for ServerProcess {
    /// Before the child is reaped, so that the number is still its group's.
    fn drop(&mut self) {
        self.kill();
    }
}

impl Stdio {
    /// Starts a server, or says why it can't be.
    pub(super) fn start(way: &Way, fate: &Arc<Fate>) -> Result<Self, String> {
        let mut child = command(way)?.spawn().map_err(|why| match way {
            Way::Stdio { command, .. } => format!("`{}` could not be run: {why}", shown(command)),
            Way::Http { .. } => why.to_string(),
        })?;
        let pipes = (child.stdin.take(), child.stdout.take(), child.stderr.take());
        let process = ServerProcess::new(child);
        let (Some(stdin), Some(stdout), Some(stderr)) = pipes else {
            return Err("its pipes could not be opened".to_owned());
        };
        let (out, queue) = mpsc::channel(QUEUE);
        let mut tasks = JoinSet::new();
        tasks.spawn(write(stdin, queue));
        tasks.spawn(hear(stderr, Arc::clone(fate)));
        Ok(Self {
            lines: Lines::new(stdout, MESSAGE_BYTES_MAX),
            out: Some(out),
            process,
            fate: Arc::clone(fate),
            tasks,
            stray: 0,
            unasked: 0,
        })
    }

    /// The next line; none when there is no more, and then it is settled why.
    async fn line(&mut self) -> Option<Vec<u8>> {
        let line = match self.process.status {
            None => tokio::select! {
                biased;
                line = self.lines.next() => line,
                _ = self.process.wait() => self.rest().await,
            },
            Some(_) => self.rest().await,
        };
        match line {
            Line::Whole(line) => return Some(line),
            Line::TooLong => {
                let mb = MESSAGE_BYTES_MAX / (1024 * 1024);
                self.fate
                    .breaks(&format!("it sent a message of more than {mb} MB"));
            }
            Line::End => {
                _ = timeout(LINGER, self.process.wait()).await;
                let why = match self.process.status {
                    Some(status) => format!("its process ended ({status})"),
                    None => "it closed its output".to_owned(),
                };
                self.fate.ends(&self.fate.with_last_words(&why));
            }
        }
        None
    }

    /// What a process that is gone has left; somebody else may hold its pipe open.
    async fn rest(&mut self) -> Line {
        let rest = timeout(LINGER, self.lines.next()).await;
        rest.unwrap_or(Line::End)
    }

    /// A line as a message, if it is one. None: it says too much that is none.
    fn read(&mut self, line: &[u8]) -> Option<Option<ServerJsonRpcMessage>> {
        let message = message(line);
        self.unasked += line.len();
        match &message {
            None if line.trim_ascii().is_empty() => {}
            None => {
                self.stray += 1;
                let len = line.len();
                tracing::debug!(len, "a line of an MCP server is no message");
            }
            Some(message) => {
                self.stray = 0;
                if matches!(message, JsonRpcMessage::Response(_)) {
                    self.unasked = 0;
                }
            }
        }
        if self.stray > STRAY_LINES_MAX || self.unasked > UNASKED_BYTES_MAX {
            self.fate
                .breaks("it floods its output with what nobody asked for");
            return None;
        }
        Some(message)
    }
}

/// A line as a message. What is no UTF-8 counts as the letters it stands for.
fn message(line: &[u8]) -> Option<ServerJsonRpcMessage> {
    let read = match serde_json::from_slice(line) {
        Err(_) if std::str::from_utf8(line).is_err() => {
            serde_json::from_str(&String::from_utf8_lossy(line))
        }
        read => read,
    };
    read.ok()
}

/// The command that starts a server. Of our environment it sees `PATH` alone, so
/// that `npx` and `uvx` are found: keys and homes are for its spec to hand over.
fn command(way: &Way) -> Result<Command, String> {
    let Way::Stdio {
        command,
        args,
        env,
        cwd,
    } = way
    else {
        return Err("it is not started here".to_owned());
    };
    let mut made = Command::new(command);
    made.args(args)
        .env_clear()
        .stdin(Pipe::piped())
        .stdout(Pipe::piped())
        .stderr(Pipe::piped())
        .process_group(0)
        .kill_on_drop(true);
    if let Some(path) = std::env::var_os("PATH") {
        made.env("PATH", path);
    }
    made.envs(env);
    if let Some(cwd) = cwd {
        if !Path::new(cwd).is_dir() {
            return Err(format!("its folder `{}` is not there", cwd.display()));
        }
        made.current_dir(cwd);
    }
    Ok(made)
}

fn shown(command: &str) -> String {
    command.escape_debug().take(200).collect()
}

/// Writes what is queued, a line each, until the queue or the pipe is closed.
async fn write(mut to: ChildStdin, mut queue: mpsc::Receiver<Vec<u8>>) {
    while let Some(line) = queue.recv().await {
        if to.write_all(&line).await.is_err() || to.flush().await.is_err() {
            return;
        }
    }
}

/// Hears what a server writes to its error output.
async fn hear(mut from: ChildStderr, fate: Arc<Fate>) {
    let mut some = [0; 4096];
    while let Ok(count @ 1..) = from.read(&mut some).await {
        fate.mutters(&some[..count]);
        if tracing::enabled!(tracing::Level::DEBUG) {
            let words = fate.last_words();
            tracing::debug!(words, "an MCP server mutters");
        }
    }
}

impl Transport<RoleClient> for Stdio {
    // What can't be written shows at the other pipe, where it says why.
    type Error = Infallible;

    fn send(
        &mut self,
        message: ClientJsonRpcMessage,
    ) -> impl Future<Output = Result<(), Infallible>> + Send + 'static {
        let out = self.out.clone();
        async move {
            if let (Some(out), Ok(mut line)) = (out, serde_json::to_vec(&message)) {
                line.push(b'\n');
                _ = out.send(line).await;
            }
            Ok(())
        }
    }

    async fn receive(&mut self) -> Option<ServerJsonRpcMessage> {
        loop {
            let line = self.line().await?;
            if let Some(message) = self.read(&line)? {
                return Some(message);
            }
        }
    }

    async fn close(&mut self) -> Result<(), Infallible> {
        // With the queue the writer ends, and with it the server's input.
        self.out = None;
        let broke = self.fate.end().is_some_and(|end| end.broke);
        if !broke && timeout(ENDS, self.process.wait()).await.is_err() {
            self.process.signal(Signal::TERM);
            _ = timeout(ENDS, self.process.wait()).await;
        }
        self.process.kill();
        _ = timeout(ENDS, self.process.wait()).await;
        self.tasks.abort_all();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_group_is_not_killed_after_its_leader_was_reaped() {
        let way = Way::Stdio {
            command: "true".into(),
            args: Vec::new(),
            env: Default::default(),
            cwd: None,
        };
        let mut process = ServerProcess::new(command(&way).unwrap().spawn().unwrap());
        assert!(process.group.is_some());
        assert!(process.wait().await.unwrap().success());
        assert_eq!(process.group, None);
    }
}
