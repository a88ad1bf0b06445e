//! Tests of claims: several inboxes, types, filters, the hook for an empty queue, and the release of
//! runs at shutdown.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, mpsc};

use async_trait::async_trait;
use longhaul_core::id::{InboxName, ResourceKey, RunId};
use longhaul_core::port::store::RunFilter;
use longhaul_core::status::Status;
use longhaul_core::task::TaskSpec;
use longhaul_core::time::Millis;
use longhaul_engine::Task;
use longhaul_engine::shutdown::Shutdown;
use longhaul_engine::worker::WorkerHooks;
use longhaul_engine::worker::{TaskFilter, WorkerOptions};
use tokio::sync::watch;

use crate::suite::harness::model::FakeReply;
use crate::suite::harness::{TIMEOUT, TestEngine, engine_with};

/// Records the order of the claimed runs, and counts the calls of `on_empty`.
#[derive(Debug, Default)]
pub(crate) struct ClaimLog {
    claimed: Mutex<Vec<RunId>>,
    emptied: watch::Sender<usize>,
    /// Number of calls of `on_empty` before the first run was claimed.
    emptied_before_claim: OnceLock<usize>,
}

#[async_trait]
impl WorkerHooks for ClaimLog {
    async fn on_run_claimed(&self, run: RunId) {
        self.emptied_before_claim.get_or_init(|| *self.emptied.borrow());
        self.claimed.lock().unwrap().push(run);
    }

    async fn on_no_run_found(&self) {
        self.emptied.send_modify(|count| *count += 1);
    }
}

impl ClaimLog {
    pub(crate) fn claimed(&self) -> Vec<RunId> {
        self.claimed.lock().unwrap().clone()
    }

    pub(crate) async fn emptied(&self, count: usize) {
        let mut counts = self.emptied.subscribe();
        let reached = counts.wait_for(|now| *now >= count);
        tokio::time::timeout(TIMEOUT, reached).await.expect("the queue is emptied").unwrap();
    }
}

pub(crate) async fn submit(engine: &TestEngine, change: impl FnOnce(&mut Task)) -> RunId {
    let mut task = Task::new("tester", "Do it.");
    change(&mut task);
    engine.longhaul.submit(task).await.unwrap()
}

fn inbox(name: &str) -> InboxName {
    InboxName::new(name).unwrap()
}

pub(crate) async fn status(engine: &TestEngine, run: RunId) -> Status {
    engine.longhaul.run_row(run).await.unwrap().status
}

/// Starts a worker that drives one run at a time.
pub(crate) fn start(
    engine: &mut TestEngine,
    log: &Arc<ClaimLog>,
    filter: Option<TaskFilter>,
    change: impl FnOnce(&mut WorkerOptions),
) -> Shutdown {
    engine.spawn_worker_with(
        |options| {
            options.concurrency = 1;
            change(options);
        },
        |worker| match filter {
            Some(filter) => worker.with_hooks(log.clone()).with_filter(filter),
            None => worker.with_hooks(log.clone()),
        },
    )
}

#[tokio::test]
async fn a_full_inbox_does_not_starve_the_others() {
    let mut engine = engine_with([FakeReply::Text("done")]).build();
    let mut runs = Vec::new();
    for _ in 0..17 {
        runs.push(submit(&engine, |task| task.inbox = Some(inbox("alpha"))).await);
    }
    let beta = submit(&engine, |task| task.inbox = Some(inbox("beta"))).await;
    let gamma = submit(&engine, |task| task.inbox = Some(inbox("gamma"))).await;
    let log = Arc::<ClaimLog>::default();
    start(&mut engine, &log, None, |options| {
        options.inboxes = ["alpha", "beta", "gamma"].map(inbox).to_vec();
    });
    for run in runs.iter().chain([&beta, &gamma]) {
        engine.ended(*run).await;
    }
    let first = &log.claimed()[..3];
    assert!(first.contains(&beta) && first.contains(&gamma), "{first:?}");
}

#[tokio::test]
async fn a_worker_claims_only_its_types() {
    let mut engine = engine_with([FakeReply::Text("done")]).build();
    let call = submit(&engine, |task| task.kind = Some("call".into())).await;
    let untyped = submit(&engine, |_| {}).await;
    let mail = submit(&engine, |task| task.kind = Some("mail".into())).await;
    let log = Arc::<ClaimLog>::default();
    start(&mut engine, &log, None, |options| options.types = vec!["mail".into(), "fax".into()]);
    engine.ended(mail).await;
    log.emptied(1).await;
    assert_eq!(log.claimed(), [mail]);
    for run in [call, untyped] {
        assert_eq!(status(&engine, run).await, Status::Pending);
    }
}

#[tokio::test]
async fn a_worker_of_one_tree_claims_no_other_run() {
    let mut engine = engine_with([FakeReply::Text("done")]).build();
    let other = submit(&engine, |_| {}).await;
    let root = submit(&engine, |task| task.inbox = Some(inbox("mail"))).await;
    let log = Arc::<ClaimLog>::default();
    start(&mut engine, &log, None, |options| {
        options.inboxes.clear();
        options.only_tree = Some(root);
    });
    engine.ended(root).await;
    log.emptied(1).await;
    assert_eq!(log.claimed(), [root]);
    let explanation = engine.longhaul.explain_run(other).await.unwrap();
    assert!(explanation.message.contains("only its own run"), "{}", explanation.message);
    assert_eq!(explanation.command, format!("longhaul watch {other}"));
    let row = engine.longhaul.run_row(other).await.unwrap();
    assert!(engine.longhaul.explain_unstarted_run(&row).await.unwrap().is_some());
}

#[tokio::test]
async fn a_filter_finds_the_accepted_run_behind_many_refused_ones() {
    let mut engine = engine_with([FakeReply::Text("done")]).build();
    let mut refused = Vec::new();
    for _ in 0..150 {
        refused.push(submit(&engine, |_| {}).await);
    }
    let accepted =
        submit(&engine, |task| task.resource = Some(ResourceKey::new("mine").unwrap())).await;
    let (calls, log) = (Arc::new(AtomicUsize::new(0)), Arc::<ClaimLog>::default());
    let count = Arc::clone(&calls);
    let filter = TaskFilter::new(move |task: &TaskSpec| {
        count.fetch_add(1, Ordering::Relaxed);
        assert_eq!(task.input.as_str(), "\"Do it.\"");
        task.resource.is_some()
    });
    start(&mut engine, &log, Some(filter), |_| {});
    engine.ended(accepted).await;
    log.emptied(1).await;
    // An idle worker does not call the filter again, however often it polls.
    let before = calls.load(Ordering::Relaxed);
    let urgent = submit(&engine, |task| {
        task.priority = 9;
        task.resource = Some(ResourceKey::new("mine").unwrap());
    });
    let urgent = urgent.await;
    engine.ended(urgent).await;
    log.emptied(2).await;
    assert_eq!(log.claimed(), [accepted, urgent]);
    assert!(before <= 4 * 151, "{before} calls for 151 tasks");
    assert_eq!(status(&engine, refused[0]).await, Status::Pending);
}

#[tokio::test]
async fn a_filter_that_panics_or_blocks_refuses_only_its_task() {
    let mut engine = engine_with([FakeReply::Text("done")]).build();
    let panicking = submit(&engine, |task| task.kind = Some("panics".into())).await;
    let stuck = submit(&engine, |task| task.kind = Some("blocks".into())).await;
    let good = submit(&engine, |_| {}).await;
    let calls = Arc::<Mutex<Vec<String>>>::default();
    let called = Arc::clone(&calls);
    // The sender lives as long as the test, so that the receiver blocks.
    let (_sender, receiver) = mpsc::channel::<()>();
    let receiver = Mutex::new(receiver);
    let filter = TaskFilter::new(move |task: &TaskSpec| {
        let Some(kind) = &task.kind else { return true };
        called.lock().unwrap().push(kind.clone());
        assert_ne!(kind, "panics", "a bug in the filter");
        receiver.lock().unwrap().recv().is_ok()
    });
    let log = Arc::<ClaimLog>::default();
    let stop = start(&mut engine, &log, Some(filter), |_| {});
    engine.ended(good).await;
    // The queue has changed: the filter is not called again for the tasks that it failed for.
    let later = submit(&engine, |_| {}).await;
    engine.ended(later).await;
    log.emptied(1).await;
    stop.request_drain();
    engine.worker_stopped().await;
    assert_eq!(*calls.lock().unwrap(), ["panics", "blocks"]);
    for run in [panicking, stuck] {
        assert_eq!(status(&engine, run).await, Status::Pending);
    }
}

#[tokio::test]
async fn a_filter_that_refuses_everything_leaves_the_runs_to_other_workers() {
    let mut engine = engine_with([FakeReply::Text("done")]).build();
    let log = Arc::<ClaimLog>::default();
    start(&mut engine, &log, Some(TaskFilter::new(|_| false)), |_| {});
    let mut runs = BTreeSet::new();
    for _ in 0..70 {
        runs.insert(submit(&engine, |_| {}).await);
    }
    log.emptied(1).await;
    engine.spawn_worker(|_| {});
    for run in runs {
        engine.ended(run).await;
    }
    assert_eq!(log.claimed(), []);
}

#[tokio::test]
async fn the_empty_hook_is_called_once_per_emptying() {
    let mut engine = engine_with([FakeReply::Text("done")]).build();
    let log = Arc::<ClaimLog>::default();
    let stop = start(&mut engine, &log, None, |_| {});
    log.emptied(1).await;
    for count in 2..6 {
        let run = engine.submit().await;
        engine.ended(run).await;
        log.emptied(count).await;
    }
    stop.request_drain();
    engine.worker_stopped().await;
    assert_eq!(*log.emptied.borrow(), 5, "at the start, and after each of the four runs");
}

#[tokio::test]
async fn the_empty_hook_is_not_called_while_claims_are_refused() {
    for filter in [None, Some(TaskFilter::new(|_| true))] {
        let mut engine = engine_with([FakeReply::Text("done")]).build();
        let run = engine.submit().await;
        engine.store.refuse_claims(3);
        let log = Arc::<ClaimLog>::default();
        start(&mut engine, &log, filter, |_| {});
        engine.ended(run).await;
        log.emptied(1).await;
        assert_eq!(log.emptied_before_claim.get(), Some(&0));
    }
}

/// Hooks whose `on_start` blocks its thread until the sender is dropped.
#[derive(Debug)]
struct BlockingHooks {
    started: watch::Sender<bool>,
    receiver: Mutex<mpsc::Receiver<()>>,
}

#[async_trait]
impl WorkerHooks for BlockingHooks {
    async fn on_run_claimed(&self, _run: RunId) {
        self.started.send_replace(true);
        assert!(self.receiver.lock().unwrap().recv().is_err());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn runs_that_do_not_end_at_shutdown_are_ready_at_once() {
    let mut engine = engine_with([FakeReply::Text("done")]).with_sim_clock().build();
    let (sender, receiver) = mpsc::channel();
    let started = watch::Sender::new(false);
    let mut is_started = started.subscribe();
    let hooks = Arc::new(BlockingHooks { started, receiver: Mutex::new(receiver) });
    let stop = engine.spawn_worker_with_hooks(hooks);
    let run = engine.submit().await;
    is_started.wait_for(|started| *started).await.unwrap();
    stop.request_drain();
    let clock = engine.clock.clone().unwrap();
    let advance = async {
        loop {
            clock.advance(Millis::from_secs(1));
            tokio::task::yield_now().await;
        }
    };
    tokio::select! {
        () = engine.worker_stopped() => {}
        () = advance => {}
    }
    let row = engine.longhaul.run_row(run).await.unwrap();
    assert_eq!((row.worker, row.reason.as_deref()), (None, Some("worker")));
    drop(sender);
}

#[tokio::test]
async fn a_run_that_no_worker_takes_says_why() {
    let mut engine = engine_with([FakeReply::Text("done")]).build();
    let run = submit(&engine, |task| {
        task.inbox = Some(inbox("mail"));
        task.kind = Some("letter".into());
    });
    let run = run.await;
    let explanation = engine.longhaul.explain_run(run).await.unwrap();
    assert_eq!(explanation.message, "The run waits for a worker.");
    let workers = [
        (inbox("default"), "No worker serves the inbox `mail`"),
        (inbox("mail"), "The workers of the inbox `mail` do not take tasks of the type `letter`:"),
    ];
    for (served, message) in workers {
        let log = Arc::<ClaimLog>::default();
        start(&mut engine, &log, None, |options| {
            options.inboxes = vec![served];
            options.types = vec!["invoice".into()];
        });
        log.emptied(1).await;
        let explanation = engine.longhaul.explain_run(run).await.unwrap();
        assert!(explanation.message.contains(message), "{}", explanation.message);
        assert_eq!(explanation.command, "", "a second worker can't drive the store");
        assert_eq!(engine.longhaul.get_run(run).await.unwrap().now, explanation.message);
        let filter = RunFilter { limit: 10, ..RunFilter::default() };
        let listed = engine.longhaul.list_brief_runs(filter).await.unwrap();
        assert_eq!(listed[0].now, explanation.message);
    }
    engine.spawn_worker(|options| options.inboxes = vec![inbox("mail")]);
    engine.ended(run).await;
}
