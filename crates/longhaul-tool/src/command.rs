//! Runs one program with limits on time and output.
//!
//! Invariant: the arguments are passed without a shell, and our environment is not inherited. The
//! program has its own process group, which is killed when the program exits, times out or is
//! dropped.

use std::fmt;
use std::io;
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};

use rustix::process::{Pid, Signal, kill_process_group};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWriteExt as _};
use tokio::process::Child;
use tokio::sync::Notify;

use longhaul_core::duration::format_duration;
use longhaul_core::time::{Clock, Millis};

/// Default timeout of a [`Command`].
const TIMEOUT: Millis = Millis::from_secs(30);
/// Default number of bytes kept of each output stream of a program.
const KEEP_BYTES: usize = 256 * 1024;
/// How long the output pipes are read after the program has exited. A process that left the group
/// may hold the pipes open forever.
const PIPE_GRACE: Millis = Millis(500);
/// `PATH` of a program if this process itself has no `PATH`.
pub(crate) const DEFAULT_PATH: &str = "/usr/local/bin:/usr/bin:/bin";

/// A program to run, with its arguments, environment and limits.
#[derive(Clone)]
pub struct Command {
    /// The program and its arguments. A program with a `/` in its name is resolved from `dir`, any
    /// other program in `PATH`.
    pub argv: Vec<String>,
    /// Working directory of the program.
    pub dir: PathBuf,
    /// All environment variables of the program besides `PATH`.
    pub env: Vec<(String, String)>,
    /// Bytes written to the program's stdin.
    pub stdin: Vec<u8>,
    /// Maximum number of bytes kept of each output stream, from its beginning and its end.
    pub keep_bytes: usize,
    /// Maximum number of bytes that the program may write to stdout; a program that writes more is
    /// killed. With `None` it may write any amount, of which the start and the end are kept.
    pub stdout_bytes_max: Option<usize>,
    /// Timeout after which the program is killed.
    pub timeout: Millis,
}

impl fmt::Debug for Command {
    /// Shows no argument, environment value or stdin, because they may be secrets.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<&str> = self.env.iter().map(|(name, _)| name.as_str()).collect();
        f.debug_struct("Command")
            .field("program", &self.argv.first())
            .field("dir", &self.dir)
            .field("env", &names)
            .finish_non_exhaustive()
    }
}

impl Command {
    /// Creates a command with this working directory, without environment variables and without
    /// stdin.
    pub fn new(argv: impl IntoIterator<Item = impl Into<String>>, dir: impl Into<PathBuf>) -> Self {
        Self {
            argv: argv.into_iter().map(Into::into).collect(),
            dir: dir.into(),
            env: Vec::new(),
            stdin: Vec::new(),
            keep_bytes: KEEP_BYTES,
            stdout_bytes_max: None,
            timeout: TIMEOUT,
        }
    }

    /// Runs the program until it exits, times out or exceeds its output limit.
    pub async fn run(self, clock: &dyn Clock) -> Result<CommandOutput, CommandError> {
        let mut child = self.spawn()?;
        let mut group = ProcessGroup::led_by(&child);
        let mut stdout = CapturedOutput::new(self.keep_bytes);
        let mut stderr = CapturedOutput::new(self.keep_bytes);
        let stdin = child.stdin.take();
        let pipes = (child.stdout.take(), child.stderr.take());
        let output_limit = Notify::new();
        let exit = {
            let transfer = async {
                tokio::join!(
                    async {
                        if let Some(mut stdin) = stdin {
                            // A program may exit without reading all of its input.
                            _ = stdin.write_all(&self.stdin).await;
                        }
                    },
                    stdout.capture_stream(pipes.0, self.stdout_bytes_max, &output_limit),
                    stderr.capture_stream(pipes.1, None, &output_limit)
                );
            };
            tokio::pin!(transfer);
            let deadline = clock.sleep(self.timeout);
            tokio::pin!(deadline);
            let mut is_transfer_done = false;
            let exit = loop {
                tokio::select! {
                    biased;
                    () = output_limit.notified() => break ProgramExit::OutputLimit(self.stdout_bytes_max.unwrap_or_default()),
                    status = child.wait() => break ProgramExit::from_status(status.map_err(CommandError::WaitFailed)?),
                    () = &mut transfer, if !is_transfer_done => is_transfer_done = true,
                    () = &mut deadline => break ProgramExit::TimedOut(self.timeout),
                }
            };
            group.kill();
            if !is_transfer_done {
                within_pipe_grace(clock, transfer).await;
            }
            exit
        };
        if let ProgramExit::TimedOut(_) | ProgramExit::OutputLimit(_) = exit {
            // The program was killed, so it exits. A process stuck in the kernel is reaped later.
            within_pipe_grace(clock, child.wait()).await;
        }
        Ok(CommandOutput { exit, stdout, stderr })
    }

    fn spawn(&self) -> Result<Child, CommandError> {
        let [program, args @ ..] = &self.argv[..] else {
            return Err(CommandError::Empty);
        };
        if program.is_empty() {
            return Err(CommandError::Empty);
        }
        // The program is looked up after the change of directory, so a path relative to ours would
        // be resolved from the wrong directory.
        let dir = std::path::absolute(&self.dir).unwrap_or_else(|_| self.dir.clone());
        if !dir.is_dir() {
            return Err(CommandError::MissingDir(dir));
        }
        let path = match program.contains('/') {
            true => dir.join(program),
            false => Path::new(program).to_owned(),
        };
        let stdin = match self.stdin.is_empty() {
            true => Stdio::null(),
            false => Stdio::piped(),
        };
        let mut command = tokio::process::Command::new(path);
        command
            .args(args)
            .current_dir(&dir)
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap_or(DEFAULT_PATH.into()))
            .envs(self.env.iter().map(|(name, value)| (name, value)))
            .stdin(stdin)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0)
            .kill_on_drop(true);
        command.spawn().map_err(|error| {
            let program = program.clone();
            if error.kind() == io::ErrorKind::NotFound {
                CommandError::NotFound(program)
            } else if error.kind() == io::ErrorKind::PermissionDenied {
                CommandError::NotExecutable(program)
            } else {
                CommandError::SpawnFailed(program, error)
            }
        })
    }
}

/// Awaits `work` for at most `PIPE_GRACE`, the time for reading the pipes after the program's exit.
pub(crate) async fn within_pipe_grace<T>(clock: &dyn Clock, work: impl Future<Output = T>) {
    let deadline = clock.sleep(PIPE_GRACE);
    tokio::select! {
        biased;
        // The work may be ready for ever, if a process that has left the group keeps printing.
        () = deadline => {}
        _ = work => {}
    }
}

/// The process group of one program. Dropping it kills all processes of the group.
#[derive(Debug)]
pub(crate) struct ProcessGroup(Option<Pid>);

impl ProcessGroup {
    /// Returns the process group that this program leads.
    pub(crate) fn led_by(child: &Child) -> Self {
        let id = child.id().and_then(|id| i32::try_from(id).ok());
        Self(id.and_then(Pid::from_raw))
    }

    /// Kills all processes of the group, at most once: afterwards the id may belong to another
    /// group.
    pub(crate) fn kill(&mut self) {
        if let Some(group) = self.0.take() {
            // An error means that the group has no process left.
            _ = kill_process_group(group, Signal::KILL);
        }
    }
}

impl Drop for ProcessGroup {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Captured output of a stream: all of it, or its beginning and its end.
#[derive(Clone, PartialEq, Eq)]
pub struct CapturedOutput {
    head: Vec<u8>,
    tail: Vec<u8>,
    half_max: usize,
    bytes: u64,
}

impl fmt::Debug for CapturedOutput {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CapturedOutput({} bytes)", self.bytes)
    }
}

impl CapturedOutput {
    /// Creates an empty output that keeps at most this number of bytes.
    pub(crate) fn new(keep_bytes: usize) -> Self {
        Self { head: Vec::new(), tail: Vec::new(), half_max: keep_bytes / 2, bytes: 0 }
    }

    /// Reads the stream to its end, or until the stream exceeds the output limit.
    async fn capture_stream(
        &mut self,
        pipe: Option<impl AsyncRead + Unpin>,
        max_bytes: Option<usize>,
        output_limit: &Notify,
    ) {
        let Some(mut pipe) = pipe else { return };
        let mut buffer = vec![0; 16 * 1024];
        // Bytes beyond the limit are still read, because a full pipe would block the program.
        while let Ok(count @ 1..) = pipe.read(&mut buffer).await {
            self.push_bytes(&buffer[..count]);
            if max_bytes.is_some_and(|max_bytes| self.bytes > max_bytes as u64) {
                return output_limit.notify_one();
            }
        }
    }

    /// Appends a chunk of bytes to the output.
    pub(crate) fn push_bytes(&mut self, chunk: &[u8]) {
        self.bytes = self.bytes.saturating_add(chunk.len() as u64);
        let free_bytes = self.half_max.saturating_sub(self.head.len());
        let (first, rest) = chunk.split_at(chunk.len().min(free_bytes));
        self.head.extend_from_slice(first);
        self.tail.extend_from_slice(rest);
        // Trimmed rarely, so that many small chunks cost no more than one large chunk.
        if self.tail.len() > self.half_max.saturating_mul(2).max(32 * 1024) {
            let excess = self.tail.len().saturating_sub(self.half_max);
            self.tail.drain(..excess);
        }
    }

    /// Returns the kept bytes from the end of the output.
    fn kept_tail(&self) -> &[u8] {
        &self.tail[self.tail.len().saturating_sub(self.half_max)..]
    }

    /// Returns the length of the whole output in bytes, including dropped bytes.
    pub const fn total_bytes(&self) -> u64 {
        self.bytes
    }

    /// Returns the number of bytes that were dropped from the middle of the output.
    pub fn dropped_bytes(&self) -> u64 {
        let kept_bytes = self.head.len() + self.kept_tail().len();
        self.bytes.saturating_sub(kept_bytes as u64)
    }

    /// Returns how many bytes are kept of the beginning and of the end of a truncated output.
    /// `None` if nothing was dropped.
    pub(crate) fn kept_sizes(&self) -> Option<(usize, usize)> {
        (self.dropped_bytes() > 0).then(|| (self.head.len(), self.kept_tail().len()))
    }

    /// Returns the whole output. `None` if some of it was dropped.
    pub fn complete_output(&self) -> Option<Vec<u8>> {
        (self.dropped_bytes() == 0).then(|| [&self.head, self.kept_tail()].concat())
    }

    /// Returns the output as text, with a note about dropped bytes.
    pub fn text_with_gap_note(&self) -> String {
        match self.complete_output() {
            Some(output) => String::from_utf8_lossy(&output).into_owned(),
            None => format!(
                "{}\n[{} bytes left out here]\n{}",
                String::from_utf8_lossy(&self.head),
                self.dropped_bytes(),
                String::from_utf8_lossy(self.kept_tail())
            ),
        }
    }

    /// Returns the end of the output, at most `bytes_max` bytes.
    pub fn tail_text(&self, bytes_max: usize) -> String {
        let bytes = [&self.head, self.kept_tail()].concat();
        let text = String::from_utf8_lossy(&bytes).trim().to_owned();
        let from = text.len().saturating_sub(bytes_max);
        text[text.ceil_char_boundary(from)..].trim_start().to_owned()
    }
}

/// How a program ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProgramExit {
    Code(i32),
    /// The program was killed by this signal.
    Signal(i32),
    /// The program was killed because it exceeded this timeout.
    TimedOut(Millis),
    /// The program was killed because it printed more than this number of bytes.
    OutputLimit(usize),
}

impl ProgramExit {
    /// Converts the exit status that the operating system reports.
    pub(crate) fn from_status(status: ExitStatus) -> Self {
        match (status.code(), status.signal()) {
            (Some(code), _) => Self::Code(code),
            (None, Some(signal)) => Self::Signal(signal),
            (None, None) => Self::Code(status.into_raw()),
        }
    }

    /// Returns whether the program exited with code 0.
    pub const fn is_success(self) -> bool {
        matches!(self, Self::Code(0))
    }
}

impl fmt::Display for ProgramExit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Code(code) => write!(f, "exited with code {code}"),
            Self::Signal(signal) => write!(f, "was killed by signal {signal}"),
            Self::TimedOut(time) => {
                write!(f, "timed out after {} and was killed", format_duration(*time))
            }
            Self::OutputLimit(bytes) => write!(f, "printed more than {bytes} bytes and was killed"),
        }
    }
}

/// Result of running a program.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CommandOutput {
    /// How the program ended.
    pub exit: ProgramExit,
    /// Captured standard output of the program.
    pub stdout: CapturedOutput,
    /// Captured standard error of the program.
    pub stderr: CapturedOutput,
}

/// Why a program could not be run, or why its exit status is unknown.
#[derive(Debug, thiserror::Error)]
pub enum CommandError {
    /// The command contains no program.
    #[error("the command is empty: it must start with a program")]
    Empty,
    /// The working directory of the program does not exist.
    #[error("the working directory `{}` does not exist", .0.display())]
    MissingDir(PathBuf),
    /// The program was not found.
    #[error("the program `{0}` was not found; give its path, or put it in a directory of PATH")]
    NotFound(String),
    /// The program is not executable.
    #[error("`{0}` is not executable; run `chmod +x` on it")]
    NotExecutable(String),
    /// The operating system refused to start the program.
    #[error("`{0}` can't be started: {1}")]
    SpawnFailed(String, #[source] io::Error),
    /// The program was started, but its exit status is unknown.
    #[error("the exit status of the program is unknown: {0}")]
    WaitFailed(#[source] io::Error),
}
