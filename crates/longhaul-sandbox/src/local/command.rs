//! Records of running commands on disk, by which any process of this machine can kill them.
//!
//! A record is two files: one with the id of the process that was started, and one in which
//! bubblewrap writes the first process of the command's namespace. Killing that one makes the kernel
//! kill all processes of the namespace.

use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::time::Duration;

use longhaul_core::port::sandbox::SandboxError;
use rustix::process::{Pid, PidfdFlags, Signal};
use serde::Deserialize;
use tokio::io::unix::AsyncFd;

use crate::local::layout::{Layout, io_error, random_id};

/// Environment variable of each command with the id of its record.
pub(crate) const COMMAND_VAR: &str = "LONGHAUL_COMMAND";

/// Script that starts a command: it joins control groups, limits the size of a file and the memory
/// of a process, and opens the files for bubblewrap. Its arguments are the file for the information
/// about the sandbox, the filter of system calls, the two limits in blocks of 512 bytes and in KiB,
/// the files of the control groups, `--` and the command.
///
/// A limit that can't be set is already lower.
pub(crate) const WRAPPER: &str = "ulimit -c 0; ulimit -f \"$3\" 2>/dev/null; \
     ulimit -d \"$4\" 2>/dev/null; info=$1 filter=$2; shift 4; \
     while [ \"$1\" != -- ]; do echo $$ > \"$1\" || exit 125; shift; done; \
     shift; exec \"$@\" 3>\"$info\" 4<\"$filter\"";

/// Time after which processes that don't end are reported.
const KILL_TIMEOUT: Duration = Duration::from_secs(30);
/// Number of times that the processes of this machine are searched for those of a command.
const SCANS_MAX: usize = 100;

/// Record of a running command.
#[derive(Debug)]
pub(crate) struct CommandRecord {
    /// Name of the record: the epoch of the command and a random number.
    pub(crate) id: String,
    dir: PathBuf,
}

/// What bubblewrap tells about a sandbox.
#[derive(Debug, Deserialize)]
struct BwrapInfo {
    #[serde(rename = "child-pid")]
    child_pid: i32,
    #[serde(rename = "pid-namespace")]
    pid_namespace: u64,
}

impl CommandRecord {
    /// Returns the record of a new command, which is not on disk yet.
    pub(crate) fn new(layout: &Layout, epoch: u64) -> io::Result<Self> {
        Ok(Self { id: format!("{epoch}-{}", random_id()?), dir: layout.commands() })
    }

    fn pid_file(&self) -> PathBuf {
        self.dir.join(&self.id)
    }

    /// Returns the file in which bubblewrap writes information about the sandbox.
    pub(crate) fn info_file(&self) -> PathBuf {
        self.dir.join(format!("{}.info", self.id))
    }

    /// Writes the process of the command to the disk.
    pub(crate) fn store(&self, pid: u32) -> io::Result<()> {
        fs::write(self.pid_file(), pid.to_string())
    }

    /// Removes the record. Its processes have ended.
    pub(crate) fn remove(&self) {
        // Another process may have killed the command and removed its record.
        _ = fs::remove_file(self.info_file());
        _ = fs::remove_file(self.pid_file());
    }

    /// Kills all processes of the command. Returns a descriptor that becomes readable when they
    /// have ended, if the command has a namespace of its own.
    pub(crate) fn kill(&self) -> Option<OwnedFd> {
        let pid = fs::read_to_string(self.pid_file()).ok().and_then(|text| text.parse().ok());
        if let Some(pid) = pid.and_then(Pid::from_raw)
            && self.is_process(pid)
        {
            // First, so that bubblewrap creates no namespace after its information was read.
            _ = rustix::process::kill_process_group(pid, Signal::KILL);
        }
        let Ok(info) = fs::read(self.info_file()) else {
            return None;
        };
        match serde_json::from_slice::<BwrapInfo>(&info) {
            Ok(info) => kill_namespace(&info),
            Err(_) => {
                self.kill_by_environment();
                None
            }
        }
    }

    /// Kills the processes that have the id of the record in their environment, for commands
    /// without a namespace.
    fn kill_by_environment(&self) {
        for _ in 0..SCANS_MAX {
            let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
            let pids = processes.filter_map(|entry| {
                let pid = Pid::from_raw(entry.file_name().to_str()?.parse().ok()?)?;
                self.is_process(pid).then_some(pid)
            });
            let mut has_found = false;
            for pid in pids {
                has_found = true;
                _ = rustix::process::kill_process(pid, Signal::KILL);
            }
            // A killed process could have started another one before.
            if !has_found {
                return;
            }
        }
    }

    /// Returns whether a process belongs to the command. Another one may have got its id.
    fn is_process(&self, pid: Pid) -> bool {
        let contains = |file: &str| {
            let text = fs::read(format!("/proc/{}/{file}", pid.as_raw_nonzero()));
            let is_id = |window: &[u8]| window == self.id.as_bytes();
            text.is_ok_and(|text| text.windows(self.id.len()).any(is_id))
        };
        contains("cmdline") || contains("environ")
    }
}

/// Kills the first process of a namespace, and with it all others.
fn kill_namespace(info: &BwrapInfo) -> Option<OwnedFd> {
    let process = rustix::process::pidfd_open(Pid::from_raw(info.child_pid)?, PidfdFlags::NONBLOCK);
    let process = process.ok()?;
    let namespace = fs::read_link(format!("/proc/{}/ns/pid", info.child_pid)).ok()?;
    // Otherwise the process has ended and another one has got its id.
    if namespace.to_str() != Some(&format!("pid:[{}]", info.pid_namespace)) {
        return None;
    }
    _ = rustix::process::pidfd_send_signal(&process, Signal::KILL);
    Some(process)
}

/// Waits until the processes behind a descriptor have ended.
pub(crate) async fn wait_for_end(process: Option<OwnedFd>) -> Result<(), SandboxError> {
    let Some(process) = process else {
        return Ok(());
    };
    #[expect(
        deprecated,
        reason = "its successor is unsafe, because not all types own their descriptor"
    )]
    let ended = async { AsyncFd::new(process)?.readable().await.map(|_| ()) };
    match tokio::time::timeout(KILL_TIMEOUT, ended).await {
        Ok(ended) => ended.map_err(|error| {
            SandboxError::Unavailable(format!("can't wait for the end of a process: {error}"))
        }),
        Err(_) => Err(SandboxError::Unavailable(format!(
            "the processes of a command did not end within {KILL_TIMEOUT:?} after they were \
             killed; look for them with `ps`"
        ))),
    }
}

/// Kills all processes of the commands with an epoch before this one, and waits for their end.
pub(crate) async fn kill_all(layout: &Layout, before: u64) -> Result<(), SandboxError> {
    let dir = layout.commands();
    let entries = match fs::read_dir(&dir) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        entries => entries.map_err(|error| io_error("list", &dir, &error))?,
    };
    let mut records = Vec::new();
    for entry in entries.flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        let id = name.strip_suffix(".info").unwrap_or(&name);
        let epoch = id.split('-').next().and_then(|epoch| epoch.parse::<u64>().ok());
        if epoch.is_some_and(|epoch| epoch < before) {
            let record = CommandRecord { id: id.to_owned(), dir: dir.clone() };
            let process = record.kill();
            records.push((record, process));
        }
    }
    for (record, process) in records {
        wait_for_end(process).await?;
        record.remove();
    }
    Ok(())
}
