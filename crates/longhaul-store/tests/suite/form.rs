//! What a file of ours looks like from outside.

use longhaul_core::change::{Batch, Blob, Change, GateClosing, GateEnd};
use longhaul_core::event::Event;
use longhaul_core::event::world::ProgressReported;
use longhaul_core::id::Seq;
use longhaul_core::port::keyring::LinkRow;
use longhaul_core::port::store::{Appended, ReadAsk, Refused};
use longhaul_core::time::Millis;
use longhaul_testkit::conformance::store::facts::{
    And as _, close_gate, ends, gate_spec, progress, raises, says,
};
use tokio::task::JoinSet;

use super::kit::{Folder, connect};

#[test]
fn the_file_is_made_as_it_should_be() {
    let folder = Folder::new();
    let store = folder.drive();
    let conn = connect(&folder.file());
    let pragma = |name: &str| -> String {
        let sql = format!("SELECT CAST((SELECT * FROM pragma_{name}) AS TEXT)");
        conn.query_row(&sql, (), |row| row.get(0)).unwrap()
    };
    let found = [
        "page_size",
        "auto_vacuum",
        "journal_mode",
        "application_id",
        "user_version",
    ];
    let mark = i32::from_be_bytes(*b"Lhul").to_string();
    assert_eq!(found.map(pragma), ["8192", "2", "wal", mark.as_str(), "4"]);
    drop(store);
}

#[test]
fn every_table_is_strict_and_only_narrow_ones_lack_a_rowid() {
    let folder = Folder::new();
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
    assert_eq!(
        tables("wr = 1"),
        ["lane", "ready", "run_head", "seat", "timer"]
    );
}

#[tokio::test]
async fn long_bodies_stand_once_under_their_hash() {
    let folder = Folder::new();
    let world = folder.world(folder.drive());
    let mut held = world.held(|_| {}).await;
    let says_so = |length: usize| {
        Event::ProgressReported(ProgressReported {
            percent: 1,
            message: "long ".repeat(length / 5),
        })
    };
    let (short, long) = (says_so(8_000), says_so(20_000));
    held.write(says([short.clone(), long.clone(), long.clone()]))
        .await;
    let page = world.at.store.read(ReadAsk {
        run: held.run,
        after: Seq(2),
        limit: 10,
    });
    let entries = page.await.unwrap().entries;
    let read: Vec<&Event> = entries.iter().map(|entry| &entry.event).collect();
    assert_eq!(read, [&short, &long, &long]);
    let conn = connect(&folder.file());
    let count = |sql: &str| -> i64 { conn.query_row(sql, (), |row| row.get(0)).unwrap() };
    assert_eq!(count("SELECT count(*) FROM blob"), 1);
    assert_eq!(
        count("SELECT count(*) FROM journal WHERE blob IS NOT NULL"),
        2
    );
    assert_eq!(count("SELECT max(length(body)) > 8192 FROM journal"), 0);
    // A repeat is known by its content, wherever that stands.
    let mut late = held.clone();
    late.last = Seq(2);
    late.write(says([short, long.clone(), long])).await;
    assert_eq!(world.row(held.run).await.last, Seq(5));
}

#[tokio::test]
async fn nothing_of_a_run_that_is_forgotten_is_left() {
    let folder = Folder::new();
    let world = folder.world(folder.drive());
    let mut held = world.held(|_| {}).await;
    let blob = Blob::new(b"content".to_vec());
    let hash = blob.hash();
    held.change(Change::PutBlob(blob)).await;
    let gate = world.ids.gate();
    held.write(raises(gate_spec(gate))).await;
    let link = LinkRow {
        hash,
        gate,
        digest: None,
        recipient: "anna".to_owned(),
        by: "key:ops".to_owned(),
    };
    world.at.keyring.add_link(link).await.unwrap();
    held.write(ends().and(close_gate(gate, GateEnd::Withdrawn)))
        .await;
    // Whoever was written to last is not forgotten.
    world.open(|_| {}).await;
    let prune = async || {
        world.pass(Millis::from_secs(60));
        let ask = longhaul_core::port::store::PruneAsk {
            runs_older: Millis::from_secs(90),
            blobs_older: Millis::from_secs(1),
            limit: 10,
        };
        let pruned = world.at.store.prune(ask).await.unwrap();
        (pruned.runs, pruned.blobs)
    };
    assert_eq!(prune().await, (0, 0));
    assert!(world.at.shelves.blob(hash).await.unwrap().is_some());
    assert!(names(&folder, &held.run.bytes()).len() > 4);
    assert_eq!(names(&folder, &gate.bytes()), ["gate.id", "link.gate"]);
    assert_eq!(prune().await, (1, 1));
    assert!(world.at.shelves.blob(hash).await.unwrap().is_none());
    for gone in [&held.run.bytes()[..], &gate.bytes(), hash.bytes()] {
        assert_eq!(names(&folder, gone), [""; 0]);
    }
}

/// The columns in which these bytes stand, in any table.
fn names(folder: &Folder, bytes: &[u8]) -> Vec<String> {
    let conn = connect(&folder.file());
    let mut columns = conn
        .prepare(
            "SELECT t.name, c.name FROM pragma_table_list t, pragma_table_info(t.name) c
              WHERE t.schema = 'main' AND c.type = 'BLOB' ORDER BY 1, 2",
        )
        .unwrap();
    let columns = columns
        .query_map((), |row| Ok((row.get(0)?, row.get(1)?)))
        .unwrap();
    let columns: Vec<(String, String)> = columns.collect::<Result<_, _>>().unwrap();
    let holds = |(table, column): &(String, String)| -> bool {
        let sql = format!("SELECT count(*) > 0 FROM {table} WHERE {column} = ?1");
        conn.query_row(&sql, [bytes], |row| row.get(0)).unwrap()
    };
    let found = columns.iter().filter(|column| holds(column));
    found
        .map(|(table, column)| format!("{table}.{column}"))
        .collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn many_drivers_and_readers_at_once_leave_no_gap() {
    const RUNS: usize = 64;
    const FACTS: u8 = 20;
    let folder = Folder::new();
    let world = folder.world(folder.drive());
    let runs = (0..RUNS).map(|_| world.new_run(|_| {})).collect();
    world.ask(runs).await;
    let worker = world.worker().await;
    let mut crew = JoinSet::new();
    for _ in 0..RUNS {
        let mut held = world.take(worker).await;
        crew.spawn(async move {
            for percent in 0..FACTS {
                let batch: Batch = says([progress(percent)]);
                held.write(batch).await;
                let seen = held.world.row(held.run).await.last;
                assert_eq!(seen, held.last, "a driver reads what it wrote");
            }
            let entries = held.world.journal(held.run).await.len();
            assert_eq!(entries, usize::from(FACTS) + 2);
        });
    }
    crew.join_all().await;
    world.is_in_order().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn whoever_is_refused_takes_nobody_along() {
    let folder = Folder::new();
    let world = folder.world(folder.drive());
    let runs = (0..32).map(|_| world.new_run(|_| {})).collect();
    world.ask(runs).await;
    let worker = world.worker().await;
    let mut crew = JoinSet::new();
    for number in 0..32 {
        let mut held = world.take(worker).await;
        crew.spawn(async move {
            let withdrawn = GateClosing {
                gate: held.world.ids.gate(),
                how: GateEnd::Withdrawn,
            };
            for _ in 0..20 {
                if number % 4 == 0 {
                    // The gate is looked for when the head has moved already.
                    let told = held.change(Change::CloseGate(withdrawn.clone())).await;
                    assert_eq!(told, Appended::Refused(Refused::NoGate));
                } else {
                    held.write(says([progress(1)])).await;
                }
            }
            let expected = if number % 4 == 0 { 2 } else { 22 };
            assert_eq!(held.world.journal(held.run).await.len(), expected);
        });
    }
    crew.join_all().await;
    world.is_in_order().await;
}

#[test]
fn the_bare_loop_is_measured_with_the_stopwatch_that_is_given() {
    use longhaul_store::bench::{BareAsk, bare, sync_spans};
    let folder = Folder::new();
    let ticks = std::sync::atomic::AtomicU64::new(0);
    let stopwatch = || ticks.fetch_add(1_000, std::sync::atomic::Ordering::Relaxed);
    let spans = sync_spans(folder.dir.path(), 3, &stopwatch).unwrap();
    assert_eq!(
        (spans.percentile(50), spans.percentile(100)),
        (1_000, 1_000)
    );
    let ask = BareAsk {
        file: folder.file(),
        runs: 4,
        events: 50,
        body_bytes: 100,
        per_commit: 16,
    };
    let rate = bare(&ask, &stopwatch).unwrap();
    assert_eq!((rate.events, rate.commits, rate.nanos), (50, 4, 1_000));
    let conn = connect(&folder.file());
    let sql = "SELECT count(*), sum(last) FROM journal, (SELECT sum(last) AS last FROM run_head)";
    let (lines, _): (i64, i64) = conn
        .query_row(sql, (), |row| Ok((row.get(0)?, row.get(1)?)))
        .unwrap();
    assert_eq!(lines, 50);
}
