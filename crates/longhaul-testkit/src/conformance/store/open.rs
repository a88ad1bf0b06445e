//! Opening runs and reading journals.
//!
//! Never: claims one.

use tokio::task::JoinSet;

use longhaul_core::change::{Blob, NewRun};
use longhaul_core::event::Event;
use longhaul_core::event::gate::GateRaised;
use longhaul_core::id::{Epoch, RunId, Seq};
use longhaul_core::policy::gate::GateSpec;
use longhaul_core::port::store::{Idempotency, OpenOutcome, OpenRequest, ReadRequest, RunFilter};
use longhaul_core::raw::{Hash, RawJson};
use longhaul_core::status::Status;
use longhaul_core::time::{Clock, Millis};
use longhaul_core::usage::MicroUsd;

use crate::conformance::store::batches::{events_batch, gate_spec, progress};
use crate::conformance::store::fixture::{StoreFixture, lane_key};

const IDEMPOTENCY_TTL: Millis = Millis::from_secs(24 * 60 * 60);

/// Everything of a new run can be read back.
pub async fn an_opened_run_exists(world: StoreFixture) {
    let new = world.new_run(|task| {
        task.priority = 3;
        task.kind = Some("letter".to_owned());
        task.submitter = Some("key:ops".to_owned());
        task.policy.budget.micro_usd = Some(MicroUsd(500));
    });
    let id = new.id;
    assert_eq!(world.open_runs(vec![new.clone()]).await, OpenOutcome::Created(vec![id]));
    let row = world.row(id).await;
    assert_eq!((row.id, row.root, row.parent), (id, id, None));
    assert_eq!((row.agent, row.definition), (new.task.agent, new.task.definition));
    assert_eq!((row.status, row.reason.as_deref()), (Status::Pending, Some("worker")));
    assert_eq!((row.priority, row.kind.as_deref()), (3, Some("letter")));
    assert_eq!((row.epoch, row.last_seq, row.worker), (Epoch(0), Seq(1), None));
    assert_eq!((row.turns, row.cost), (0, Some(MicroUsd::ZERO)));
    assert_eq!(row.submitter.as_deref(), Some("key:ops"));
    assert_eq!((row.created_at, row.started_at), (world.harness.clock.now(), None));
    assert_eq!(world.journal(id).await, new.events);
    let account = world.harness.records.budget_account(id).await.expect("account");
    assert_eq!(account.map(|account| account.cap_micro_usd), Some(Some(MicroUsd(500))));
    let missing = world.harness.store.get_run(world.ids.run()).await.expect("row");
    assert_eq!(missing, None);
}

/// The second time, the runs of the first are named and nothing is opened.
pub async fn the_same_request_opens_once(world: StoreFixture) {
    let first = world.new_run(|_| {});
    let again = world.new_run(|_| {});
    let id = first.id;
    assert_eq!(
        open_once(&world, first, ["ops", "k", "body"]).await,
        OpenOutcome::Created(vec![id])
    );
    assert_eq!(
        open_once(&world, again, ["ops", "k", "body"]).await,
        OpenOutcome::Existing(vec![id])
    );
    assert_eq!(all_runs(&world).await, [id]);
}

/// A key belongs to one request.
pub async fn another_body_under_the_same_key_is_reported(world: StoreFixture) {
    let first = world.new_run(|_| {});
    let other = world.new_run(|_| {});
    let id = first.id;
    open_once(&world, first, ["ops", "k", "body"]).await;
    assert_eq!(open_once(&world, other, ["ops", "k", "other"]).await, OpenOutcome::KeyReused);
    assert_eq!(all_runs(&world).await, [id]);
}

/// Answers are never served to somebody else.
pub async fn another_principal_has_keys_of_its_own(world: StoreFixture) {
    for principal in ["ops", "dev"] {
        let new = world.new_run(|_| {});
        let id = new.id;
        assert_eq!(
            open_once(&world, new, [principal, "k", "body"]).await,
            OpenOutcome::Created(vec![id])
        );
    }
}

/// After its keep a key is free again, not a moment before.
pub async fn an_idempotency_key_expires(world: StoreFixture) {
    let first = world.new_run(|_| {});
    let id = first.id;
    open_once(&world, first, ["ops", "k", "body"]).await;
    world.advance(Millis(IDEMPOTENCY_TTL.0 - 1));
    let early = world.new_run(|_| {});
    assert_eq!(
        open_once(&world, early, ["ops", "k", "body"]).await,
        OpenOutcome::Existing(vec![id])
    );
    world.advance(Millis(1));
    let late = world.new_run(|_| {});
    let late_id = late.id;
    assert_eq!(
        open_once(&world, late, ["ops", "k", "other"]).await,
        OpenOutcome::Created(vec![late_id])
    );
}

/// What was carried out is answered as it was then, however full the lane is by
/// now, and the lane does not grow by it.
pub async fn a_key_is_looked_up_before_the_lane_is_full(world: StoreFixture) {
    let narrow = |world: &StoreFixture| NewRun {
        lane_depth_max: 1,
        ..world.new_run(|task| task.lane = Some(lane_key("a")))
    };
    let first = narrow(&world);
    let id = first.id;
    assert_eq!(
        open_once(&world, first, ["ops", "k", "body"]).await,
        OpenOutcome::Created(vec![id])
    );
    let again = narrow(&world);
    assert_eq!(
        open_once(&world, again, ["ops", "k", "body"]).await,
        OpenOutcome::Existing(vec![id])
    );
    let lane = world.harness.records.lane(&lane_key("a")).await.expect("lane");
    assert_eq!(lane.map(|lane| lane.depth), Some(1));
    let other = narrow(&world);
    let full = OpenOutcome::LaneFull(lane_key("a"));
    assert_eq!(open_once(&world, other, ["ops", "k2", "body"]).await, full);
}

/// A request that is refused leaves no run, no content, no key and no lane behind.
pub async fn all_runs_of_a_request_are_opened_or_none(world: StoreFixture) {
    let make = |world: &StoreFixture| {
        let free = world.new_run(|_| {});
        let first =
            NewRun { lane_depth_max: 1, ..world.new_run(|task| task.lane = Some(lane_key("a"))) };
        let second =
            NewRun { lane_depth_max: 1, ..world.new_run(|task| task.lane = Some(lane_key("a"))) };
        vec![free, first, second]
    };
    let blob = Blob::new(b"a definition".to_vec());
    let ask = |runs| OpenRequest {
        runs,
        blobs: vec![blob.clone()],
        idempotency: Some(idempotency_key(["ops", "k", "body"])),
    };
    for _ in 0..2 {
        let opened = world.harness.store.open_runs(ask(make(&world))).await.expect("open");
        assert_eq!(opened, OpenOutcome::LaneFull(lane_key("a")));
    }
    assert_eq!(all_runs(&world).await, []);
    assert_eq!(world.harness.records.blob(blob.hash()).await.expect("blob"), None);
    let lane = world.harness.records.lane(&lane_key("a")).await.expect("lane");
    assert_eq!(lane.map_or(0, |lane| lane.depth), 0);
    let mut fewer = make(&world);
    fewer.pop();
    let ids: Vec<RunId> = fewer.iter().map(|run| run.id).collect();
    let opened = world.harness.store.open_runs(ask(fewer)).await.expect("open");
    assert_eq!(opened, OpenOutcome::Created(ids));
    let kept = world.harness.records.definition(blob.hash()).await.expect("definition");
    assert_eq!(kept.as_deref(), Some(&b"a definition"[..]));
}

/// One of many equal requests opens the run, and all of them name it.
pub async fn concurrent_requests_with_one_key_open_once(world: StoreFixture) {
    for round in 0..20 {
        let mut sides = JoinSet::new();
        for _ in 0..4 {
            let world = world.clone();
            sides.spawn(async move {
                let new = world.new_run(|_| {});
                open_once(&world, new, ["ops", &format!("k{round}"), "body"]).await
            });
        }
        let said = sides.join_all().await;
        let new = said.iter().filter(|opened| matches!(opened, OpenOutcome::Created(_)));
        assert_eq!(new.count(), 1, "{said:?}");
        let named = said.iter().map(|opened| match opened {
            OpenOutcome::Created(runs) | OpenOutcome::Existing(runs) => runs.clone(),
            OpenOutcome::KeyReused | OpenOutcome::LaneFull(_) => panic!("{opened:?}"),
        });
        let named: Vec<Vec<RunId>> = named.collect();
        assert!(named.iter().all(|runs| *runs == named[0]), "{named:?}");
    }
    assert_eq!(all_runs(&world).await.len(), 20);
}

/// Nobody's journal has no entries and no last place.
pub async fn an_unknown_journal_is_empty(world: StoreFixture) {
    let page = read(&world, world.ids.run(), Seq::START, 10).await;
    assert_eq!((page.entries, page.last_seq), (Vec::new(), Seq(0)));
    assert_eq!(page.now, world.harness.clock.now());
}

/// Pages follow each other without a gap, and each names the end.
pub async fn a_journal_is_read_in_pages(world: StoreFixture) {
    let mut held = world.open_and_claim(|_| {}).await;
    world.advance(Millis(5));
    held.append_ok(events_batch((0..10).map(progress))).await;
    let mut after = Seq::START;
    let mut seqs = Vec::new();
    for _ in 0..4 {
        let page = read(&world, held.run, after, 3).await;
        assert_eq!(page.last_seq, Seq(12));
        assert!(page.entries.iter().all(|entry| entry.run == held.run));
        seqs.extend(page.entries.iter().map(|entry| entry.seq.0));
        after = page.entries.last().map_or(after, |entry| entry.seq);
    }
    assert_eq!(seqs, (1..=12).collect::<Vec<_>>());
    let end = read(&world, held.run, after, 3).await;
    assert_eq!((end.entries, end.last_seq), (Vec::new(), Seq(12)));
    let written = read(&world, held.run, Seq(2), 1).await.entries;
    assert_eq!((written[0].at, written[0].epoch), (world.harness.clock.now(), Epoch(1)));
}

/// A journal keeps the very bytes of what a model wrote.
pub async fn events_round_trip(world: StoreFixture) {
    let odd = RawJson::parse(r#"{ "b" :1.50, "a":[ ],"é":"\u00e9" }"#).expect("JSON");
    let raised = GateRaised {
        gate: GateSpec {
            ask: "tell me, 'please'; -- \u{1f600}".to_owned(),
            input: Some(odd),
            digest: Some(Hash::digest(b"frozen")),
            tags: vec![String::new()],
            ..gate_spec(world.ids.gate())
        },
    };
    let facts = [Event::GateRaised(Box::new(raised)), progress(100)];
    let mut held = world.open_and_claim(|_| {}).await;
    held.append_ok(events_batch(facts.clone())).await;
    assert_eq!(world.journal(held.run).await[2..], facts);
}

async fn open_once(world: &StoreFixture, new: NewRun, words: [&str; 3]) -> OpenOutcome {
    let ask = OpenRequest {
        runs: vec![new],
        blobs: Vec::new(),
        idempotency: Some(idempotency_key(words)),
    };
    world.harness.store.open_runs(ask).await.expect("open")
}

fn idempotency_key([principal, key, body]: [&str; 3]) -> Idempotency {
    Idempotency {
        principal: principal.to_owned(),
        key: key.to_owned(),
        body_hash: Hash::digest(body.as_bytes()),
        ttl: IDEMPOTENCY_TTL,
    }
}

async fn all_runs(world: &StoreFixture) -> Vec<RunId> {
    let ask = RunFilter { limit: 1_000, ..RunFilter::default() };
    let rows = world.harness.store.list_runs(ask).await.expect("rows");
    rows.into_iter().map(|row| row.id).collect()
}

async fn read(
    world: &StoreFixture,
    run: RunId,
    after: Seq,
    limit: usize,
) -> longhaul_core::port::store::JournalPage {
    let ask = ReadRequest { run, after, limit };
    world.harness.store.read(ask).await.expect("read")
}
