//! Backups of a store in use, checks of a whole file, and restores.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use longhaul_core::event::entry::JournalEntry;
use longhaul_core::id::RunId;
use longhaul_core::port::store::StoreError;
use longhaul_core::status::Status;
use longhaul_store::{
    JournalChecker, OpenMode, StoreCheckReport, back_up_store, check_store, restore_store,
};
use longhaul_testkit::conformance::store::batches::{events_batch, progress};

use super::harness::{StoreDir, connect};

/// Accepts every journal that has `run.created` as its first event and nowhere else.
#[derive(Default)]
struct FirstEvent(bool);

impl JournalChecker for FirstEvent {
    fn check_next_entry(&mut self, entry: &JournalEntry) -> Result<(), String> {
        let is_first = !std::mem::replace(&mut self.0, true);
        match is_first == (entry.event.kind() == "run.created") {
            true => Ok(()),
            false => Err("it is at the wrong position".to_owned()),
        }
    }

    fn finish_journal_check(&mut self, _ended: bool) -> Result<(), String> {
        self.0 = false;
        Ok(())
    }
}

fn checked(file: &Path) -> StoreCheckReport {
    check_store(file, &mut FirstEvent::default()).unwrap()
}

fn problems(file: &Path) -> Vec<String> {
    let problems = checked(file).problems.into_iter();
    problems.map(|problem| format!("{}: {}", problem.kind, problem.message)).collect()
}

fn copy(folder: &StoreDir, name: &str) -> Result<StoreCheckReport, StoreError> {
    let to = folder.dir.path().join(name);
    back_up_store(&folder.file(), &to, &mut FirstEvent::default(), &mut |_| ())
}

/// Returns a closed store with one parked run.
async fn filled() -> (StoreDir, RunId) {
    let folder = StoreDir::new();
    let fixture = folder.fixture(folder.drive());
    let mut claimed_run = fixture.open_and_claim(|_| {}).await;
    claimed_run.append_ok(events_batch([progress(1)])).await;
    claimed_run.park("child").await;
    let run = claimed_run.run;
    drop((claimed_run, fixture));
    (folder, run)
}

#[tokio::test]
async fn backups_of_a_store_in_use_are_complete() {
    let folder = StoreDir::new();
    let fixture = folder.fixture(folder.drive());
    let mut claimed_run = fixture.open_and_claim(|_| {}).await;
    let stop = AtomicBool::new(false);
    let handle = tokio::runtime::Handle::current();
    let (reports, last) = thread::scope(|scope| {
        let copies = scope.spawn(|| {
            let copies = (0..8).map(|number| copy(&folder, &format!("copy-{number}.db")).unwrap());
            let reports: Vec<StoreCheckReport> = copies.collect();
            stop.store(true, Ordering::Relaxed);
            reports
        });
        // Other threads write while the copies are made.
        let writes = scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                handle.block_on(claimed_run.append_ok(events_batch([progress(1)])));
            }
            claimed_run.last.0
        });
        (copies.join().unwrap(), writes.join().unwrap())
    });
    let mut before = 0;
    for (number, report) in reports.iter().enumerate() {
        assert!((before..=last).contains(&report.events), "{report:?}");
        before = report.events;
        let copy = folder.dir.path().join(format!("copy-{number}.db"));
        assert_eq!(checked(&copy), *report);
        let mode = fs::metadata(&copy).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
    }
    // No other files are left beside the copies.
    let names = fs::read_dir(folder.dir.path()).unwrap();
    let names = names.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let is_unexpected = |name: &String| {
        name.ends_with(".tmp") || name.starts_with("copy-") && !name.ends_with(".db")
    };
    assert_eq!(names.filter(is_unexpected).count(), 0);
}

#[tokio::test]
async fn a_run_goes_on_from_a_restored_copy() {
    let (folder, run) = filled().await;
    copy(&folder, "copy.db").unwrap();
    let fixture = folder.fixture(folder.drive());
    fixture.open(|_| {}).await;

    // Restoring fails while a process drives the store.
    let from = folder.dir.path().join("copy.db");
    let restored = || restore_store(&from, &folder.file(), &mut FirstEvent::default());
    let error = restored().unwrap_err();
    assert!(matches!(error, StoreError::AlreadyDriven { .. }), "{error}");
    drop(fixture);

    let (report, previous) = restored().unwrap();
    assert_eq!((report.runs, report.events), (1, 4));
    let previous = previous.unwrap();
    assert_eq!(checked(&previous).runs, 2);
    let fixture = folder.fixture(folder.drive());
    fixture.assert_status(run, Status::Waiting, "child").await;
    assert_eq!(fixture.journal(run).await.len(), 4);
    fixture.assert_consistent().await;
}

/// Leaves a database with a write-ahead log, by writing while another connection has it open.
fn with_log(file: &Path) -> rusqlite::Connection {
    let conn = connect(file);
    conn.execute_batch("PRAGMA journal_mode = WAL; UPDATE run_head SET last_seq = 9;").unwrap();
    let reader = connect(file);
    reader.execute_batch("BEGIN; SELECT * FROM run_head;").unwrap();
    conn.execute_batch("UPDATE run_head SET last_seq = 8").unwrap();
    assert!(log(file).metadata().unwrap().len() > 0);
    reader
}

fn log(file: &Path) -> PathBuf {
    file.with_extension("db-wal")
}

#[tokio::test]
async fn a_restore_removes_the_wal_of_an_older_backup() {
    let (folder, _) = filled().await;
    copy(&folder, "copy.db").unwrap();
    let to = folder.dir.path().join("copy.db");
    let open = with_log(&to);
    copy(&folder, "copy.db").unwrap();
    assert!(!log(&to).exists());
    assert_eq!(problems(&to), [""; 0]);
    drop(open);
}

#[tokio::test]
async fn the_wal_of_a_replaced_store_is_kept_with_it() {
    let (folder, _) = filled().await;
    copy(&folder, "copy.db").unwrap();
    let from = folder.dir.path().join("copy.db");
    let open = with_log(&folder.file());
    let (_, previous) = restore_store(&from, &folder.file(), &mut FirstEvent::default()).unwrap();
    assert!(!log(&folder.file()).exists());
    assert_eq!(problems(&folder.file()), [""; 0]);
    let previous = problems(&previous.unwrap());
    let problem = "the run's record counts 8 events, but its journal has 4";
    assert!(previous.iter().any(|line| line.contains(problem)), "{previous:?}");
    drop(open);
}

#[tokio::test]
async fn a_restore_replaces_the_store_atomically() {
    let (folder, _) = filled().await;
    copy(&folder, "copy.db").unwrap();
    let from = folder.dir.path().join("copy.db");
    let stop = AtomicBool::new(false);
    let missing = thread::scope(|scope| {
        let reader = scope.spawn(|| {
            let mut missing = 0;
            while !stop.load(Ordering::Relaxed) {
                missing += usize::from(!folder.file().exists());
            }
            missing
        });
        for _ in 0..10 {
            restore_store(&from, &folder.file(), &mut FirstEvent::default()).unwrap();
        }
        stop.store(true, Ordering::Relaxed);
        reader.join().unwrap()
    });
    assert_eq!(missing, 0);
}

#[tokio::test]
async fn a_damaged_backup_is_not_restored() {
    let (folder, run) = filled().await;
    copy(&folder, "copy.db").unwrap();
    let from = folder.dir.path().join("copy.db");
    let content = fs::read(&from).unwrap();
    fs::write(&from, &content[..content.len() / 2]).unwrap();
    let error = restore_store(&from, &folder.file(), &mut FirstEvent::default()).unwrap_err();
    assert!(matches!(error, StoreError::Corrupt { .. }), "{error}");
    let fixture = folder.fixture(folder.open(OpenMode::Outsider).unwrap());
    fixture.assert_status(run, Status::Waiting, "child").await;
}

#[tokio::test]
async fn a_valid_store_has_no_problems() {
    let (folder, _) = filled().await;
    let report = checked(&folder.file());
    assert_eq!((report.runs, report.events), (1, 4));
    assert_eq!(report.problems, []);
    let names = fs::read_dir(folder.dir.path()).unwrap();
    assert_eq!(names.count(), 2, "there must be no files besides the store and its lock");
}

#[tokio::test]
async fn check_reports_every_kind_of_damage() {
    for (sql, expected) in [
        ("DELETE FROM journal WHERE seq = 4", "journal: the run's record counts 4 events"),
        (
            "DELETE FROM journal WHERE seq = 2",
            "journal: events are missing: event 3 follows event 1",
        ),
        (
            "UPDATE run_head SET last_seq = 9",
            "journal: the run's record counts 9 events, but its journal has 4",
        ),
        ("UPDATE journal SET body = '{' WHERE seq = 3", "journal: "),
        ("UPDATE journal SET seq = 10 - seq", "journal: "),
        ("DELETE FROM run", "rows: the head belongs to no run"),
        ("DELETE FROM run_head", "rows: the run has no head"),
        ("INSERT INTO blob VALUES (zeroblob(32), 0, x'00')", "body: the content of the row 0000"),
        ("UPDATE run_head SET state = 0", "queue: 1 ready runs that are not in the queue"),
    ] {
        let (folder, _) = filled().await;
        connect(&folder.file()).execute_batch(sql).unwrap();
        let problems = problems(&folder.file());
        assert!(problems.iter().any(|line| line.contains(expected)), "{sql}: {problems:?}");
        // A corrupt store can still be copied, and its copy has the same problems.
        let report = copy(&folder, "copy.db").unwrap();
        assert_eq!(report.problems, checked(&folder.file()).problems, "{sql}");
    }
}

#[tokio::test]
async fn check_reports_damaged_pages_as_problems() {
    let (folder, _) = filled().await;
    let content = fs::read(folder.file()).unwrap();
    let mut flipped = content.clone();
    for byte in &mut flipped[8_192 * 3..8_192 * 6] {
        *byte ^= 0x5a;
    }
    for damaged in [&content[..content.len() / 2], &flipped, b"no database", b""] {
        fs::write(folder.file(), damaged).unwrap();
        let problems = problems(&folder.file());
        assert!(problems[0].starts_with("pages: "), "{problems:?}");
        // A file that can't be read is not copied to its final name.
        assert!(copy(&folder, "copy.db").is_err());
        assert!(!folder.dir.path().join("copy.db").exists());
    }
}
