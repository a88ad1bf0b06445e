//! Real processes: killed without warning, and with a disk that will not sync.

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::Arc;

use longhaul_core::port::store::{Append, Appended, StoreError};
use longhaul_core::status::Status;
use longhaul_store::{Options, Role, open};
use longhaul_testkit::conformance::store::facts::{progress, says};

use super::kit::Folder;

/// Says to the test below that it is a child, and where its store is.
const CHILD: &str = "LONGHAUL_STORE_CHILD";
/// What the child's lines begin with; the rest is the test runner's.
const SAYS: &str = "@ ";

/// A process that drives a store until it is killed.
struct Driver {
    child: Child,
    lines: BufReader<ChildStdout>,
}

impl Driver {
    fn start(file: &Path, change: impl FnOnce(&mut Command)) -> Self {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command
            .args(["--exact", "suite::process::child", "--nocapture"])
            .env(CHILD, file)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped());
        change(&mut command);
        let mut child = command.spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap());
        Self { child, lines }
    }

    /// The next thing that it says.
    fn hear(&mut self) -> String {
        let mut line = String::new();
        while self.lines.read_line(&mut line).unwrap() > 0 {
            if let Some((_, said)) = line.split_once(SAYS) {
                return said.trim().to_owned();
            }
            line.clear();
        }
        panic!("the child has gone silent");
    }

    /// Lets it go on.
    fn go(&mut self) {
        let stdin = self.child.stdin.as_mut().unwrap();
        stdin.write_all(b"\n").unwrap();
        stdin.flush().unwrap();
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        _ = self.child.kill();
        _ = self.child.wait();
    }
}

/// Not a test by itself: the other process of the tests below.
#[tokio::test]
async fn child() {
    let Some(file) = std::env::var_os(CHILD) else {
        return;
    };
    let say = |words: String| writeln!(std::io::stdout(), "{SAYS}{words}").unwrap();
    let wait = || std::io::stdin().lines().next();
    let folder = Folder::new();
    let store = open(Options {
        holder: "the child".to_owned(),
        fatal: Some(Arc::new(move |_| say("fatal".to_owned()))),
        ..super::kit::options(&PathBuf::from(file), Role::Driver, &folder.clock)
    });
    let world = folder.world(store.unwrap());
    let mut held = world.held(|_| {}).await;
    say(held.run.to_string());
    loop {
        wait();
        let append = Append {
            run: held.run,
            author: held.author(),
            batch: says([progress(1)]),
        };
        match world.at.store.append(append).await {
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
async fn a_killed_driver_loses_nothing_and_its_runs_go_on_at_once() {
    let folder = Folder::new();
    let mut driver = Driver::start(&folder.file(), |_| {});
    let run = driver.hear().parse().unwrap();
    for seq in 3..20 {
        driver.go();
        assert_eq!(driver.hear(), format!("at {seq}"));
    }
    let refused = folder.open(Role::Driver).unwrap_err();
    let holder = format!("pid {}, the child", driver.child.id());
    assert!(refused.to_string().contains(&holder), "{refused}");
    let outsider = folder.world(folder.open(Role::Outsider).unwrap());
    outsider.is(run, Status::Running, "").await;
    drop(driver);

    let world = folder.world(folder.drive());
    assert_eq!(world.row(run).await.last.0, 19);
    assert_eq!(world.journal(run).await.len(), 19);
    world.is(run, Status::Running, "worker").await;
    let mut held = world.take(world.worker().await).await;
    assert_eq!((held.run, held.epoch.0), (run, 2));
    held.write(says([progress(2)])).await;
    world.is_in_order().await;
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
async fn a_disk_that_will_not_sync_ends_the_writer() {
    let folder = Folder::new();
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
    let mut driver = Driver::start(&folder.file(), |command| {
        command
            .env("LD_PRELOAD", &library)
            .env("NO_SYNC_WHILE", &flag);
    });
    let run = driver.hear().parse().unwrap();
    driver.go();
    assert_eq!(driver.hear(), "at 3");
    std::fs::write(&flag, "").unwrap();
    driver.go();
    assert_eq!(driver.hear(), "fatal");
    assert_eq!(driver.hear(), "closed");
    // Even when the disk seems well again: what it holds is not known.
    std::fs::remove_file(&flag).unwrap();
    driver.go();
    assert_eq!(driver.hear(), "closed");
    drop(driver);

    let world = folder.world(folder.drive());
    let kinds = world.kinds(run).await;
    assert!(
        kinds.starts_with(&["run.created", "run.claimed", "progress.reported"]),
        "{kinds:?}"
    );
    assert_eq!(world.row(run).await.last.0 as usize, kinds.len());
    world.is_in_order().await;
}
