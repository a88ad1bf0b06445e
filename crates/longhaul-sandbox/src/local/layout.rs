//! The directories of the provider and of its sandboxes, and the state of a sandbox on disk.
//!
//! Invariant: the directory of a sandbox is not visible in the sandbox; only the folders in it are.
//! So its programs can't change its state or replace a folder by a link.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Write as _};
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

use longhaul_core::change::SandboxState;
use longhaul_core::port::sandbox::{Isolation, SandboxError, SandboxInfo};
use longhaul_core::time::Timestamp;
use rustix::fs::FlockOperation;
use serde::{Deserialize, Serialize};
use tokio::process::Command;

/// Maximum length of the name of a sandbox or volume.
const NAME_BYTES_MAX: usize = 64;
/// Maximum size of the file with the state of a sandbox.
const STATE_BYTES_MAX: u64 = 1 << 20;

/// Prefix of the directories of sandboxes that are being deleted.
const DELETED_PREFIX: &str = ".deleted-";

/// Users, groups and host names that programs see in a sandbox.
const ETC_FILES: &[(&str, &str)] = &[
    (
        "passwd",
        "agent:x:1000:1000:agent:/home/agent:/bin/sh\n\
         nobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin\n",
    ),
    ("group", "agent:x:1000:\nnogroup:x:65534:\n"),
    ("hosts", "127.0.0.1 localhost sandbox\n::1 localhost\n"),
    ("nsswitch.conf", "passwd: files\ngroup: files\nhosts: files dns\n"),
];

/// Returns whether a text can be the name of a sandbox or volume.
pub(crate) fn is_name(name: &str) -> bool {
    let is_valid = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-';
    (1..=NAME_BYTES_MAX).contains(&name.len())
        && name.bytes().all(is_valid)
        && !name.starts_with('-')
}

/// Checks the name of a sandbox or volume.
pub(crate) fn check_name(name: &str, kind: &str) -> Result<(), SandboxError> {
    match is_name(name) {
        true => Ok(()),
        false => Err(SandboxError::Refused(format!(
            "the name {name:?} of a {kind} is not valid; use 1 to {NAME_BYTES_MAX} letters, digits \
             and hyphens, and no hyphen at the beginning"
        ))),
    }
}

/// Returns the error for a failed access to a file of the provider.
pub(crate) fn io_error(action: &str, path: &Path, error: &io::Error) -> SandboxError {
    SandboxError::Unavailable(format!(
        "can't {action} {}: {error}; check the permissions and the free space of the disk",
        path.display()
    ))
}

/// Directory of the provider.
#[derive(Debug)]
pub(crate) struct ProviderDir {
    root: PathBuf,
}

impl ProviderDir {
    /// Creates the directory if it is missing.
    pub(crate) fn open(root: &Path) -> Result<Self, SandboxError> {
        let create = || {
            // Only for this user: who connects to a socket may use the secrets of its sandbox.
            let mut private = fs::DirBuilder::new();
            private.recursive(true).mode(0o700);
            private.create(root)?;
            let root = fs::canonicalize(root)?;
            let etc = root.join(".etc");
            fs::create_dir_all(&etc)?;
            for (name, content) in ETC_FILES {
                write_atomically(&etc.join(name), content.as_bytes())?;
            }
            private.create(root.join(".sockets"))?;
            let filter = crate::local::seccomp::filter_bytes();
            write_atomically(&root.join(".seccomp"), &filter)?;
            Ok(Self { root })
        };
        create().map_err(|error| io_error("create the directory of sandboxes", root, &error))
    }

    /// Returns the directory with the files of `/etc` that are the same in all sandboxes.
    pub(crate) fn etc(&self) -> PathBuf {
        self.root.join(".etc")
    }

    /// Returns the directory with the sockets of egress proxies.
    pub(crate) fn sockets(&self) -> PathBuf {
        self.root.join(".sockets")
    }

    /// Returns the file with the filter of system calls.
    pub(crate) fn seccomp_filter(&self) -> PathBuf {
        self.root.join(".seccomp")
    }

    /// Returns the layout of the sandbox with this name.
    pub(crate) fn layout(&self, name: &str) -> Layout {
        Layout { dir: self.root.join(name) }
    }

    /// Creates a volume if it is missing, and returns its directory.
    pub(crate) fn create_volume(&self, name: &str) -> Result<PathBuf, SandboxError> {
        let dir = self.root.join(".volumes").join(name);
        let created = fs::create_dir_all(&dir);
        created.map_err(|error| io_error("create the volume", &dir, &error))?;
        Ok(dir)
    }

    /// Locks the states of all sandboxes until the file is closed. Blocks.
    pub(crate) fn lock(&self) -> Result<File, SandboxError> {
        let path = self.root.join(".lock");
        let lock = || {
            let file = File::create(&path)?;
            rustix::io::retry_on_intr(|| rustix::fs::flock(&file, FlockOperation::LockExclusive))?;
            Ok(file)
        };
        lock().map_err(|error| io_error("lock", &path, &error))
    }

    /// Creates a sandbox with this state, or marks an existing one as running. Returns its state.
    pub(crate) async fn create_sandbox(
        &self,
        layout: &Layout,
        file: SandboxFile,
    ) -> Result<SandboxFile, SandboxError> {
        let _lock = self.lock()?;
        let file = match layout.load()? {
            Some(found) => SandboxFile { state: SandboxState::Running, ..found },
            None => file,
        };
        for folder in layout.folders() {
            let created = fs::create_dir_all(&folder);
            created.map_err(|error| io_error("create", &folder, &error))?;
        }
        layout.store(&file)?;
        Ok(file)
    }

    /// Changes the state of a sandbox and returns what is known about it. `None` means that there
    /// is no such sandbox.
    pub(crate) async fn change_state(
        &self,
        layout: &Layout,
        state: SandboxState,
    ) -> Result<Option<SandboxFile>, SandboxError> {
        let _lock = self.lock()?;
        let Some(found) = layout.load()? else {
            return Ok(None);
        };
        let file = SandboxFile { state, ..found };
        layout.store(&file)?;
        Ok(Some(file))
    }

    /// Deletes the directory of a sandbox without processes.
    pub(crate) async fn delete_sandbox(&self, layout: &Layout) -> Result<(), SandboxError> {
        let id = random_id().map_err(|error| io_error("delete", &layout.dir, &error))?;
        let trash = self.root.join(format!("{DELETED_PREFIX}{id}"));
        {
            let _lock = self.lock()?;
            match fs::rename(&layout.dir, &trash) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
                renamed => renamed.map_err(|error| io_error("delete", &layout.dir, &error))?,
            }
        }
        delete_tree(&trash).await
    }

    /// Deletes the directories of deleted sandboxes that a crash has left behind.
    pub(crate) async fn delete_leftovers(&self) {
        let entries = fs::read_dir(&self.root).into_iter().flatten().flatten();
        for entry in entries {
            let is_deleted = entry.file_name().to_string_lossy().starts_with(DELETED_PREFIX);
            if !is_deleted || !entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                continue;
            }
            // Another process may be deleting the same directory.
            if let Err(error) = delete_tree(&entry.path()).await {
                tracing::warn!(%error, "the files of a deleted sandbox remain");
            }
        }
    }

    /// Lists all sandboxes by name.
    pub(crate) fn list(&self) -> Result<Vec<SandboxInfo>, SandboxError> {
        let entries = fs::read_dir(&self.root);
        let entries = entries.map_err(|error| io_error("list", &self.root, &error))?;
        let mut names: Vec<String> =
            entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok()).collect();
        names.retain(|name| is_name(name));
        names.sort();
        // A directory without a readable state is no sandbox, or one that is being deleted.
        let load = |name: String| Some(self.layout(&name).load().ok()??.info(&name));
        Ok(names.into_iter().filter_map(load).collect())
    }
}

/// Deletes a directory with everything in it.
async fn delete_tree(dir: &Path) -> Result<(), SandboxError> {
    // The program deletes trees that are too deep for the standard library, which opens all
    // folders on the way.
    let chmod = ["chmod", "-R", "u+rwX", "--"].as_slice();
    let rm = ["rm", "-rf", "--"].as_slice();
    for program in [rm, chmod, rm] {
        let mut command = Command::new(program[0]);
        let output = command.args(&program[1..]).arg(dir).kill_on_drop(true).output().await;
        if output.is_ok_and(|output| output.status.success()) && program == rm {
            return Ok(());
        }
    }
    let error = io::Error::other("some files remain");
    Err(io_error("delete the files of a sandbox in", dir, &error))
}

/// Directories of one sandbox.
#[derive(Debug, Clone)]
pub(crate) struct Layout {
    dir: PathBuf,
}

impl Layout {
    pub(crate) fn dir(&self) -> &Path {
        &self.dir
    }

    pub(crate) fn workspace(&self) -> PathBuf {
        self.dir.join("workspace")
    }

    pub(crate) fn home(&self) -> PathBuf {
        self.dir.join("home")
    }

    pub(crate) fn tmp(&self) -> PathBuf {
        self.dir.join("tmp")
    }

    /// Returns the directory with the records of running commands.
    pub(crate) fn commands(&self) -> PathBuf {
        self.dir.join("commands")
    }

    fn folders(&self) -> [PathBuf; 4] {
        [self.workspace(), self.home(), self.tmp(), self.commands()]
    }

    /// Loads the state of the sandbox. `None` means that there is no such sandbox.
    pub(crate) fn load(&self) -> Result<Option<SandboxFile>, SandboxError> {
        let path = self.dir.join("sandbox.json");
        let load = || -> io::Result<SandboxFile> {
            let mut file = io::Read::take(File::open(&path)?, STATE_BYTES_MAX);
            let mut text = String::new();
            io::Read::read_to_string(&mut file, &mut text)?;
            Ok(serde_json::from_str(&text)?)
        };
        match load() {
            Ok(file) => Ok(Some(file)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(io_error("read", &path, &error)),
        }
    }

    fn store(&self, file: &SandboxFile) -> Result<(), SandboxError> {
        let path = self.dir.join("sandbox.json");
        let stored = serde_json::to_vec(file)
            .map_err(io::Error::from)
            .and_then(|content| write_atomically(&path, &content));
        stored.map_err(|error| io_error("write", &path, &error))
    }
}

/// What is stored about a sandbox.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct SandboxFile {
    pub(crate) labels: BTreeMap<String, String>,
    pub(crate) state: SandboxState,
    pub(crate) isolation: Isolation,
    pub(crate) created_at: Timestamp,
}

impl SandboxFile {
    /// Returns what is known about the sandbox with this name.
    pub(crate) fn info(self, name: &str) -> SandboxInfo {
        SandboxInfo {
            handle: name.to_owned(),
            name: name.to_owned(),
            labels: self.labels,
            state: self.state,
            isolation: self.isolation,
            created_at: Some(self.created_at),
        }
    }
}

/// Returns a random identifier for a file name.
pub(crate) fn random_id() -> io::Result<String> {
    let mut bytes = [0; 8];
    getrandom::fill(&mut bytes).map_err(io::Error::other)?;
    Ok(format!("{:016x}", u64::from_ne_bytes(bytes)))
}

/// Replaces a file of the provider, so that a crash leaves the old or the new content.
fn write_atomically(path: &Path, content: &[u8]) -> io::Result<()> {
    let temp = path.with_extension(format!("tmp-{}", random_id()?));
    let mut file = File::create_new(&temp)?;
    file.write_all(content)?;
    file.sync_all()?;
    fs::rename(&temp, path)
}
