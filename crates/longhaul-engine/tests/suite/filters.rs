//! Tests of task filters: failed reads and claims, filters that block, and shutdown.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, mpsc};

use longhaul_core::status::Status;
use longhaul_core::task::TaskSpec;
use longhaul_core::time::Millis;
use longhaul_engine::worker::TaskFilter;
use tokio::sync::watch;

use crate::suite::claims::{ClaimLog, start, status, submit};
use crate::suite::harness::failing_store::{FailingStore, StoreFault};
use crate::suite::harness::model::FakeReply;
use crate::suite::harness::{TIMEOUT, engine_with};

/// Part of a filter that blocks the calling thread until it is opened, and counts the blocked calls.
#[derive(Debug)]
struct ThreadBlocker {
    arrived: watch::Sender<usize>,
    sender: Mutex<Option<mpsc::Sender<()>>>,
    receiver: Mutex<mpsc::Receiver<()>>,
}

impl ThreadBlocker {
    fn new() -> Arc<Self> {
        let (sender, receiver) = mpsc::channel();
        Arc::new(Self {
            arrived: watch::Sender::new(0),
            sender: Mutex::new(Some(sender)),
            receiver: Mutex::new(receiver),
        })
    }

    /// Returns a filter that blocks for tasks with a type and accepts the others.
    fn filter(self: &Arc<Self>) -> TaskFilter {
        let blocker = Arc::clone(self);
        TaskFilter::new(move |task: &TaskSpec| {
            if task.kind.is_some() {
                blocker.arrived.send_modify(|count| *count += 1);
                assert!(blocker.receiver.lock().unwrap().recv().is_err());
            }
            true
        })
    }

    async fn arrived(&self, count: usize) {
        let mut counts = self.arrived.subscribe();
        let reached = counts.wait_for(|now| *now >= count);
        tokio::time::timeout(TIMEOUT, reached).await.expect("the filter is called").unwrap();
    }

    /// Lets every call return.
    fn open(&self) {
        self.sender.lock().unwrap().take();
    }
}

impl Drop for ThreadBlocker {
    fn drop(&mut self) {
        self.open();
    }
}

#[tokio::test]
async fn an_accepted_run_is_claimed_after_a_failed_read_or_claim() {
    let faults: [fn(&FailingStore); 4] = [
        |store| store.fail_claim(StoreFault::Busy),
        |store| store.fail_claim(StoreFault::Full),
        |store| store.refuse_claims(1),
        |store| store.fail_reads(StoreFault::Busy, 1),
    ];
    for fault in faults {
        let mut engine = engine_with([FakeReply::Text("done")]).build();
        let run = engine.submit().await;
        fault(&engine.store);
        let log = Arc::<ClaimLog>::default();
        start(&mut engine, &log, Some(TaskFilter::new(|_| true)), |_| {});
        let failed = async {
            while !engine.store.has_failed() {
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(TIMEOUT, failed).await.expect("the store fails");
        engine.ended(run).await;
    }
}

#[tokio::test]
async fn a_filter_that_changes_its_mind_is_called_again() {
    let mut engine = engine_with([FakeReply::Text("done")]).build();
    let run = engine.submit().await;
    let (accepts, log) = (Arc::new(AtomicBool::new(false)), Arc::<ClaimLog>::default());
    let answer = Arc::clone(&accepts);
    let filter = TaskFilter::new(move |_| answer.load(Ordering::SeqCst));
    start(&mut engine, &log, Some(filter), |_| {});
    log.emptied(1).await;
    accepts.store(true, Ordering::SeqCst);
    engine.ended(run).await;
}

#[tokio::test]
async fn a_shutdown_does_not_wait_for_a_filter_that_blocks() {
    let mut engine = engine_with([FakeReply::Text("done")]).with_sim_clock().build();
    let run = submit(&engine, |task| task.kind = Some("blocks".into())).await;
    let (blocker, log) = (ThreadBlocker::new(), Arc::<ClaimLog>::default());
    let stop = start(&mut engine, &log, Some(blocker.filter()), |_| {});
    blocker.arrived(1).await;
    stop.request_drain();
    engine.worker_stopped().await;
    assert_eq!(status(&engine, run).await, Status::Pending);
    blocker.open();
}

#[tokio::test]
async fn an_accepted_run_does_not_wait_for_the_rest_of_a_slow_page() {
    let mut engine = engine_with([FakeReply::Text("done")]).with_sim_clock().build();
    let accepted = submit(&engine, |_| {}).await;
    submit(&engine, |task| task.kind = Some("refused".into())).await;
    submit(&engine, |task| task.kind = Some("blocks".into())).await;
    let (blocker, log) = (ThreadBlocker::new(), Arc::<ClaimLog>::default());
    let (block, clock) = (Arc::clone(&blocker), engine.clock.clone().unwrap());
    let filter = TaskFilter::new(move |task: &TaskSpec| {
        clock.advance(Millis(600));
        match task.kind.as_deref() {
            Some("blocks") => block.receiver.lock().unwrap().recv().is_ok(),
            Some(_) => false,
            None => true,
        }
    });
    start(&mut engine, &log, Some(filter), |options| options.concurrency = 2);
    engine.ended(accepted).await;
    assert_eq!(log.claimed(), [accepted]);
    blocker.open();
}

#[tokio::test]
async fn a_filter_that_blocks_for_some_tasks_does_not_stop_the_worker() {
    let mut engine = engine_with([FakeReply::Text("done")]).with_sim_clock().build();
    let mut blocked = Vec::new();
    for _ in 0..6 {
        blocked.push(submit(&engine, |task| task.kind = Some("blocks".into())).await);
    }
    let good = submit(&engine, |_| {}).await;
    let (blocker, log) = (ThreadBlocker::new(), Arc::<ClaimLog>::default());
    start(&mut engine, &log, Some(blocker.filter()), |_| {});
    let clock = engine.clock.clone().unwrap();
    for count in 1..=blocked.len() {
        blocker.arrived(count).await;
        clock.advance(Millis::from_secs(1));
    }
    engine.ended(good).await;
    for run in blocked {
        assert_eq!(status(&engine, run).await, Status::Pending);
    }
    blocker.open();
}

#[tokio::test]
async fn a_worker_whose_filter_always_blocks_serves_nothing_until_a_call_returns() {
    let mut engine = engine_with([FakeReply::Text("done")]).with_sim_clock().build();
    let (blocker, log) = (ThreadBlocker::new(), Arc::<ClaimLog>::default());
    let mut runs = Vec::new();
    for _ in 0..40 {
        runs.push(submit(&engine, |task| task.kind = Some("blocks".into())).await);
    }
    start(&mut engine, &log, Some(blocker.filter()), |options| {
        options.lease = Millis::from_secs(30);
    });
    let clock = engine.clock.clone().unwrap();
    for count in 1..=32 {
        blocker.arrived(count).await;
        clock.advance(Millis::from_secs(1));
    }
    let last = *runs.last().unwrap();
    let unserved = async {
        let is_unserved = |message: &str| message.contains("No worker serves the inbox");
        while !is_unserved(&engine.longhaul.explain_run(last).await.unwrap().message) {
            clock.advance(Millis::from_secs(1));
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(TIMEOUT, unserved).await.expect("the worker says that it is blocked");
    assert_eq!((*blocker.arrived.borrow(), log.claimed().len()), (32, 0));
    blocker.open();
    let claimed = async {
        while log.claimed().is_empty() {
            engine.longhaul.services().notifier.notify_runs_ready();
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(TIMEOUT, claimed).await.expect("the worker claims again");
    engine.ended(last).await;
    assert_eq!(status(&engine, runs[0]).await, Status::Pending);
}
