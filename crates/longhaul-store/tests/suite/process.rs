//! Real processes: killed without warning, and with a disk that will not sync.

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::Arc;

use longhaul_core::port::store::{AppendRequest, Appended, StoreError};
use longhaul_core::status::Status;
use longhaul_store::{OpenMode, StoreOptions, open};
use longhaul_testkit::conformance::store::batches::{events_batch, progress};

use super::harness::StoreDir;

/// Says to the test below that it is a child, and where its store is.
const CHILD_ENV: &str = "LONGHAUL_STORE_CHILD";
/// What the child's lines begin with; the rest is the test runner's.
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

    /// The next thing that it says.
    fn next_line(&mut self) -> String {
        let mut line = String::new();
        while self.lines.read_line(&mut line).unwrap() > 0 {
            if let Some((_, said)) = line.split_once(LINE_PREFIX) {
                return said.trim().to_owned();
            }
            line.clear();
        }
        panic!("the child has gone silent");
    }

    /// Lets it go on.
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

/// Not a test by itself: the other process of the tests below.
#[tokio::test]
async fn child() {
    let Some(file) = std::env::var_os(CHILD_ENV) else {
        return;
    };
    let say = |words: String| writeln!(std::io::stdout(), "{LINE_PREFIX}{words}").unwrap();
    let wait = || std::io::stdin().lines().next();
    let folder = StoreDir::new();
    let store = open(StoreOptions {
        holder: "the child".to_owned(),
        on_fatal: Some(Arc::new(move |_| say("fatal".to_owned()))),
        ..super::harness::options(&PathBuf::from(file), OpenMode::Driver, &folder.clock)
    });
    let world = folder.fixture(store.unwrap());
    let mut held = world.open_and_claim(|_| {}).await;
    say(held.run.to_string());
    loop {
        wait();
        let append = AppendRequest {
            run: held.run,
            author: held.author(),
            batch: events_batch([progress(1)]),
        };
        match world.harness.store.append(append).await {
            Ok(Appended::At { seq, .. }) => {
                held.last = seq;
                say(format!("at {seq}"));
            }
            Ok(other) => say(format!("{other:?}")),
            Err(StoreError::Closed { .. }) => say("closed".to_owned()),
            Err(other) => say(format!("{other:?}")),
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
    let refused = folder.open(OpenMode::Driver).unwrap_err();
    let holder = format!("pid {}, the child", driver.child.id());
    assert!(refused.to_string().contains(&holder), "{refused}");
    let outsider = folder.fixture(folder.open(OpenMode::Outsider).unwrap());
    outsider.assert_status(run, Status::Running, "").await;
    drop(driver);

    let world = folder.fixture(folder.drive());
    assert_eq!(world.row(run).await.last_seq.0, 19);
    assert_eq!(world.journal(run).await.len(), 19);
    world.assert_status(run, Status::Running, "worker").await;
    let mut held = world.claim_one(world.worker().await).await;
    assert_eq!((held.run, held.epoch.0), (run, 2));
    held.append_ok(events_batch([progress(2)])).await;
    world.assert_consistent().await;
}

/// Makes every sync fail with EIO while a file is there, and says so to nobody.
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
    let home = folder.dir.path();
    let (source, library, flag) = (home.join("n.c"), home.join("n.so"), home.join("no-sync"));
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
    // Even when the disk seems well again: what it holds is not known.
    std::fs::remove_file(&flag).unwrap();
    driver.resume();
    assert_eq!(driver.next_line(), "closed");
    drop(driver);

    let world = folder.fixture(folder.drive());
    let kinds = world.kinds(run).await;
    assert!(kinds.starts_with(&["run.created", "run.claimed", "progress.reported"]), "{kinds:?}");
    assert_eq!(world.row(run).await.last_seq.0 as usize, kinds.len());
    world.assert_consistent().await;
}
