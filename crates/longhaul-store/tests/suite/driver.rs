//! One process drives, any other looks on.

use longhaul_core::change::Change;
use longhaul_core::id::Seq;
use longhaul_core::port::keyring::{Begun, ReplyAsk, ReplyKey};
use longhaul_core::port::shelves::Shelves as _;
use longhaul_core::port::store::{
    Append, Appended, Author, PruneAsk, RowsAsk, Standing, Store as _, StoreError,
};
use longhaul_core::raw::Hash;
use longhaul_core::request::Effect;
use longhaul_core::status::Status;
use longhaul_core::time::{Clock, Millis, Timestamp};
use longhaul_store::{Options, Role, open};
use longhaul_testkit::conformance::store::facts::{cancel_requested, cancels, progress, says};
use longhaul_testkit::conformance::store::kit::{beat, claim_ask, runs, stands};

use super::kit::Folder;

#[test]
fn a_second_driver_is_told_who_the_first_is() {
    let folder = Folder::new();
    let holder = "http://127.0.0.1:4000".to_owned();
    let first = open(Options {
        holder,
        ..folder.options(Role::Driver)
    });
    let refused = folder.open(Role::Driver).unwrap_err();
    let StoreError::Driven { holder, .. } = &refused else {
        panic!("{refused}");
    };
    let pid = std::process::id();
    assert_eq!(*holder, format!("pid {pid}, http://127.0.0.1:4000"));
    drop(first);
    folder.drive();
}

#[tokio::test]
async fn whether_somebody_drives_is_known_at_once() {
    let folder = Folder::new();
    let outsider = folder.open(Role::Outsider).unwrap();
    assert!(!outsider.is_driven().await.unwrap());
    let driver = folder.drive();
    assert!(driver.is_driven().await.unwrap());
    assert!(outsider.is_driven().await.unwrap());
    drop(driver);
    assert!(!outsider.is_driven().await.unwrap());
    // Looking takes nobody's place.
    folder.drive();
}

#[test]
fn a_file_that_is_deleted_under_its_driver_ends_it() {
    let folder = Folder::new();
    let (told, heard) = std::sync::mpsc::channel();
    let options = folder.options(Role::Driver);
    let file = options.url.trim_start_matches("sqlite:").to_owned();
    let store = open(Options {
        fatal: Some(std::sync::Arc::new(move |why: &str| {
            told.send(why.to_owned()).unwrap();
        })),
        ..options
    });
    let store = store.unwrap();
    let _watch = store.watch();
    std::fs::remove_file(file).unwrap();
    let why = heard.recv_timeout(std::time::Duration::from_secs(20));
    assert!(why.unwrap().contains("moved or deleted"));
}

#[tokio::test]
async fn nothing_is_acknowledged_once_the_file_is_gone_or_replaced() {
    for replaced in [false, true] {
        let folder = Folder::new();
        let (told, heard) = std::sync::mpsc::channel();
        let store = open(Options {
            fatal: Some(std::sync::Arc::new(move |why: &str| {
                told.send(why.to_owned()).unwrap();
            })),
            ..folder.options(Role::Driver)
        });
        let world = folder.world(store.unwrap());
        let mut held = world.held(|_| {}).await;
        held.write(says([progress(1)])).await;
        let beside = folder.dir.path().join("other.db");
        std::fs::copy(folder.file(), &beside).unwrap();
        match replaced {
            true => std::fs::rename(beside, folder.file()).unwrap(),
            false => std::fs::remove_file(folder.file()).unwrap(),
        }
        for _ in 0..2 {
            let append = Append {
                run: held.run,
                author: held.author(),
                batch: says([progress(2)]),
            };
            let lost = world.at.store.append(append).await.unwrap_err();
            assert!(matches!(lost, StoreError::Closed { .. }), "{lost}");
            assert!(lost.to_string().contains("moved or deleted"), "{lost}");
        }
        // The process is told once, by whoever notices first.
        assert!(heard.try_recv().unwrap().contains("moved or deleted"));
    }
}

#[tokio::test]
async fn what_was_leased_under_an_older_boot_is_ready_again() {
    let folder = Folder::new();
    let store = folder.drive();
    assert_eq!(store.boot(), 1);
    let world = folder.world(store);
    let held = world.held(|_| {}).await;
    let (run, worker) = (held.run, held.worker);
    drop((world, held));

    let store = folder.drive();
    assert_eq!(store.boot(), 2);
    let world = folder.world(store);
    world.is(run, Status::Running, "worker").await;
    // A worker's id is new at every boot: the old one is buried.
    assert_eq!(world.beat(worker).await.standing, Standing::Dead);
    assert_eq!(world.claim(worker).await, []);
    let again = world.take(world.worker().await).await;
    assert_eq!((again.run, again.epoch.0), (run, 2));
    assert_eq!(
        world.kinds(run).await,
        ["run.created", "run.claimed", "run.claimed"]
    );
}

#[tokio::test]
async fn an_outsider_submits_tells_closes_and_reads() {
    let folder = Folder::new();
    let driver = folder.world(folder.drive());
    let outsider = folder.world(folder.open(Role::Outsider).unwrap());
    let run = outsider.open(|_| {}).await;
    stands(&outsider.tell(run, says([cancel_requested()])).await);
    assert_eq!(
        driver.kinds(run).await,
        ["run.created", "run.cancel_requested"]
    );
    stands(&outsider.close(run, Seq(2), cancels()).await);
    driver.is(run, Status::Cancelled, "").await;
    assert_eq!(driver.claim(driver.worker().await).await, []);
}

#[tokio::test]
async fn an_outsider_does_not_drive() {
    let folder = Folder::new();
    let driver = folder.world(folder.drive());
    let held = driver.held(|_| {}).await;
    let outsider = folder.open(Role::Outsider).unwrap();
    let prune = PruneAsk {
        runs_older: Millis::ZERO,
        blobs_older: Millis::ZERO,
        limit: 1,
    };
    let append = longhaul_core::port::store::Append {
        run: held.run,
        author: held.author(),
        batch: says([progress(1)]),
    };
    assert!(matches!(held.author(), Author::Driver { .. }));
    let refused = [
        outsider.claim(claim_ask(held.worker)).await.err(),
        outsider.renew(beat(held.worker)).await.err(),
        outsider.prune(prune).await.err(),
        outsider.append(append).await.err(),
        outsider.repair().await.err(),
        outsider.due(1).await.err(),
    ];
    for error in refused {
        assert!(
            matches!(error, Some(StoreError::Outsider { .. })),
            "{error:?}"
        );
    }
}

#[tokio::test]
async fn commits_of_this_and_other_stores_are_heard() {
    let folder = Folder::new();
    let driver = folder.world(folder.drive());
    let mut watch = driver.at.store.watch();
    driver.open(|_| {}).await;
    watch.changed().await.unwrap();
    let outsider = folder.world(folder.open(Role::Outsider).unwrap());
    let mut watch = driver.at.store.watch();
    let run = outsider.open(|_| {}).await;
    // Looked for every 20 ms; what is heard may be older than what is waited for.
    let worker = driver.worker().await;
    let mut seen = runs(&driver.claim(worker).await);
    while !seen.contains(&run) {
        watch.changed().await.unwrap();
        seen = runs(&driver.claim(worker).await);
    }
}

#[tokio::test]
async fn a_watch_ends_with_its_store() {
    let folder = Folder::new();
    let store = folder.drive();
    let mut watch = store.watch();
    drop(store);
    let ended = watch.changed().await;
    assert!(matches!(ended, Err(StoreError::Closed { .. })), "{ended:?}");
}

#[tokio::test]
async fn looking_and_finding_nothing_rings_no_bell() {
    let clock = longhaul_testkit::clock::SimClock::new();
    let options = Options::new(
        "sqlite::memory:",
        Role::Driver,
        std::sync::Arc::new(clock.clone()),
    );
    let store = open(options).unwrap();
    let world = longhaul_testkit::conformance::store::kit::World::new(
        longhaul_testkit::conformance::harness::Harness::new(store, clock),
    );
    let worker = world.worker().await;
    let mut watch = world.at.store.watch();
    assert_eq!(world.claim(worker).await, []);
    world.beat(worker).await;
    world.is_in_order().await;
    let heard = tokio::select! {
        biased;
        _ = watch.changed() => true,
        () = std::future::ready(()) => false,
    };
    assert!(
        !heard,
        "whoever claims when it hears the bell would never rest"
    );
}

#[test]
fn several_may_make_the_same_store_at_once() {
    let folder = Folder::new();
    std::thread::scope(|scope| {
        let open = || folder.open(Role::Outsider).map(drop).unwrap();
        let threads: Vec<_> = (0..8).map(|_| scope.spawn(open)).collect();
        for thread in threads {
            thread.join().unwrap();
        }
    });
}

#[test]
fn folders_are_made() {
    let folder = Folder::new();
    let file = folder.dir.path().join("a/b/longhaul.db");
    drop(open(super::kit::options(&file, Role::Driver, &folder.clock)).unwrap());
    assert!(file.is_file() && file.with_file_name("driver.lock").is_file());
}

/// A clock on which every look takes a second.
#[derive(Debug, Default)]
struct Hurry(std::sync::atomic::AtomicI64);

#[async_trait::async_trait]
impl Clock for Hurry {
    fn now(&self) -> Timestamp {
        let seconds = self.0.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        Timestamp::from_micros(seconds * 1_000_000)
    }

    async fn sleep(&self, _: Millis) {}
}

#[tokio::test]
async fn a_look_that_takes_too_long_is_cut_off() {
    let folder = Folder::new();
    let hurry = std::sync::Arc::new(Hurry::default());
    let store = open(Options {
        clock: hurry,
        ..folder.options(Role::Driver)
    });
    let world = folder.world(store.unwrap());
    let runs = (0..3_000).map(|_| world.new_run(|_| {})).collect();
    world.ask(runs).await;
    let rows = async |limit| {
        let ask = RowsAsk {
            limit,
            ..RowsAsk::default()
        };
        world.at.store.rows(ask).await.map(|rows| rows.len())
    };
    let error = rows(usize::MAX).await.unwrap_err();
    assert!(matches!(error, StoreError::Database { .. }), "{error}");
    assert_eq!(rows(10).await.unwrap(), 10, "the next look sees as before");
}

#[tokio::test]
async fn a_request_is_repeatable_at_once_after_its_server_died() {
    let folder = Folder::new();
    let ask = |key: &str| ReplyAsk {
        of: ReplyKey {
            principal: "key:ops".to_owned(),
            key: key.to_owned(),
        },
        body: Hash::of(b"body"),
        keep: Millis::from_secs(86_400),
        lease: Millis::from_secs(60),
    };
    let world = folder.world(folder.drive());
    let run = world.open(|_| {}).await;
    for key in ["before", "after"] {
        let begun = world.at.keyring.begin_reply(ask(key)).await.unwrap();
        assert_eq!(begun, Begun::Mine);
    }
    let mut batch = says([cancel_requested()]);
    batch.changes.push(Change::MarkReply(ask("after").of));
    let Appended::At { seq, .. } = world.tell(run, batch).await else {
        panic!("the run takes it");
    };
    drop(world);

    let world = folder.world(folder.drive());
    let begin = async |key: &str| world.at.keyring.begin_reply(ask(key)).await.unwrap();
    assert_eq!(begin("before").await, Begun::Mine);
    let applied = Begun::Applied(Effect::Events { run, seq });
    assert_eq!(begin("after").await, applied);
    assert_eq!(begin("after").await, Begun::Running);
}
