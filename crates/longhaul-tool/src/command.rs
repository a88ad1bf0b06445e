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
const KEEP: usize = 256 * 1024;
/// So long its pipes are listened to when the program has ended: somebody who
/// left its group may hold them open for ever.
const GRACE: Millis = Millis(500);
/// Where programs are looked for if we ourselves were not told.
const PATH: &str = "/usr/local/bin:/usr/bin:/bin";

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
    pub keep: usize,
    /// It is stopped when it says more bytes than this on its output; none: what
    /// is too long is read on, and its middle is left out.
    pub most: Option<usize>,
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
            .field("keep", &self.keep)
            .field("most", &self.most)
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
            keep: KEEP,
            most: None,
            timeout: TIMEOUT,
        }
    }

    /// Runs it to its end, or to the end of its time or of what it may say.
    pub async fn run(self, clock: &dyn Clock) -> Result<Ended, CommandError> {
        let mut child = self.spawn()?;
        let mut group = Group::of(&child);
        let mut stdout = Heard::new(self.keep);
        let mut stderr = Heard::new(self.keep);
        let pipes = (child.stdin.take(), child.stdout.take(), child.stderr.take());
        let flooded = Notify::new();
        let exit = {
            let talk = async {
                tokio::join!(
                    tell(pipes.0, &self.stdin),
                    stdout.hear(pipes.1, self.most, &flooded),
                    stderr.hear(pipes.2, None, &flooded)
                );
            };
            tokio::pin!(talk);
            let late = clock.sleep(self.timeout);
            tokio::pin!(late);
            let mut silent = false;
            let exit = loop {
                tokio::select! {
                    biased;
                    () = flooded.notified() => break Exit::Long(self.most.unwrap_or_default()),
                    status = child.wait() => break Exit::of(status.map_err(CommandError::Lost)?),
                    () = &mut talk, if !silent => silent = true,
                    () = &mut late => break Exit::Late(self.timeout),
                }
            };
            group.kill();
            if !silent {
                within(clock, talk).await;
            }
            exit
        };
        if let Exit::Late(_) | Exit::Long(_) = exit {
            // Killed, so it ends; one that hangs in the system is reaped later.
            within(clock, child.wait()).await;
        }
        Ok(Ended {
            exit,
            stdout,
            stderr,
        })
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
            return Err(CommandError::NoDir(dir));
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
            .env("PATH", std::env::var_os("PATH").unwrap_or(PATH.into()))
            .envs(self.env.iter().map(|(name, value)| (name, value)))
            .stdin(stdin)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0)
            .kill_on_drop(true);
        command.spawn().map_err(|why| {
            let program = program.clone();
            if why.kind() == io::ErrorKind::NotFound {
                CommandError::Missing(program)
            } else if why.kind() == io::ErrorKind::PermissionDenied {
                CommandError::Closed(program)
            } else {
                CommandError::Refused(program, why)
            }
        })
    }
}

/// Waits for it, but not long.
async fn within<T>(clock: &dyn Clock, work: impl Future<Output = T>) {
    let over = clock.sleep(GRACE);
    tokio::select! {
        biased;
        _ = work => {}
        () = over => {}
    }
}

async fn tell(pipe: Option<ChildStdin>, words: &[u8]) {
    if let Some(mut pipe) = pipe {
        // A program that does not read to the end is free not to.
        _ = pipe.write_all(words).await;
    }
}

/// The processes of one program. They end with it.
#[derive(Debug)]
pub(crate) struct Group(Option<Pid>);

impl Group {
    /// The group that this program leads.
    pub(crate) fn of(child: &Child) -> Self {
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

impl Drop for Group {
    fn drop(&mut self) {
        self.kill();
    }
}

/// What a stream said: all of it, or its beginning and its end.
#[derive(Clone, PartialEq, Eq)]
pub struct Heard {
    head: Vec<u8>,
    tail: Vec<u8>,
    half: usize,
    bytes: u64,
}

/// The bytes that are kept of something too long.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Ends {
    pub(crate) first: usize,
    pub(crate) last: usize,
}

impl fmt::Debug for Heard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Heard({} bytes)", self.bytes)
    }
}

impl Heard {
    /// Nothing so far; so many bytes are kept.
    pub(crate) fn new(keep: usize) -> Self {
        Self {
            head: Vec::new(),
            tail: Vec::new(),
            half: keep / 2,
            bytes: 0,
        }
    }

    /// Hears it to its end, or until it has said too much.
    async fn hear(
        &mut self,
        pipe: Option<impl AsyncRead + Unpin>,
        most: Option<usize>,
        flooded: &Notify,
    ) {
        let Some(mut pipe) = pipe else { return };
        let mut buffer = vec![0; 16 * 1024];
        // It is read on when it is not kept: a full pipe would stop the program.
        while let Ok(count @ 1..) = pipe.read(&mut buffer).await {
            self.take(&buffer[..count]);
            if most.is_some_and(|most| self.bytes > most as u64) {
                return flooded.notify_one();
            }
        }
    }

    /// One piece more.
    pub(crate) fn take(&mut self, piece: &[u8]) {
        self.bytes = self.bytes.saturating_add(piece.len() as u64);
        let room = self.half.saturating_sub(self.head.len());
        let (first, rest) = piece.split_at(piece.len().min(room));
        self.head.extend_from_slice(first);
        self.tail.extend_from_slice(rest);
        // Cut seldom, so that many small pieces cost no more than one large.
        if self.tail.len() > self.half.saturating_mul(2).max(32 * 1024) {
            self.shorten();
        }
    }

    fn shorten(&mut self) {
        let over = self.tail.len().saturating_sub(self.half);
        self.tail.drain(..over);
    }

    /// The end that is kept.
    fn end(&self) -> &[u8] {
        &self.tail[self.tail.len().saturating_sub(self.half)..]
    }

    /// How long it was.
    pub const fn bytes(&self) -> u64 {
        self.bytes
    }

    /// How much of its middle was not kept.
    pub fn dropped(&self) -> u64 {
        let kept = self.head.len() + self.end().len();
        self.bytes.saturating_sub(kept as u64)
    }

    /// How much of both ends is kept where its middle is not.
    pub(crate) fn parts(&self) -> Option<Ends> {
        (self.dropped() > 0).then(|| Ends {
            first: self.head.len(),
            last: self.end().len(),
        })
    }

    /// All of it, unless it was too long.
    pub fn whole(&self) -> Option<Vec<u8>> {
        (self.dropped() == 0).then(|| [&self.head, self.end()].concat())
    }

    /// What was kept as text, with a word about what was not.
    pub fn text(&self) -> String {
        match self.whole() {
            Some(whole) => String::from_utf8_lossy(&whole).into_owned(),
            None => format!(
                "{}\n[{} bytes left out here]\n{}",
                String::from_utf8_lossy(&self.head),
                self.dropped(),
                String::from_utf8_lossy(self.end())
            ),
        }
    }

    /// Its last words, at most so many bytes of them.
    pub fn last(&self, bytes_max: usize) -> String {
        let kept = [&self.head, self.end()].concat();
        let text = String::from_utf8_lossy(&kept).trim().to_owned();
        let from = text.len().saturating_sub(bytes_max);
        text[text.ceil_char_boundary(from)..]
            .trim_start()
            .to_owned()
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
    Late(Millis),
    /// It said more bytes than these; it was killed.
    Long(usize),
}

impl Exit {
    /// As the system says it.
    pub(crate) fn of(status: ExitStatus) -> Self {
        match (status.code(), status.signal()) {
            (Some(code), _) => Self::Code(code),
            (None, Some(signal)) => Self::Signal(signal),
            (None, None) => Self::Code(status.into_raw()),
        }
    }

    /// Whether it says that all went well.
    pub const fn is_good(self) -> bool {
        matches!(self, Self::Code(0))
    }
}

impl fmt::Display for Exit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Code(code) => write!(f, "ended with code {code}"),
            Self::Signal(signal) => write!(f, "was ended by signal {signal}"),
            Self::Late(Millis(time)) if time % 1_000 == 0 => {
                write!(f, "did not end in {} s and was stopped", time / 1_000)
            }
            Self::Late(Millis(time)) => write!(f, "did not end in {time} ms and was stopped"),
            Self::Long(bytes) => write!(f, "said more than {bytes} bytes and was stopped"),
        }
    }
}

/// What a program left.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ended {
    /// How it ended.
    pub exit: Exit,
    /// What it said.
    pub stdout: Heard,
    /// What it said of itself.
    pub stderr: Heard,
}

/// A program that was not run, or got lost.
#[derive(Debug, thiserror::Error)]
pub enum CommandError {
    /// Nothing is named.
    #[error("no program is named")]
    Empty,
    /// The directory is missing.
    #[error("its directory `{}` is not there", .0.display())]
    NoDir(PathBuf),
    /// The program is missing.
    #[error("there is no program `{0}`; give its path, or put it where PATH leads")]
    Missing(String),
    /// The program may not be run.
    #[error("`{0}` may not be run; make it executable (chmod +x)")]
    Closed(String),
    /// The system refuses.
    #[error("`{0}` can't be started: {1}")]
    Refused(String, #[source] io::Error),
    /// Nobody knows how it ended.
    #[error("how it ended can't be told: {0}")]
    Lost(#[source] io::Error),
}
