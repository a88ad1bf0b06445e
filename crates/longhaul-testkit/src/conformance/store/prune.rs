//! Long bodies, and forgetting: old runs, contents that nobody names, keys.
//!
//! Never: a run that is still open.

use longhaul_core::change::{Blob, Change};
use longhaul_core::event::Event;
use longhaul_core::event::world::ProgressReported;
use longhaul_core::id::Seq;
use longhaul_core::port::store::{
    Append, Appended, Author, Idempotency, OpenAsk, Opened, PruneAsk, Pruned, ReadAsk,
};
use longhaul_core::raw::Hash;
use longhaul_core::time::Millis;

use crate::conformance::store::facts::{And as _, cancels, ends, only, says};
use crate::conformance::store::kit::{World, lane_key, stands};

const DAY: Millis = Millis::from_secs(24 * 60 * 60);

/// A body above 8 KiB is kept by what it says, once for all journals, and comes
/// back in its place.
pub async fn long_bodies_are_shared_and_come_back(world: World) {
    let short = reports(8_192);
    let long = reports(8_193);
    let hash = |event: &Event| Hash::of(event.encode().expect("encoded").as_bytes());
    let mut last = Vec::new();
    for _ in 0..2 {
        let mut held = world.held(|_| {}).await;
        held.write(says([short.clone(), long.clone()])).await;
        assert_eq!(
            world.journal(held.run).await[2..],
            [short.clone(), long.clone()]
        );
        last.push(held);
    }
    let shelves = &world.at.shelves;
    assert!(shelves.blob(hash(&long)).await.expect("blob").is_some());
    assert_eq!(shelves.blob(hash(&short)).await.expect("blob"), None);
    // A repeat is recognised by what stands elsewhere, too.
    let author = Author::Driver {
        worker: last[0].worker,
        epoch: last[0].epoch,
        after: Seq(last[0].last.0 - 2),
    };
    let append = Append {
        run: last[0].run,
        author,
        batch: says([short, long]),
    };
    let appended = world.at.store.append(append).await.expect("append");
    assert!(matches!(appended, Appended::At { seq, .. } if seq == last[0].last));
}

/// Ended runs age and go with all that was theirs; open ones stay for ever.
pub async fn ended_runs_are_forgotten_in_time(world: World) {
    let open = world.held(|_| {}).await;
    let gone = world.open(|_| {}).await;
    stands(&world.close(gone, Seq(1), cancels()).await);
    newer(&world).await;
    world.pass(DAY);
    assert_eq!(
        prune(&world, DAY, DAY).await.runs,
        0,
        "not older than a day"
    );
    world.pass(Millis(1));
    assert_eq!(prune(&world, DAY, DAY).await.runs, 1);
    assert_eq!(world.at.store.row(gone).await.expect("row"), None);
    assert_eq!(world.journal(gone).await, []);
    let ask = ReadAsk {
        run: gone,
        after: Seq::START,
        limit: 9,
    };
    assert_eq!(world.at.store.read(ask).await.expect("read").last, Seq(0));
    assert_eq!(world.at.shelves.account(gone).await.expect("account"), None);
    assert_eq!(world.tell(gone, says([])).await, Appended::NoRun);
    assert_eq!(world.journal(open.run).await.len(), 2);
}

/// A run stays while any run of its tree goes on.
pub async fn a_tree_is_forgotten_when_all_of_it_has_ended(world: World) {
    let mut root = world.held(|_| {}).await;
    let child = world.new_run(|task| {
        task.root = root.run;
        task.parent = Some(root.run);
    });
    let child_id = child.id;
    root.write(ends().and(Change::OpenRun(Box::new(child))))
        .await;
    world.pass(Millis(DAY.0 * 2));
    assert_eq!(prune(&world, DAY, DAY).await.runs, 0);
    stands(&world.close(child_id, Seq(1), cancels()).await);
    newer(&world).await;
    world.pass(Millis(DAY.0 + 1));
    assert_eq!(prune(&world, DAY, DAY).await.runs, 2);
}

/// So many at a time, until none is left.
pub async fn pruning_goes_in_bites(world: World) {
    for _ in 0..5 {
        let run = world.open(|_| {}).await;
        stands(&world.close(run, Seq(1), cancels()).await);
    }
    newer(&world).await;
    world.pass(Millis(1));
    let mut bites = Vec::new();
    for _ in 0..4 {
        let ask = PruneAsk {
            runs_older: Millis::ZERO,
            blobs_older: DAY,
            limit: 2,
        };
        bites.push(world.at.store.prune(ask).await.expect("prune").runs);
    }
    assert_eq!(bites, [2, 2, 1, 0]);
}

/// A content stays while a run names it, and for a grace after the last touch.
pub async fn contents_without_a_name_are_forgotten(world: World) {
    let [run, other] = [world.open(|_| {}).await, world.open(|_| {}).await];
    let [own, shared] = [b"own".to_vec(), b"shared".to_vec()].map(Blob::new);
    let puts = |blob: &Blob| only(Change::PutBlob(blob.clone()));
    stands(
        &world
            .tell(run, puts(&own).and(Change::PutBlob(shared.clone())))
            .await,
    );
    stands(&world.tell(other, puts(&shared)).await);
    world.pass(Millis(DAY.0 * 2));
    let nothing = Pruned::default();
    assert_eq!(prune(&world, DAY, DAY).await, nothing, "they are named");
    stands(&world.close(run, Seq(1), cancels()).await);
    newer(&world).await;
    world.pass(Millis(1));
    // Somebody says the same again just now: the grace begins anew.
    stands(&world.tell(run, puts(&own)).await);
    let first = prune(&world, Millis::ZERO, DAY).await;
    assert_eq!((first.runs, first.blobs), (1, 0), "touched lately");
    world.pass(Millis(DAY.0 + 1));
    assert_eq!(prune(&world, Millis::ZERO, DAY).await.blobs, 1);
    let shelves = &world.at.shelves;
    assert_eq!(shelves.blob(own.hash()).await.expect("blob"), None);
    assert!(shelves.blob(shared.hash()).await.expect("blob").is_some());
}

/// A long body goes with the last journal that holds it; what a request brought
/// stays with its runs.
pub async fn long_bodies_go_with_their_journals(world: World) {
    let long = reports(9_000);
    let hash = Hash::of(long.encode().expect("encoded").as_bytes());
    let mut held = world.held(|_| {}).await;
    held.write(says([long])).await;
    let brought = Blob::new(b"a definition".to_vec());
    let new = world.new_run(|_| {});
    let ask = OpenAsk {
        runs: vec![new],
        blobs: vec![brought.clone()],
        idempotency: None,
    };
    world.at.store.open(ask).await.expect("open");
    world.pass(Millis(DAY.0 * 2));
    assert_eq!(prune(&world, DAY, DAY).await, Pruned::default());
    let shelves = &world.at.shelves;
    assert!(shelves.blob(brought.hash()).await.expect("blob").is_some());
    held.end().await;
    newer(&world).await;
    world.pass(Millis(1));
    let pruned = prune(&world, Millis::ZERO, DAY).await;
    assert_eq!((pruned.runs, pruned.blobs), (1, 1));
    assert_eq!(shelves.blob(hash).await.expect("blob"), None);
}

/// Keys that are over and lanes that are empty go, others stay.
pub async fn keys_and_empty_lanes_are_forgotten(world: World) {
    let ask = |world: &World, key: &str, keep| OpenAsk {
        runs: vec![world.new_run(|task| task.lane = Some(lane_key(key)))],
        blobs: Vec::new(),
        idempotency: Some(Idempotency {
            principal: "ops".to_owned(),
            key: key.to_owned(),
            body: Hash::of(b"body"),
            keep,
        }),
    };
    let open = async |key, keep| {
        let opened = world
            .at
            .store
            .open(ask(&world, key, keep))
            .await
            .expect("open");
        match opened {
            Opened::New(runs) | Opened::Before(runs) => runs[0],
            Opened::KeyReused | Opened::LaneFull(_) => panic!("{opened:?}"),
        }
    };
    let short = open("short", Millis(10)).await;
    let long = open("long", DAY).await;
    stands(&world.close(short, Seq(1), cancels()).await);
    world.pass(Millis(10));
    assert_eq!(prune(&world, DAY, DAY).await.keys, 1);
    assert_eq!(prune(&world, DAY, DAY).await.keys, 0);
    assert_eq!(open("long", DAY).await, long);
    let lane = async |key| world.at.shelves.lane(&lane_key(key)).await.expect("lane");
    assert_eq!(lane("short").await, None);
    assert_eq!(lane("long").await.and_then(|lane| lane.head), Some(long));
}

/// Another run writes last: whoever did so is not forgotten.
async fn newer(world: &World) {
    world.open(|_| {}).await;
}

/// A fact whose body has exactly so many bytes.
fn reports(bytes: usize) -> Event {
    let report = |message| {
        Event::ProgressReported(ProgressReported {
            percent: 1,
            message,
        })
    };
    let bare = report(String::new()).encode().expect("encoded").len();
    report("x".repeat(bytes - bare))
}

async fn prune(world: &World, runs_older: Millis, blobs_older: Millis) -> Pruned {
    let ask = PruneAsk {
        runs_older,
        blobs_older,
        limit: 100,
    };
    world.at.store.prune(ask).await.expect("prune")
}
