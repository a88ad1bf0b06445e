//! Runs one program with bounds: its words as they are, its own group of
//! processes, so much time, so much of what it says.
//!
//! Never: a shell, our own environment, or a process that is left behind when
//! the program has ended, its time is over, or nobody waits for it any more.

use std::fmt;
use std::io;
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};

use rustix::process::{Pid, Signal, kill_process_group};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWriteExt as _};
use tokio::process::{Child, ChildStdin};
use tokio::sync::Notify;

use longhaul_core::time::{Clock, Millis};

/// How long a program may take where nobody says.
const TIMEOUT: Millis = Millis::from_secs(30);
/// How much of each stream is kept where nobody says.
const KEEP_BYTES: usize = 256 * 1024;
/// So long its pipes are listened to when the program has ended: somebody who
/// left its group may hold them open for ever.
const PIPE_GRACE: Millis = Millis(500);
/// Where programs are looked for if we ourselves were not told.
const DEFAULT_PATH: &str = "/usr/local/bin:/usr/bin:/bin";

/// A program and its bounds.
#[derive(Clone)]
pub struct Command {
    /// The program and its words. A program with a `/` in its name is looked for
    /// from `dir`, another one in `PATH`.
    pub argv: Vec<String>,
    /// Where it works.
    pub dir: PathBuf,
    /// All it sees of an environment, beside `PATH`.
    pub env: Vec<(String, String)>,
    /// What it reads.
    pub stdin: Vec<u8>,
    /// So many bytes of each stream are kept, of its beginning and its end.
    pub keep_bytes: usize,
    /// It is stopped when it says more bytes than this on its output; none: what
    /// is too long is read on, and its middle is left out.
    pub stdout_bytes_max: Option<usize>,
    /// How long it may take.
    pub timeout: Millis,
}

impl fmt::Debug for Command {
    /// Words, values and input may be secrets.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<&str> = self.env.iter().map(|(name, _)| name.as_str()).collect();
        f.debug_struct("Command")
            .field("program", &self.argv.first())
            .field("dir", &self.dir)
            .field("env", &names)
            .field("stdin", &self.stdin.len())
            .field("keep_bytes", &self.keep_bytes)
            .field("stdout_bytes_max", &self.stdout_bytes_max)
            .field("timeout", &self.timeout)
            .finish_non_exhaustive()
    }
}

impl Command {
    /// This program in this directory, without an environment and without input.
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

    /// Runs it to its end, or to the end of its time or of what it may say.
    pub async fn run(self, clock: &dyn Clock) -> Result<CommandOutput, CommandError> {
        let mut child = self.spawn()?;
        let mut group = ProcessGroup::from_leader(&child);
        let mut stdout = CapturedOutput::new(self.keep_bytes);
        let mut stderr = CapturedOutput::new(self.keep_bytes);
        let pipes = (child.stdin.take(), child.stdout.take(), child.stderr.take());
        let flooded = Notify::new();
        let exit = {
            let talk = async {
                tokio::join!(
                    write_stdin(pipes.0, &self.stdin),
                    stdout.capture(pipes.1, self.stdout_bytes_max, &flooded),
                    stderr.capture(pipes.2, None, &flooded)
                );
            };
            tokio::pin!(talk);
            let late = clock.sleep(self.timeout);
            tokio::pin!(late);
            let mut silent = false;
            let exit = loop {
                tokio::select! {
                    biased;
                    () = flooded.notified() => break Exit::OutputLimit(self.stdout_bytes_max.unwrap_or_default()),
                    status = child.wait() => break Exit::from_status(status.map_err(CommandError::WaitFailed)?),
                    () = &mut talk, if !silent => silent = true,
                    () = &mut late => break Exit::TimedOut(self.timeout),
                }
            };
            group.kill();
            if !silent {
                with_grace(clock, talk).await;
            }
            exit
        };
        if let Exit::TimedOut(_) | Exit::OutputLimit(_) = exit {
            // Killed, so it ends; one that hangs in the system is reaped later.
            with_grace(clock, child.wait()).await;
        }
        Ok(CommandOutput { exit, stdout, stderr })
    }

    fn spawn(&self) -> Result<Child, CommandError> {
        let [program, words @ ..] = &self.argv[..] else {
            return Err(CommandError::Empty);
        };
        if program.is_empty() {
            return Err(CommandError::Empty);
        }
        // The program is looked for after the step into its directory: from there
        // a path that begins here would lead elsewhere.
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
            .args(words)
            .current_dir(&dir)
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap_or(DEFAULT_PATH.into()))
            .envs(self.env.iter().map(|(name, value)| (name, value)))
            .stdin(stdin)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0)
            .kill_on_drop(true);
        command.spawn().map_err(|why| {
            let program = program.clone();
            if why.kind() == io::ErrorKind::NotFound {
                CommandError::NotFound(program)
            } else if why.kind() == io::ErrorKind::PermissionDenied {
                CommandError::NotExecutable(program)
            } else {
                CommandError::SpawnFailed(program, why)
            }
        })
    }
}

/// Waits for it, but not long.
async fn with_grace<T>(clock: &dyn Clock, work: impl Future<Output = T>) {
    let over = clock.sleep(PIPE_GRACE);
    tokio::select! {
        biased;
        _ = work => {}
        () = over => {}
    }
}

async fn write_stdin(pipe: Option<ChildStdin>, words: &[u8]) {
    if let Some(mut pipe) = pipe {
        // A program that does not read to the end is free not to.
        _ = pipe.write_all(words).await;
    }
}

/// The processes of one program. They end with it.
#[derive(Debug)]
pub(crate) struct ProcessGroup(Option<Pid>);

impl ProcessGroup {
    /// The group that this program leads.
    pub(crate) fn from_leader(child: &Child) -> Self {
        let id = child.id().and_then(|id| i32::try_from(id).ok());
        Self(id.and_then(Pid::from_raw))
    }

    /// Ends them, once: later the number may be somebody else's.
    pub(crate) fn kill(&mut self) {
        if let Some(group) = self.0.take() {
            // An error says that nobody is left.
            _ = kill_process_group(group, Signal::KILL);
        }
    }
}

impl Drop for ProcessGroup {
    fn drop(&mut self) {
        self.kill();
    }
}

/// What a stream said: all of it, or its beginning and its end.
#[derive(Clone, PartialEq, Eq)]
pub struct CapturedOutput {
    head: Vec<u8>,
    tail: Vec<u8>,
    half_max: usize,
    bytes: u64,
}

/// The bytes that are kept of something too long.
#[derive(Debug, Clone, Copy)]
pub(crate) struct KeptEnds {
    pub(crate) head_bytes: usize,
    pub(crate) tail_bytes: usize,
}

impl fmt::Debug for CapturedOutput {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CapturedOutput({} bytes)", self.bytes)
    }
}

impl CapturedOutput {
    /// Nothing so far; so many bytes are kept.
    pub(crate) fn new(keep: usize) -> Self {
        Self { head: Vec::new(), tail: Vec::new(), half_max: keep / 2, bytes: 0 }
    }

    /// Hears it to its end, or until it has said too much.
    async fn capture(
        &mut self,
        pipe: Option<impl AsyncRead + Unpin>,
        most: Option<usize>,
        flooded: &Notify,
    ) {
        let Some(mut pipe) = pipe else { return };
        let mut buffer = vec![0; 16 * 1024];
        // It is read on when it is not kept: a full pipe would stop the program.
        while let Ok(count @ 1..) = pipe.read(&mut buffer).await {
            self.push(&buffer[..count]);
            if most.is_some_and(|most| self.bytes > most as u64) {
                return flooded.notify_one();
            }
        }
    }

    /// One piece more.
    pub(crate) fn push(&mut self, piece: &[u8]) {
        self.bytes = self.bytes.saturating_add(piece.len() as u64);
        let room = self.half_max.saturating_sub(self.head.len());
        let (first, rest) = piece.split_at(piece.len().min(room));
        self.head.extend_from_slice(first);
        self.tail.extend_from_slice(rest);
        // Cut seldom, so that many small pieces cost no more than one large.
        if self.tail.len() > self.half_max.saturating_mul(2).max(32 * 1024) {
            self.trim_tail();
        }
    }

    fn trim_tail(&mut self) {
        let over = self.tail.len().saturating_sub(self.half_max);
        self.tail.drain(..over);
    }

    /// The end that is kept.
    fn kept_tail(&self) -> &[u8] {
        &self.tail[self.tail.len().saturating_sub(self.half_max)..]
    }

    /// How long it was.
    pub const fn total_bytes(&self) -> u64 {
        self.bytes
    }

    /// How much of its middle was not kept.
    pub fn dropped_bytes(&self) -> u64 {
        let kept = self.head.len() + self.kept_tail().len();
        self.bytes.saturating_sub(kept as u64)
    }

    /// How much of both ends is kept where its middle is not.
    pub(crate) fn kept_ends(&self) -> Option<KeptEnds> {
        (self.dropped_bytes() > 0)
            .then(|| KeptEnds { head_bytes: self.head.len(), tail_bytes: self.kept_tail().len() })
    }

    /// All of it, unless it was too long.
    pub fn complete(&self) -> Option<Vec<u8>> {
        (self.dropped_bytes() == 0).then(|| [&self.head, self.kept_tail()].concat())
    }

    /// What was kept as text, with a word about what was not.
    pub fn text(&self) -> String {
        match self.complete() {
            Some(whole) => String::from_utf8_lossy(&whole).into_owned(),
            None => format!(
                "{}\n[{} bytes left out here]\n{}",
                String::from_utf8_lossy(&self.head),
                self.dropped_bytes(),
                String::from_utf8_lossy(self.kept_tail())
            ),
        }
    }

    /// Its last words, at most so many bytes of them.
    pub fn last_text(&self, bytes_max: usize) -> String {
        let kept = [&self.head, self.kept_tail()].concat();
        let text = String::from_utf8_lossy(&kept).trim().to_owned();
        let from = text.len().saturating_sub(bytes_max);
        text[text.ceil_char_boundary(from)..].trim_start().to_owned()
    }
}

/// How a program ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exit {
    /// With this code.
    Code(i32),
    /// By this signal.
    Signal(i32),
    /// Not in this time; it was killed.
    TimedOut(Millis),
    /// It said more bytes than these; it was killed.
    OutputLimit(usize),
}

impl Exit {
    /// As the system says it.
    pub(crate) fn from_status(status: ExitStatus) -> Self {
        match (status.code(), status.signal()) {
            (Some(code), _) => Self::Code(code),
            (None, Some(signal)) => Self::Signal(signal),
            (None, None) => Self::Code(status.into_raw()),
        }
    }

    /// Whether it says that all went well.
    pub const fn is_success(self) -> bool {
        matches!(self, Self::Code(0))
    }
}

impl fmt::Display for Exit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Code(code) => write!(f, "ended with code {code}"),
            Self::Signal(signal) => write!(f, "was ended by signal {signal}"),
            Self::TimedOut(Millis(time)) if time % 1_000 == 0 => {
                write!(f, "did not end in {} s and was stopped", time / 1_000)
            }
            Self::TimedOut(Millis(time)) => write!(f, "did not end in {time} ms and was stopped"),
            Self::OutputLimit(bytes) => write!(f, "said more than {bytes} bytes and was stopped"),
        }
    }
}

/// What a program left.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CommandOutput {
    /// How it ended.
    pub exit: Exit,
    /// What it said.
    pub stdout: CapturedOutput,
    /// What it said of itself.
    pub stderr: CapturedOutput,
}

/// A program that was not run, or got lost.
#[derive(Debug, thiserror::Error)]
pub enum CommandError {
    /// Nothing is named.
    #[error("no program is named")]
    Empty,
    /// The directory is missing.
    #[error("its directory `{}` is not there", .0.display())]
    MissingDir(PathBuf),
    /// The program is missing.
    #[error("there is no program `{0}`; give its path, or put it where PATH leads")]
    NotFound(String),
    /// The program may not be run.
    #[error("`{0}` may not be run; make it executable (chmod +x)")]
    NotExecutable(String),
    /// The system refuses.
    #[error("`{0}` can't be started: {1}")]
    SpawnFailed(String, #[source] io::Error),
    /// Nobody knows how it ended.
    #[error("how it ended can't be told: {0}")]
    WaitFailed(#[source] io::Error),
}
