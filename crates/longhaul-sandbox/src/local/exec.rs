//! One command in a sandbox: its start, its streams and its end.
//!
//! Invariant: no process of a command survives its end, whether it exits, runs out of time or is
//! dropped.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::sync::Arc;

use longhaul_core::change::SandboxState;
use longhaul_core::port::sandbox::{
    EPOCH_VAR, ExecExit, ExecStatus, Isolation, NetworkPolicy, OutputReceiver, OutputStream,
    SandboxCommand, SandboxError,
};
use longhaul_core::time::{Clock, Millis};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::unix::pipe::{Receiver, Sender};
use tokio::process::{Child, Command};

use crate::local::bwrap::BwrapArgs;
use crate::local::cgroup::TASKS_DEFAULT;
use crate::local::command::{COMMAND_VAR, CommandRecord, WRAPPER, wait_for_end};
use crate::local::egress::SandboxEgress;
use crate::local::layout::io_error;
use crate::local::path::{Folders, HOME, normalize};
use crate::local::sandbox::SandboxParts;

/// Script that limits the processes of a command in its namespace, where only those of the command
/// count, and runs the command. The shells name the limit differently.
const INNER_WRAPPER: &str = "[ \"$1\" = unlimited ] || ulimit -u \"$1\" 2>/dev/null || \
                             ulimit -p \"$1\"; shift; exec \"$@\"";
/// Size of the buffer of each output stream.
const BUFFER_BYTES: usize = 64 * 1024;
/// Shortest interval between two checks of the disk use.
const DISK_INTERVAL: Millis = Millis(1_000);
/// The interval between two checks is this multiple of the duration of a check.
const DISK_INTERVAL_FACTOR: u64 = 20;
/// Exit code of a command that was killed because it wrote too large a file, by the signal XFSZ.
const FILE_SIZE_EXIT: i32 = 128 + 25;

/// Checks the names and values of environment variables.
pub(crate) fn check_environment(env: &BTreeMap<String, String>) -> Result<(), SandboxError> {
    let is_valid = |(name, value): (&String, &String)| {
        !name.is_empty() && !name.contains(['=', '\0']) && !value.contains('\0')
    };
    match env.iter().find(|pair| !is_valid(*pair)) {
        None => Ok(()),
        Some((name, _)) => Err(SandboxError::Refused(format!(
            "the environment variable {name:?} is not valid; use a name without `=`, and no NUL bytes"
        ))),
    }
}

/// Runs a command to its end.
pub(crate) async fn run(
    parts: &Arc<SandboxParts>,
    folders: &Folders,
    command: SandboxCommand,
    on_output: OutputReceiver<'_>,
) -> Result<ExecExit, SandboxError> {
    if command.argv.is_empty() || command.argv.iter().any(|argument| argument.contains('\0')) {
        return Err(SandboxError::Refused(
            "a command needs a program, and arguments without NUL bytes".to_owned(),
        ));
    }
    check_environment(&command.env)?;
    let cwd = normalize(command.cwd.as_deref().unwrap_or("."))?;
    let timeout = command.timeout;
    let memory_kills = parts.cgroup.as_ref().map_or(0, |cgroup| cgroup.memory_kills());
    let has_namespaces = parts.info.isolation == Isolation::Bubblewrap;
    let host_cwd = (!has_namespaces).then(|| host_dir(folders, &cwd)).transpose()?;
    let start = {
        let parts = Arc::clone(parts);
        // Dropping this function in the meantime drops the started command later, which kills it.
        tokio::task::spawn_blocking(move || RunningCommand::start(&parts, command, (cwd, host_cwd)))
    };
    let mut running = match start.await {
        Ok(started) => started?,
        Err(error) => {
            return Err(SandboxError::Unavailable(format!("the command did not start: {error}")));
        }
    };
    let end = running.wait(parts, timeout, on_output).await?;
    running.finish(on_output).await?;
    let is_over_memory =
        || parts.cgroup.as_ref().is_some_and(|cgroup| cgroup.memory_kills() > memory_kills);
    let status = match end {
        End::TimedOut => ExecStatus::TimedOut,
        End::OverDisk => ExecStatus::OverLimit,
        End::Exited(status) if !status.success() && is_over_memory() => ExecStatus::OverLimit,
        End::Exited(status) => match (status.code(), status.signal()) {
            (Some(FILE_SIZE_EXIT), _) => ExecStatus::OverLimit,
            (Some(code), _) => ExecStatus::Exited(code),
            (None, signal) => ExecStatus::Signaled(signal.unwrap_or_default()),
        },
    };
    let refusals = parts.egress.as_ref().map(SandboxEgress::take_refusals).unwrap_or_default();
    Ok(ExecExit { status, refusals })
}

/// Returns the directory of this machine for a working directory of the sandbox.
fn host_dir(folders: &Folders, cwd: &Path) -> Result<PathBuf, SandboxError> {
    let location = folders.locate(&cwd.to_string_lossy())?;
    let dir = location.root.join(location.below);
    match dir.is_dir() {
        true => Ok(dir),
        false => Err(SandboxError::File(format!("the working directory {cwd:?} is not a folder"))),
    }
}

/// Why a command ended.
enum End {
    Exited(ExitStatus),
    TimedOut,
    OverDisk,
}

/// A command whose processes are killed when it is dropped.
struct RunningCommand {
    child: Child,
    record: CommandRecord,
    stdin: Option<(Sender, Vec<u8>)>,
    outputs: [Option<Receiver>; 2],
}

impl RunningCommand {
    /// Starts a command, if the sandbox is not stopped. Blocks.
    fn start(
        parts: &SandboxParts,
        command: SandboxCommand,
        (cwd, host_cwd): (PathBuf, Option<PathBuf>),
    ) -> Result<Self, SandboxError> {
        let layout = &parts.layout;
        let failed = |error: io::Error| io_error("start a command in", layout.dir(), &error);
        let record = CommandRecord::new(layout, command.epoch.0).map_err(failed)?;
        let mut process = wrapper(parts, &record);
        match host_cwd {
            Some(dir) => plain_command(&mut process, parts, &command, &record).current_dir(dir),
            None => process.args(bwrap_command(parts, &command, &record).finish(&cwd)),
        };
        process.args(parts.egress.iter().flat_map(|egress| egress.launcher_args()));
        // The shell reports a program that is missing, as users know it from a shell.
        let tasks = parts.spec.limits.tasks.unwrap_or(TASKS_DEFAULT).to_string();
        let tasks = if parts.cgroup.is_some() { "unlimited".to_owned() } else { tasks };
        process.args(["/bin/sh", "-c", INNER_WRAPPER, "sh", tasks.as_str()]);
        process.args(&command.argv);
        let (stdin_reader, stdin) = match command.stdin.is_empty() {
            true => (Stdio::null(), None),
            false => {
                let (reader, writer) = io::pipe().map_err(failed)?;
                let writer = Sender::from_owned_fd(writer.into()).map_err(failed)?;
                (reader.into(), Some((writer, command.stdin)))
            }
        };
        let (stdout, stdout_writer) = output_pipe().map_err(failed)?;
        let (stderr, stderr_writer) = output_pipe().map_err(failed)?;
        process.stdin(stdin_reader).stdout(stdout_writer).stderr(stderr_writer);
        // A stop that follows finds the record, and one that came before is seen here.
        let _lock = parts.provider.dir.lock()?;
        let state = layout.load()?.ok_or(SandboxError::NotFound)?.state;
        if state != SandboxState::Running {
            return Err(SandboxError::Unavailable(
                "the sandbox is stopped; start it before a command".to_owned(),
            ));
        }
        let child = match parts.provider.spawner.spawn(process) {
            Err(error) if error.kind() == io::ErrorKind::ArgumentListTooLong => {
                return Err(SandboxError::Refused(
                    "the command is too long; write it to a file of the sandbox and run that file"
                        .to_owned(),
                ));
            }
            spawned => spawned.map_err(failed)?,
        };
        let pid = child.id();
        let running = Self { child, record, stdin, outputs: [Some(stdout), Some(stderr)] };
        running.record.store(pid.unwrap_or_default()).map_err(failed)?;
        Ok(running)
    }

    /// Passes the streams on until the command has exited or must be killed.
    async fn wait(
        &mut self,
        parts: &SandboxParts,
        timeout: Option<Millis>,
        on_output: OutputReceiver<'_>,
    ) -> Result<End, SandboxError> {
        let clock = parts.provider.options.clock.as_ref();
        let mut timeout = std::pin::pin!(async {
            match timeout {
                Some(timeout) => clock.sleep(timeout).await,
                None => std::future::pending().await,
            }
        });
        let mut over_disk = std::pin::pin!(wait_for_disk_limit(parts, clock));
        let (mut out, mut err) = (vec![0; BUFFER_BYTES], vec![0; BUFFER_BYTES]);
        let [stdout, stderr] = &mut self.outputs;
        loop {
            tokio::select! {
                bytes = read(stdout, &mut out) => on_output(OutputStream::Stdout, bytes),
                bytes = read(stderr, &mut err) => on_output(OutputStream::Stderr, bytes),
                () = write(&mut self.stdin) => {}
                status = self.child.wait() => match status {
                    Ok(status) => return Ok(End::Exited(status)),
                    Err(error) => return Err(SandboxError::Unavailable(format!(
                        "the exit status of a command is unknown: {error}"
                    ))),
                },
                () = &mut timeout => return Ok(End::TimedOut),
                () = &mut over_disk => return Ok(End::OverDisk),
            }
        }
    }

    /// Kills all processes, waits for their end and passes on the rest of their output.
    async fn finish(mut self, on_output: OutputReceiver<'_>) -> Result<(), SandboxError> {
        let processes = self.record.kill();
        // Has no effect if the process has exited. An error would mean the same.
        _ = self.child.kill().await;
        wait_for_end(processes).await?;
        let mut buffer = vec![0; BUFFER_BYTES];
        let outputs = std::mem::take(&mut self.outputs);
        for (output, stream) in outputs.iter().zip([OutputStream::Stdout, OutputStream::Stderr]) {
            let Some(output) = output else { continue };
            // Another command may hold the pipe, so that it does not have to end.
            while let Ok(count @ 1..) = rustix::io::read(output, &mut buffer) {
                on_output(stream, &buffer[..count]);
            }
        }
        Ok(())
    }
}

impl Drop for RunningCommand {
    fn drop(&mut self) {
        _ = self.record.kill();
        // The runtime waits for the exit of the process, so that its id is not used again before.
        _ = self.child.start_kill();
        self.record.remove();
    }
}

/// Returns the process that starts a command within its limits.
fn wrapper(parts: &SandboxParts, record: &CommandRecord) -> Command {
    let limit = |bytes: u64, unit: u64| OsString::from((bytes / unit).max(1).to_string());
    let memory = match (&parts.cgroup, parts.spec.limits.memory_bytes) {
        (None, Some(bytes)) => limit(bytes, 1024),
        _ => "unlimited".into(),
    };
    let mut process = Command::new("/bin/sh");
    process.args(["-c", WRAPPER, "sh"]).arg(record.info_file());
    process.arg(parts.provider.dir.seccomp_filter());
    process.arg(limit(parts.disk_bytes_max(), 512)).arg(memory);
    process.args(parts.cgroup.iter().flat_map(|cgroup| cgroup.member_files()));
    process.arg("--").process_group(0).kill_on_drop(true);
    process
}

/// Returns the environment variables of a command, those that the sandbox decides last.
fn environment(
    parts: &SandboxParts,
    command: &SandboxCommand,
    record: &CommandRecord,
) -> BTreeMap<String, OsString> {
    let mut env = BTreeMap::from([
        ("LANG".to_owned(), OsString::from("C.UTF-8")),
        ("PATH".to_owned(), parts.provider.search_path.clone()),
        ("USER".to_owned(), "agent".into()),
    ]);
    let placeholders = parts.spec.secrets.iter();
    let placeholders = placeholders.map(|secret| (secret.name.clone(), secret.placeholder()));
    let proxy = parts.egress.as_ref().map(SandboxEgress::env).unwrap_or_default();
    let given = parts.spec.env.clone().into_iter().chain(command.env.clone());
    for (name, value) in given.chain(placeholders).chain(proxy) {
        env.insert(name, value.into());
    }
    env.insert(EPOCH_VAR.to_owned(), command.epoch.to_string().into());
    env.insert(COMMAND_VAR.to_owned(), record.id.clone().into());
    env
}

/// Returns the arguments that run a command in new namespaces, without its working directory.
fn bwrap_command(
    parts: &SandboxParts,
    command: &SandboxCommand,
    record: &CommandRecord,
) -> BwrapArgs {
    let provider = &parts.provider;
    let has_network = parts.spec.network == NetworkPolicy::Host;
    let program = provider.probe.bwrap.as_deref().unwrap_or(Path::new("bwrap"));
    let mut args = BwrapArgs::new(program, &provider.dir, &provider.options.read_only, has_network);
    args.bind_folders(&parts.layout, &parts.volumes);
    if let Some(egress) = &parts.egress {
        egress.bind(&mut args);
    }
    args.set_env("HOME", HOME);
    args.set_env("TMPDIR", "/tmp");
    for (name, value) in environment(parts, command, record) {
        args.set_env(name, value);
    }
    args
}

/// Sets the environment of a command without isolation.
fn plain_command<'a>(
    process: &'a mut Command,
    parts: &SandboxParts,
    command: &SandboxCommand,
    record: &CommandRecord,
) -> &'a mut Command {
    process.env_clear().env("HOME", parts.layout.home()).env("TMPDIR", parts.layout.tmp());
    process.envs(environment(parts, command, record))
}

/// Creates a pipe for output. The end that writes belongs to the command.
fn output_pipe() -> io::Result<(Receiver, Stdio)> {
    let (reader, writer) = io::pipe()?;
    Ok((Receiver::from_owned_fd(reader.into())?, OwnedFd::from(writer).into()))
}

/// Reads from a pipe, and never returns once it has ended.
async fn read<'a>(pipe: &mut Option<Receiver>, buffer: &'a mut [u8]) -> &'a [u8] {
    if let Some(open) = pipe {
        if let Ok(count @ 1..) = open.read(buffer).await {
            return &buffer[..count];
        }
        *pipe = None;
    }
    std::future::pending().await
}

/// Writes a part of the input, and never returns once all of it is written or nobody reads it.
async fn write(stdin: &mut Option<(Sender, Vec<u8>)>) {
    if let Some((pipe, rest)) = stdin {
        match pipe.write(rest).await {
            Ok(count) if count < rest.len() => _ = rest.drain(..count),
            _ => *stdin = None,
        }
        return;
    }
    std::future::pending().await
}

/// Returns when the files of the sandbox are larger than its limit, and larger than at the start.
async fn wait_for_disk_limit(parts: &SandboxParts, clock: &dyn Clock) {
    let mut limit = parts.disk_bytes_max();
    let mut interval = DISK_INTERVAL;
    // A command may make a full sandbox smaller, but not larger.
    let mut is_first = true;
    loop {
        let started = clock.monotonic_time();
        let used = disk_bytes_used(parts.layout.dir()).await;
        if is_first {
            limit = limit.max(used);
            is_first = false;
        }
        if used > limit {
            return;
        }
        let duration = clock.monotonic_time().0.saturating_sub(started.0);
        interval.0 = DISK_INTERVAL.0.max(duration.saturating_mul(DISK_INTERVAL_FACTOR));
        clock.sleep(interval).await;
    }
}

/// Returns the space that a directory occupies on the disk, as far as it can be read.
async fn disk_bytes_used(dir: &Path) -> u64 {
    let mut du = Command::new("du");
    du.args(["-skx", "--"]).arg(dir).stderr(Stdio::null()).kill_on_drop(true);
    let output = du.output().await.map(|output| output.stdout).unwrap_or_default();
    let text = String::from_utf8_lossy(&output);
    let kibibytes = text.split_whitespace().next().and_then(|number| number.parse::<u64>().ok());
    kibibytes.unwrap_or_default().saturating_mul(1024)
}
