//! Long bodies, and pruning of old runs, unreferenced blobs and keys.

use longhaul_core::change::{Blob, OutboxRow, RowChange, SandboxFilter, SandboxState};
use longhaul_core::event::Event;
use longhaul_core::event::environment::ProgressReported;
use longhaul_core::id::Seq;
use longhaul_core::port::store::{
    AppendRequest, AppendResult, CreateRunsOutcome, CreateRunsRequest, IdempotencyRecord,
    JournalAuthor, JournalReadRequest, PruneOutcome, PruneRequest, WorkerLiveness,
};
use longhaul_core::raw::Hash;
use longhaul_core::time::Millis;

use crate::conformance::store::batches::{
    BatchExt as _, cancel_batch, change_batch, end_batch, events_batch, sandbox_row,
};
use crate::conformance::store::fixture::{StoreFixture, TTL, assert_appended, lane_key};

const DAY: Millis = Millis::from_secs(24 * 60 * 60);

/// A body above 8 KiB is stored once by its hash for all journals, and is returned in its
/// entry.
pub async fn long_bodies_are_shared_and_round_trip(fixture: StoreFixture) {
    let short = progress_event(8_192);
    let long = progress_event(8_193);
    let hash = |event: &Event| Hash::digest(event.encode().expect("encoded").as_bytes());
    let mut last = Vec::new();
    for _ in 0..2 {
        let mut claimed_run = fixture.open_and_claim(|_| {}).await;
        claimed_run.append_ok(events_batch([short.clone(), long.clone()])).await;
        assert_eq!(fixture.journal(claimed_run.run).await[2..], [short.clone(), long.clone()]);
        last.push(claimed_run);
    }
    let records = &fixture.harness.records;
    assert!(records.blob(hash(&long)).await.expect("blob").is_some());
    assert_eq!(records.blob(hash(&short)).await.expect("blob"), None);
    // A retry is recognised also if its body is stored as a blob.
    let author = JournalAuthor::Driver {
        worker: last[0].worker,
        epoch: last[0].epoch,
        after: Seq(last[0].last.0 - 2),
    };
    let append = AppendRequest { run: last[0].run, author, batch: events_batch([short, long]) };
    let appended = fixture.harness.store.append_to_journal(append).await.expect("append");
    assert!(matches!(appended, AppendResult::Committed { seq, .. } if seq == last[0].last));
}

/// Ended runs are pruned with all their data after the retention. Open runs never are.
pub async fn ended_runs_are_pruned_after_retention(fixture: StoreFixture) {
    let open = fixture.open_and_claim(|_| {}).await;
    let deleted = fixture.open(|_| {}).await;
    assert_appended(&fixture.append_as_closer(deleted, Seq(1), cancel_batch()).await);
    write_newer_run(&fixture).await;
    fixture.advance(DAY);
    assert_eq!(prune(&fixture, DAY, DAY).await.runs, 0, "not older than one day");
    fixture.advance(Millis(1));
    assert_eq!(prune(&fixture, DAY, DAY).await.runs, 1);
    assert_eq!(fixture.harness.store.get_run(deleted).await.expect("row"), None);
    assert_eq!(fixture.journal(deleted).await, []);
    let request = JournalReadRequest { run: deleted, after: Seq::START, limit: 9 };
    assert_eq!(fixture.harness.store.read_journal(request).await.expect("read").last_seq, Seq(0));
    assert_eq!(fixture.harness.records.budget_account(deleted).await.expect("account"), None);
    assert_eq!(fixture.append_outside(deleted, events_batch([])).await, AppendResult::RunNotFound);
    assert_eq!(fixture.journal(open.run).await.len(), 2);
}

/// A run is kept while one of its sandboxes exists.
pub async fn a_run_is_kept_while_its_sandbox_exists(fixture: StoreFixture) {
    let mut owner = fixture.open_and_claim(|_| {}).await;
    let sandbox = fixture.ids.sandbox();
    let row = |state| sandbox_row(sandbox, state, owner.run);
    let (stopped, deleted) = (row(SandboxState::Stopped), row(SandboxState::Deleted));
    owner.append_ok(end_batch().with_change(RowChange::SetSandbox(stopped))).await;
    write_newer_run(&fixture).await;
    fixture.advance(DAY);
    assert_eq!(prune(&fixture, Millis::ZERO, DAY).await.runs, 0, "its sandbox exists");
    let records = &fixture.harness.records;
    let updated = records.update_sandbox_of_ended_run(deleted, SandboxState::Stopped).await;
    assert!(updated.expect("update"));
    assert_eq!(prune(&fixture, Millis::ZERO, DAY).await.runs, 1);
    let all = SandboxFilter { with_gone: true, limit: 9, ..SandboxFilter::default() };
    assert_eq!(records.list_sandboxes(all).await.expect("sandboxes"), []);
}

/// A run is kept while any run of its tree is open.
pub async fn a_tree_is_pruned_when_all_its_runs_have_ended(fixture: StoreFixture) {
    let mut root = fixture.open_and_claim(|_| {}).await;
    let child = fixture.new_run(|task| {
        task.root = root.run;
        task.parent = Some(root.run);
    });
    let child_id = child.id;
    root.append_ok(end_batch().with_change(RowChange::CreateRun(Box::new(child)))).await;
    fixture.advance(Millis(DAY.0 * 2));
    assert_eq!(prune(&fixture, DAY, DAY).await.runs, 0);
    assert_appended(&fixture.append_as_closer(child_id, Seq(1), cancel_batch()).await);
    write_newer_run(&fixture).await;
    fixture.advance(Millis(DAY.0 + 1));
    assert_eq!(prune(&fixture, DAY, DAY).await.runs, 2);
}

/// Each call prunes up to the limit, until nothing is left.
pub async fn pruning_is_batched(fixture: StoreFixture) {
    for _ in 0..5 {
        let run = fixture.open(|_| {}).await;
        assert_appended(&fixture.append_as_closer(run, Seq(1), cancel_batch()).await);
    }
    write_newer_run(&fixture).await;
    fixture.advance(Millis(1));
    let mut pruned_counts = Vec::new();
    for _ in 0..4 {
        let request =
            PruneRequest { runs_older_than: Millis::ZERO, blobs_older_than: DAY, limit: 2 };
        pruned_counts
            .push(fixture.harness.store.prune_old_data(request).await.expect("prune").runs);
    }
    assert_eq!(pruned_counts, [2, 2, 1, 0]);
}

/// A blob is kept while a run references it, and for a grace period after its last use.
pub async fn unreferenced_blobs_are_pruned(fixture: StoreFixture) {
    let [run, other] = [fixture.open(|_| {}).await, fixture.open(|_| {}).await];
    let [own, shared] = [b"own".to_vec(), b"shared".to_vec()].map(Blob::new);
    let put_batch = |blob: &Blob| change_batch(RowChange::PutBlob(blob.clone()));
    assert_appended(
        &fixture
            .append_outside(run, put_batch(&own).with_change(RowChange::PutBlob(shared.clone())))
            .await,
    );
    assert_appended(&fixture.append_outside(other, put_batch(&shared)).await);
    fixture.advance(Millis(DAY.0 * 2));
    let nothing = PruneOutcome::default();
    assert_eq!(prune(&fixture, DAY, DAY).await, nothing, "they are referenced");
    assert_appended(&fixture.append_as_closer(run, Seq(1), cancel_batch()).await);
    write_newer_run(&fixture).await;
    fixture.advance(Millis(1));
    // The blob is stored again now: the grace period starts again.
    assert_appended(&fixture.append_outside(run, put_batch(&own)).await);
    let first = prune(&fixture, Millis::ZERO, DAY).await;
    assert_eq!((first.runs, first.blobs), (1, 0), "used recently");
    fixture.advance(Millis(DAY.0 + 1));
    assert_eq!(prune(&fixture, Millis::ZERO, DAY).await.blobs, 1);
    let records = &fixture.harness.records;
    assert_eq!(records.blob(own.hash()).await.expect("blob"), None);
    assert!(records.blob(shared.hash()).await.expect("blob").is_some());
}

/// A long body is pruned with the last journal that uses it. A blob of a request is kept with
/// its runs.
pub async fn long_bodies_are_pruned_with_their_journals(fixture: StoreFixture) {
    let long = progress_event(9_000);
    let hash = Hash::digest(long.encode().expect("encoded").as_bytes());
    let mut claimed_run = fixture.open_and_claim(|_| {}).await;
    claimed_run.append_ok(events_batch([long])).await;
    let blob = Blob::new(b"a definition".to_vec());
    let new = fixture.new_run(|_| {});
    let request =
        CreateRunsRequest { runs: vec![new], blobs: vec![blob.clone()], idempotency: None };
    fixture.harness.store.create_runs(request).await.expect("open");
    fixture.advance(Millis(DAY.0 * 2));
    assert_eq!(prune(&fixture, DAY, DAY).await, PruneOutcome::default());
    let records = &fixture.harness.records;
    assert!(records.blob(blob.hash()).await.expect("blob").is_some());
    claimed_run.end().await;
    write_newer_run(&fixture).await;
    fixture.advance(Millis(1));
    let pruned = prune(&fixture, Millis::ZERO, DAY).await;
    assert_eq!((pruned.runs, pruned.blobs), (1, 1));
    assert_eq!(records.blob(hash).await.expect("blob"), None);
}

/// Expired keys and empty lanes are pruned, others are not.
pub async fn expired_keys_and_empty_lanes_are_pruned(fixture: StoreFixture) {
    let request = |fixture: &StoreFixture, key: &str, ttl| CreateRunsRequest {
        runs: vec![fixture.new_run(|task| task.lane = Some(lane_key(key)))],
        blobs: Vec::new(),
        idempotency: Some(IdempotencyRecord {
            principal: "ops".to_owned(),
            key: key.to_owned(),
            body_hash: Hash::digest(b"body"),
            ttl: Some(ttl),
        }),
    };
    let open = async |key, ttl| {
        let outcome =
            fixture.harness.store.create_runs(request(&fixture, key, ttl)).await.expect("open");
        match outcome {
            CreateRunsOutcome::Created(runs) | CreateRunsOutcome::Existing(runs) => runs[0],
            CreateRunsOutcome::KeyReused
            | CreateRunsOutcome::LaneFull(_)
            | CreateRunsOutcome::LaneBusy(_)
            | CreateRunsOutcome::OverCap(_) => panic!("{outcome:?}"),
        }
    };
    let short = open("short", Millis(10)).await;
    let long = open("long", DAY).await;
    assert_appended(&fixture.append_as_closer(short, Seq(1), cancel_batch()).await);
    fixture.advance(Millis(10));
    assert_eq!(prune(&fixture, DAY, DAY).await.idempotency_keys, 1);
    assert_eq!(prune(&fixture, DAY, DAY).await.idempotency_keys, 0);
    assert_eq!(open("long", DAY).await, long);
    let lane = async |key| fixture.harness.records.find_lane(&lane_key(key)).await.expect("lane");
    assert_eq!(lane("short").await, None);
    assert_eq!(lane("long").await.and_then(|lane| lane.holder), Some(long));
}

/// A run is kept until every message about it is delivered, and with it its permanent key.
pub async fn a_run_with_undelivered_messages_is_kept(fixture: StoreFixture) {
    let new = fixture.new_run(|_| {});
    let run = new.id;
    let request = CreateRunsRequest {
        runs: vec![new],
        blobs: Vec::new(),
        idempotency: Some(IdempotencyRecord {
            principal: "inbox:mail".to_owned(),
            key: "letter-1".to_owned(),
            body_hash: Hash::digest(b"body"),
            ttl: None,
        }),
    };
    fixture.harness.store.create_runs(request.clone()).await.expect("created");
    let message = OutboxRow { endpoint: "inbox:mail".to_owned(), body: "letter-1".to_owned() };
    let end = cancel_batch().with_change(RowChange::AddOutbox(message));
    assert_appended(&fixture.append_as_closer(run, Seq(1), end).await);
    write_newer_run(&fixture).await;
    fixture.advance(Millis(DAY.0 * 2));
    assert_eq!(prune(&fixture, DAY, DAY).await.runs, 0);
    let records = &fixture.harness.records;
    let due = records.due_outbox_messages("inbox:mail", 9).await.expect("due");
    assert_eq!(due.iter().map(|item| item.run).collect::<Vec<_>>(), [run]);
    let outcome = fixture.harness.store.create_runs(request).await.expect("repeated");
    assert_eq!(outcome, CreateRunsOutcome::Existing(vec![run]));
    records.record_outbox_attempt(due[0].id, None).await.expect("delivered");
    assert_eq!(prune(&fixture, DAY, DAY).await.runs, 1);
}

/// A dead worker is deleted a day after its last heartbeat. Until then it learns that it is dead.
pub async fn dead_workers_are_pruned(fixture: StoreFixture) {
    let [dead, live] = [fixture.worker().await, fixture.worker().await];
    for _ in 0..4 {
        fixture.advance(Millis(TTL.0 / 3));
        fixture.heartbeat(live).await;
    }
    let workers = fixture.harness.records.list_workers().await.expect("workers");
    assert_eq!(workers.iter().map(|row| row.worker).collect::<Vec<_>>(), [live]);
    prune(&fixture, DAY, DAY).await;
    assert_eq!(fixture.heartbeat(dead).await.liveness, WorkerLiveness::Dead);
    fixture.advance(DAY);
    prune(&fixture, DAY, DAY).await;
    // A worker that the store does not know is registered as a new one.
    assert_eq!(fixture.heartbeat(dead).await.liveness, WorkerLiveness::Live);
}

/// Opens another run, so that the earlier ones do not have the newest event.
async fn write_newer_run(fixture: &StoreFixture) {
    fixture.open(|_| {}).await;
}

/// Returns an event whose body has exactly this number of bytes.
fn progress_event(bytes: usize) -> Event {
    let report = |message| Event::ProgressReported(ProgressReported { percent: 1, message });
    let overhead = report(String::new()).encode().expect("encoded").len();
    report("x".repeat(bytes - overhead))
}

async fn prune(
    fixture: &StoreFixture,
    runs_older_than: Millis,
    blobs_older_than: Millis,
) -> PruneOutcome {
    let request = PruneRequest { runs_older_than, blobs_older_than, limit: 100 };
    fixture.harness.store.prune_old_data(request).await.expect("prune")
}
