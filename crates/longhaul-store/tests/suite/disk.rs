//! Tests on real file systems that are full or read-only.

use std::path::Path;
use std::process::Command;

use longhaul_core::id::ThreadKey;
use longhaul_core::port::auth::AuthStore as _;
use longhaul_core::port::records::RecordStore as _;
use longhaul_core::port::store::{RunFilter, Store as _, StoreError};
use longhaul_store::{OpenMode, open_sqlite_store};
use longhaul_testkit::clock::SimClock;
use tempfile::TempDir;

use super::faults::{fill, long_batch};
use super::harness::{StoreDir, connect, options};
use super::migrate::newer_build;

/// A small temporary file system, if this user may mount one.
struct Disk(TempDir);

impl Disk {
    /// Mounts the file system. `None` means that mounting is not allowed; then a full disk is
    /// only tested with a limited number of pages.
    fn mount(size: &str) -> Option<Self> {
        let dir = tempfile::tempdir().unwrap();
        let mounted = Command::new("mount")
            .args(["-t", "tmpfs", "-o", &format!("size={size}"), "longhaul-test"])
            .arg(dir.path())
            .output();
        let is_there = mounted.is_ok_and(|output| output.status.success());
        is_there.then_some(Self(dir))
    }

    fn path(&self) -> &Path {
        self.0.path()
    }

    fn make_read_only(&self) {
        let remount = Command::new("mount").args(["-o", "remount,ro"]).arg(self.path()).status();
        assert!(remount.unwrap().success());
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        _ = Command::new("umount").arg("-l").arg(self.path()).status();
    }
}

#[tokio::test]
async fn a_full_disk_rejects_writes_and_loses_nothing() {
    let Some(disk) = Disk::mount("3m") else {
        return;
    };
    let clock = SimClock::new();
    let file = disk.path().join("longhaul.db");
    let folder = StoreDir::new();
    let fixture =
        folder.fixture(open_sqlite_store(options(&file, OpenMode::Driver, &clock)).unwrap());
    let mut claimed_run = fixture.open_and_claim(|_| {}).await;
    let filler_file = disk.path().join("ballast");
    std::fs::write(&filler_file, vec![0; 1 << 20]).unwrap();

    let acknowledged = fill(&mut claimed_run).await * 40 + 2;
    assert_eq!(fixture.journal(claimed_run.run).await.len(), acknowledged);

    // When there is space again, the same driver continues.
    std::fs::remove_file(&filler_file).unwrap();
    claimed_run.append_ok(long_batch()).await;
    fixture.assert_consistent().await;
    let run = claimed_run.run;
    drop((fixture, claimed_run));
    let integrity: String =
        connect(&file).query_row("PRAGMA integrity_check", (), |row| row.get(0)).unwrap();
    assert_eq!(integrity, "ok");
    let fixture =
        folder.fixture(open_sqlite_store(options(&file, OpenMode::Driver, &clock)).unwrap());
    assert_eq!(fixture.journal(run).await.len(), acknowledged + 40);
}

#[test]
fn creating_a_store_on_a_full_disk_is_an_error() {
    let Some(disk) = Disk::mount("100k") else {
        return;
    };
    let file = disk.path().join("longhaul.db");
    let error = open_sqlite_store(options(&file, OpenMode::Driver, &SimClock::new())).unwrap_err();
    assert!(matches!(error, StoreError::DiskFull { .. }), "{error:?}");
}

#[tokio::test]
async fn a_store_on_a_read_only_disk_is_opened_read_only() {
    let Some(disk) = Disk::mount("10m") else {
        return;
    };
    let clock = SimClock::new();
    let file = disk.path().join("longhaul.db");
    drop(open_sqlite_store(options(&file, OpenMode::Driver, &clock)).unwrap());
    disk.make_read_only();
    let is_read_only = |error: &StoreError| matches!(error, StoreError::ReadOnly { .. });
    for (file, role) in [
        (file.clone(), OpenMode::Driver),
        (disk.path().join("other.db"), OpenMode::Driver),
        (disk.path().join("other.db"), OpenMode::Outsider),
        (disk.path().join("new/other.db"), OpenMode::Outsider),
    ] {
        let error = open_sqlite_store(options(&file, role, &clock)).unwrap_err();
        assert!(is_read_only(&error), "{error:?}");
    }
    let observer = open_sqlite_store(options(&file, OpenMode::Outsider, &clock)).unwrap();
    assert_eq!(observer.list_runs(RunFilter::default()).await.unwrap(), []);
    let thread = ThreadKey::new("t").unwrap();
    let error = observer.clear_thread(&thread).await.unwrap_err();
    assert!(is_read_only(&error), "{error:?}");
}

#[tokio::test]
async fn a_read_only_file_of_an_older_schema_is_read_unmigrated() {
    let Some(disk) = Disk::mount("10m") else {
        return;
    };
    let clock = SimClock::new();
    let file = disk.path().join("longhaul.db");
    drop(open_sqlite_store(options(&file, OpenMode::Driver, &clock)).unwrap());
    disk.make_read_only();
    let error =
        open_sqlite_store(newer_build(options(&file, OpenMode::Driver, &clock))).unwrap_err();
    assert!(matches!(error, StoreError::ReadOnly { .. }), "{error}");
    let observer =
        open_sqlite_store(newer_build(options(&file, OpenMode::Outsider, &clock))).unwrap();
    assert_eq!(observer.list_runs(RunFilter::default()).await.unwrap(), []);
    let error = observer.list_api_keys().await.unwrap_err();
    assert!(matches!(error, StoreError::ReadOnly { .. }), "{error}");
    let message = error.to_string();
    assert!(message.contains("must first be migrated from version 1 to 2"), "{message}");
}

/// Directory permissions don't apply to root. For root, the read-only disk is tested above.
#[cfg(unix)]
#[test]
fn a_read_only_folder_is_rejected() {
    use std::os::unix::fs::PermissionsExt;
    let folder = StoreDir::new();
    let dir = folder.dir.path().join("home");
    std::fs::create_dir(&dir).unwrap();
    let mode = |mode| std::fs::set_permissions(&dir, PermissionsExt::from_mode(mode)).unwrap();
    mode(0o555);
    let is_bound = std::fs::write(dir.join("try"), "").is_err();
    for role in [OpenMode::Driver, OpenMode::Outsider] {
        let result = open_sqlite_store(options(&dir.join("longhaul.db"), role, &folder.clock));
        if is_bound {
            let error = result.unwrap_err();
            assert!(matches!(error, StoreError::ReadOnly { .. }), "{error:?}");
        }
    }
    mode(0o755);
}
