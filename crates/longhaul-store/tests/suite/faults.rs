//! Commits that go wrong: one clear error, nothing half-written, nothing lost.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use longhaul_core::port::store::{Append, Appended, StoreError};
use longhaul_core::status::Status;
use longhaul_store::options::{CommitFault, Faults};
use longhaul_store::{Options, Role, open};
use longhaul_testkit::conformance::store::facts::{parks, progress, says};
use longhaul_testkit::conformance::store::kit::{Held, World};

use super::kit::{Folder, connect};

/// Makes the next commit go wrong.
#[derive(Debug, Default)]
struct Next(Mutex<Option<CommitFault>>);

impl Faults for Next {
    fn at_commit(&self) -> Option<CommitFault> {
        self.0.lock().unwrap().take()
    }
}

/// A store whose commits can be made to fail, and what the fatal hook heard.
struct Trial {
    folder: Folder,
    faults: Arc<Next>,
    heard: Arc<Mutex<Vec<String>>>,
    world: World,
    held: Held,
}

impl Trial {
    async fn new() -> Self {
        let folder = Folder::new();
        let faults = Arc::new(Next::default());
        let heard: Arc<Mutex<Vec<String>>> = Arc::default();
        let ear = Arc::clone(&heard);
        let store = open(Options {
            faults: Some(faults.clone()),
            fatal: Some(Arc::new(move |why| {
                ear.lock().unwrap().push(why.to_owned())
            })),
            ..folder.options(Role::Driver)
        });
        let world = folder.world(store.unwrap());
        let held = world.held(|_| {}).await;
        Self {
            folder,
            faults,
            heard,
            world,
            held,
        }
    }

    /// Parks the run in a commit that goes wrong.
    async fn park_with(&self, fault: CommitFault) -> StoreError {
        *self.faults.0.lock().unwrap() = Some(fault);
        self.park().await.unwrap_err()
    }

    async fn park(&self) -> Result<Appended, StoreError> {
        let append = Append {
            run: self.held.run,
            author: self.held.author(),
            batch: parks("budget"),
        };
        self.world.at.store.append(append).await
    }
}

#[tokio::test]
async fn a_full_disk_undoes_the_commit_and_the_next_one_stands() {
    let trial = Trial::new().await;
    let error = trial.park_with(CommitFault::Full).await;
    assert!(matches!(error, StoreError::Full { .. }), "{error}");
    trial.world.is(trial.held.run, Status::Running, "").await;
    assert!(matches!(trial.park().await, Ok(Appended::At { .. })));
    trial
        .world
        .is(trial.held.run, Status::Waiting, "budget")
        .await;
    assert_eq!(*trial.heard.lock().unwrap(), [""; 0]);
}

#[tokio::test]
async fn a_commit_that_was_busy_can_be_repeated() {
    let trial = Trial::new().await;
    let error = trial.park_with(CommitFault::Busy).await;
    assert!(matches!(error, StoreError::Busy { .. }), "{error}");
    assert!(matches!(trial.park().await, Ok(Appended::At { .. })));
}

#[tokio::test]
async fn after_a_failed_sync_nothing_is_written_any_more() {
    for (fault, stands) in [
        (CommitFault::SyncLost, false),
        (CommitFault::SyncStands, true),
    ] {
        let trial = Trial::new().await;
        let error = trial.park_with(fault).await;
        assert!(matches!(error, StoreError::Closed { .. }), "{error}");
        let next = trial.park().await.unwrap_err();
        assert!(matches!(next, StoreError::Closed { .. }), "{next}");
        assert_eq!(
            trial.heard.lock().unwrap().len(),
            1,
            "the program is told once"
        );

        // The next process finds the whole batch or none of it.
        let Trial {
            folder,
            world,
            held,
            ..
        } = trial;
        let run = held.run;
        drop((world, held));
        let world = folder.world(folder.drive());
        let kinds = world.kinds(run).await;
        assert_eq!(kinds.contains(&"run.waiting"), stands, "{kinds:?}");
        let status = world.stands(run).await.0;
        assert_eq!(status == Status::Waiting, stands, "{status:?}");
        world.is_in_order().await;
    }
}

#[tokio::test]
async fn another_writer_is_waited_for_and_no_longer() {
    let folder = Folder::new();
    let store = open(Options {
        busy: Duration::from_millis(1),
        ..folder.options(Role::Driver)
    });
    let world = folder.world(store.unwrap());
    let other = connect(&folder.file());
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    let ask = || longhaul_core::port::store::OpenAsk {
        runs: vec![world.new_run(|_| {})],
        blobs: Vec::new(),
        idempotency: None,
    };
    let error = world.at.store.open(ask()).await.unwrap_err();
    assert!(matches!(error, StoreError::Busy { .. }), "{error}");
    other.execute_batch("ROLLBACK").unwrap();
    world.at.store.open(ask()).await.unwrap();
}

/// Bounds the file at so many pages.
#[derive(Debug)]
struct Pages(u32);

impl Faults for Pages {
    fn pages_max(&self) -> Option<u32> {
        Some(self.0)
    }
}

#[tokio::test]
async fn a_file_that_may_not_grow_is_full_and_whole() {
    let folder = Folder::new();
    let store = open(Options {
        faults: Some(Arc::new(Pages(100))),
        ..folder.options(Role::Driver)
    });
    let world = folder.world(store.unwrap());
    let mut held = world.held(|_| {}).await;
    let acknowledged = fill(&mut held).await;
    // Small things still fit, and so does everything when there is room again.
    let run = held.run;
    let before = world.journal(run).await.len();
    drop((world, held));
    let world = folder.world(folder.drive());
    assert_eq!(world.journal(run).await.len(), before);
    assert_eq!(
        before,
        acknowledged * 40 + 2,
        "what was acknowledged stands, the rest does not"
    );
    let mut held = world.take(world.worker().await).await;
    held.write(long()).await;
    world.is_in_order().await;
}

/// Appends long facts until the disk is full; so many were acknowledged.
pub(crate) async fn fill(held: &mut Held) -> usize {
    let store = Arc::clone(&held.world.at.store);
    for count in 0..100_000 {
        let append = Append {
            run: held.run,
            author: held.author(),
            batch: long(),
        };
        match store.append(append).await {
            Ok(Appended::At { seq, .. }) => held.last = seq,
            Ok(other) => panic!("{other:?}"),
            Err(StoreError::Full { .. }) => return count,
            Err(other) => panic!("{other}"),
        }
    }
    panic!("the disk is never full");
}

/// A fact of many bytes, and none like the one before.
pub(crate) fn long() -> longhaul_core::change::Batch {
    says(vec![progress(3); 40])
}
