//! Tests with real processes: killed without warning, or with failing syncs.

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::Arc;

use longhaul_core::port::store::{AppendRequest, AppendResult, StoreError};
use longhaul_core::status::Status;
use longhaul_store::{OpenMode, StoreOptions, open_sqlite_store};
use longhaul_testkit::conformance::store::batches::{events_batch, progress};

use super::harness::StoreDir;

/// Tells the test below that it runs as a child process, and has the path of its store.
const CHILD_ENV: &str = "LONGHAUL_STORE_CHILD";
/// Prefix of the child's output lines; all other output is from the test runner.
const LINE_PREFIX: &str = "@ ";

/// A process that drives a store until it is killed.
struct DriverProcess {
    child: Child,
    lines: BufReader<ChildStdout>,
}

impl DriverProcess {
    fn start(file: &Path, change: impl FnOnce(&mut Command)) -> Self {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command
            .args(["--exact", "suite::process::child", "--nocapture"])
            .env(CHILD_ENV, file)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped());
        change(&mut command);
        let mut child = command.spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap());
        Self { child, lines }
    }

    /// Returns the next line of the child's output.
    fn next_line(&mut self) -> String {
        let mut line = String::new();
        while self.lines.read_line(&mut line).unwrap() > 0 {
            if let Some((_, text)) = line.split_once(LINE_PREFIX) {
                return text.trim().to_owned();
            }
            line.clear();
        }
        panic!("the child has closed its output");
    }

    /// Lets the child make its next append.
    fn resume(&mut self) {
        let stdin = self.child.stdin.as_mut().unwrap();
        stdin.write_all(b"\n").unwrap();
        stdin.flush().unwrap();
    }
}

impl Drop for DriverProcess {
    fn drop(&mut self) {
        _ = self.child.kill();
        _ = self.child.wait();
    }
}

/// Not a test of its own: the child process of the tests below.
#[tokio::test]
async fn child() {
    let Some(file) = std::env::var_os(CHILD_ENV) else {
        return;
    };
    let print_line = |text: String| writeln!(std::io::stdout(), "{LINE_PREFIX}{text}").unwrap();
    let wait = || std::io::stdin().lines().next();
    let folder = StoreDir::new();
    let store = open_sqlite_store(StoreOptions {
        holder: "the child".to_owned(),
        on_fatal: Some(Arc::new(move |_| print_line("fatal".to_owned()))),
        ..super::harness::options(&PathBuf::from(file), OpenMode::Driver, &folder.clock)
    });
    let fixture = folder.fixture(store.unwrap());
    let mut claimed_run = fixture.open_and_claim(|_| {}).await;
    print_line(claimed_run.run.to_string());
    loop {
        wait();
        let append = AppendRequest {
            run: claimed_run.run,
            author: claimed_run.author(),
            batch: events_batch([progress(1)]),
        };
        match fixture.harness.store.append_to_journal(append).await {
            Ok(AppendResult::Committed { seq, .. }) => {
                claimed_run.last = seq;
                print_line(format!("at {seq}"));
            }
            Ok(other) => print_line(format!("{other:?}")),
            Err(StoreError::Closed { .. }) => print_line("closed".to_owned()),
            Err(other) => print_line(format!("{other:?}")),
        }
    }
}

#[tokio::test]
async fn a_killed_driver_loses_nothing_and_its_runs_continue_at_once() {
    let folder = StoreDir::new();
    let mut driver = DriverProcess::start(&folder.file(), |_| {});
    let run = driver.next_line().parse().unwrap();
    for seq in 3..20 {
        driver.resume();
        assert_eq!(driver.next_line(), format!("at {seq}"));
    }
    let error = folder.open(OpenMode::Driver).unwrap_err();
    let holder = format!("pid {}, the child", driver.child.id());
    assert!(error.to_string().contains(&holder), "{error}");
    let outsider = folder.fixture(folder.open(OpenMode::Outsider).unwrap());
    outsider.assert_status(run, Status::Running, "").await;
    drop(driver);

    let fixture = folder.fixture(folder.drive());
    assert_eq!(fixture.row(run).await.last_seq.0, 19);
    assert_eq!(fixture.journal(run).await.len(), 19);
    fixture.assert_status(run, Status::Running, "worker").await;
    let mut claimed_run = fixture.claim_one(fixture.worker().await).await;
    assert_eq!((claimed_run.run, claimed_run.epoch.0), (run, 2));
    claimed_run.append_ok(events_batch([progress(2)])).await;
    fixture.assert_consistent().await;
}

/// Library that makes every sync fail with EIO while a flag file exists.
const NO_SYNC: &str = r#"
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdlib.h>
#include <unistd.h>
static int no_sync(void) { const char *f = getenv("NO_SYNC_WHILE"); return f && access(f, F_OK) == 0; }
int fsync(int fd) {
  if (no_sync()) { errno = EIO; return -1; }
  return ((int (*)(int))dlsym(RTLD_NEXT, "fsync"))(fd);
}
int fdatasync(int fd) {
  if (no_sync()) { errno = EIO; return -1; }
  return ((int (*)(int))dlsym(RTLD_NEXT, "fdatasync"))(fd);
}
"#;

#[cfg(target_os = "linux")]
#[tokio::test]
async fn a_failing_sync_stops_the_writer() {
    let folder = StoreDir::new();
    let dir = folder.dir.path();
    let (source, library, flag) = (dir.join("n.c"), dir.join("n.so"), dir.join("no-sync"));
    std::fs::write(&source, NO_SYNC).unwrap();
    let compiled = Command::new("cc")
        .args(["-shared", "-fPIC", "-o"])
        .args([&library, &source])
        .arg("-ldl")
        .status()
        .unwrap();
    assert!(compiled.success());
    let mut driver = DriverProcess::start(&folder.file(), |command| {
        command.env("LD_PRELOAD", &library).env("NO_SYNC_WHILE", &flag);
    });
    let run = driver.next_line().parse().unwrap();
    driver.resume();
    assert_eq!(driver.next_line(), "at 3");
    std::fs::write(&flag, "").unwrap();
    driver.resume();
    assert_eq!(driver.next_line(), "fatal");
    assert_eq!(driver.next_line(), "closed");
    // The store stays closed even if the disk works again, because its content is unknown.
    std::fs::remove_file(&flag).unwrap();
    driver.resume();
    assert_eq!(driver.next_line(), "closed");
    drop(driver);

    let fixture = folder.fixture(folder.drive());
    let kinds = fixture.kinds(run).await;
    assert!(kinds.starts_with(&["run.created", "run.claimed", "progress.reported"]), "{kinds:?}");
    assert_eq!(fixture.row(run).await.last_seq.0 as usize, kinds.len());
    fixture.assert_consistent().await;
}
