//! How the statements that run all the time are carried out.
//!
//! Never: part of a build that ships.

use longhaul_core::time::Timestamp;
use rusqlite::Connection;

use crate::sqlite::api_key::SELECT_KEY;
use crate::sqlite::append::UPDATE_HEAD_AS_DRIVER;
use crate::sqlite::claim::{SELECT_READY, SELECT_READY_OF_TYPES};
use crate::sqlite::global_log::{
    SELECT_ALL_AFTER, SELECT_CHANGED_AFTER, SELECT_LAST_GLOBAL_SEQ, SELECT_LAST_WRITTEN_RUN,
};
use crate::sqlite::idempotency::SELECT_KNOWN;
use crate::sqlite::lane::{SELECT_LANES, SELECT_NEXT};
use crate::sqlite::note::{SEARCH_NOTES, SELECT_NOTES};
use crate::sqlite::prune::SELECT_EXPIRED_RUNS;
use crate::sqlite::timer::SELECT_DUE;
use crate::sqlite::token::{CONSUME_TOKEN, DELETE_EXPIRED, SELECT_TOKEN};
use crate::sqlite::{connect, schema};

fn store() -> Connection {
    let conn = connect::memory().unwrap();
    schema::migrate(&conn, "memory", Timestamp::default(), schema::MIGRATIONS).unwrap();
    conn
}

fn check(sql: &str, expected: &[&str]) {
    let conn = store();
    let mut plan = conn.prepare(&format!("EXPLAIN QUERY PLAN {sql}")).unwrap();
    let nulls = vec![rusqlite::types::Null; plan.parameter_count()];
    let steps = plan.query_map(rusqlite::params_from_iter(nulls), |row| row.get(3)).unwrap();
    let steps: Vec<String> = steps.collect::<Result<_, _>>().unwrap();
    assert_eq!(steps, expected, "{sql}");
}

#[test]
fn a_claim_uses_the_queue_index() {
    let walk = "SEARCH q USING PRIMARY KEY (inbox=?)";
    let head = "SEARCH h USING PRIMARY KEY (run=?)";
    check(SELECT_READY, &[walk, head]);
    // The types are read into a list once; the walk stays the same.
    let types = "SCAN json_each VIRTUAL TABLE INDEX 1:";
    let list = ["LIST SUBQUERY 1", types, "CREATE BLOOM FILTER"];
    check(SELECT_READY_OF_TYPES, &[walk, list[0], list[1], list[2], head]);
}

#[test]
fn due_timers_use_their_index() {
    let walk = "SEARCH t USING PRIMARY KEY (fire_at<?)";
    let head = "SEARCH h USING PRIMARY KEY (run=?) LEFT-JOIN";
    check(SELECT_DUE, &[walk, head]);
}

#[test]
fn lane_promotion_uses_an_index() {
    let walk = "SEARCH r USING INDEX run_lane_position (lane=? AND lane_position>?)";
    check(SELECT_NEXT, &[walk, "SEARCH h USING PRIMARY KEY (run=?)"]);
}

#[test]
fn an_append_finds_its_head_by_primary_key() {
    check(UPDATE_HEAD_AS_DRIVER, &["SEARCH run_head USING PRIMARY KEY (run=?)"]);
}

#[test]
fn pruning_collects_active_trees_once() {
    let by_id = |table: &str| format!("SEARCH {table} USING INDEX sqlite_autoindex_run_1 (id=?)");
    let steps = [
        "SEARCH h USING INDEX run_head_finished (finished_at<?)",
        &by_id("r"),
        "LIST SUBQUERY 1",
        "SCAN th USING INDEX run_head_open",
        &by_id("t"),
        "CREATE BLOOM FILTER",
    ];
    check(SELECT_EXPIRED_RUNS, &steps);
}

#[test]
fn the_global_log_is_read_in_rowid_order() {
    let rows = |table: &str| format!("SEARCH {table} USING INTEGER PRIMARY KEY (rowid>?)");
    let blob = "SEARCH b USING INDEX blob_hash (hash=?) LEFT-JOIN";
    check(SELECT_ALL_AFTER, &[&rows("j"), blob]);
    check(SELECT_CHANGED_AFTER, &[&rows("journal")]);
    // The last row is looked up, not counted up to.
    check(SELECT_LAST_GLOBAL_SEQ, &["SEARCH journal"]);
    let newest = "SEARCH journal USING INTEGER PRIMARY KEY (rowid=?)";
    check(SELECT_LAST_WRITTEN_RUN, &[newest, "SCALAR SUBQUERY 1", "SEARCH journal"]);
}

#[test]
fn keys_tokens_and_links_are_looked_up_by_hash() {
    check(SELECT_KEY, &["SEARCH api_key USING INDEX api_key_hash (hash=?)"]);
    let pass = "SEARCH token USING INDEX token_hash (hash=? AND kind=?)";
    let key = "SEARCH k USING INDEX api_key_hash (hash=?)";
    for sql in [SELECT_TOKEN, CONSUME_TOKEN] {
        check(sql, &[pass, "CORRELATED SCALAR SUBQUERY 1", key]);
    }
    let by_row = "SEARCH token USING INTEGER PRIMARY KEY (rowid=?)";
    let over = "SEARCH token USING COVERING INDEX token_expires (expires_at<?)";
    check(DELETE_EXPIRED, &[by_row, "LIST SUBQUERY 1", over]);
    let request =
        "SEARCH idempotent_request USING INDEX idempotent_request_key (principal=? AND key=?)";
    check(SELECT_KNOWN, &[request]);
}

#[test]
fn notes_are_searched_and_listed_by_index() {
    let words = "SCAN note_fts VIRTUAL TABLE INDEX 0:M3";
    let row = "SEARCH n USING INTEGER PRIMARY KEY (rowid=?)";
    check(SEARCH_NOTES, &[words, row, "USE TEMP B-TREE FOR ORDER BY"]);
    let order = "SEARCH note USING INDEX note_order (resource=? AND number<?)";
    check(SELECT_NOTES, &[order]);
}

#[test]
fn lanes_are_listed_by_name_from_an_index() {
    check(SELECT_LANES, &["SEARCH lane USING PRIMARY KEY (lane>?)"]);
}
