//! The format of the database file, as seen by other programs.

use longhaul_core::change::{Blob, GateTransition, GateUpdate, JournalBatch, RowChange};
use longhaul_core::event::Event;
use longhaul_core::event::environment::ProgressReported;
use longhaul_core::id::Seq;
use longhaul_core::port::auth::GateLinkRow;
use longhaul_core::port::store::{AppendRefusalReason, AppendResult, JournalReadRequest};
use longhaul_core::time::Millis;
use longhaul_testkit::conformance::store::batches::{
    BatchExt as _, close_gate, end_batch, events_batch, gate_spec, progress, raise_gate_batch,
};
use tokio::task::JoinSet;

use super::harness::{StoreDir, connect};

#[test]
fn a_new_file_has_the_right_pragmas() {
    let folder = StoreDir::new();
    let store = folder.drive();
    let conn = connect(&folder.file());
    let pragma = |name: &str| -> String {
        let sql = format!("SELECT CAST((SELECT * FROM pragma_{name}) AS TEXT)");
        conn.query_row(&sql, (), |row| row.get(0)).unwrap()
    };
    let names = ["page_size", "auto_vacuum", "journal_mode", "application_id", "user_version"];
    let application_id = i32::from_be_bytes(*b"Lhul").to_string();
    assert_eq!(names.map(pragma), ["8192", "2", "wal", application_id.as_str(), "1"]);
    drop(store);
}

#[test]
fn every_table_is_strict_and_only_narrow_ones_lack_a_rowid() {
    let folder = StoreDir::new();
    drop(folder.drive());
    let conn = connect(&folder.file());
    let tables = |condition: &str| -> Vec<String> {
        let sql = format!(
            "SELECT name FROM pragma_table_list
              WHERE schema = 'main' AND type = 'table' AND name NOT LIKE 'sqlite_%'
                AND {condition} ORDER BY name"
        );
        let mut statement = conn.prepare(&sql).unwrap();
        let names = statement.query_map((), |row| row.get(0)).unwrap();
        names.collect::<Result<_, _>>().unwrap()
    };
    assert_eq!(tables("strict = 0"), [""; 0]);
    let narrow = [
        "chain",
        "effect_key",
        "effect_key_wait",
        "lane",
        "ready",
        "run_head",
        "sandbox_slot",
        "spend",
        "timer",
    ];
    assert_eq!(tables("wr = 1"), narrow);
}

#[tokio::test]
async fn long_bodies_are_stored_once_by_hash() {
    let folder = StoreDir::new();
    let fixture = folder.fixture(folder.drive());
    let mut claimed_run = fixture.open_and_claim(|_| {}).await;
    let long_progress = |length: usize| {
        Event::ProgressReported(ProgressReported {
            percent: 1,
            message: "long ".repeat(length / 5),
        })
    };
    let (short, long) = (long_progress(8_000), long_progress(20_000));
    claimed_run.append_ok(events_batch([short.clone(), long.clone(), long.clone()])).await;
    let page = fixture.harness.store.read_journal(JournalReadRequest {
        run: claimed_run.run,
        after: Seq(2),
        limit: 10,
    });
    let entries = page.await.unwrap().entries;
    let events: Vec<&Event> = entries.iter().map(|entry| &entry.event).collect();
    assert_eq!(events, [&short, &long, &long]);
    let conn = connect(&folder.file());
    let count = |sql: &str| -> i64 { conn.query_row(sql, (), |row| row.get(0)).unwrap() };
    assert_eq!(count("SELECT count(*) FROM blob"), 1);
    assert_eq!(count("SELECT count(*) FROM journal WHERE blob IS NOT NULL"), 2);
    assert_eq!(count("SELECT max(length(body)) > 8192 FROM journal"), 0);
    // A repeated append is recognized by its content, whether that is in the row or in a blob.
    let mut late = claimed_run.clone();
    late.last = Seq(2);
    late.append_ok(events_batch([short, long.clone(), long])).await;
    assert_eq!(fixture.row(claimed_run.run).await.last_seq, Seq(5));
}

#[tokio::test]
async fn pruning_removes_every_row_of_a_run() {
    let folder = StoreDir::new();
    let fixture = folder.fixture(folder.drive());
    let mut claimed_run = fixture.open_and_claim(|_| {}).await;
    let blob = Blob::new(b"content".to_vec());
    let hash = blob.hash();
    claimed_run.change(RowChange::PutBlob(blob)).await;
    let gate = fixture.ids.gate();
    claimed_run.append_ok(raise_gate_batch(gate_spec(gate))).await;
    let link = GateLinkRow {
        hash,
        gate,
        digest: None,
        recipient: "anna".to_owned(),
        by: "key:ops".to_owned(),
    };
    fixture.harness.auth.add_gate_link(link).await.unwrap();
    claimed_run
        .append_ok(end_batch().with_change(close_gate(gate, GateTransition::Withdrawn)))
        .await;
    // The run that was written last is never pruned.
    fixture.open(|_| {}).await;
    let prune = async || {
        fixture.advance(Millis::from_secs(60));
        let request = longhaul_core::port::store::PruneRequest {
            runs_older_than: Millis::from_secs(90),
            blobs_older_than: Millis::from_secs(1),
            limit: 10,
        };
        let pruned = fixture.harness.store.prune_old_data(request).await.unwrap();
        (pruned.runs, pruned.blobs)
    };
    assert_eq!(prune().await, (0, 0));
    assert!(fixture.harness.records.blob(hash).await.unwrap().is_some());
    assert!(names(&folder, &claimed_run.run.bytes()).len() > 4);
    assert_eq!(names(&folder, &gate.bytes()), ["gate.id", "gate_link.gate"]);
    assert_eq!(prune().await, (1, 1));
    assert!(fixture.harness.records.blob(hash).await.unwrap().is_none());
    for bytes in [&claimed_run.run.bytes()[..], &gate.bytes(), hash.bytes()] {
        assert_eq!(names(&folder, bytes), [""; 0]);
    }
}

/// Returns the columns of all tables that contain these bytes.
fn names(folder: &StoreDir, bytes: &[u8]) -> Vec<String> {
    let conn = connect(&folder.file());
    let mut columns = conn
        .prepare(
            "SELECT t.name, c.name FROM pragma_table_list t, pragma_table_info(t.name) c
              WHERE t.schema = 'main' AND c.type = 'BLOB' ORDER BY 1, 2",
        )
        .unwrap();
    let columns = columns.query_map((), |row| Ok((row.get(0)?, row.get(1)?))).unwrap();
    let columns: Vec<(String, String)> = columns.collect::<Result<_, _>>().unwrap();
    let contains_bytes = |(table, column): &(String, String)| -> bool {
        let sql = format!("SELECT count(*) > 0 FROM {table} WHERE {column} = ?1");
        conn.query_row(&sql, [bytes], |row| row.get(0)).unwrap()
    };
    let matching = columns.iter().filter(|column| contains_bytes(column));
    matching.map(|(table, column)| format!("{table}.{column}")).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn concurrent_drivers_and_readers_leave_no_gap() {
    const RUNS: usize = 64;
    const FACTS: u8 = 20;
    let folder = StoreDir::new();
    let fixture = folder.fixture(folder.drive());
    let runs = (0..RUNS).map(|_| fixture.new_run(|_| {})).collect();
    fixture.open_runs(runs).await;
    let worker = fixture.worker().await;
    let mut tasks = JoinSet::new();
    for _ in 0..RUNS {
        let mut claimed_run = fixture.claim_one(worker).await;
        tasks.spawn(async move {
            for percent in 0..FACTS {
                let batch: JournalBatch = events_batch([progress(percent)]);
                claimed_run.append_ok(batch).await;
                let last_seq = claimed_run.fixture.row(claimed_run.run).await.last_seq;
                assert_eq!(last_seq, claimed_run.last, "a driver reads what it wrote");
            }
            let entries = claimed_run.fixture.journal(claimed_run.run).await.len();
            assert_eq!(entries, usize::from(FACTS) + 2);
        });
    }
    tasks.join_all().await;
    fixture.assert_consistent().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refused_append_does_not_affect_its_commit_group() {
    let folder = StoreDir::new();
    let fixture = folder.fixture(folder.drive());
    let runs = (0..32).map(|_| fixture.new_run(|_| {})).collect();
    fixture.open_runs(runs).await;
    let worker = fixture.worker().await;
    let mut tasks = JoinSet::new();
    for number in 0..32 {
        let mut claimed_run = fixture.claim_one(worker).await;
        tasks.spawn(async move {
            let withdrawn = GateUpdate {
                gate: claimed_run.fixture.ids.gate(),
                seen_answers: None,
                transition: GateTransition::Withdrawn,
            };
            for _ in 0..20 {
                if number % 4 == 0 {
                    // The gate is checked after the head was already updated.
                    let appended =
                        claimed_run.change(RowChange::UpdateGate(withdrawn.clone())).await;
                    assert_eq!(appended, AppendResult::Refused(AppendRefusalReason::GateNotFound));
                } else {
                    claimed_run.append_ok(events_batch([progress(1)])).await;
                }
            }
            let expected = if number % 4 == 0 { 2 } else { 22 };
            assert_eq!(claimed_run.fixture.journal(claimed_run.run).await.len(), expected);
        });
    }
    tasks.join_all().await;
    fixture.assert_consistent().await;
}
