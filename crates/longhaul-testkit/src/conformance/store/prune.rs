//! Long bodies, and forgetting: old runs, contents that nobody names, keys.
//!
//! Never: a run that is still open.

use longhaul_core::change::{Blob, Change};
use longhaul_core::event::Event;
use longhaul_core::event::environment::ProgressReported;
use longhaul_core::id::Seq;
use longhaul_core::port::store::{
    AppendRequest, Appended, Author, Idempotency, OpenOutcome, OpenRequest, PruneOutcome,
    PruneRequest, ReadRequest,
};
use longhaul_core::raw::Hash;
use longhaul_core::time::Millis;

use crate::conformance::store::batches::{
    BatchExt as _, cancel_batch, change_batch, end_batch, events_batch,
};
use crate::conformance::store::fixture::{StoreFixture, assert_appended, lane_key};

const DAY: Millis = Millis::from_secs(24 * 60 * 60);

/// A body above 8 KiB is kept by what it says, once for all journals, and comes
/// back in its place.
pub async fn long_bodies_are_shared_and_round_trip(world: StoreFixture) {
    let short = progress_event(8_192);
    let long = progress_event(8_193);
    let hash = |event: &Event| Hash::digest(event.encode().expect("encoded").as_bytes());
    let mut last = Vec::new();
    for _ in 0..2 {
        let mut held = world.open_and_claim(|_| {}).await;
        held.append_ok(events_batch([short.clone(), long.clone()])).await;
        assert_eq!(world.journal(held.run).await[2..], [short.clone(), long.clone()]);
        last.push(held);
    }
    let shelves = &world.harness.records;
    assert!(shelves.blob(hash(&long)).await.expect("blob").is_some());
    assert_eq!(shelves.blob(hash(&short)).await.expect("blob"), None);
    // A repeat is recognised by what stands elsewhere, too.
    let author = Author::Driver {
        worker: last[0].worker,
        epoch: last[0].epoch,
        after: Seq(last[0].last.0 - 2),
    };
    let append = AppendRequest { run: last[0].run, author, batch: events_batch([short, long]) };
    let appended = world.harness.store.append(append).await.expect("append");
    assert!(matches!(appended, Appended::At { seq, .. } if seq == last[0].last));
}

/// Ended runs age and go with all that was theirs; open ones stay for ever.
pub async fn ended_runs_are_pruned_after_retention(world: StoreFixture) {
    let open = world.open_and_claim(|_| {}).await;
    let gone = world.open(|_| {}).await;
    assert_appended(&world.append_as_closer(gone, Seq(1), cancel_batch()).await);
    write_newer_run(&world).await;
    world.advance(DAY);
    assert_eq!(prune(&world, DAY, DAY).await.runs, 0, "not older than a day");
    world.advance(Millis(1));
    assert_eq!(prune(&world, DAY, DAY).await.runs, 1);
    assert_eq!(world.harness.store.get_run(gone).await.expect("row"), None);
    assert_eq!(world.journal(gone).await, []);
    let ask = ReadRequest { run: gone, after: Seq::START, limit: 9 };
    assert_eq!(world.harness.store.read(ask).await.expect("read").last_seq, Seq(0));
    assert_eq!(world.harness.records.budget_account(gone).await.expect("account"), None);
    assert_eq!(world.append_outside(gone, events_batch([])).await, Appended::RunNotFound);
    assert_eq!(world.journal(open.run).await.len(), 2);
}

/// A run stays while any run of its tree goes on.
pub async fn a_tree_is_pruned_when_all_its_runs_have_ended(world: StoreFixture) {
    let mut root = world.open_and_claim(|_| {}).await;
    let child = world.new_run(|task| {
        task.root = root.run;
        task.parent = Some(root.run);
    });
    let child_id = child.id;
    root.append_ok(end_batch().with_change(Change::OpenRun(Box::new(child)))).await;
    world.advance(Millis(DAY.0 * 2));
    assert_eq!(prune(&world, DAY, DAY).await.runs, 0);
    assert_appended(&world.append_as_closer(child_id, Seq(1), cancel_batch()).await);
    write_newer_run(&world).await;
    world.advance(Millis(DAY.0 + 1));
    assert_eq!(prune(&world, DAY, DAY).await.runs, 2);
}

/// So many at a time, until none is left.
pub async fn pruning_is_batched(world: StoreFixture) {
    for _ in 0..5 {
        let run = world.open(|_| {}).await;
        assert_appended(&world.append_as_closer(run, Seq(1), cancel_batch()).await);
    }
    write_newer_run(&world).await;
    world.advance(Millis(1));
    let mut bites = Vec::new();
    for _ in 0..4 {
        let ask = PruneRequest { runs_older_than: Millis::ZERO, blobs_older_than: DAY, limit: 2 };
        bites.push(world.harness.store.prune(ask).await.expect("prune").runs);
    }
    assert_eq!(bites, [2, 2, 1, 0]);
}

/// A content stays while a run names it, and for a grace after the last touch.
pub async fn unreferenced_blobs_are_pruned(world: StoreFixture) {
    let [run, other] = [world.open(|_| {}).await, world.open(|_| {}).await];
    let [own, shared] = [b"own".to_vec(), b"shared".to_vec()].map(Blob::new);
    let puts = |blob: &Blob| change_batch(Change::PutBlob(blob.clone()));
    assert_appended(
        &world.append_outside(run, puts(&own).with_change(Change::PutBlob(shared.clone()))).await,
    );
    assert_appended(&world.append_outside(other, puts(&shared)).await);
    world.advance(Millis(DAY.0 * 2));
    let nothing = PruneOutcome::default();
    assert_eq!(prune(&world, DAY, DAY).await, nothing, "they are named");
    assert_appended(&world.append_as_closer(run, Seq(1), cancel_batch()).await);
    write_newer_run(&world).await;
    world.advance(Millis(1));
    // Somebody says the same again just now: the grace begins anew.
    assert_appended(&world.append_outside(run, puts(&own)).await);
    let first = prune(&world, Millis::ZERO, DAY).await;
    assert_eq!((first.runs, first.blobs), (1, 0), "touched lately");
    world.advance(Millis(DAY.0 + 1));
    assert_eq!(prune(&world, Millis::ZERO, DAY).await.blobs, 1);
    let shelves = &world.harness.records;
    assert_eq!(shelves.blob(own.hash()).await.expect("blob"), None);
    assert!(shelves.blob(shared.hash()).await.expect("blob").is_some());
}

/// A long body goes with the last journal that holds it; what a request brought
/// stays with its runs.
pub async fn long_bodies_are_pruned_with_their_journals(world: StoreFixture) {
    let long = progress_event(9_000);
    let hash = Hash::digest(long.encode().expect("encoded").as_bytes());
    let mut held = world.open_and_claim(|_| {}).await;
    held.append_ok(events_batch([long])).await;
    let brought = Blob::new(b"a definition".to_vec());
    let new = world.new_run(|_| {});
    let ask = OpenRequest { runs: vec![new], blobs: vec![brought.clone()], idempotency: None };
    world.harness.store.open_runs(ask).await.expect("open");
    world.advance(Millis(DAY.0 * 2));
    assert_eq!(prune(&world, DAY, DAY).await, PruneOutcome::default());
    let shelves = &world.harness.records;
    assert!(shelves.blob(brought.hash()).await.expect("blob").is_some());
    held.end().await;
    write_newer_run(&world).await;
    world.advance(Millis(1));
    let pruned = prune(&world, Millis::ZERO, DAY).await;
    assert_eq!((pruned.runs, pruned.blobs), (1, 1));
    assert_eq!(shelves.blob(hash).await.expect("blob"), None);
}

/// Keys that are over and lanes that are empty go, others stay.
pub async fn expired_keys_and_empty_lanes_are_pruned(world: StoreFixture) {
    let ask = |world: &StoreFixture, key: &str, keep| OpenRequest {
        runs: vec![world.new_run(|task| task.lane = Some(lane_key(key)))],
        blobs: Vec::new(),
        idempotency: Some(Idempotency {
            principal: "ops".to_owned(),
            key: key.to_owned(),
            body_hash: Hash::digest(b"body"),
            ttl: keep,
        }),
    };
    let open = async |key, keep| {
        let opened = world.harness.store.open_runs(ask(&world, key, keep)).await.expect("open");
        match opened {
            OpenOutcome::Created(runs) | OpenOutcome::Existing(runs) => runs[0],
            OpenOutcome::KeyReused | OpenOutcome::LaneFull(_) => panic!("{opened:?}"),
        }
    };
    let short = open("short", Millis(10)).await;
    let long = open("long", DAY).await;
    assert_appended(&world.append_as_closer(short, Seq(1), cancel_batch()).await);
    world.advance(Millis(10));
    assert_eq!(prune(&world, DAY, DAY).await.idempotency_keys, 1);
    assert_eq!(prune(&world, DAY, DAY).await.idempotency_keys, 0);
    assert_eq!(open("long", DAY).await, long);
    let lane = async |key| world.harness.records.lane(&lane_key(key)).await.expect("lane");
    assert_eq!(lane("short").await, None);
    assert_eq!(lane("long").await.and_then(|lane| lane.head), Some(long));
}

/// Another run writes last: whoever did so is not forgotten.
async fn write_newer_run(world: &StoreFixture) {
    world.open(|_| {}).await;
}

/// A fact whose body has exactly so many bytes.
fn progress_event(bytes: usize) -> Event {
    let report = |message| Event::ProgressReported(ProgressReported { percent: 1, message });
    let bare = report(String::new()).encode().expect("encoded").len();
    report("x".repeat(bytes - bare))
}

async fn prune(world: &StoreFixture, runs_older: Millis, blobs_older: Millis) -> PruneOutcome {
    let ask =
        PruneRequest { runs_older_than: runs_older, blobs_older_than: blobs_older, limit: 100 };
    world.harness.store.prune(ask).await.expect("prune")
}
