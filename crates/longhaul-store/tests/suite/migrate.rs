//! Files of older builds: brought up to date with all that is in them, or only
//! looked at.

use std::path::Path;
use std::sync::Arc;

use longhaul_core::id::RunId;
use longhaul_core::port::keyring::Keyring as _;
use longhaul_core::port::shelves::{Place, Shelves as _};
use longhaul_core::port::store::{Store as _, StoreError};
use longhaul_core::raw::Hash;
use longhaul_core::status::Status;
use longhaul_store::options::Faults;
use longhaul_store::{Options, Role, open};
use longhaul_testkit::conformance::store::facts::{gate_spec, progress, raises, says};

use super::doors::new_key;
use super::kit::{Folder, connect, options};

const GROUND: &str = include_str!("../../migrations/sqlite/0001_ground.sql");

/// A folder with a file as the first schema had it, and a run in it that is
/// driven and has raised a gate.
struct Old {
    folder: Folder,
    run: RunId,
}

impl Old {
    async fn new() -> Self {
        let folder = Folder::new();
        let now = Folder::new();
        let world = now.world(now.drive());
        let mut held = world.held(|_| {}).await;
        held.write(raises(gate_spec(world.ids.gate()))).await;
        held.write(says([progress(7)])).await;
        let run = held.run;
        drop((world, held));
        make(&folder.file());
        copy(&now.file(), &folder.file());
        Self { folder, run }
    }

    /// The steps that were applied, and the schema that the file says.
    fn schema(&self) -> (Vec<(i64, String)>, i64) {
        let conn = connect(&self.folder.file());
        let mut steps = conn
            .prepare("SELECT version, name FROM migration ORDER BY version")
            .unwrap();
        let steps = steps
            .query_map((), |row| Ok((row.get(0)?, row.get(1)?)))
            .unwrap();
        let version = conn.pragma_query_value(None, "user_version", |row| row.get(0));
        (steps.collect::<Result<_, _>>().unwrap(), version.unwrap())
    }
}

/// An empty store as the first build made it.
pub(crate) fn make(file: &Path) {
    let conn = connect(file);
    conn.execute_batch(
        "PRAGMA page_size = 8192; PRAGMA auto_vacuum = INCREMENTAL; PRAGMA journal_mode = WAL;
         CREATE TABLE migration (
           version    INTEGER PRIMARY KEY,
           name       TEXT NOT NULL,
           checksum   BLOB NOT NULL,
           applied_at INTEGER NOT NULL
         ) STRICT;",
    )
    .unwrap();
    conn.execute_batch(GROUND).unwrap();
    let checksum = *Hash::of(GROUND.as_bytes()).bytes();
    let step = "INSERT INTO migration VALUES (1, 'ground', ?1, 0)";
    conn.execute(step, [checksum]).unwrap();
    conn.pragma_update(None, "application_id", i32::from_be_bytes(*b"Lhul"))
        .unwrap();
    conn.pragma_update(None, "user_version", 1).unwrap();
}

/// Copies every row of the tables that both files have.
fn copy(from: &Path, to: &Path) {
    let conn = connect(to);
    conn.execute("ATTACH ?1 AS other", [from.to_str().unwrap()])
        .unwrap();
    let mut tables = conn
        .prepare(
            "SELECT name FROM main.sqlite_schema
              WHERE type = 'table' AND name NOT LIKE 'sqlite_%' AND name <> 'migration'",
        )
        .unwrap();
    let tables = tables.query_map((), |row| row.get(0)).unwrap();
    let tables: Vec<String> = tables.collect::<Result<_, _>>().unwrap();
    for table in tables {
        conn.execute_batch(&format!(
            "DELETE FROM main.{table}; INSERT INTO main.{table} SELECT * FROM other.{table};"
        ))
        .unwrap();
    }
}

/// Every step of this build.
const NOW: [&str; 4] = ["ground", "doors", "notes", "reply_effect"];

fn steps(names: &[&str]) -> (Vec<(i64, String)>, i64) {
    let steps: Vec<_> = names.iter().map(|name| (*name).to_owned()).collect();
    let version = steps.len().try_into().unwrap();
    ((1..).zip(steps).collect(), version)
}

#[tokio::test]
async fn an_older_file_is_brought_up_to_date_with_all_that_is_in_it() {
    for role in [Role::Driver, Role::Outsider] {
        let old = Old::new().await;
        assert_eq!(old.schema(), steps(&["ground"]));
        let world = old.folder.world(old.folder.open(role).unwrap());
        assert_eq!(old.schema(), steps(&NOW));
        let facts = [
            "run.created",
            "run.claimed",
            "gate.raised",
            "progress.reported",
        ];
        assert_eq!(world.kinds(old.run).await, facts);
        let tail = world.at.shelves.tail(Place(0), 9).await.unwrap();
        let kinds: Vec<_> = tail
            .entries
            .iter()
            .map(|(_, entry)| entry.event.kind())
            .collect();
        assert_eq!(kinds, facts);
        assert_eq!(world.row(old.run).await.status, Status::Running);
        assert!(world.at.keyring.add_key(new_key("ops")).await.unwrap());
        drop(world);

        // Once is enough, and whoever drives goes on with the run.
        let world = old.folder.world(old.folder.drive());
        assert_eq!(old.schema(), steps(&NOW));
        assert_eq!(world.at.keyring.keys().await.unwrap().len(), 1);
        let mut held = world.take(world.worker().await).await;
        assert_eq!(held.run, old.run);
        held.write(says([progress(8)])).await;
        world.is_in_order().await;
    }
}

/// A driver of an older build must not lose its ground because somebody looked in.
#[tokio::test]
async fn a_file_that_is_driven_is_not_changed_by_who_looks_in() {
    let old = Old::new().await;
    // The lock is the folder's, so any driver in it stands for the older one.
    let beside = old.folder.dir.path().join("beside.db");
    let driver = open(options(&beside, Role::Driver, &old.folder.clock)).unwrap();
    let refused = old.folder.open(Role::Outsider).unwrap_err();
    assert!(matches!(refused, StoreError::Driven { .. }), "{refused}");
    assert_eq!(old.schema(), steps(&["ground"]));
    drop(driver);
    old.folder.open(Role::Outsider).unwrap();
    assert_eq!(old.schema(), steps(&NOW));
}

/// Bounds the file at the pages that it has.
#[derive(Debug)]
struct NoRoom;

impl Faults for NoRoom {
    fn pages_max(&self) -> Option<u32> {
        Some(1)
    }
}

#[tokio::test]
async fn an_older_file_without_room_is_looked_at_as_it_is() {
    let old = Old::new().await;
    let without_room = |role| {
        open(Options {
            faults: Some(Arc::new(NoRoom)),
            ..old.folder.options(role)
        })
    };
    let is_full = |error: &StoreError| matches!(error, StoreError::Full { .. });
    let refused = without_room(Role::Driver).unwrap_err();
    assert!(is_full(&refused), "{refused}");

    let looker = without_room(Role::Outsider).unwrap();
    assert!(looker.row(old.run).await.unwrap().is_some());
    assert_eq!(looker.end().await.unwrap(), Place(4));
    // What the older build did not keep can't be looked at, and nobody is told
    // that there is none of it.
    let hash = Hash::of(b"ops");
    let refused = [
        looker.keys().await.err(),
        looker.key(hash).await.err(),
        looker.touch_key(hash).await.err(),
        looker.add_key(new_key("ops")).await.err(),
    ];
    for error in refused {
        let error = error.unwrap();
        assert!(is_full(&error), "{error}");
    }
    drop(looker);
    assert_eq!(old.schema(), steps(&["ground"]));
    old.folder.drive();
    assert_eq!(old.schema(), steps(&NOW));
}
