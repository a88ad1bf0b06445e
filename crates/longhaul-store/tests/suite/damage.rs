//! Damaged files and files of other programs are rejected with a clear error and not changed.

use std::fs;
use std::path::Path;

use longhaul_core::id::Seq;
use longhaul_core::port::store::{JournalReadRequest, RunFilter, Store as _, StoreError};
use longhaul_core::status::Status;
use longhaul_store::{OpenMode, open_sqlite_store};
use longhaul_testkit::conformance::store::fixture::claim_request;

use super::harness::{StoreDir, connect};

/// Checks that the file is rejected as corrupt and left unchanged.
fn refuses(folder: &StoreDir, reason: &str) {
    let before = fs::read(folder.file()).unwrap();
    for role in [OpenMode::Driver, OpenMode::Outsider] {
        let error = folder.open(role).unwrap_err();
        assert!(matches!(error, StoreError::Corrupt { .. }), "{error}");
        assert!(error.to_string().contains(reason), "{error}");
    }
    assert_eq!(fs::read(folder.file()).unwrap(), before, "the file was changed");
}

/// Returns a closed store with a hundred runs.
async fn filled() -> StoreDir {
    let folder = StoreDir::new();
    let fixture = folder.fixture(folder.drive());
    let runs = (0..100).map(|_| fixture.new_run(|_| {})).collect();
    fixture.open_runs(runs).await;
    drop(fixture);
    folder
}

#[test]
fn a_garbage_file_is_rejected() {
    for garbage in [&b"not a database, and longer than a header is".repeat(9)[..], b"x"] {
        let folder = StoreDir::new();
        fs::write(folder.file(), garbage).unwrap();
        refuses(&folder, "not a SQLite database");
        assert!(!folder.dir.path().join("driver.lock").exists());
    }
}

#[test]
fn databases_of_other_programs_are_not_changed() {
    for application_id in [0, 77] {
        let folder = StoreDir::new();
        let conn = connect(&folder.file());
        conn.execute_batch(&format!(
            "PRAGMA application_id = {application_id}; CREATE TABLE theirs (x); \
             INSERT INTO theirs VALUES (1);"
        ))
        .unwrap();
        drop(conn);
        refuses(&folder, "another program");
    }
}

#[test]
fn an_empty_file_becomes_a_store() {
    let folder = StoreDir::new();
    fs::write(folder.file(), b"").unwrap();
    folder.drive();
}

#[tokio::test]
async fn a_truncated_file_is_reported_as_corrupt() {
    let folder = filled().await;
    let content = fs::read(folder.file()).unwrap();
    for part in [2, 4, 10] {
        fs::write(folder.file(), &content[..content.len() / part]).unwrap();
        let damaged = read_everything(&folder).await.unwrap_err();
        assert!(matches!(damaged, StoreError::Corrupt { .. }), "{damaged}");
    }
}

#[tokio::test]
async fn flipped_bytes_are_an_error_or_harmless() {
    let folder = filled().await;
    let content = fs::read(folder.file()).unwrap();
    let mut damaged = 0;
    for offset in (100..content.len()).step_by(9_973) {
        let mut flipped = content.clone();
        for byte in flipped.iter_mut().skip(offset).take(24) {
            *byte ^= 0xa5;
        }
        fs::write(folder.file(), flipped).unwrap();
        match read_everything(&folder).await {
            Ok(()) => {}
            Err(StoreError::Corrupt { .. } | StoreError::InvalidEvent { .. }) => damaged += 1,
            // Detected only by the final write; after that nothing more is written.
            Err(StoreError::Closed { reason, .. }) if reason.contains("malformed") => damaged += 1,
            Err(other) => panic!("at {offset}: {other:?}"),
        }
    }
    assert!(damaged > 4, "only {damaged} damaged files were detected");
}

/// Pages that look valid but have lost rows: half a page, or the page before it.
#[tokio::test]
async fn lost_rows_of_a_page_never_shorten_the_list_of_runs() {
    const PAGE: usize = 8_192;
    let folder = filled().await;
    let content = fs::read(folder.file()).unwrap();
    let mut damaged = 0;
    for offset in (PAGE..content.len()).step_by(PAGE) {
        let previous_page = &content[offset - PAGE..offset];
        let half_page = [&content[offset..offset + PAGE / 2], &[0; PAGE / 2]].concat();
        for page in [previous_page, &half_page] {
            let mut changed = content.clone();
            changed[offset..offset + PAGE].copy_from_slice(page);
            fs::write(folder.file(), changed).unwrap();
            match list_twice(&folder).await {
                Ok(counts) => assert_eq!(counts, [100, 100], "page at {offset}"),
                Err(StoreError::Corrupt { .. }) => damaged += 1,
                Err(other) => panic!("page at {offset}: {other:?}"),
            }
        }
    }
    assert!(damaged > 8, "only {damaged} damaged files were detected");
}

/// Returns the number of all runs, and of the runs with certain statuses.
async fn list_twice(folder: &StoreDir) -> Result<[usize; 2], StoreError> {
    let store = folder.open(OpenMode::Outsider)?;
    let filter = RunFilter { limit: usize::MAX, ..RunFilter::default() };
    let all = store.list_runs(filter.clone()).await?.len();
    let statuses = vec![Status::Pending, Status::Completed];
    Ok([all, store.list_runs(RunFilter { statuses, ..filter }).await?.len()])
}

/// Opens the store, reads every run, claims runs and closes the store.
async fn read_everything(folder: &StoreDir) -> Result<(), StoreError> {
    let store = folder.open(OpenMode::Driver)?;
    let filter = RunFilter { limit: usize::MAX, ..RunFilter::default() };
    for row in store.list_runs(filter).await? {
        let filter = JournalReadRequest { run: row.id, after: Seq::START, limit: usize::MAX };
        store.read_journal(filter).await?;
    }
    let worker = longhaul_testkit::ids::SeededIds::new(9).worker();
    store.heartbeat(longhaul_testkit::conformance::store::fixture::heartbeat(worker)).await?;
    store.claim_runs(claim_request(worker)).await?;
    Ok(())
}

#[tokio::test]
async fn a_newer_schema_is_refused_with_both_numbers() {
    let folder = filled().await;
    let conn = connect(&folder.file());
    let step = "INSERT INTO migration VALUES (2, 'later', x'00', 0)";
    conn.execute_batch(step).unwrap();
    drop(conn);
    let error = folder.open(OpenMode::Driver).unwrap_err();
    let newer = matches!(error, StoreError::NewerSchema { found: 2, known: 1, .. });
    assert!(newer, "{error}");
}

#[tokio::test]
async fn a_changed_migration_checksum_is_rejected() {
    let folder = filled().await;
    let conn = connect(&folder.file());
    conn.execute_batch("UPDATE migration SET checksum = x'00'").unwrap();
    drop(conn);
    let error = folder.open(OpenMode::Driver).unwrap_err().to_string();
    assert!(error.contains("the migration `init` of the store differs"), "{error}");
}

#[tokio::test]
async fn a_run_with_an_unknown_event_is_reported_and_never_claimed() {
    let folder = StoreDir::new();
    let fixture = folder.fixture(folder.drive());
    let run = fixture.open(|_| {}).await;
    let conn = connect(&folder.file());
    let id = run.bytes();
    conn.execute(
        "INSERT INTO journal (run, seq, epoch, at, kind, v, body)
         VALUES (?1, 2, 0, 0, 'run.teleported', 1, '{}')",
        (id,),
    )
    .unwrap();
    conn.execute("UPDATE run_head SET last_seq = 2, format = 2 WHERE run = ?1", (id,)).unwrap();
    let request = JournalReadRequest { run, after: Seq::START, limit: 10 };
    let error = fixture.harness.store.read_journal(request).await.unwrap_err();
    let StoreError::InvalidEvent { seq: Seq(2), .. } = error else {
        panic!("{error}");
    };
    let source = std::error::Error::source(&error).unwrap().to_string();
    assert!(source.contains("run.teleported"), "{source}");
    assert_eq!(fixture.claim(fixture.worker().await).await, []);
}

#[test]
fn a_folder_instead_of_the_store_file_is_rejected() {
    let folder = StoreDir::new();
    fs::create_dir(folder.file()).unwrap();
    assert!(folder.open(OpenMode::Driver).is_err());
    let path = Path::new("/dev/null/longhaul.db");
    let options = super::harness::options(path, OpenMode::Driver, &folder.clock);
    assert!(open_sqlite_store(options).is_err());
}
