//! Where a store is: names that mean something else elsewhere, links, and who
//! may read what is written.

use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::Path;

use longhaul_core::port::store::StoreError;
use longhaul_store::{Options, Role, open};
use longhaul_testkit::conformance::store::facts::{progress, says};

use super::kit::{Folder, connect, options};

fn names(folder: &Path) -> Vec<String> {
    let name = |entry: std::io::Result<std::fs::DirEntry>| {
        entry.unwrap().file_name().to_string_lossy().into_owned()
    };
    let mut names: Vec<String> = std::fs::read_dir(folder).unwrap().map(name).collect();
    names.sort();
    names
}

#[tokio::test]
async fn nobody_else_may_read_a_store() {
    let folder = Folder::new();
    let home = folder.dir.path().join("new/home");
    let store = open(options(
        &home.join("longhaul.db"),
        Role::Driver,
        &folder.clock,
    ));
    let world = folder.world(store.unwrap());
    let mut held = world.held(|_| {}).await;
    held.write(says([progress(1)])).await;
    let expected = [
        "driver.lock",
        "longhaul.db",
        "longhaul.db-shm",
        "longhaul.db-wal",
    ];
    assert_eq!(names(&home), expected);
    for folder in [home.as_path(), home.parent().unwrap()] {
        let mode = std::fs::metadata(folder).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o700, "{}", folder.display());
    }
    for name in expected {
        let mode = std::fs::metadata(home.join(name))
            .unwrap()
            .permissions()
            .mode();
        assert_eq!(mode & 0o777, 0o600, "{name}");
    }
}

#[test]
fn the_mode_of_a_file_that_stands_is_left_alone() {
    let folder = Folder::new();
    drop(folder.drive());
    let shared = std::fs::Permissions::from_mode(0o640);
    std::fs::set_permissions(folder.file(), shared).unwrap();
    drop(folder.drive());
    let mode = std::fs::metadata(folder.file())
        .unwrap()
        .permissions()
        .mode();
    assert_eq!(mode & 0o777, 0o640);
}

/// A second name in another folder has another lock beside it.
#[test]
fn a_link_does_not_let_a_second_driver_in() {
    let folder = Folder::new();
    let elsewhere = Folder::new();
    // One link is made before the file that it names, the other after it.
    symlink(folder.file(), elsewhere.file()).unwrap();
    let first = elsewhere.drive();
    assert_eq!(names(elsewhere.dir.path()), ["longhaul.db"]);
    for again in [&folder, &elsewhere] {
        let refused = again.open(Role::Driver).unwrap_err();
        assert!(matches!(refused, StoreError::Driven { .. }), "{refused}");
    }
    drop(first);
    let other = elsewhere.dir.path().join("other.db");
    symlink("longhaul.db", &other).unwrap();
    let _first = folder.drive();
    let refused = open(options(&other, Role::Driver, &folder.clock)).unwrap_err();
    assert!(matches!(refused, StoreError::Driven { .. }), "{refused}");
}

#[test]
fn a_link_in_a_circle_is_refused() {
    let folder = Folder::new();
    symlink("longhaul.db", folder.file()).unwrap();
    folder.open(Role::Outsider).unwrap_err();
}

/// A folder may come from a stranger; a link in the lock's place would have us
/// empty whatever file it names.
#[test]
fn a_link_in_the_place_of_the_lock_is_not_followed() {
    let folder = Folder::new();
    let precious = folder.dir.path().join("precious");
    std::fs::write(&precious, "mine").unwrap();
    symlink(&precious, folder.dir.path().join("driver.lock")).unwrap();
    folder.open(Role::Driver).unwrap_err();
    assert_eq!(std::fs::read_to_string(&precious).unwrap(), "mine");
}

#[test]
fn what_is_no_file_is_refused_and_not_waited_for() {
    let folder = Folder::new();
    let made = std::process::Command::new("mkfifo")
        .arg(folder.file())
        .status();
    assert!(made.unwrap().success());
    let refused = folder.open(Role::Outsider).unwrap_err().to_string();
    assert!(refused.contains("no regular file"), "{refused}");
}

/// SQLite reads a name that begins with `file:` as an address of its own, with
/// another file behind it and options after it.
#[test]
fn every_name_is_only_a_name() {
    for name in [
        "a b.db",
        "a?mode=memory",
        "a%20b#c.db",
        "'; DROP TABLE run; --",
        "file:a.db?mode=memory",
        "ü 文.db",
    ] {
        let folder = Folder::new();
        let file = folder.dir.path().join(name);
        drop(open(options(&file, Role::Driver, &folder.clock)).unwrap());
        let mut expected = ["driver.lock", name];
        expected.sort_unstable();
        assert_eq!(names(folder.dir.path()), expected);
    }
    let folder = Folder::new();
    let victim = folder.dir.path().join("victim.db");
    connect(&victim)
        .execute_batch("CREATE TABLE mine (a)")
        .unwrap();
    let before = std::fs::read(&victim).unwrap();
    let url = format!("sqlite:file:{}", victim.display());
    let clock = std::sync::Arc::new(folder.clock);
    let refused = open(Options::new(url, Role::Outsider, clock)).unwrap_err();
    assert!(matches!(refused, StoreError::Url { .. }), "{refused}");
    assert_eq!(std::fs::read(&victim).unwrap(), before);
}
