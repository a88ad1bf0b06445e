//! Other records: threads, definitions, sandboxes, late results, outbox, blocked
//! providers and checkpoints. Budgets and sandbox slots are in their own modules.

use longhaul_core::change::{
    Blob, LateToolResult, NewThreadMessages, OutboxRow, RowChange, SandboxFilter, SandboxRow,
    SandboxState,
};
use longhaul_core::checkpoint::RunCheckpoint;
use longhaul_core::id::{CallId, Seq, ThreadKey};
use longhaul_core::message::Message;
use longhaul_core::port::records::DueOutboxMessage;
use longhaul_core::time::{Clock, Millis};

use crate::conformance::store::batches::{
    BatchExt as _, cancel_requested, change_batch, events_batch, progress, sandbox_row,
};
use crate::conformance::store::fixture::{StoreFixture, assert_appended};

/// A thread returns its newest messages, oldest first, and can be cleared.
pub async fn thread_messages_keep_their_order(fixture: StoreFixture) {
    let [one, two] = [open_run(&fixture).await, open_run(&fixture).await];
    let messages_batch = |thread: &str, texts: &[&str]| {
        let messages = texts.iter().map(|text| Message::user(*text)).collect();
        let thread = thread_key(thread);
        change_batch(RowChange::AppendThread(NewThreadMessages { thread, messages }))
    };
    assert_appended(&fixture.append_outside(one, messages_batch("t", &["a", "b"])).await);
    assert_appended(&fixture.append_outside(two, messages_batch("t", &["c"])).await);
    assert_appended(&fixture.append_outside(two, messages_batch("other", &["x"])).await);
    assert_appended(&fixture.append_outside(one, messages_batch("t", &["d"])).await);
    let read_thread = async |thread: &str, limit| {
        let messages = fixture.harness.records.thread_messages(&thread_key(thread), limit).await;
        messages.expect("thread")
    };
    let texts = |texts: &[&str]| -> Vec<Message> {
        texts.iter().map(|text| Message::user(*text)).collect()
    };
    assert_eq!(read_thread("t", 9).await, texts(&["a", "b", "c", "d"]));
    assert_eq!(read_thread("t", 2).await, texts(&["c", "d"]));
    fixture.harness.records.clear_thread(&thread_key("t")).await.expect("clear");
    assert_eq!(read_thread("t", 9).await, []);
    assert_eq!(read_thread("other", 9).await, texts(&["x"]));
    assert_appended(&fixture.append_outside(one, messages_batch("t", &["e"])).await);
    assert_eq!(read_thread("t", 9).await, texts(&["e"]));
}

/// Definitions and blobs are stored by hash, separately from each other.
pub async fn blobs_are_found_by_hash(fixture: StoreFixture) {
    let run = open_run(&fixture).await;
    let definition = Blob::new(b"an agent".to_vec());
    let blob = Blob::new(vec![0_u8, 255, 10]);
    let empty = Blob::new(Vec::new());
    let batch = change_batch(RowChange::PutDefinition(definition.clone()))
        .with_change(RowChange::PutBlob(blob.clone()))
        .with_change(RowChange::PutBlob(empty.clone()));
    for _ in 0..2 {
        assert_appended(&fixture.append_outside(run, batch.clone()).await);
    }
    let records = &fixture.harness.records;
    let stored = records.agent_definition(definition.hash()).await.expect("definition");
    assert_eq!(stored.as_deref(), Some(&*definition.content));
    for content in [&blob, &empty] {
        let stored = records.blob(content.hash()).await.expect("blob");
        assert_eq!(stored.as_deref(), Some(&*content.content));
    }
    assert_eq!(records.agent_definition(blob.hash()).await.expect("definition"), None);
    let unknown = Blob::new(b"nothing".to_vec());
    assert_eq!(records.blob(unknown.hash()).await.expect("blob"), None);
}

/// Sandbox rows are created and updated.
pub async fn sandboxes_are_stored(fixture: StoreFixture) {
    let run = open_run(&fixture).await;
    let sandbox = fixture.ids.sandbox();
    let row = |state, host: Option<&str>| {
        let mut row = sandbox_row(sandbox, state, run);
        row.event.host = host.map(str::to_owned);
        row
    };
    let list = async |owner| {
        let filter =
            SandboxFilter { owner: Some(owner), with_gone: true, limit: 9, ..Default::default() };
        fixture.harness.records.list_sandboxes(filter).await.expect("sandboxes")
    };
    for (state, host) in [
        (SandboxState::Creating, None),
        (SandboxState::Running, Some("here")),
        (SandboxState::Lost, None),
    ] {
        assert_appended(
            &fixture
                .append_outside(run, change_batch(RowChange::SetSandbox(row(state, host))))
                .await,
        );
        assert_eq!(list(run).await, [row(state, host)]);
    }
    let other = open_run(&fixture).await;
    assert_eq!(list(other).await, []);
}

/// Sandboxes are listed by id: all of them, those that exist, or those of a run.
pub async fn sandboxes_are_listed(fixture: StoreFixture) {
    let [one, two] = [open_run(&fixture).await, open_run(&fixture).await];
    let rows = [
        sandbox_row(fixture.ids.sandbox(), SandboxState::Running, one),
        sandbox_row(fixture.ids.sandbox(), SandboxState::Deleted, one),
        sandbox_row(fixture.ids.sandbox(), SandboxState::Stopped, two),
        sandbox_row(fixture.ids.sandbox(), SandboxState::Lost, two),
    ];
    for row in rows.iter().rev() {
        let change = RowChange::SetSandbox(row.clone());
        assert_appended(&fixture.append_outside(row.owner, change_batch(change)).await);
    }
    let [running, deleted, stopped, lost] = rows;
    let list = async |owner, with_gone, after: Option<&SandboxRow>| {
        let after = after.map(|row| row.event.sandbox);
        let filter = SandboxFilter { owner, with_gone, after, limit: 2 };
        fixture.harness.records.list_sandboxes(filter).await.expect("sandboxes")
    };
    assert_eq!(list(None, true, None).await, [running.clone(), deleted.clone()]);
    assert_eq!(list(None, true, Some(&deleted)).await, [stopped.clone(), lost.clone()]);
    assert_eq!(list(None, false, None).await, [running.clone(), stopped.clone()]);
    assert_eq!(list(Some(two), true, None).await, [stopped.clone(), lost]);
    assert_eq!(list(Some(two), true, Some(&stopped)).await.len(), 1);
    assert_eq!(list(None, false, Some(&running)).await, [stopped]);
    assert_eq!(list(Some(one), false, None).await, [running]);
}

/// A worker lists its claimed runs with their last sequence numbers, and no others.
pub async fn a_worker_lists_its_claimed_runs(fixture: StoreFixture) {
    let mut first = fixture.open_and_claim(|_| {}).await;
    let second = fixture.open_and_claim(|_| {}).await;
    let others = fixture.open_and_claim(|_| {}).await;
    let claimed_runs = |worker| fixture.harness.records.claimed_runs_with_last_seq(worker);
    let runs = claimed_runs(first.worker).await.expect("heads");
    assert_eq!(runs, [(first.run, first.last)]);
    let appended = fixture.append_outside(second.run, events_batch([cancel_requested()])).await;
    assert_appended(&appended);
    let seq = second.last.next();
    let runs = claimed_runs(second.worker).await.expect("heads");
    assert_eq!(runs, [(second.run, seq)]);
    first.end().await;
    assert_eq!(claimed_runs(first.worker).await.expect("heads"), []);
    assert_eq!(claimed_runs(others.worker).await.expect("heads").len(), 1);
}

/// Results that arrive after the end of a run are stored as late results.
pub async fn late_results_are_stored(fixture: StoreFixture) {
    let mut claimed_run = fixture.open_and_claim(|_| {}).await;
    claimed_run.end().await;
    let late_result =
        |index| LateToolResult { call: CallId { turn: 2, index }, text: "after all".to_owned() };
    for index in [2, 1] {
        let saved = fixture
            .harness
            .records
            .save_late_tool_result(claimed_run.run, late_result(index))
            .await;
        saved.expect("keep late");
    }
    let found = fixture.harness.records.late_tool_results(claimed_run.run).await.expect("late");
    assert_eq!(found, [late_result(2), late_result(1)]);
    assert_eq!(fixture.row(claimed_run.run).await.last_seq, claimed_run.last);
}

/// An outbox message is due immediately, again after a failed attempt, and is deleted after
/// delivery.
pub async fn outbox_items_are_delivered_once(fixture: StoreFixture) {
    let mut claimed_run = fixture.open_and_claim(|_| {}).await;
    let outbox_row = |body: &str| OutboxRow {
        endpoint: "https://example.org/hook".to_owned(),
        body: body.to_owned(),
    };
    let batch = events_batch([progress(1)])
        .with_change(RowChange::AddOutbox(outbox_row("one")))
        .with_change(RowChange::AddOutbox(outbox_row("two")));
    claimed_run.append_ok(batch).await;
    let due = async |limit| {
        let endpoint = "https://example.org/hook";
        fixture.harness.records.due_outbox_messages(endpoint, limit).await.expect("outbox")
    };
    let other = fixture.harness.records.due_outbox_messages("inbox:mail", 9).await;
    assert_eq!(other.expect("outbox"), []);
    let bodies = |rows: &[DueOutboxMessage]| -> Vec<(String, u32)> {
        let rows = rows.iter();
        rows.map(|row| (row.row.body.clone(), row.attempts)).collect()
    };
    let rows = due(9).await;
    assert_eq!(bodies(&rows), [("one".to_owned(), 0), ("two".to_owned(), 0)]);
    assert_eq!((rows[0].run, &rows[0].row), (claimed_run.run, &outbox_row("one")));
    assert_eq!(due(1).await.len(), 1);
    let settle = async |id, retry_after| {
        let recorded = fixture.harness.records.record_outbox_attempt(id, retry_after).await;
        recorded.expect("settle");
    };
    settle(rows[0].id, Some(Millis(50))).await;
    settle(rows[1].id, None).await;
    assert_eq!(due(9).await, []);
    fixture.advance(Millis(49));
    assert_eq!(due(9).await, []);
    fixture.advance(Millis(1));
    assert_eq!(bodies(&due(9).await), [("one".to_owned(), 1)]);
    // A due time that is too late stands for a clock that was set back.
    settle(rows[0].id, Some(Millis::from_secs(3_600))).await;
    let move_delays = || fixture.harness.records.move_delays_set_by_later_clock();
    assert_eq!(move_delays().await.expect("move"), 1);
    assert_eq!(move_delays().await.expect("move"), 0);
    assert_eq!(bodies(&due(9).await), [("one".to_owned(), 2)]);
    settle(rows[0].id, None).await;
    settle(rows[0].id, None).await;
    assert_eq!(due(9).await, []);
}

/// A provider's account is blocked until a time, which is never shortened.
pub async fn providers_are_blocked_until_a_time(fixture: StoreFixture) {
    let records = &fixture.harness.records;
    assert_eq!(records.provider_blocked_until("acme").await.expect("bucket"), None);
    let start = fixture.harness.clock.now();
    for millis in [50, 30] {
        records.block_provider("acme", Millis(millis)).await.expect("block");
    }
    let until = start.plus(Millis(50));
    assert_eq!(records.provider_blocked_until("acme").await.expect("bucket"), Some(until));
    assert_eq!(records.provider_blocked_until("other").await.expect("bucket"), None);
    fixture.advance(Millis(50));
    let blocked_until = records.provider_blocked_until("acme").await.expect("bucket");
    assert!(
        blocked_until.is_none_or(|until| until <= fixture.harness.clock.now()),
        "{blocked_until:?}"
    );
    records.block_provider("acme", Millis(50)).await.expect("block");
    for account in ["acme", "other"] {
        records.unblock_provider(account).await.expect("unblock");
        assert_eq!(records.provider_blocked_until(account).await.expect("bucket"), None);
    }
}

/// A checkpoint is a cache of one build; a checkpoint of another build is deleted.
pub async fn checkpoints_belong_to_a_build(fixture: StoreFixture) {
    let run = open_run(&fixture).await;
    let new_checkpoint = |seq, fold: &str| RunCheckpoint {
        seq: Seq(seq),
        fold_hash: fold.to_owned(),
        state: vec![1, 2, 0, 255],
    };
    let records = &fixture.harness.records;
    let newest = async |fold| records.newest_checkpoint(run, fold).await.expect("checkpoint");
    assert_eq!(newest("f1").await, None);
    let save = async |checkpoint| {
        let batch = change_batch(RowChange::SaveCheckpoint(checkpoint));
        assert_appended(&fixture.append_outside(run, batch).await);
    };
    for seq in [10, 20] {
        save(new_checkpoint(seq, "f1")).await;
    }
    assert_eq!(newest("f1").await, Some(new_checkpoint(20, "f1")));
    save(new_checkpoint(30, "f2")).await;
    assert_eq!(newest("f2").await, Some(new_checkpoint(30, "f2")));
    assert_eq!(newest("f1").await, None, "only one checkpoint is stored per run");
}

/// The time of the store is the time of its clock, and each response contains it.
pub async fn the_store_has_its_own_time(fixture: StoreFixture) {
    let mut claimed_run = fixture.open_and_claim(|_| {}).await;
    for _ in 0..2 {
        fixture.advance(Millis(1_234));
        let now = fixture.harness.clock.now();
        assert_eq!(fixture.harness.records.now().await.expect("now"), now);
        assert_eq!(fixture.heartbeat(claimed_run.worker).await.now, now);
        let appended = claimed_run.append(events_batch([progress(1)])).await;
        let at = longhaul_core::port::store::AppendResult::Committed { seq: claimed_run.last, now };
        assert_eq!(appended, at);
    }
}

async fn open_run(fixture: &StoreFixture) -> longhaul_core::id::RunId {
    fixture.open(|_| {}).await
}

fn thread_key(name: &str) -> ThreadKey {
    ThreadKey::new(name).expect("a valid name")
}
