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

use crate::exit::ServerExit;
use crate::guard::ProcessGroupGuard;
use crate::lines::{BoundedLineReader, LineRead, MESSAGE_BYTES_MAX};
use crate::spec::ServerTransport;

/// So many messages wait to be written.
const WRITE_QUEUE_MAX: usize = 64;

/// So many lines in a row may be no message.
const INVALID_LINES_MAX: u32 = 1_000;

/// So much may come that is no answer to anything.
const UNSOLICITED_BYTES_MAX: usize = 4 * MESSAGE_BYTES_MAX;

/// What a process that is gone has still said is waited for so long.
const DRAIN_TIMEOUT: Duration = Duration::from_millis(500);

/// How long each way to ask a server to end is given: its input is closed, then it
/// is told to, then it is killed. Together less than whoever closes waits.
const STOP_TIMEOUT: Duration = Duration::from_secs(2);

/// A server over pipes.
pub(super) struct StdioTransport {
    lines: BoundedLineReader<ChildStdout>,
    writer: Option<mpsc::Sender<Vec<u8>>>,
    process: ServerProcess,
    exit: Arc<ServerExit>,
    /// Those who write to it and hear its error output; they end with this.
    tasks: JoinSet<()>,
    invalid_lines: u32,
    unsolicited_bytes: usize,
}

/// The process of a server and the process group that it leads. Dropped, it kills the
/// whole group.
struct ServerProcess {
    /// `None` once the group was killed: later the number may be another's.
    group: Option<Pid>,
    child: Child,
    status: Option<ExitStatus>,
    /// Kills the group when this process is killed.
    guard: Option<ProcessGroupGuard>,
}

impl ServerProcess {
    fn new(child: Child) -> Self {
        let id = child.id().and_then(|id| i32::try_from(id).ok());
        Self {
            group: id.and_then(Pid::from_raw),
            guard: ProcessGroupGuard::new(&child),
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

impl StdioTransport {
    /// Starts a server, or says why it can't be.
    pub(super) fn start(way: &ServerTransport, fate: &Arc<ServerExit>) -> Result<Self, String> {
        let mut child = build_command(way)?.spawn().map_err(|why| match way {
            ServerTransport::Stdio { command, .. } => {
                format!("`{}` could not be run: {why}", escaped(command))
            }
            ServerTransport::Http { .. } => why.to_string(),
        })?;
        let pipes = (child.stdin.take(), child.stdout.take(), child.stderr.take());
        let process = ServerProcess::new(child);
        let (Some(stdin), Some(stdout), Some(stderr)) = pipes else {
            return Err("its pipes could not be opened".to_owned());
        };
        let (out, queue) = mpsc::channel(WRITE_QUEUE_MAX);
        let mut tasks = JoinSet::new();
        tasks.spawn(write_lines(stdin, queue));
        tasks.spawn(read_stderr(stderr, Arc::clone(fate)));
        Ok(Self {
            lines: BoundedLineReader::new(stdout, MESSAGE_BYTES_MAX),
            writer: Some(out),
            process,
            exit: Arc::clone(fate),
            tasks,
            invalid_lines: 0,
            unsolicited_bytes: 0,
        })
    }

    /// The next line; none when there is no more, and then it is settled why.
    async fn next_line(&mut self) -> Option<Vec<u8>> {
        let line = match self.process.status {
            None => tokio::select! {
                biased;
                line = self.lines.next() => line,
                _ = self.process.wait() => self.drain_line().await,
            },
            Some(_) => self.drain_line().await,
        };
        match line {
            LineRead::Full(line) => return Some(line),
            LineRead::TooLong => {
                let mb = MESSAGE_BYTES_MAX / (1024 * 1024);
                self.exit.record_violation(&format!("it sent a message of more than {mb} MB"));
            }
            LineRead::Eof => {
                _ = timeout(DRAIN_TIMEOUT, self.process.wait()).await;
                let why = match self.process.status {
                    Some(status) => format!("its process ended ({status})"),
                    None => "it closed its output".to_owned(),
                };
                self.exit.record_exit(&self.exit.with_stderr(&why));
            }
        }
        None
    }

    /// What a process that is gone has left; somebody else may hold its pipe open.
    async fn drain_line(&mut self) -> LineRead {
        let rest = timeout(DRAIN_TIMEOUT, self.lines.next()).await;
        rest.unwrap_or(LineRead::Eof)
    }

    /// A line as a message, if it is one. None: it says too much that is none.
    fn parse_line(&mut self, line: &[u8]) -> Option<Option<ServerJsonRpcMessage>> {
        let message = parse_message(line);
        self.unsolicited_bytes += line.len();
        match &message {
            None if line.trim_ascii().is_empty() => {}
            None => {
                self.invalid_lines += 1;
                let len = line.len();
                tracing::debug!(len, "a line of an MCP server is no message");
            }
            Some(message) => {
                self.invalid_lines = 0;
                if matches!(message, JsonRpcMessage::Response(_)) {
                    self.unsolicited_bytes = 0;
                }
            }
        }
        if self.invalid_lines > INVALID_LINES_MAX || self.unsolicited_bytes > UNSOLICITED_BYTES_MAX
        {
            self.exit.record_violation("it floods its output with what nobody asked for");
            return None;
        }
        Some(message)
    }
}

/// A line as a message. What is no UTF-8 counts as the letters it stands for.
fn parse_message(line: &[u8]) -> Option<ServerJsonRpcMessage> {
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
fn build_command(way: &ServerTransport) -> Result<Command, String> {
    let ServerTransport::Stdio { command, args, env, cwd } = way else {
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

fn escaped(command: &str) -> String {
    command.escape_debug().take(200).collect()
}

/// Writes what is queued, a line each, until the queue or the pipe is closed.
async fn write_lines(mut to: ChildStdin, mut queue: mpsc::Receiver<Vec<u8>>) {
    while let Some(line) = queue.recv().await {
        if to.write_all(&line).await.is_err() || to.flush().await.is_err() {
            return;
        }
    }
}

/// Hears what a server writes to its error output.
async fn read_stderr(mut from: ChildStderr, fate: Arc<ServerExit>) {
    let mut some = [0; 4096];
    while let Ok(count @ 1..) = from.read(&mut some).await {
        fate.append_stderr(&some[..count]);
        if tracing::enabled!(tracing::Level::DEBUG) {
            let words = fate.last_stderr_line();
            tracing::debug!(words, "an MCP server mutters");
        }
    }
}

impl Transport<RoleClient> for StdioTransport {
    // What can't be written shows at the other pipe, where it says why.
    type Error = Infallible;

    fn send(
        &mut self,
        message: ClientJsonRpcMessage,
    ) -> impl Future<Output = Result<(), Infallible>> + Send + 'static {
        let out = self.writer.clone();
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
            let line = self.next_line().await?;
            if let Some(message) = self.parse_line(&line)? {
                return Some(message);
            }
        }
    }

    async fn close(&mut self) -> Result<(), Infallible> {
        // With the queue the writer ends, and with it the server's input.
        self.writer = None;
        let broke = self.exit.reason().is_some_and(|end| end.is_violation);
        if !broke && timeout(STOP_TIMEOUT, self.process.wait()).await.is_err() {
            self.process.signal(Signal::TERM);
            _ = timeout(STOP_TIMEOUT, self.process.wait()).await;
        }
        self.process.kill();
        _ = timeout(STOP_TIMEOUT, self.process.wait()).await;
        self.tasks.abort_all();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_group_is_not_killed_after_its_leader_was_reaped() {
        let way = ServerTransport::Stdio {
            command: "true".into(),
            args: Vec::new(),
            env: Default::default(),
            cwd: None,
        };
        let mut process = ServerProcess::new(build_command(&way).unwrap().spawn().unwrap());
        assert!(process.group.is_some());
        assert!(process.wait().await.unwrap().success());
        assert_eq!(process.group, None);
    }
}
