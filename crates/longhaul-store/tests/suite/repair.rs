//! The search for inconsistent rows looks at one page of a large store at a time.

use longhaul_core::port::records::RepairedRowCounts;

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
    let queued: i64 = conn.query_row("SELECT count(*) FROM ready", (), |row| row.get(0)).unwrap();
    assert_eq!(queued, RUNS as i64);
}
