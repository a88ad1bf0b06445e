//! How the statements that run all the time are carried out.
//!
//! Never: part of a build that ships.

use longhaul_core::time::Timestamp;
use rusqlite::Connection;

use crate::sqlite::append::DRIVE;
use crate::sqlite::claim::{PICK, PICK_TYPES};
use crate::sqlite::key::KEY;
use crate::sqlite::lane::{LANES, NEXT};
use crate::sqlite::note::{FOUND, NOTES};
use crate::sqlite::pass::{PASS, SPEND, SWEEP};
use crate::sqlite::prune::AGED;
use crate::sqlite::reply::BEFORE;
use crate::sqlite::tail::{END, GROWN, NEWEST, TAIL};
use crate::sqlite::timer::DUE;
use crate::sqlite::{connect, schema};

fn store() -> Connection {
    let conn = connect::memory().unwrap();
    schema::migrate(&conn, "memory", Timestamp::default()).unwrap();
    conn
}

fn check(sql: &str, expected: &[&str]) {
    let conn = store();
    let mut plan = conn.prepare(&format!("EXPLAIN QUERY PLAN {sql}")).unwrap();
    let nulls = vec![rusqlite::types::Null; plan.parameter_count()];
    let steps = plan
        .query_map(rusqlite::params_from_iter(nulls), |row| row.get(3))
        .unwrap();
    let steps: Vec<String> = steps.collect::<Result<_, _>>().unwrap();
    assert_eq!(steps, expected, "{sql}");
}

#[test]
fn a_claim_walks_the_queue_in_its_order() {
    let walk = "SEARCH q USING PRIMARY KEY (inbox=?)";
    let head = "SEARCH h USING PRIMARY KEY (run=?)";
    check(PICK, &[walk, head]);
    // The types are read into a list once; the walk stays the same.
    let types = "SCAN json_each VIRTUAL TABLE INDEX 1:";
    let list = ["LIST SUBQUERY 1", types, "CREATE BLOOM FILTER"];
    check(PICK_TYPES, &[walk, list[0], list[1], list[2], head]);
}

#[test]
fn due_timers_are_walked_in_their_order() {
    let walk = "SEARCH t USING PRIMARY KEY (fire_at<?)";
    let head = "SEARCH h USING PRIMARY KEY (run=?) LEFT-JOIN";
    check(DUE, &[walk, head]);
}

#[test]
fn the_next_of_a_lane_is_the_first_of_an_index() {
    let walk = "SEARCH r USING INDEX run_in_lane (lane=? AND lane_seq>?)";
    check(NEXT, &[walk, "SEARCH h USING PRIMARY KEY (run=?)"]);
}

#[test]
fn an_append_finds_its_head_by_its_key() {
    check(DRIVE, &["SEARCH run_head USING PRIMARY KEY (run=?)"]);
}

#[test]
fn the_trees_that_go_on_are_gathered_once_for_all_old_runs() {
    let by_id = |table: &str| format!("SEARCH {table} USING INDEX sqlite_autoindex_run_1 (id=?)");
    let steps = [
        "SEARCH h USING INDEX run_head_finished (finished_at<?)",
        &by_id("r"),
        "LIST SUBQUERY 1",
        "SCAN th USING INDEX run_head_open",
        &by_id("t"),
        "CREATE BLOOM FILTER",
    ];
    check(AGED, &steps);
}

#[test]
fn the_order_of_writing_is_that_of_the_rows() {
    let rows = |table: &str| format!("SEARCH {table} USING INTEGER PRIMARY KEY (rowid>?)");
    let blob = "SEARCH b USING INDEX blob_hash (hash=?) LEFT-JOIN";
    check(TAIL, &[&rows("j"), blob]);
    check(GROWN, &[&rows("journal")]);
    // The last row is looked up, not counted up to.
    check(END, &["SEARCH journal"]);
    let newest = "SEARCH journal USING INTEGER PRIMARY KEY (rowid=?)";
    check(NEWEST, &[newest, "SCALAR SUBQUERY 1", "SEARCH journal"]);
}

#[test]
fn doors_find_what_they_are_shown_by_its_hash() {
    check(KEY, &["SEARCH api_key USING INDEX api_key_hash (hash=?)"]);
    let pass = "SEARCH pass USING INDEX pass_hash (hash=? AND kind=?)";
    let key = "SEARCH k USING INDEX api_key_hash (hash=?)";
    for sql in [PASS, SPEND] {
        check(sql, &[pass, "CORRELATED SCALAR SUBQUERY 1", key]);
    }
    let by_row = "SEARCH pass USING INTEGER PRIMARY KEY (rowid=?)";
    let over = "SEARCH pass USING COVERING INDEX pass_until (until<?)";
    check(SWEEP, &[by_row, "LIST SUBQUERY 1", over]);
    let request = "SEARCH reply USING INDEX reply_key (principal=? AND key=?)";
    check(BEFORE, &[request]);
}

#[test]
fn notes_are_found_by_their_words_and_listed_by_their_order() {
    let words = "SCAN note_word VIRTUAL TABLE INDEX 0:M3";
    let row = "SEARCH n USING INTEGER PRIMARY KEY (rowid=?)";
    check(FOUND, &[words, row, "USE TEMP B-TREE FOR ORDER BY"]);
    let order = "SEARCH note USING INDEX note_order (resource=? AND number<?)";
    check(NOTES, &[order]);
}

#[test]
fn lanes_are_listed_in_the_order_of_their_names() {
    check(LANES, &["SEARCH lane USING PRIMARY KEY (lane>?)"]);
}
