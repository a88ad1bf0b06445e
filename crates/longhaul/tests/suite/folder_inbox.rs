//! Tests of folder inboxes: half-written files, bad files, crashes between two steps, and retries.

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use longhaul::inbox::{ClaimFilter, FolderInbox, Inbox as _, InboxTask, TaskFailure};
use longhaul::{Millis, RunError, RunId, Runtime, Status, Timestamp, async_trait};
use longhaul_core::time::Clock;
use serde_json::Value;
use tempfile::TempDir;

/// A clock that a test moves.
#[derive(Debug, Default)]
struct ManualClock(Mutex<i64>);

impl ManualClock {
    fn advance(&self, millis: i64) {
        *self.0.lock().unwrap() += millis * 1_000;
    }
}

#[async_trait]
impl Clock for ManualClock {
    fn now(&self) -> Timestamp {
        Timestamp::from_micros(*self.0.lock().unwrap())
    }

    async fn sleep(&self, _duration: Millis) {
        std::future::pending().await
    }
}

/// A folder inbox with a clock.
struct TestFolder {
    folder: TempDir,
    clock: Arc<ManualClock>,
    inbox: FolderInbox,
}

impl TestFolder {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let clock = Arc::new(ManualClock::default());
        let inbox = open(folder.path(), &clock);
        Self { folder, clock, inbox }
    }

    /// Opens the inbox again, as after a crash.
    fn restart(&mut self) {
        self.inbox = open(self.folder.path(), &self.clock);
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn write(&self, name: &str, content: impl AsRef<[u8]>) {
        fs::write(self.path(name), content).unwrap();
    }

    async fn claim(&self) -> Vec<InboxTask> {
        let filter = ClaimFilter::new(Vec::new(), 64);
        self.inbox.claim(&filter).await.unwrap()
    }

    /// Claims the files that have not changed for a second.
    async fn claim_settled(&self) -> Vec<InboxTask> {
        assert_eq!(self.claim().await.len(), 0);
        self.clock.advance(1_000);
        self.claim().await
    }

    async fn fail(&self, id: &str) {
        let failure = failure("oops", Status::Failed);
        self.inbox.fail(id, &failure).await.unwrap();
    }

    /// Returns the names of the files in a subfolder.
    fn files(&self, folder: &str) -> Vec<String> {
        let entries = fs::read_dir(self.path(folder)).unwrap();
        let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        let mut names: Vec<String> = names.collect();
        names.sort();
        names
    }

    fn result(&self, folder: &str, id: &str) -> Value {
        let text = fs::read(self.path(&format!("{folder}/{id}.result.json"))).unwrap();
        serde_json::from_slice(&text).unwrap()
    }
}

fn failure(code: &str, status: Status) -> TaskFailure {
    TaskFailure { run: None, status, error: RunError::new(code, "it failed", "") }
}

fn open(folder: &Path, clock: &Arc<ManualClock>) -> FolderInbox {
    let inbox = FolderInbox::open("mail", folder, "writer").unwrap();
    let clock = Arc::clone(clock);
    inbox.with_clock(clock)
}

#[tokio::test]
async fn a_file_is_taken_when_it_has_not_changed_for_a_second() {
    let test = TestFolder::new();
    test.write("note.txt", "Dear");
    assert_eq!(test.claim().await.len(), 0);
    test.clock.advance(999);
    assert_eq!(test.claim().await.len(), 0);
    // The program writes on.
    test.write("note.txt", "Dear Sir");
    test.clock.advance(1);
    assert_eq!(test.claim().await.len(), 0);
    test.clock.advance(999);
    assert_eq!(test.claim().await.len(), 0);
    test.clock.advance(1);
    let tasks = test.claim().await;
    assert_eq!(test.files("working"), [tasks[0].task_id()]);
    assert!(tasks[0].task_id().starts_with("note.") && tasks[0].task_id().ends_with(".txt"));
    assert!(!test.path("note.txt").exists());
    // It is returned until it is a run.
    assert_eq!(test.claim().await[0].task_id(), tasks[0].task_id());
    test.inbox.start(tasks[0].task_id(), RunId::from_bits(1)).await.unwrap();
    assert_eq!(test.claim().await.len(), 0);
}

#[tokio::test]
async fn only_finished_regular_files_are_taken() {
    let test = TestFolder::new();
    for name in [".hidden", "half.tmp", "half.part"] {
        test.write(name, "x");
    }
    symlink("/etc/passwd", test.path("link.txt")).unwrap();
    fs::create_dir(test.path("folder.txt")).unwrap();
    let pipe = test.path("pipe.txt");
    assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    assert_eq!(test.claim_settled().await.len(), 0);
    assert_eq!(test.files("working"), Vec::<String>::new());
    assert!(test.path("link.txt").exists() && test.path("half.part").exists());
}

#[tokio::test]
async fn files_that_can_not_be_tasks_fail_with_the_reason_and_refused_files_stay() {
    let test = TestFolder::new();
    test.write("refused.txt", "refused");
    test.write("binary.txt", b"\xff\xfe");
    test.write("broken.json", "{");
    test.write("deep.json", "[".repeat(100_000));
    test.write("large.txt", vec![b'x'; (1 << 20) + 1]);
    test.write("empty.txt", "");
    test.write("good.json", "{\"a\": 1}");
    let builder = Runtime::builder().store("sqlite::memory:");
    let builder = builder.handler("writer", |_, _| async move { Ok("") });
    let runtime = builder.open().await.unwrap();
    let errors: Arc<Mutex<Vec<String>>> = Arc::default();
    let error_codes = Arc::clone(&errors);
    let worker = runtime
        .worker()
        .source(FolderInbox::open("mail", test.folder.path(), "writer").unwrap())
        .filter(|task| !task.input.as_str().contains("refused"))
        .on_task_error(move |task| error_codes.lock().unwrap().push(task.code.clone()))
        .spawn();
    let until_done = async {
        let reported = || errors.lock().unwrap().len();
        while test.files("done").len() < 4 || test.files("failed").len() < 8 || reported() < 4 {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), until_done).await.expect("all files are handled");
    worker.stop().await.unwrap();
    assert_eq!(*errors.lock().unwrap(), ["invalid_file"; 4]);
    assert!(test.path("refused.txt").exists());
    let done_names = test.files("done");
    assert!(
        done_names[0].starts_with("empty.") && done_names[2].starts_with("good."),
        "{done_names:?}"
    );
    let failed_names = test.files("failed");
    for (prefix, reason) in [
        ("binary", "not UTF-8"),
        ("broken", "not valid JSON"),
        ("deep", "not valid JSON"),
        ("large", "longer than 1048576 bytes"),
    ] {
        let id = failed_names.iter().find(|name| name.starts_with(prefix)).unwrap();
        let result = test.result("failed", id);
        let message = result["error"]["message"].as_str().unwrap();
        assert!(message.contains(reason), "{message}");
    }
}

#[tokio::test]
async fn a_file_without_permission_to_read_fails_and_blocks_no_other() {
    let test = TestFolder::new();
    test.write("secret.txt", "x");
    test.write("open.txt", "x");
    fs::set_permissions(test.path("secret.txt"), fs::Permissions::from_mode(0o000)).unwrap();
    assert_eq!(test.claim_settled().await.len(), 2);
}

#[tokio::test]
async fn a_crash_between_any_two_steps_loses_nothing() {
    let mut test = TestFolder::new();
    test.write("note.txt", "Dear Sir");
    let id = test.claim_settled().await[0].task_id().to_owned();
    // After the claim: the same task is returned again, under the same id.
    test.restart();
    let reclaimed = test.claim().await;
    assert_eq!(reclaimed[0].task_id(), id);
    // After the result was written and before the file was moved.
    fs::write(test.path(&format!("failed/{id}.result.json")), "{").unwrap();
    test.restart();
    test.fail(&id).await;
    assert_eq!(test.result("failed", &id)["error"]["code"], "oops");
    // After the file was moved and before the delivery was recorded.
    test.restart();
    test.fail(&id).await;
    assert_eq!(test.files("failed"), [id.clone(), format!("{id}.result.json")]);
    assert_eq!(test.files("working"), Vec::<String>::new());
    assert_eq!(test.claim().await.len(), 0);
}

#[tokio::test]
async fn deleted_subfolders_are_created_again() {
    let test = TestFolder::new();
    for folder in ["working", "done", "failed"] {
        fs::remove_dir(test.path(folder)).unwrap();
    }
    test.write("note.txt", "Dear Sir");
    let id = test.claim_settled().await[0].task_id().to_owned();
    test.fail(&id).await;
    assert_eq!(test.result("failed", &id)["status"], "failed");
    fs::remove_dir_all(test.folder.path()).unwrap();
    let filter = ClaimFilter::new(Vec::new(), 64);
    let error = test.inbox.claim(&filter).await.unwrap_err().to_string();
    assert!(error.contains(test.folder.path().to_str().unwrap()), "{error}");
}

#[tokio::test]
async fn the_result_of_a_cancelled_run_says_so() {
    let test = TestFolder::new();
    test.write("note.txt", "Dear Sir");
    let id = test.claim_settled().await[0].task_id().to_owned();
    test.inbox.fail(&id, &failure("cancelled", Status::Cancelled)).await.unwrap();
    assert_eq!(test.result("failed", &id)["status"], "cancelled");
}

#[tokio::test]
async fn a_file_waits_while_its_agent_does_not_exist() {
    let test = TestFolder::new();
    test.write("note.txt", "Dear Sir");
    let id = test.claim_settled().await[0].task_id().to_owned();
    assert!(test.inbox.fail(&id, &failure("agent_not_found", Status::Failed)).await.is_err());
    assert_eq!(test.files("working"), [id.as_str()]);
    assert_eq!(test.claim().await[0].task_id(), id);
}

// Other systems refuse such names.
#[cfg(target_os = "linux")]
#[tokio::test]
async fn a_file_whose_name_is_not_utf8_is_taken() {
    use std::os::unix::ffi::OsStrExt as _;
    let test = TestFolder::new();
    let name = std::ffi::OsStr::from_bytes(b"caf\xe9.txt");
    fs::write(test.folder.path().join(name), "x").unwrap();
    let id = test.claim_settled().await[0].task_id().to_owned();
    assert!(id.starts_with("caf\u{fffd}.") && id.ends_with(".txt"), "{id}");
}

#[tokio::test]
async fn a_file_that_comes_back_is_another_task() {
    let test = TestFolder::new();
    test.write("note.txt", "Dear Sir");
    let first = test.claim_settled().await[0].task_id().to_owned();
    test.fail(&first).await;
    fs::rename(test.path(&format!("failed/{first}")), test.path("note.txt")).unwrap();
    let second = test.claim_settled().await[0].task_id().to_owned();
    assert_ne!(first, second);
}

#[tokio::test]
async fn ids_with_a_path_are_rejected() {
    let test = TestFolder::new();
    test.write("note.txt", "x");
    let failure = failure("oops", Status::Failed);
    for id in ["../note.txt", "/etc/passwd", "..", ".hidden"] {
        assert!(test.inbox.fail(id, &failure).await.is_err(), "{id}");
    }
}

#[tokio::test]
async fn a_worker_serves_a_folder_and_a_retry_moves_a_failed_file_to_the_done_ones() {
    let folder = tempfile::tempdir().unwrap();
    let is_broken = Arc::new(Mutex::new(true));
    let is_broken_flag = Arc::clone(&is_broken);
    let runtime = Runtime::builder()
        .store("sqlite::memory:")
        .handler("writer", move |request, _| {
            let is_broken = *is_broken_flag.lock().unwrap();
            async move {
                match is_broken {
                    true => Err(longhaul::HandlerError::new("broken")),
                    false => Ok(format!("Answer to {}", request.input::<String>()?)),
                }
            }
        })
        .open()
        .await
        .unwrap();
    let inbox = FolderInbox::open("mail", folder.path(), "writer").unwrap();
    fs::write(folder.path().join("note.txt"), "Dear Sir").unwrap();
    let worker = runtime.worker().source(inbox).spawn();
    let failed = wait_for_result(&folder.path().join("failed")).await;
    assert_eq!(failed["status"], "failed");
    *is_broken.lock().unwrap() = false;
    let failed: RunId = failed["run"].as_str().unwrap().parse().unwrap();
    let retried = runtime.run(failed).retry().await.unwrap();
    retried.wait().await.unwrap();
    let done = wait_for_result(&folder.path().join("done")).await;
    assert_eq!(done["run"], retried.id().to_string());
    assert_eq!(done["output"]["text"], "Answer to Dear Sir");
    // The old result is deleted after the file was moved.
    let until_deleted = async {
        while fs::read_dir(folder.path().join("failed")).unwrap().count() > 0 {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(30), until_deleted)
        .await
        .expect("no failed file is left");
    worker.stop().await.unwrap();
}

/// Waits until a folder has a file and its result, and returns the result.
async fn wait_for_result(folder: &Path) -> Value {
    let poll = async {
        loop {
            let entries = fs::read_dir(folder).unwrap();
            let paths: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
            let is_result = |path: &&PathBuf| path.to_string_lossy().ends_with(".result.json");
            if let (2, Some(result)) = (paths.len(), paths.iter().find(is_result)) {
                return serde_json::from_slice(&fs::read(result).unwrap()).unwrap();
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), poll).await.expect("a result")
}
