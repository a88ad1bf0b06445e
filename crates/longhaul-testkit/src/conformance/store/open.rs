//! Opening runs and reading journals.

use tokio::task::JoinSet;

use longhaul_core::change::{Blob, NewRun};
use longhaul_core::event::Event;
use longhaul_core::event::gate::GateRaised;
use longhaul_core::id::{Epoch, RunId, Seq};
use longhaul_core::policy::gate::GateSpec;
use longhaul_core::port::store::{
    CreateRunsOutcome, CreateRunsRequest, IdempotencyRecord, JournalReadRequest, PruneRequest,
    RunFilter,
};
use longhaul_core::raw::{Hash, RawJson};
use longhaul_core::status::Status;
use longhaul_core::time::{Clock, Millis};
use longhaul_core::usage::MicroUsd;

use crate::conformance::store::batches::{cancel_batch, events_batch, gate_spec, progress};
use crate::conformance::store::fixture::{StoreFixture, assert_appended, lane_key};

const IDEMPOTENCY_TTL: Millis = Millis::from_secs(24 * 60 * 60);

/// All data of a new run can be read back.
pub async fn an_opened_run_exists(fixture: StoreFixture) {
    let new = fixture.new_run(|task| {
        task.priority = 3;
        task.kind = Some("letter".to_owned());
        task.submitter = Some("key:ops".to_owned());
        task.policy.budget.micro_usd = Some(MicroUsd(500));
    });
    let id = new.id;
    assert_eq!(fixture.open_runs(vec![new.clone()]).await, CreateRunsOutcome::Created(vec![id]));
    let row = fixture.row(id).await;
    assert_eq!((row.id, row.root, row.parent), (id, id, None));
    assert_eq!((row.agent, row.definition), (new.task.agent, new.task.definition));
    assert_eq!((row.status, row.reason.as_deref()), (Status::Pending, Some("worker")));
    assert_eq!((row.priority, row.kind.as_deref()), (3, Some("letter")));
    assert_eq!((row.epoch, row.last_seq, row.worker), (Epoch(0), Seq(1), None));
    assert_eq!((row.turns, row.cost), (0, Some(MicroUsd::ZERO)));
    assert_eq!(row.submitter.as_deref(), Some("key:ops"));
    assert_eq!((row.created_at, row.started_at), (fixture.harness.clock.now(), None));
    assert_eq!(fixture.journal(id).await, new.events);
    let account = fixture.harness.records.budget_account(id).await.expect("account");
    assert_eq!(account.map(|account| account.cap_micro_usd), Some(Some(MicroUsd(500))));
    let missing = fixture.harness.store.get_run(fixture.ids.run()).await.expect("row");
    assert_eq!(missing, None);
}

/// A repeated request returns the first runs and opens nothing.
pub async fn the_same_request_opens_once(fixture: StoreFixture) {
    let first = fixture.new_run(|_| {});
    let second = fixture.new_run(|_| {});
    let id = first.id;
    assert_eq!(
        open_once(&fixture, first, ["ops", "k", "body"]).await,
        CreateRunsOutcome::Created(vec![id])
    );
    assert_eq!(
        open_once(&fixture, second, ["ops", "k", "body"]).await,
        CreateRunsOutcome::Existing(vec![id])
    );
    assert_eq!(all_runs(&fixture).await, [id]);
}

/// A key belongs to one request body.
pub async fn another_body_under_the_same_key_is_reported(fixture: StoreFixture) {
    let first = fixture.new_run(|_| {});
    let other = fixture.new_run(|_| {});
    let id = first.id;
    open_once(&fixture, first, ["ops", "k", "body"]).await;
    assert_eq!(
        open_once(&fixture, other, ["ops", "k", "other"]).await,
        CreateRunsOutcome::KeyReused
    );
    assert_eq!(all_runs(&fixture).await, [id]);
}

/// Idempotency keys are scoped to a principal.
pub async fn another_principal_has_keys_of_its_own(fixture: StoreFixture) {
    for principal in ["ops", "dev"] {
        let new = fixture.new_run(|_| {});
        let id = new.id;
        assert_eq!(
            open_once(&fixture, new, [principal, "k", "body"]).await,
            CreateRunsOutcome::Created(vec![id])
        );
    }
}

/// A key is free again after its retention, and not earlier.
pub async fn an_idempotency_key_expires(fixture: StoreFixture) {
    let first = fixture.new_run(|_| {});
    let id = first.id;
    open_once(&fixture, first, ["ops", "k", "body"]).await;
    fixture.advance(Millis(IDEMPOTENCY_TTL.0 - 1));
    let early = fixture.new_run(|_| {});
    assert_eq!(
        open_once(&fixture, early, ["ops", "k", "body"]).await,
        CreateRunsOutcome::Existing(vec![id])
    );
    fixture.advance(Millis(1));
    let late = fixture.new_run(|_| {});
    let late_id = late.id;
    assert_eq!(
        open_once(&fixture, late, ["ops", "k", "other"]).await,
        CreateRunsOutcome::Created(vec![late_id])
    );
}

/// A key without a time to live is remembered until its run is pruned.
pub async fn a_key_without_a_ttl_lives_as_long_as_its_run(fixture: StoreFixture) {
    let create = async || {
        let key = IdempotencyRecord { ttl: None, ..idempotency_key(["ops", "k", "body"]) };
        let runs = vec![fixture.new_run(|_| {})];
        let request = CreateRunsRequest { runs, blobs: Vec::new(), idempotency: Some(key) };
        fixture.harness.store.create_runs(request).await.expect("open")
    };
    let prune = async || {
        let request = PruneRequest {
            runs_older_than: IDEMPOTENCY_TTL,
            blobs_older_than: IDEMPOTENCY_TTL,
            limit: 10,
        };
        fixture.harness.store.prune_old_data(request).await.expect("prune")
    };
    let CreateRunsOutcome::Created(first) = create().await else { panic!("not created") };
    fixture.advance(Millis(IDEMPOTENCY_TTL.0 * 10));
    prune().await;
    assert_eq!(create().await, CreateRunsOutcome::Existing(first.clone()));
    assert_appended(&fixture.append_as_closer(first[0], Seq(1), cancel_batch()).await);
    // The run with the newest event is never pruned.
    fixture.open(|_| {}).await;
    fixture.advance(Millis(IDEMPOTENCY_TTL.0 + 1));
    assert_eq!(prune().await.runs, 1);
    assert!(matches!(create().await, CreateRunsOutcome::Created(_)));
}

/// A repeated request gets the first result, even if the lane is full now, and does not enter
/// the lane again.
pub async fn a_key_is_looked_up_before_the_lane_is_full(fixture: StoreFixture) {
    let new_run = |fixture: &StoreFixture| NewRun {
        lane_depth_max: 1,
        ..fixture.new_run(|task| task.lane = Some(lane_key("a")))
    };
    let first = new_run(&fixture);
    let id = first.id;
    assert_eq!(
        open_once(&fixture, first, ["ops", "k", "body"]).await,
        CreateRunsOutcome::Created(vec![id])
    );
    let second = new_run(&fixture);
    assert_eq!(
        open_once(&fixture, second, ["ops", "k", "body"]).await,
        CreateRunsOutcome::Existing(vec![id])
    );
    let lane = fixture.harness.records.find_lane(&lane_key("a")).await.expect("lane");
    assert_eq!(lane.map(|lane| lane.depth), Some(1));
    let other = new_run(&fixture);
    let full = CreateRunsOutcome::LaneFull(lane_key("a"));
    assert_eq!(open_once(&fixture, other, ["ops", "k2", "body"]).await, full);
}

/// A refused request leaves no run, blob, key or lane.
pub async fn all_runs_of_a_request_are_opened_or_none(fixture: StoreFixture) {
    let new_runs = |fixture: &StoreFixture| {
        let without_lane = fixture.new_run(|_| {});
        let first =
            NewRun { lane_depth_max: 1, ..fixture.new_run(|task| task.lane = Some(lane_key("a"))) };
        let second =
            NewRun { lane_depth_max: 1, ..fixture.new_run(|task| task.lane = Some(lane_key("a"))) };
        vec![without_lane, first, second]
    };
    let blob = Blob::new(b"a definition".to_vec());
    let open_request = |runs| CreateRunsRequest {
        runs,
        blobs: vec![blob.clone()],
        idempotency: Some(idempotency_key(["ops", "k", "body"])),
    };
    for _ in 0..2 {
        let outcome = fixture
            .harness
            .store
            .create_runs(open_request(new_runs(&fixture)))
            .await
            .expect("open");
        assert_eq!(outcome, CreateRunsOutcome::LaneFull(lane_key("a")));
    }
    assert_eq!(all_runs(&fixture).await, []);
    assert_eq!(fixture.harness.records.blob(blob.hash()).await.expect("blob"), None);
    let lane = fixture.harness.records.find_lane(&lane_key("a")).await.expect("lane");
    assert_eq!(lane.map_or(0, |lane| lane.depth), 0);
    let mut runs = new_runs(&fixture);
    runs.pop();
    let ids: Vec<RunId> = runs.iter().map(|run| run.id).collect();
    let outcome = fixture.harness.store.create_runs(open_request(runs)).await.expect("open");
    assert_eq!(outcome, CreateRunsOutcome::Created(ids));
    let stored = fixture.harness.records.agent_definition(blob.hash()).await.expect("definition");
    assert_eq!(stored.as_deref(), Some(&b"a definition"[..]));
}

/// One of many concurrent equal requests opens the run, and all return it.
pub async fn concurrent_requests_with_one_key_open_once(fixture: StoreFixture) {
    for round in 0..20 {
        let mut tasks = JoinSet::new();
        for _ in 0..4 {
            let fixture = fixture.clone();
            tasks.spawn(async move {
                let new = fixture.new_run(|_| {});
                open_once(&fixture, new, ["ops", &format!("k{round}"), "body"]).await
            });
        }
        let outcomes = tasks.join_all().await;
        let new =
            outcomes.iter().filter(|outcome| matches!(outcome, CreateRunsOutcome::Created(_)));
        assert_eq!(new.count(), 1, "{outcomes:?}");
        let run_lists = outcomes.iter().map(|outcome| match outcome {
            CreateRunsOutcome::Created(runs) | CreateRunsOutcome::Existing(runs) => runs.clone(),
            CreateRunsOutcome::KeyReused
            | CreateRunsOutcome::LaneFull(_)
            | CreateRunsOutcome::LaneBusy(_)
            | CreateRunsOutcome::OverCap(_) => panic!("{outcome:?}"),
        });
        let run_lists: Vec<Vec<RunId>> = run_lists.collect();
        assert!(run_lists.iter().all(|runs| *runs == run_lists[0]), "{run_lists:?}");
    }
    assert_eq!(all_runs(&fixture).await.len(), 20);
}

/// The journal of an unknown run has no entries and no last sequence number.
pub async fn an_unknown_journal_is_empty(fixture: StoreFixture) {
    let page = read(&fixture, fixture.ids.run(), Seq::START, 10).await;
    assert_eq!((page.entries, page.last_seq), (Vec::new(), Seq(0)));
    assert_eq!(page.now, fixture.harness.clock.now());
}

/// Pages follow each other without gaps, and each has the last sequence number.
pub async fn a_journal_is_read_in_pages(fixture: StoreFixture) {
    let mut claimed_run = fixture.open_and_claim(|_| {}).await;
    fixture.advance(Millis(5));
    claimed_run.append_ok(events_batch((0..10).map(progress))).await;
    let mut after = Seq::START;
    let mut seqs = Vec::new();
    for _ in 0..4 {
        let page = read(&fixture, claimed_run.run, after, 3).await;
        assert_eq!(page.last_seq, Seq(12));
        assert!(page.entries.iter().all(|entry| entry.run == claimed_run.run));
        seqs.extend(page.entries.iter().map(|entry| entry.seq.0));
        after = page.entries.last().map_or(after, |entry| entry.seq);
    }
    assert_eq!(seqs, (1..=12).collect::<Vec<_>>());
    let end = read(&fixture, claimed_run.run, after, 3).await;
    assert_eq!((end.entries, end.last_seq), (Vec::new(), Seq(12)));
    let entries = read(&fixture, claimed_run.run, Seq(2), 1).await.entries;
    assert_eq!((entries[0].at, entries[0].epoch), (fixture.harness.clock.now(), Epoch(1)));
}

/// A journal preserves the exact bytes that a model wrote.
pub async fn events_round_trip(fixture: StoreFixture) {
    let unformatted = RawJson::parse(r#"{ "b" :1.50, "a":[ ],"é":"\u00e9" }"#).expect("JSON");
    let raised = GateRaised {
        gate: GateSpec {
            ask: "tell me, 'please'; -- \u{1f600}".to_owned(),
            input: Some(unformatted),
            digest: Some(Hash::digest(b"frozen")),
            tags: vec![String::new()],
            ..gate_spec(fixture.ids.gate())
        },
    };
    let events = [Event::GateRaised(Box::new(raised)), progress(100)];
    let mut claimed_run = fixture.open_and_claim(|_| {}).await;
    claimed_run.append_ok(events_batch(events.clone())).await;
    assert_eq!(fixture.journal(claimed_run.run).await[2..], events);
}

async fn open_once(fixture: &StoreFixture, new: NewRun, key_parts: [&str; 3]) -> CreateRunsOutcome {
    let request = CreateRunsRequest {
        runs: vec![new],
        blobs: Vec::new(),
        idempotency: Some(idempotency_key(key_parts)),
    };
    fixture.harness.store.create_runs(request).await.expect("open")
}

fn idempotency_key([principal, key, body]: [&str; 3]) -> IdempotencyRecord {
    IdempotencyRecord {
        principal: principal.to_owned(),
        key: key.to_owned(),
        body_hash: Hash::digest(body.as_bytes()),
        ttl: Some(IDEMPOTENCY_TTL),
    }
}

async fn all_runs(fixture: &StoreFixture) -> Vec<RunId> {
    let filter = RunFilter { limit: 1_000, ..RunFilter::default() };
    let rows = fixture.harness.store.list_runs(filter).await.expect("rows");
    rows.into_iter().map(|row| row.id).collect()
}

async fn read(
    fixture: &StoreFixture,
    run: RunId,
    after: Seq,
    limit: usize,
) -> longhaul_core::port::store::JournalPage {
    let request = JournalReadRequest { run, after, limit };
    fixture.harness.store.read_journal(request).await.expect("read")
}
