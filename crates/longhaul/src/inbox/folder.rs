//! A folder inbox: each file that is put into the folder becomes a task.

use std::collections::{HashMap, HashSet};
use std::ffi::{OsStr, OsString};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use longhaul_api::run::RunView;
use longhaul_core::id::RunId;
use longhaul_core::raw::{RawJson, check_json_parses};
use longhaul_core::status::RunError;
use longhaul_core::time::{Clock, Millis};
use longhaul_engine::clock::SystemClock;
use longhaul_engine::id_gen::{IdGenerator as _, UuidV7Generator};
use longhaul_tool::FileLocation;
use serde_json::json;

use crate::inbox::folder_files::{
    DONE, FAILED, FILE_BYTES_MAX, FileTimeAndSize, InboxFolder, WaitingFile,
};
use crate::inbox::interface::{ClaimFilter, Inbox, InboxError, InboxTask, TaskFailure};
use crate::task::Task;

/// Time for which size and modification time of a file must not change before the file is claimed
/// as a task.
const SETTLE_TIME: Millis = Millis::from_secs(1);

/// Error code of a task whose agent does not exist.
const AGENT_NOT_FOUND: &str = "agent_not_found";

/// Maximum length in bytes of the name of a claimed file. The file with its result has this name
/// and the suffix `.result.json`.
const NAME_BYTES_MAX: usize = 200;

/// Maximum length in bytes of a file name's extension, including the dot. A longer extension is
/// treated as a part of the name.
const EXTENSION_BYTES_MAX: usize = 16;

/// An inbox that is a folder: each file that is put into the folder becomes a task for an agent.
///
/// The content of the file is the input of the task: JSON if the name ends with `.json`, else text.
/// The file is moved to the subfolder `working`, and when its run has ended to `done` or `failed`,
/// with the result beside it: `note.txt` becomes `done/note.ID.txt` and
/// `done/note.ID.txt.result.json`.
///
/// Only regular files of at most 1 MiB become tasks. Hidden files and names that end with `.tmp` or
/// `.part` are ignored, and a file is claimed only when it has not changed for a second, so a
/// program may write it slowly. To be safe in all cases, write the file under an ignored name and
/// then rename it.
///
/// ```no_run
/// # async fn example(runtime: longhaul::Runtime) -> Result<(), Box<dyn std::error::Error>> {
/// use longhaul::inbox::FolderInbox;
///
/// let notes = FolderInbox::open("notes", "inbox/notes", "writer")?;
/// let worker = runtime.worker().source(notes).spawn();
/// # worker.stop().await?;
/// # Ok(())
/// # }
/// ```
#[must_use = "an inbox has no effect until a worker serves it"]
#[derive(Debug, Clone)]
pub struct FolderInbox {
    name: String,
    agent: String,
    files: InboxFolder,
    clock: Arc<dyn Clock>,
    /// Files that wait to be claimed, by name, as the last scan found them.
    seen: Arc<Mutex<HashMap<OsString, ScannedFile>>>,
    /// Names of claimed files whose tasks have a run, as far as this process knows.
    started: Arc<Mutex<HashSet<String>>>,
}

impl FolderInbox {
    /// Opens the inbox `name` in a folder, which is created if it is missing. The tasks are for the
    /// agent with this name.
    ///
    /// # Errors
    /// The folder or one of its subfolders can't be created or opened.
    pub fn open(
        name: impl Into<String>,
        folder: impl AsRef<Path>,
        agent: impl Into<String>,
    ) -> io::Result<Self> {
        let root = folder.as_ref().to_owned();
        std::fs::create_dir_all(&root)?;
        Self::open_at(name, FileLocation::Below { root, relative: PathBuf::new() }, agent)
    }

    /// Opens the inbox in an existing folder, whose subfolders are created if they are missing.
    pub(crate) fn open_at(
        name: impl Into<String>,
        folder: FileLocation,
        agent: impl Into<String>,
    ) -> io::Result<Self> {
        let files = InboxFolder(folder);
        files.create_subfolders()?;
        let (name, agent, clock) = (name.into(), agent.into(), Arc::new(SystemClock));
        Ok(Self { name, agent, files, clock, seen: Arc::default(), started: Arc::default() })
    }

    /// Replaces the system clock, for tests.
    #[doc(hidden)]
    pub fn with_clock(self, clock: Arc<dyn Clock>) -> Self {
        Self { clock, ..self }
    }

    /// Moves the file of an ended task to the folder of completed or of failed tasks (`end`), and
    /// writes the task's result beside the file.
    async fn move_to_finished_folder(
        &self,
        id: &str,
        end: &'static str,
        result: &serde_json::Value,
    ) -> Result<(), InboxError> {
        let (files, id) = (self.files.clone(), id.to_owned());
        let result = format!("{result:#}\n").into_bytes();
        let move_file = move || files.move_claimed_file(&id, end, &result);
        Ok(tokio::task::spawn_blocking(move_file).await??)
    }
}

#[async_trait]
impl Inbox for FolderInbox {
    fn name(&self) -> &str {
        &self.name
    }

    async fn claim(&self, filter: &ClaimFilter) -> Result<Vec<InboxTask>, InboxError> {
        // The tasks of a folder have no type.
        if !filter.accepts(None) {
            return Ok(Vec::new());
        }
        let (inbox, filter) = (self.clone(), filter.clone());
        Ok(tokio::task::spawn_blocking(move || inbox.claim_tasks(&filter)).await??)
    }

    async fn start(&self, task_id: &str, _run: RunId) -> Result<(), InboxError> {
        self.access_started_file_names(|started| started.insert(task_id.to_owned()));
        Ok(())
    }

    async fn complete(&self, task_id: &str, run: &RunView) -> Result<(), InboxError> {
        let result = json!({ "run": run.id, "status": run.status, "output": run.output });
        self.move_to_finished_folder(task_id, DONE, &result).await
    }

    async fn fail(&self, task_id: &str, failure: &TaskFailure) -> Result<(), InboxError> {
        // A missing agent is a mistake in the settings, not in the file.
        if failure.run.is_none() && failure.error.code == AGENT_NOT_FOUND {
            return Err("the file waits in `working` until there is such an agent".into());
        }
        let TaskFailure { run, status, error } = failure;
        let result = json!({ "run": run, "status": status, "error": error });
        self.move_to_finished_folder(task_id, FAILED, &result).await
    }
}

/// A waiting file, as the last scan found it.
#[derive(Debug, Clone, Copy)]
struct ScannedFile {
    stamp: FileTimeAndSize,
    /// Monotonic time of the first scan that found the file with this `stamp`.
    unchanged_since: Millis,
    /// Whether a warning that the file can't be claimed was logged.
    is_reported: bool,
}

impl FolderInbox {
    /// Locks `started`, the names of claimed files whose tasks have a run, and calls `f` with it.
    fn access_started_file_names<T>(&self, f: impl FnOnce(&mut HashSet<String>) -> T) -> T {
        f(&mut self.started.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Claims waiting files that the filter accepts, and returns up to `filter.limit` tasks of
    /// claimed files that are not submitted as runs yet.
    fn claim_tasks(&self, filter: &ClaimFilter) -> io::Result<Vec<InboxTask>> {
        let claimable = filter.limit.saturating_sub(self.claimed_files_without_run()?.len());
        self.claim_unchanged_files(claimable, |name, new_name| {
            if filter.predicate.is_some() {
                let task = self.parse_task(new_name, self.files.read_waiting_file(name));
                if !filter.accepts_task(&task) {
                    return Ok(false);
                }
            }
            self.files.claim_file_if_present(name, new_name)
        })?;
        let files = self.claimed_files_without_run()?.into_iter().take(filter.limit);
        let tasks = files.map(|name| self.parse_task(&name, self.files.read_claimed_file(&name)));
        Ok(tasks.collect())
    }

    /// Returns the names of the claimed files whose tasks are not submitted as runs yet, oldest
    /// first.
    fn claimed_files_without_run(&self) -> io::Result<Vec<String>> {
        let claimed = self.files.claimed_file_names()?;
        // A file that has left the folder of claimed tasks needs no entry any more.
        let names: HashSet<&str> = claimed.iter().map(String::as_str).collect();
        self.access_started_file_names(|started| {
            started.retain(|name| names.contains(name.as_str()))
        });
        let is_new =
            |name: &String| !self.access_started_file_names(|started| started.contains(name));
        Ok(claimed.into_iter().filter(is_new).collect())
    }

    /// Claims up to `limit` files that have not changed for `SETTLE_TIME`. A file that can't be
    /// claimed is skipped with a warning.
    fn claim_unchanged_files(
        &self,
        limit: usize,
        claim_file: impl Fn(&OsStr, &str) -> io::Result<bool>,
    ) -> io::Result<()> {
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        let now = self.clock.monotonic_time();
        let mut previous = std::mem::take(&mut *seen);
        let mut claimed = 0;
        for WaitingFile { name, stamp } in self.files.waiting_files()? {
            let old = previous.remove(&name).filter(|old| old.stamp == stamp);
            let new = ScannedFile { stamp, unchanged_since: now, is_reported: false };
            let mut file = old.unwrap_or(new);
            let unchanged_millis = now.0.saturating_sub(file.unchanged_since.0);
            if unchanged_millis >= SETTLE_TIME.0 && claimed < limit {
                let shown_name = name.to_string_lossy();
                let new_name = unique_file_name(&shown_name, UuidV7Generator.next_id_bits());
                match claim_file(&name, &new_name) {
                    Ok(is_claimed) => {
                        claimed += usize::from(is_claimed);
                        continue;
                    }
                    Err(error) if !file.is_reported => {
                        let file = &*shown_name;
                        tracing::warn!(file, %error, "a file of a folder inbox can't be moved to `working`");
                    }
                    Err(_) => {}
                }
                file.is_reported = true;
            }
            seen.insert(name, file);
        }
        Ok(())
    }

    /// Returns the task of a file with this content. A file that is no valid task is a task that
    /// fails.
    fn parse_task(&self, file_name: &str, bytes: io::Result<Vec<u8>>) -> InboxTask {
        let bytes = bytes.map_err(|error| format!("the file can't be read: {error}"));
        match bytes.and_then(|bytes| parse_task_input(file_name, bytes)) {
            Ok(input) => {
                let metadata = json!({ "file": file_name });
                InboxTask::new(file_name, Task::new(&self.agent).input(input).metadata(metadata))
            }
            Err(message) => {
                InboxTask::invalid(file_name, RunError::new("invalid_file", message, ""))
            }
        }
    }
}

/// Returns the input of a task from the content of its file, or the reason why it is invalid.
fn parse_task_input(file_name: &str, bytes: Vec<u8>) -> Result<RawJson, String> {
    if bytes.len() as u64 > FILE_BYTES_MAX {
        return Err(format!("the file is longer than {FILE_BYTES_MAX} bytes"));
    }
    let text =
        String::from_utf8(bytes).map_err(|error| format!("the file is not UTF-8: {error}"))?;
    if !file_name.ends_with(".json") {
        return Ok(RawJson::from_serialize(&text));
    }
    let invalid = |error: String| format!("the file is not valid JSON: {error}");
    check_json_parses(&text).map_err(|error| invalid(error.to_string()))?;
    RawJson::parse(text.trim()).map_err(|error| invalid(error.to_string()))
}

/// Returns a unique file name: `original_name` with an id, made of `id_bits`, in front of its
/// extension.
fn unique_file_name(original_name: &str, id_bits: u128) -> String {
    let (stem, extension) = match original_name.rsplit_once('.') {
        Some((stem, extension)) if extension.len() < EXTENSION_BYTES_MAX => (stem, Some(extension)),
        Some(_) | None => (original_name, None),
    };
    // The first bits are the time and the last ones random.
    let unique_id = format!("{:012x}{:08x}", id_bits >> 80, id_bits & 0xffff_ffff);
    let end = match extension {
        Some(extension) => format!(".{unique_id}.{extension}"),
        None => format!(".{unique_id}"),
    };
    let mut length = stem.len().min(NAME_BYTES_MAX - end.len());
    while !stem.is_char_boundary(length) {
        length -= 1;
    }
    format!("{}{end}", &stem[..length])
}

#[cfg(test)]
mod tests {
    use longhaul_core::time::Timestamp;

    use super::*;

    /// A clock that always shows the same time.
    #[derive(Debug)]
    struct FixedClock;

    #[async_trait]
    impl Clock for FixedClock {
        fn now(&self) -> Timestamp {
            Timestamp::from_micros(10_000_000)
        }

        async fn sleep(&self, _duration: Millis) {
            std::future::pending().await
        }
    }

    #[test]
    fn a_file_that_can_not_be_moved_does_not_stop_the_others() {
        let folder = tempfile::tempdir().unwrap();
        let inbox = FolderInbox::open("notes", folder.path(), "writer").unwrap();
        let inbox = inbox.with_clock(Arc::new(FixedClock));
        for name in ["locked.txt", "open.txt"] {
            std::fs::write(folder.path().join(name), "x").unwrap();
        }
        for WaitingFile { name, stamp } in inbox.files.waiting_files().unwrap() {
            let file = ScannedFile { stamp, unchanged_since: Millis(0), is_reported: false };
            inbox.seen.lock().unwrap().insert(name, file);
        }
        let claim_file = |name: &OsStr, new_name: &str| match name == "locked.txt" {
            true => Err(io::Error::from(io::ErrorKind::PermissionDenied)),
            false => inbox.files.claim_file_if_present(name, new_name),
        };
        inbox.claim_unchanged_files(64, claim_file).unwrap();
        assert_eq!(inbox.files.claimed_file_names().unwrap().len(), 1);
        let seen = inbox.seen.lock().unwrap();
        assert!(seen.len() == 1 && seen[OsStr::new("locked.txt")].is_reported, "{seen:?}");
    }

    #[test]
    fn a_unique_name_keeps_the_extension_and_is_short() {
        let id = 0x0123_4567_89ab_0000_0000_0000_dead_beef;
        for (name, expected) in [
            ("a.txt", "a.0123456789abdeadbeef.txt".to_owned()),
            ("a", "a.0123456789abdeadbeef".to_owned()),
            ("a.b.json", "a.b.0123456789abdeadbeef.json".to_owned()),
            ("a.notanextensionatall", "a.notanextensionatall.0123456789abdeadbeef".to_owned()),
            (&"ä".repeat(127), format!("{}.0123456789abdeadbeef", "ä".repeat(89))),
        ] {
            let unique = unique_file_name(name, id);
            assert_eq!(unique, expected);
            assert!(unique.len() <= NAME_BYTES_MAX);
        }
    }

    #[test]
    fn only_valid_utf8_and_json_files_become_task_inputs() {
        let parse = |name: &str, bytes: &[u8]| parse_task_input(name, bytes.to_vec());
        assert_eq!(parse("a.txt", b"").unwrap().as_str(), "\"\"");
        assert_eq!(parse("a.txt", b"{}").unwrap().as_str(), "\"{}\"");
        assert_eq!(parse("a.json", b" {\"a\": [1]}\n").unwrap().as_str(), "{\"a\": [1]}");
        let deep = "[".repeat(100_000);
        for (name, bytes, reason) in [
            ("a.txt", &b"\xff"[..], "not UTF-8"),
            ("a.json", b"", "not valid JSON"),
            ("a.json", b"{", "not valid JSON"),
            ("a.json", deep.as_bytes(), "not valid JSON"),
            ("a.txt", &[b'x'; FILE_BYTES_MAX as usize + 1], "longer than"),
        ] {
            let error = parse(name, bytes).unwrap_err();
            assert!(error.contains(reason), "{error}");
        }
    }
}
