//! The stdio transport: a server process, used over pipes.
//!
//! Invariant: no process is left behind. The server does not inherit our environment. Closing has a
//! timeout, and dropping the transport kills the server with the processes that it has started.

use std::convert::Infallible;
use std::io;
use std::path::Path;
use std::process::{ExitStatus, Stdio as Pipe};
use std::sync::Arc;
use std::time::Duration;

use rmcp::RoleClient;
use rmcp::model::{ClientJsonRpcMessage, ServerJsonRpcMessage};
use rmcp::transport::Transport;
use rustix::process::{Pid, Signal, kill_process_group};
use tokio::io::{
    AsyncBufReadExt as _, AsyncRead, AsyncReadExt as _, AsyncWriteExt as _, BufReader,
};
use tokio::process::{Child, ChildStderr, ChildStdin, ChildStdout, Command};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::exit::ExitRecord;
use crate::guard::{ServerGuard, process_id};
use crate::observe::{MESSAGE_BYTES_MAX, Observations};
use crate::spec::ServerTransport;

/// Maximum number of messages in the queue to a server's stdin.
const WRITE_QUEUE_MAX: usize = 64;

/// Maximum number of consecutive lines of a server that are not JSON-RPC messages.
const INVALID_LINES_MAX: u32 = 1_000;

/// Maximum number of bytes that a server may send between two responses.
const UNSOLICITED_BYTES_MAX: usize = 4 * MESSAGE_BYTES_MAX;

/// How long the remaining output of an exited server process is read.
const DRAIN_TIMEOUT: Duration = Duration::from_millis(500);

/// Why a server is stopped that keeps writing between calls.
const IDLE_FLOOD_REASON: &str = "the server wrote too much while no call was in flight";

/// Timeout of each step of stopping a server: close its stdin, then SIGTERM, then SIGKILL. The sum
/// is less than the timeout for closing a connection.
const STOP_TIMEOUT: Duration = Duration::from_secs(2);

/// Reads lines of limited length. `next_line` is cancel safe.
struct LineReader<R> {
    reader: BufReader<R>,
    line: Vec<u8>,
    max_bytes: usize,
}

/// Result of reading one line.
#[derive(Debug, PartialEq, Eq)]
enum Line {
    /// A line without its line ending.
    Complete(Vec<u8>),
    /// A line that exceeds the maximum length.
    TooLong,
    /// End of the output, or a read error. An incomplete last line is dropped.
    Eof,
}

impl<R: AsyncRead + Unpin> LineReader<R> {
    fn new(source: R, max_bytes: usize) -> Self {
        Self { reader: BufReader::with_capacity(64 * 1024, source), line: Vec::new(), max_bytes }
    }

    async fn next_line(&mut self) -> Line {
        // What was read before a cancellation is still in `line`.
        let max_rest = self.max_bytes + 1 - self.line.len();
        let mut rest = (&mut self.reader).take(max_rest as u64);
        let result = rest.read_until(b'\n', &mut self.line).await;
        match (result, self.line.pop_if(|byte| *byte == b'\n')) {
            (Ok(_), Some(_)) => Line::Complete(std::mem::take(&mut self.line)),
            (Ok(_), None) if self.line.len() > self.max_bytes => Line::TooLong,
            (Ok(_) | Err(_), _) => Line::Eof,
        }
    }
}

/// Transport to a server process over its stdin and stdout.
pub(super) struct StdioTransport {
    lines: LineReader<ChildStdout>,
    writer: Option<mpsc::Sender<Vec<u8>>>,
    process: ServerProcess,
    exit: Arc<ExitRecord>,
    observations: Arc<Observations>,
    /// Tasks that write to the server's stdin, read its stderr and time its idle output. They end
    /// with the transport.
    tasks: JoinSet<()>,
    invalid_lines: u32,
    unsolicited_bytes: usize,
}

/// The process of a server with all that it has started. Dropping it kills them.
struct ServerProcess {
    /// Ids of the process groups that the server may be in: the guard's, and the one that the server
    /// leads itself. Empty once the groups were killed, because the ids may be reused later.
    groups: Vec<Pid>,
    child: Child,
    status: Option<ExitStatus>,
    /// Helper that kills the server when this process is killed. `None` if no helper could be
    /// started or the server process has exited.
    guard: Option<ServerGuard>,
}

impl ServerProcess {
    fn start(command: &mut Command) -> io::Result<Self> {
        let mut guard = ServerGuard::start();
        let group = guard.as_ref().map(ServerGuard::group);
        // Without a guard the server leads its own group, which 0 stands for.
        command.process_group(group.map_or(0, Pid::as_raw_pid));
        let child = command.spawn()?;
        let server_id = process_id(&child);
        if let (Some(guard), Some(server_id)) = (&mut guard, server_id) {
            guard.send_server_id(server_id);
        }
        Ok(Self {
            groups: server_id.into_iter().chain(group).collect(),
            child,
            status: None,
            guard,
        })
    }

    /// Waits for the server process to exit, then kills what it has started. `None` means that
    /// waiting failed.
    async fn wait_for_exit(&mut self) -> Option<ExitStatus> {
        if self.status.is_none() {
            self.status = self.child.wait().await.ok();
            if self.status.is_some() {
                self.kill_all_processes();
                self.guard = None;
            }
        }
        self.status
    }

    fn send_signal(&self, signal: Signal) {
        for group in &self.groups {
            // An error means that the group has no process left.
            _ = kill_process_group(*group, signal);
        }
    }

    fn kill_all_processes(&mut self) {
        self.send_signal(Signal::KILL);
        self.groups.clear();
    }
}

impl Drop for ServerProcess {
    /// Kills the groups before the child is reaped, so that the ids still belong to them.
    fn drop(&mut self) {
        self.kill_all_processes();
    }
}

impl StdioTransport {
    /// Starts the server process. The error says why it could not be started.
    pub(super) fn start(
        transport: &ServerTransport,
        observations: &Arc<Observations>,
        exit: &Arc<ExitRecord>,
    ) -> Result<Self, String> {
        let mut command = build_server_command(transport)?;
        let mut process = ServerProcess::start(&mut command).map_err(|error| {
            let program = command.as_std().get_program().to_string_lossy();
            let program: String = program.escape_debug().take(200).collect();
            format!("`{program}` could not be run: {error}")
        })?;
        let child = &mut process.child;
        let pipes = (child.stdin.take(), child.stdout.take(), child.stderr.take());
        let (Some(stdin), Some(stdout), Some(stderr)) = pipes else {
            return Err("the pipes of the process could not be opened".to_owned());
        };
        let (sender, queue) = mpsc::channel(WRITE_QUEUE_MAX);
        let mut tasks = JoinSet::new();
        tasks.spawn(write_stdin_lines(stdin, queue));
        tasks.spawn(record_stderr(stderr, Arc::clone(exit), Arc::clone(observations)));
        let windows = Arc::clone(observations);
        tasks.spawn(async move { windows.restart_idle_windows().await });
        Ok(Self {
            lines: LineReader::new(stdout, MESSAGE_BYTES_MAX),
            writer: Some(sender),
            process,
            exit: Arc::clone(exit),
            observations: Arc::clone(observations),
            tasks,
            invalid_lines: 0,
            unsolicited_bytes: 0,
        })
    }

    /// Returns the next line of the server's stdout. `None` at the end of the output or for a line
    /// that is too long; the exit record then says why there are no more lines.
    async fn next_stdout_line(&mut self) -> Option<Vec<u8>> {
        let line = match self.process.status {
            None => tokio::select! {
                biased;
                () = self.observations.idle_limit_exceeded.notified() => {
                    self.stop_idle_flood();
                    return None;
                }
                line = self.lines.next_line() => line,
                _ = self.process.wait_for_exit() => self.read_remaining_line().await,
            },
            Some(_) => self.read_remaining_line().await,
        };
        match line {
            Line::Complete(line) => return Some(line),
            Line::TooLong => {
                let mb = MESSAGE_BYTES_MAX / (1024 * 1024);
                self.exit
                    .record_limit_violation(&format!("the server sent a message of over {mb} MB"));
            }
            Line::Eof => {
                _ = timeout(DRAIN_TIMEOUT, self.process.wait_for_exit()).await;
                let reason = match self.process.status {
                    Some(status) => format!("the server process ended ({status})"),
                    None => "the server closed its output".to_owned(),
                };
                self.exit.record_exit(&self.exit.reason_with_last_stderr_line(&reason));
            }
        }
        None
    }

    /// Records that the server is stopped because it keeps writing between calls. It is started
    /// again for the next call.
    fn stop_idle_flood(&self) {
        tracing::warn!(pid = self.process.child.id(), "MCP server is stopped: {IDLE_FLOOD_REASON}");
        self.exit.record_limit_violation(IDLE_FLOOD_REASON);
    }

    /// Reads a line that an exited process has left in its pipe. Has a timeout because another
    /// process may hold the pipe open.
    async fn read_remaining_line(&mut self) -> Line {
        let rest = timeout(DRAIN_TIMEOUT, self.lines.next_line()).await;
        rest.unwrap_or(Line::Eof)
    }

    /// Parses a line of the server. The inner `None` means the line is not a message; the outer
    /// `None` means the server exceeded a limit.
    fn parse_line(&mut self, line: &[u8]) -> Option<Option<ServerJsonRpcMessage>> {
        let message = parse_message(line);
        // A blank line counts as well.
        let bytes = line.len() + 1;
        match &message {
            Some(_) => self.invalid_lines = 0,
            None if line.trim_ascii().is_empty() => {}
            None => {
                self.invalid_lines += 1;
                tracing::debug!(len = line.len(), "MCP server sent an invalid line");
            }
        }
        if message.as_ref().is_some_and(|message| self.observations.is_awaited_response(message)) {
            self.unsolicited_bytes = 0;
        } else if self.observations.count_idle_output(bytes) {
            self.unsolicited_bytes += bytes;
        } else {
            self.stop_idle_flood();
            return None;
        }
        if self.invalid_lines > INVALID_LINES_MAX || self.unsolicited_bytes > UNSOLICITED_BYTES_MAX
        {
            self.exit.record_limit_violation("the server sent too much unsolicited output");
            return None;
        }
        Some(message)
    }
}

/// Parses a line as a JSON-RPC message. Invalid UTF-8 is replaced by U+FFFD.
fn parse_message(line: &[u8]) -> Option<ServerJsonRpcMessage> {
    let result = match serde_json::from_slice(line) {
        Err(_) if std::str::from_utf8(line).is_err() => {
            serde_json::from_str(&String::from_utf8_lossy(line))
        }
        result => result,
    };
    result.ok()
}

/// Environment variables that every server inherits: those that other MCP clients pass on, and the
/// language and temporary folder. They name the user and the machine and hold no keys.
const INHERITED_VARIABLES: [&str; 10] =
    ["PATH", "HOME", "USER", "LOGNAME", "SHELL", "TERM", "LANG", "LC_ALL", "LC_CTYPE", "TMPDIR"];

/// Creates the command that starts a server. All environment variables that are not inherited, such
/// as keys, come from the spec.
fn build_server_command(transport: &ServerTransport) -> Result<Command, String> {
    let ServerTransport::Stdio { command, args, env, cwd } = transport else {
        return Err("the server is not a stdio server".to_owned());
    };
    let mut server_command = Command::new(command);
    server_command
        .args(args)
        .env_clear()
        .stdin(Pipe::piped())
        .stdout(Pipe::piped())
        .stderr(Pipe::piped())
        .kill_on_drop(true);
    let inherited =
        INHERITED_VARIABLES.iter().filter_map(|name| Some((name, std::env::var_os(name)?)));
    server_command.envs(inherited).envs(env);
    if let Some(cwd) = cwd {
        if !Path::new(cwd).is_dir() {
            return Err(format!("the working directory `{}` does not exist", cwd.display()));
        }
        server_command.current_dir(cwd);
    }
    Ok(server_command)
}

/// Writes queued lines to the server's stdin until the queue or the pipe is closed.
async fn write_stdin_lines(mut stdin: ChildStdin, mut queue: mpsc::Receiver<Vec<u8>>) {
    while let Some(line) = queue.recv().await {
        if stdin.write_all(&line).await.is_err() || stdin.flush().await.is_err() {
            return;
        }
    }
}

/// Reads and records what a server writes to stderr.
async fn record_stderr(
    mut stderr: ChildStderr,
    exit: Arc<ExitRecord>,
    observations: Arc<Observations>,
) {
    let mut buffer = vec![0; 16 * 1024];
    while let Ok(count @ 1..) = stderr.read(&mut buffer).await {
        if !observations.count_idle_output(count) {
            return;
        }
        exit.append_stderr(&buffer[..count]);
        if tracing::enabled!(tracing::Level::DEBUG) {
            let line = exit.last_stderr_line();
            tracing::debug!(line, "MCP server wrote to stderr");
        }
    }
}

impl Transport<RoleClient> for StdioTransport {
    // A write error is not reported here: reading then fails too, with the reason.
    type Error = Infallible;

    fn send(
        &mut self,
        message: ClientJsonRpcMessage,
    ) -> impl Future<Output = Result<(), Infallible>> + Send + 'static {
        let writer = self.writer.clone();
        async move {
            if let (Some(writer), Ok(mut line)) = (writer, serde_json::to_vec(&message)) {
                line.push(b'\n');
                _ = writer.send(line).await;
            }
            Ok(())
        }
    }

    async fn receive(&mut self) -> Option<ServerJsonRpcMessage> {
        loop {
            let line = self.next_stdout_line().await?;
            if let Some(message) = self.parse_line(&line)? {
                return Some(message);
            }
        }
    }

    async fn close(&mut self) -> Result<(), Infallible> {
        // Closing the queue ends the writer task, which closes the server's stdin.
        self.writer = None;
        let is_violation = self.exit.reason().is_some_and(|end| end.is_violation);
        if !is_violation && timeout(STOP_TIMEOUT, self.process.wait_for_exit()).await.is_err() {
            self.process.send_signal(Signal::TERM);
            _ = timeout(STOP_TIMEOUT, self.process.wait_for_exit()).await;
        }
        self.process.kill_all_processes();
        _ = timeout(STOP_TIMEOUT, self.process.wait_for_exit()).await;
        self.tasks.abort_all();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_line_is_complete_or_too_long_or_absent() {
        let complete = |text: &str| Line::Complete(text.into());
        for (text, lines) in [
            ("a\nbc\n\n", vec![complete("a"), complete("bc"), complete(""), Line::Eof]),
            ("a\r\nrest", vec![complete("a\r"), Line::Eof]),
            ("12345678\n", vec![complete("12345678"), Line::Eof]),
            ("123456789\n", vec![Line::TooLong]),
            ("1234567890123456789", vec![Line::TooLong]),
            ("", vec![Line::Eof]),
        ] {
            let mut reader = LineReader::new(text.as_bytes(), 8);
            for line in lines {
                assert_eq!(reader.next_line().await, line, "{text:?}");
            }
        }
    }

    #[tokio::test]
    async fn process_groups_are_killed_only_once() {
        let transport = ServerTransport::Stdio {
            command: "true".into(),
            args: Vec::new(),
            env: Default::default(),
            cwd: None,
        };
        let mut command = build_server_command(&transport).unwrap();
        let mut process = ServerProcess::start(&mut command).unwrap();
        assert_eq!(process.groups.len(), 2);
        assert!(process.wait_for_exit().await.unwrap().success());
        assert!(process.groups.is_empty());
    }
}
