//! Tests the query plans of frequently executed statements.

use longhaul_core::id::{AgentName, InboxName, RunId, ThreadKey};
use longhaul_core::port::store::RunFilter;
use longhaul_core::status::Status;
use longhaul_core::time::Timestamp;
use rusqlite::Connection;

use crate::sqlite::api_key::SELECT_KEY;
use crate::sqlite::append::UPDATE_HEAD_AS_DRIVER;
use crate::sqlite::budget::SELECT_QUEUE;
use crate::sqlite::claim::{
    SELECT_READY, SELECT_READY_IN_TREE, SELECT_READY_OF_TYPE, SELECT_READY_RUN,
};
use crate::sqlite::effect_key::FREE_KEY_IN_DOUBT;
use crate::sqlite::global_log::{
    SELECT_ALL_AFTER, SELECT_CHANGED_AFTER, SELECT_LAST_GLOBAL_SEQ, SELECT_LAST_WRITTEN_RUN,
};
use crate::sqlite::heartbeat::SELECT_WORKERS;
use crate::sqlite::idempotency::SELECT_KNOWN;
use crate::sqlite::inbox::{InboxesToCount, count_failed_runs_sql, count_open_runs_sql};
use crate::sqlite::lane::{SELECT_LANES, SELECT_NEXT_IN_LANE, SELECT_PREVIOUS_IN_LANE};
use crate::sqlite::note::{SEARCH_NOTES, SELECT_NOTES};
use crate::sqlite::prune::SELECT_EXPIRED_RUNS;
use crate::sqlite::records::SELECT_DUE_OUTBOX;
use crate::sqlite::rule::{
    COUNT_SHARED_RULES, SELECT_ACTIVE_RULE, SELECT_RULES, SELECT_SHARED_RULES,
};
use crate::sqlite::run_list::{
    SELECT_RUNS_WAITING_FOR_PERSON, select_failed_runs_to_retry_sql, select_run_rows_statement,
};
use crate::sqlite::run_row::SELECT_BATCH_RUNS;
use crate::sqlite::schedule::select_due_schedules_sql;
use crate::sqlite::slot::SELECT_SLOT_QUEUE;
use crate::sqlite::timer::SELECT_DUE_TIMERS;
use crate::sqlite::token::{CONSUME_TOKEN, DELETE_EXPIRED_TOKENS, SELECT_TOKEN};
use crate::sqlite::{connect, schema};

fn open_empty_store() -> Connection {
    let conn = connect::open_in_memory_connection().unwrap();
    schema::migrate_schema(&conn, "memory", Timestamp::default(), schema::MIGRATIONS).unwrap();
    conn
}

fn check_query_plan(sql: &str, expected: &[&str]) {
    let conn = open_empty_store();
    let mut plan = conn.prepare(&format!("EXPLAIN QUERY PLAN {sql}")).unwrap();
    let nulls = vec![rusqlite::types::Null; plan.parameter_count()];
    let steps = plan.query_map(rusqlite::params_from_iter(nulls), |row| row.get(3)).unwrap();
    let steps: Vec<String> = steps.collect::<Result<_, _>>().unwrap();
    assert_eq!(steps, expected, "{sql}");
}

#[test]
fn the_queue_of_a_budget_is_read_in_its_order() {
    let queue = "SEARCH w USING INDEX budget_wait_account (account=?)";
    let head = "SEARCH h USING PRIMARY KEY (run=?)";
    let run = "SEARCH r USING INDEX sqlite_autoindex_run_1 (id=?)";
    check_query_plan(SELECT_QUEUE, &[queue, head, run]);
}

#[test]
fn the_queue_for_slots_is_read_from_its_index() {
    let order = "COVERING INDEX sandbox_slot_wait_order (provider=? AND woken";
    let steps = [
        "MATERIALIZE occupied",
        "CO-ROUTINE (subquery-2)",
        "COMPOUND QUERY",
        "LEFT-MOST SUBQUERY",
        "SEARCH s USING COVERING INDEX sandbox_slot_provider (provider=?)",
        "SEARCH b USING INDEX sqlite_autoindex_sandbox_1 (sandbox=?)",
        "SEARCH r USING INDEX sqlite_autoindex_run_1 (id=?)",
        "UNION ALL",
        &format!("SEARCH sandbox_slot_wait USING {order}=?)"),
        "SCAN (subquery-2)",
        "USE TEMP B-TREE FOR GROUP BY",
        &format!("SEARCH w USING {order}<?)"),
        "BLOOM FILTER ON o (agent=?)",
        "SEARCH o USING AUTOMATIC COVERING INDEX (agent=?) LEFT-JOIN",
        "USE TEMP B-TREE FOR LAST 4 TERMS OF ORDER BY",
    ];
    check_query_plan(SELECT_SLOT_QUEUE, &steps);
}

#[test]
fn a_claim_uses_the_queue_index() {
    let walk = "SEARCH q USING PRIMARY KEY (inbox=? AND (rank,sort_key,run)>(?,?,?))";
    let head = "SEARCH h USING PRIMARY KEY (run=?)";
    check_query_plan(SELECT_READY, &[walk, head]);
    let of_type =
        "SEARCH q USING INDEX ready_kind (inbox=? AND kind=? AND (rank,sort_key,run)>(?,?,?))";
    check_query_plan(SELECT_READY_OF_TYPE, &[of_type, head]);
    let ready_run = "SEARCH q USING INDEX ready_run (run=?)";
    check_query_plan(SELECT_READY_RUN, &[ready_run, head]);
    let tree = "SEARCH t USING COVERING INDEX run_tree (root=?)";
    check_query_plan(SELECT_READY_IN_TREE, &[tree, ready_run, head]);
}

#[test]
fn due_timers_use_their_index() {
    let walk = "SEARCH t USING PRIMARY KEY (fire_at<?)";
    let head = "SEARCH h USING PRIMARY KEY (run=?) LEFT-JOIN";
    check_query_plan(SELECT_DUE_TIMERS, &[walk, head]);
}

#[test]
fn lane_promotion_uses_an_index() {
    let walk = "SEARCH r USING INDEX run_lane_position (lane=? AND lane_position>?)";
    let head = "SEARCH h USING PRIMARY KEY (run=?)";
    check_query_plan(SELECT_NEXT_IN_LANE, &[walk, head]);
    let walk = "SEARCH r USING INDEX run_lane_position (lane=? AND lane_position<?)";
    let chain = "SEARCH c USING PRIMARY KEY (first_run=?) LEFT-JOIN";
    check_query_plan(SELECT_PREVIOUS_IN_LANE, &[walk, head, chain]);
}

#[test]
fn an_append_finds_the_run_head_by_primary_key() {
    check_query_plan(UPDATE_HEAD_AS_DRIVER, &["SEARCH run_head USING PRIMARY KEY (run=?)"]);
}

#[test]
fn pruning_lists_active_run_trees_once() {
    let search_by_id =
        |table: &str| format!("SEARCH {table} USING INDEX sqlite_autoindex_run_1 (id=?)");
    let steps = [
        "SEARCH h USING INDEX run_head_finished (finished_at<?)",
        "CORRELATED SCALAR SUBQUERY 1",
        "SEARCH o USING COVERING INDEX outbox_run (run=?)",
        "CORRELATED SCALAR SUBQUERY 2",
        "SEARCH b USING INDEX sandbox_owner (owner=?)",
        &search_by_id("r"),
        "LIST SUBQUERY 3",
        "SCAN th USING INDEX run_head_open",
        &search_by_id("t"),
        "CREATE BLOOM FILTER",
    ];
    check_query_plan(SELECT_EXPIRED_RUNS, &steps);
}

#[test]
fn the_global_log_is_read_in_rowid_order() {
    let search_by_rowid =
        |table: &str| format!("SEARCH {table} USING INTEGER PRIMARY KEY (rowid>?)");
    let blob = "SEARCH b USING INDEX blob_hash (hash=?) LEFT-JOIN";
    check_query_plan(SELECT_ALL_AFTER, &[&search_by_rowid("j"), blob]);
    check_query_plan(SELECT_CHANGED_AFTER, &[&search_by_rowid("journal")]);
    // The last row is found directly, without a scan.
    check_query_plan(SELECT_LAST_GLOBAL_SEQ, &["SEARCH journal"]);
    let newest = "SEARCH journal USING INTEGER PRIMARY KEY (rowid=?)";
    check_query_plan(SELECT_LAST_WRITTEN_RUN, &[newest, "SCALAR SUBQUERY 1", "SEARCH journal"]);
}

#[test]
fn keys_tokens_and_links_are_looked_up_by_hash() {
    check_query_plan(SELECT_KEY, &["SEARCH api_key USING INDEX api_key_by_hash (hash=?)"]);
    let by_hash = "SEARCH token USING INDEX token_hash (hash=? AND kind=?)";
    let key = "SEARCH k USING INDEX api_key_by_hash (hash=?)";
    for sql in [SELECT_TOKEN, CONSUME_TOKEN] {
        check_query_plan(sql, &[by_hash, "CORRELATED SCALAR SUBQUERY 1", key]);
    }
    let by_row = "SEARCH token USING INTEGER PRIMARY KEY (rowid=?)";
    let over = "SEARCH token USING COVERING INDEX token_expires (expires_at<?)";
    check_query_plan(DELETE_EXPIRED_TOKENS, &[by_row, "LIST SUBQUERY 1", over]);
    let request =
        "SEARCH idempotent_request USING INDEX idempotent_request_key (principal=? AND key=?)";
    check_query_plan(SELECT_KNOWN, &[request]);
}

#[test]
fn notes_are_searched_and_listed_by_index() {
    let search = "SCAN note_fts VIRTUAL TABLE INDEX 0:M3";
    let row = "SEARCH n USING INTEGER PRIMARY KEY (rowid=?)";
    check_query_plan(SEARCH_NOTES, &[search, row, "USE TEMP B-TREE FOR ORDER BY"]);
    let order = "SEARCH note USING INDEX note_order (resource=? AND number<?)";
    check_query_plan(SELECT_NOTES, &[order]);
}

#[test]
fn active_rules_are_found_by_scope_and_pattern() {
    let one = "SEARCH rule USING INDEX rule_active (scope=? AND pattern=?)";
    check_query_plan(SELECT_ACTIVE_RULE, &[one]);
    let shared = "SEARCH rule USING COVERING INDEX rule_active (scope<?)";
    check_query_plan(COUNT_SHARED_RULES, &[shared]);
    check_query_plan(SELECT_SHARED_RULES, &["SEARCH rule USING INDEX rule_active (scope<?)"]);
    let walk = "SEARCH r USING INDEX sqlite_autoindex_rule_1 (rule<?)";
    let head = "SEARCH h USING PRIMARY KEY (run=?) LEFT-JOIN";
    check_query_plan(SELECT_RULES, &[walk, head]);
}

#[test]
fn a_key_in_doubt_is_found_by_its_call() {
    let search = "SEARCH effect_key USING INDEX effect_key_in_doubt (run=? AND call=?)";
    check_query_plan(FREE_KEY_IN_DOUBT, &[search]);
}

#[test]
fn runs_of_a_batch_use_an_index() {
    let walk = "SEARCH run USING COVERING INDEX run_batch (batch=?)";
    check_query_plan(SELECT_BATCH_RUNS, &[walk]);
}

#[test]
fn inboxes_are_counted_from_indexes_alone() {
    let [of_later, later] = RETRIED;
    for (inboxes, access) in [(InboxesToCount::All, "SCAN"), (InboxesToCount::One, "SEARCH")] {
        let condition = if inboxes == InboxesToCount::One { " (inbox=?)" } else { "" };
        let open_runs_plan =
            format!("{access} h USING COVERING INDEX run_head_open_inbox{condition}");
        check_query_plan(&count_open_runs_sql(inboxes), &[&open_runs_plan]);
        let failed_runs_plan =
            format!("{access} h USING COVERING INDEX run_head_failed_inbox{condition}");
        check_query_plan(&count_failed_runs_sql(inboxes), &[&failed_runs_plan, of_later, later]);
    }
}

/// Expected steps of the query plan for the condition that no later run retries a run.
const RETRIED: [&str; 2] =
    ["CORRELATED SCALAR SUBQUERY 1", "SEARCH later USING COVERING INDEX run_retry_of (retry_of=?)"];

/// Expected steps of the query plan for the joins that read a run's chain.
const CHAIN: [&str; 2] = [
    "SEARCH c USING PRIMARY KEY (first_run=?) LEFT-JOIN",
    "SEARCH ch USING PRIMARY KEY (run=?) LEFT-JOIN",
];

#[test]
fn runs_of_an_agent_and_dead_letters_are_listed_by_index() {
    let agent = Some(AgentName::new("mailer").unwrap());
    let after = Some(RunId::from_bytes([1; 16]));
    let of_agent = RunFilter { agent, after, ..RunFilter::default() };
    let head = "SEARCH h USING PRIMARY KEY (run=?) LEFT-JOIN";
    let walk = "SEARCH r USING INDEX run_agent (agent=? AND id<?)";
    let [chain, newest] = CHAIN;
    check_query_plan(&list_runs_sql(&of_agent), &[walk, head, chain, newest]);
    let of_parent = RunFilter { parent: after, ..RunFilter::default() };
    let walk = "SEARCH r USING INDEX run_tree (root=?)";
    let parent = "SEARCH p USING INDEX sqlite_autoindex_run_1 (id=?)";
    let plan = [walk, "SCALAR SUBQUERY 1", parent, head, chain, newest];
    check_query_plan(&list_runs_sql(&of_parent), &plan);
    let dead_letters = RunFilter {
        statuses: vec![Status::Failed],
        inbox: Some(InboxName::new("mail").unwrap()),
        not_retried: true,
        ..RunFilter::default()
    };
    let walk = "SEARCH h USING INDEX run_head_failed_inbox (inbox=?)";
    let run = "SEARCH r USING INDEX sqlite_autoindex_run_1 (id=?)";
    let [of_later, later] = RETRIED;
    check_query_plan(&list_runs_sql(&dead_letters), &[walk, of_later, later, run, chain, newest]);
}

#[test]
fn runs_are_searched_and_filtered_by_index() {
    let head = "SEARCH h USING PRIMARY KEY (run=?) LEFT-JOIN";
    let [chain, newest] = CHAIN;
    let walk = "SEARCH r USING INDEX run_thread (thread=?)";
    let search = "SEARCH t EXISTS USING INDEX sqlite_autoindex_run_text_1 (run=?)";
    let of_thread = RunFilter {
        thread: Some(ThreadKey::new("chat").unwrap()),
        search: Some("leak".to_owned()),
        ..RunFilter::default()
    };
    check_query_plan(&list_runs_sql(&of_thread), &[walk, head, chain, newest, search]);
    let open = "SCAN w USING INDEX run_head_open";
    check_query_plan(SELECT_RUNS_WAITING_FOR_PERSON, &[open]);
    let failed = "SCAN h USING COVERING INDEX run_head_failed";
    let run = "SEARCH f USING INDEX sqlite_autoindex_run_1 (id=?)";
    let [of_later, later] = RETRIED;
    check_query_plan(&select_failed_runs_to_retry_sql(), &[failed, of_later, later, run]);
}

fn list_runs_sql(filter: &RunFilter) -> String {
    select_run_rows_statement(filter, Timestamp::default()).0
}

#[test]
fn workers_are_listed_without_reading_dead_ones() {
    let walk = "SCAN w USING INDEX worker_alive";
    let runs = "SEARCH h USING INDEX run_head_leased (worker=?)";
    check_query_plan(SELECT_WORKERS, &[walk, "CORRELATED SCALAR SUBQUERY 1", runs]);
}

#[test]
fn due_outbox_messages_are_found_by_endpoint() {
    let due = "SEARCH outbox USING INDEX outbox_endpoint (endpoint=? AND due_at<?)";
    check_query_plan(SELECT_DUE_OUTBOX, &[due]);
}

#[test]
fn lanes_are_listed_by_name_from_an_index() {
    check_query_plan(SELECT_LANES, &["SEARCH lane USING PRIMARY KEY (lane>?)"]);
}

#[test]
fn due_schedules_use_their_index() {
    let walk = "SEARCH schedule USING INDEX schedule_due (due_at<?)";
    check_query_plan(&select_due_schedules_sql(), &[walk]);
}
