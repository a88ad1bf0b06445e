//! The location of a store: unusual file names, symbolic links and file permissions.

use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::Path;

use longhaul_core::port::store::StoreError;
use longhaul_store::{OpenMode, StoreOptions, open_sqlite_store};
use longhaul_testkit::conformance::store::batches::{events_batch, progress};

use super::harness::{StoreDir, connect, options};

fn names(folder: &Path) -> Vec<String> {
    let name = |entry: std::io::Result<std::fs::DirEntry>| {
        entry.unwrap().file_name().to_string_lossy().into_owned()
    };
    let mut names: Vec<String> = std::fs::read_dir(folder).unwrap().map(name).collect();
    names.sort();
    names
}

#[tokio::test]
async fn a_store_file_is_private_to_its_owner() {
    let folder = StoreDir::new();
    let dir = folder.dir.path().join("new/home");
    let store =
        open_sqlite_store(options(&dir.join("longhaul.db"), OpenMode::Driver, &folder.clock));
    let fixture = folder.fixture(store.unwrap());
    let mut claimed_run = fixture.open_and_claim(|_| {}).await;
    claimed_run.append_ok(events_batch([progress(1)])).await;
    let expected = ["driver.lock", "longhaul.db", "longhaul.db-shm", "longhaul.db-wal"];
    assert_eq!(names(&dir), expected);
    for folder in [dir.as_path(), dir.parent().unwrap()] {
        let mode = std::fs::metadata(folder).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o700, "{}", folder.display());
    }
    for name in expected {
        let mode = std::fs::metadata(dir.join(name)).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "{name}");
    }
}

#[test]
fn the_mode_of_an_existing_file_is_kept() {
    let folder = StoreDir::new();
    drop(folder.drive());
    let shared = std::fs::Permissions::from_mode(0o640);
    std::fs::set_permissions(folder.file(), shared).unwrap();
    drop(folder.drive());
    let mode = std::fs::metadata(folder.file()).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o640);
}

/// A symbolic link in another directory would have another lock file beside it.
#[test]
fn a_symlink_does_not_admit_a_second_driver() {
    let folder = StoreDir::new();
    let other_dir = StoreDir::new();
    // One link is created before its target exists, the other one after.
    symlink(folder.file(), other_dir.file()).unwrap();
    let first = other_dir.drive();
    assert_eq!(names(other_dir.dir.path()), ["longhaul.db"]);
    for dir in [&folder, &other_dir] {
        let error = dir.open(OpenMode::Driver).unwrap_err();
        assert!(matches!(error, StoreError::AlreadyDriven { .. }), "{error}");
    }
    drop(first);
    let other = other_dir.dir.path().join("other.db");
    symlink("longhaul.db", &other).unwrap();
    let _first = folder.drive();
    let error = open_sqlite_store(options(&other, OpenMode::Driver, &folder.clock)).unwrap_err();
    assert!(matches!(error, StoreError::AlreadyDriven { .. }), "{error}");
}

#[test]
fn a_symlink_cycle_is_rejected() {
    let folder = StoreDir::new();
    symlink("longhaul.db", folder.file()).unwrap();
    folder.open(OpenMode::Outsider).unwrap_err();
}

/// A directory may be untrusted: a symbolic link in place of the lock file would make us truncate
/// its target.
#[test]
fn a_symlink_instead_of_the_lock_file_is_not_followed() {
    let folder = StoreDir::new();
    let user_file = folder.dir.path().join("precious");
    std::fs::write(&user_file, "mine").unwrap();
    symlink(&user_file, folder.dir.path().join("driver.lock")).unwrap();
    folder.open(OpenMode::Driver).unwrap_err();
    assert_eq!(std::fs::read_to_string(&user_file).unwrap(), "mine");
}

#[test]
fn special_files_are_rejected_without_blocking() {
    let folder = StoreDir::new();
    let status = std::process::Command::new("mkfifo").arg(folder.file()).status();
    assert!(status.unwrap().success());
    let message = folder.open(OpenMode::Outsider).unwrap_err().to_string();
    assert!(message.contains("not a regular file"), "{message}");
}

/// SQLite interprets a name that begins with `file:` as a URI, which may refer to another file and
/// have options.
#[test]
fn file_names_are_never_parsed_as_urls_or_sql() {
    for name in [
        "a b.db",
        "a?mode=memory",
        "a%20b#c.db",
        "'; DROP TABLE run; --",
        "file:a.db?mode=memory",
        "ü 文.db",
    ] {
        let folder = StoreDir::new();
        let file = folder.dir.path().join(name);
        drop(open_sqlite_store(options(&file, OpenMode::Driver, &folder.clock)).unwrap());
        let mut expected = ["driver.lock", name];
        expected.sort_unstable();
        assert_eq!(names(folder.dir.path()), expected);
    }
    let folder = StoreDir::new();
    let other_db = folder.dir.path().join("victim.db");
    connect(&other_db).execute_batch("CREATE TABLE mine (a)").unwrap();
    let before = std::fs::read(&other_db).unwrap();
    let url = format!("sqlite:file:{}", other_db.display());
    let clock = std::sync::Arc::new(folder.clock);
    let error = open_sqlite_store(StoreOptions::new(url, OpenMode::Outsider, clock)).unwrap_err();
    assert!(matches!(error, StoreError::InvalidUrl { .. }), "{error}");
    assert_eq!(std::fs::read(&other_db).unwrap(), before);
}
