//! The search for inconsistent rows looks at one page of a large store at a time.

use longhaul_core::port::records::RepairedRowCounts;
use longhaul_core::status::Status;
use longhaul_testkit::conformance::store::repair::wait_for_key_of;

use super::harness::{StoreDir, connect};

/// Number of open runs, which fill several pages.
const RUNS: usize = 4_500;

#[tokio::test]
async fn inconsistent_rows_are_found_page_by_page() {
    let folder = StoreDir::new();
    let fixture = folder.fixture(folder.drive());
    for _ in 0..RUNS / 500 {
        fixture.open_runs((0..500).map(|_| fixture.new_run(|_| {})).collect()).await;
    }
    let records = &fixture.harness.records;
    let conn = connect(&folder.file());
    for (order, expected_round) in [("ASC", 1), ("DESC", 3)] {
        let sql = format!(
            "DELETE FROM ready WHERE run = (SELECT run FROM run_head ORDER BY run {order} LIMIT 1)"
        );
        assert_eq!(conn.execute(&sql, ()).unwrap(), 1);
        for round in 1..=3 {
            let ready_without_row = u64::from(round == expected_round);
            let expected = RepairedRowCounts { ready_without_row, ..RepairedRowCounts::default() };
            let found = records.repair_inconsistent_rows().await.unwrap();
            assert_eq!(found, expected, "{order}, round {round}");
        }
    }
    let ready_count: i64 =
        conn.query_row("SELECT count(*) FROM ready", (), |row| row.get(0)).unwrap();
    assert_eq!(ready_count, RUNS as i64);
}

#[tokio::test]
async fn a_run_that_waits_for_a_key_that_nobody_holds_is_woken() {
    let folder = StoreDir::new();
    let fixture = folder.fixture(folder.drive());
    for sql in ["UPDATE effect_key SET state = 2", "DELETE FROM effect_key"] {
        let [mut holder, mut waiting] =
            [fixture.open_and_claim(|_| {}).await, fixture.open_and_claim(|_| {}).await];
        connect(&folder.file()).execute("DELETE FROM effect_key", ()).unwrap();
        wait_for_key_of(&mut holder, &mut waiting).await;
        fixture.assert_consistent().await;
        assert_eq!(connect(&folder.file()).execute(sql, ()).unwrap(), 1);
        let found = fixture.harness.records.repair_inconsistent_rows().await.unwrap();
        assert_eq!(found.parked_without_waker, 1, "{sql}");
        fixture.assert_status(waiting.run, Status::Running, "worker").await;
        fixture.claim_one(waiting.worker).await;
    }
}
