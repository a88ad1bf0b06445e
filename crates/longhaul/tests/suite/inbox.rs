//! Tests of external inboxes, also of those that misbehave.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use longhaul::inbox::{ClaimFilter, Inbox, InboxError, InboxTask, TaskFailure};
use longhaul::{HandlerError, RunId, RunView, Runtime, Status, Task, WorkerHandle, async_trait};
use tokio::sync::Notify;
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};

#[path = "../../examples/custom_inbox.rs"]
mod custom_inbox;
#[path = "../../examples/inbox_worker.rs"]
mod inbox_worker;

const TIMEOUT: Duration = Duration::from_secs(30);

#[test]
fn the_examples_run() {
    inbox_worker::main().unwrap();
    custom_inbox::main().unwrap();
}

/// A list of texts that tests wait for.
#[derive(Debug, Default, Clone)]
struct Log(Arc<(Mutex<Vec<String>>, Notify)>);

impl Log {
    fn add(&self, text: impl Into<String>) {
        self.0.0.lock().unwrap().push(text.into());
        self.0.1.notify_waiters();
    }

    fn texts(&self) -> Vec<String> {
        self.0.0.lock().unwrap().clone()
    }

    /// Waits until there are this many texts, and returns them.
    async fn wait_for(&self, count: usize) -> Vec<String> {
        let poll = async {
            loop {
                let changed = self.0.1.notified();
                if self.texts().len() >= count {
                    return self.texts();
                }
                changed.await;
            }
        };
        let texts = tokio::time::timeout(TIMEOUT, poll).await;
        texts.unwrap_or_else(|_| panic!("only {:?}", self.texts()))
    }
}

async fn runtime(calls: &Arc<AtomicUsize>) -> Runtime {
    let counter = Arc::clone(calls);
    let builder = Runtime::builder().store("sqlite::memory:");
    builder
        .handler("echo", move |request, _| {
            counter.fetch_add(1, Ordering::Relaxed);
            async move {
                match request.input::<String>()? {
                    text if text == "fail" => Err(HandlerError::new("no such text")),
                    text => Ok(text),
                }
            }
        })
        .open()
        .await
        .unwrap()
}

fn task(id: &str, text: &str) -> InboxTask {
    InboxTask::new(id, Task::new("echo").input(text))
}

fn end_text(id: &str, result: Result<&RunView, &TaskFailure>) -> String {
    match result {
        Ok(run) => format!("{id}: {}", run.output.as_ref().unwrap().text),
        Err(failure) if failure.run.is_some() => format!("{id}: failed run"),
        Err(failure) => format!("{id}: {}", failure.error.code),
    }
}

/// An inbox whose tasks a function of the test returns. It records their ends.
struct TestInbox<F> {
    name: &'static str,
    claim: F,
    ends: Log,
}

impl<F> std::fmt::Debug for TestInbox<F> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name)
    }
}

#[async_trait]
impl<F: Fn() -> Vec<InboxTask> + Send + Sync + 'static> Inbox for TestInbox<F> {
    fn name(&self) -> &str {
        self.name
    }

    async fn claim(&self, _: &ClaimFilter) -> Result<Vec<InboxTask>, InboxError> {
        Ok((self.claim)())
    }

    async fn complete(&self, id: &str, run: &RunView) -> Result<(), InboxError> {
        self.ends.add(end_text(id, Ok(run)));
        Ok(())
    }

    async fn fail(&self, id: &str, failure: &TaskFailure) -> Result<(), InboxError> {
        self.ends.add(end_text(id, Err(failure)));
        Ok(())
    }
}

#[tokio::test]
async fn the_tasks_of_an_inbox_become_runs_and_their_ends_are_reported() {
    let runtime = runtime(&Arc::default()).await;
    let tasks = vec![
        task("a", "Hello."),
        task("b", "fail"),
        InboxTask::new("c", Task::new("unknown")),
        InboxTask::new("d", Task::new("echo").input("x".repeat(2 << 20))),
    ];
    let pending_tasks = Mutex::new(tasks);
    let log = Log::default();
    let claim = move || std::mem::take(&mut *pending_tasks.lock().unwrap());
    let notes = TestInbox { name: "notes", claim, ends: log.clone() };
    let worker = runtime.worker().source(notes).spawn();
    let mut texts = log.wait_for(4).await;
    texts.sort();
    assert_eq!(texts, ["a: Hello.", "b: failed run", "c: agent_not_found", "d: too_long"]);
    worker.stop().await.unwrap();
}

#[tokio::test]
async fn a_task_that_is_claimed_again_is_executed_once() {
    let calls = Arc::new(AtomicUsize::new(0));
    let runtime = runtime(&calls).await;
    let ends = Log::default();
    // Each worker claims the task again, as after a crash.
    for _ in 0..3 {
        let claims = Log::default();
        let claim_log = claims.clone();
        let claim = move || {
            claim_log.add("claim");
            vec![task("a", "Hello.")]
        };
        let source = TestInbox { name: "notes", claim, ends: ends.clone() };
        let worker = runtime.worker().source(source).spawn();
        // The second claim comes after the first one was submitted.
        claims.wait_for(2).await;
        ends.wait_for(1).await;
        worker.stop().await.unwrap();
    }
    // A stop between a report and its record in the store lets the next worker report again.
    assert!(ends.texts().iter().all(|end| end == "a: Hello."), "{:?}", ends.texts());
    assert_eq!(calls.load(Ordering::Relaxed), 1);
}

/// An inbox whose calls fail, panic or never return at first.
#[derive(Debug)]
struct FlakyInbox {
    log: Log,
    claims: AtomicUsize,
    completions: AtomicUsize,
}

#[async_trait]
impl Inbox for FlakyInbox {
    fn name(&self) -> &str {
        "flaky"
    }

    async fn claim(&self, filter: &ClaimFilter) -> Result<Vec<InboxTask>, InboxError> {
        assert!(filter.types.is_empty() && filter.limit <= 64);
        match self.claims.fetch_add(1, Ordering::Relaxed) {
            0 => Err("not yet".into()),
            1 => panic!("this inbox panics"),
            2 => Ok(vec![task("a", "Hello.")]),
            _ => std::future::pending().await,
        }
    }

    async fn start(&self, id: &str, _run: RunId) -> Result<(), InboxError> {
        self.log.add(format!("start {id}"));
        Err("start fails".into())
    }

    async fn complete(&self, id: &str, run: &RunView) -> Result<(), InboxError> {
        assert_eq!(run.status, Status::Completed);
        self.log.add(format!("complete {id}"));
        match self.completions.fetch_add(1, Ordering::Relaxed) {
            0 => Err("not now".into()),
            _ => Ok(()),
        }
    }

    async fn fail(&self, id: &str, _failure: &TaskFailure) -> Result<(), InboxError> {
        self.log.add(format!("fail {id}"));
        Ok(())
    }

    async fn on_complete(&self, id: &str, _run: &RunView) {
        self.log.add(format!("on_complete {id}"));
        panic!("this hook panics");
    }
}

#[tokio::test]
async fn a_flaky_inbox_loses_nothing_and_stops_nothing() {
    let runtime = runtime(&Arc::default()).await;
    let log = Log::default();
    let flaky = FlakyInbox {
        log: log.clone(),
        claims: AtomicUsize::new(0),
        completions: AtomicUsize::new(0),
    };
    let worker: WorkerHandle = runtime.worker().source(flaky).spawn();
    let texts = log.wait_for(4).await;
    assert_eq!(texts, ["start a", "complete a", "complete a", "on_complete a"]);
    // The claim that never returns does not block the other runs.
    let other_run = runtime.submit(Task::new("echo").input("x")).await.unwrap();
    assert_eq!(other_run.wait().await.unwrap().text().unwrap(), "x");
    worker.stop().await.unwrap();
}

/// An inbox that returns the same tasks at every claim.
#[derive(Debug)]
struct RepeatingInbox {
    tasks: Vec<InboxTask>,
    claims: UnboundedSender<()>,
    log: Log,
}

#[async_trait]
impl Inbox for RepeatingInbox {
    fn name(&self) -> &str {
        "repeating"
    }

    async fn claim(&self, _filter: &ClaimFilter) -> Result<Vec<InboxTask>, InboxError> {
        _ = self.claims.send(());
        Ok(self.tasks.clone())
    }

    async fn complete(&self, id: &str, run: &RunView) -> Result<(), InboxError> {
        self.log.add(end_text(id, Ok(run)));
        Ok(())
    }

    async fn fail(&self, id: &str, failure: &TaskFailure) -> Result<(), InboxError> {
        match failure.error.code.as_str() {
            "agent_not_found" => Err("not now".into()),
            _ => {
                self.log.add(end_text(id, Err(failure)));
                Ok(())
            }
        }
    }
}

#[tokio::test]
async fn open_tasks_that_are_returned_again_cause_no_busy_loop() {
    let calls = Arc::new(AtomicUsize::new(0));
    let runtime = runtime(&calls).await;
    let ((claim_sender, mut claim_receiver), log) = (unbounded_channel(), Log::default());
    let tasks: Vec<InboxTask> = (0..100).map(|id| task(&id.to_string(), "Hello.")).collect();
    let inbox = RepeatingInbox { tasks, claims: claim_sender, log: log.clone() };
    let worker = runtime.worker().source(inbox).max_concurrent(8).spawn();
    log.wait_for(100).await;
    while claim_receiver.try_recv().is_ok() {}
    let wait_for_claims = async {
        for _ in 0..5 {
            claim_receiver.recv().await;
        }
    };
    assert!(tokio::time::timeout(Duration::from_secs(2), wait_for_claims).await.is_err());
    worker.stop().await.unwrap();
    assert_eq!(calls.load(Ordering::Relaxed), 100);
}

#[tokio::test]
async fn postponed_tasks_do_not_stop_the_others() {
    let runtime = runtime(&Arc::default()).await;
    let log = Log::default();
    let unknown = |id: usize| InboxTask::new(format!("unknown {id}"), Task::new("unknown"));
    let mut tasks: Vec<InboxTask> = (0..100).map(unknown).collect();
    tasks.push(task("a", "Hello."));
    let inbox = RepeatingInbox { tasks, claims: unbounded_channel().0, log: log.clone() };
    let worker = runtime.worker().source(inbox).spawn();
    assert_eq!(log.wait_for(1).await, ["a: Hello."]);
    let late_run = runtime.submit(Task::new("echo").input("x")).await.unwrap();
    assert_eq!(late_run.wait().await.unwrap().text().unwrap(), "x");
    worker.stop().await.unwrap();
}

/// An inbox that claims tasks as its filter says, and records the order of the calls.
#[derive(Debug)]
struct StrictInbox {
    name: &'static str,
    tasks: Mutex<Vec<InboxTask>>,
    log: Log,
}

#[async_trait]
impl Inbox for StrictInbox {
    fn name(&self) -> &str {
        self.name
    }

    async fn claim(&self, filter: &ClaimFilter) -> Result<Vec<InboxTask>, InboxError> {
        let mut tasks = self.tasks.lock().unwrap();
        let accepted = tasks.extract_if(.., |task| filter.accepts_task(task));
        let accepted: Vec<InboxTask> = accepted.take(filter.limit).collect();
        accepted.iter().for_each(|task| self.log.add(format!("claim {}", task.task_id())));
        Ok(accepted)
    }

    async fn complete(&self, id: &str, _run: &RunView) -> Result<(), InboxError> {
        self.log.add(format!("complete {id}"));
        Ok(())
    }

    async fn fail(&self, id: &str, _failure: &TaskFailure) -> Result<(), InboxError> {
        self.log.add(format!("fail {id}"));
        Ok(())
    }

    async fn on_complete(&self, id: &str, _run: &RunView) {
        self.log.add(format!("on_complete {id}"));
        panic!("this hook panics");
    }

    async fn on_error(&self, id: &str, _failure: &TaskFailure) {
        self.log.add(format!("on_error {id}"));
    }
}

#[tokio::test]
async fn a_task_is_claimed_only_if_a_permit_is_free() {
    let log = Log::default();
    let end_log = log.clone();
    let runtime = Runtime::builder()
        .store("sqlite::memory:")
        .handler("echo", move |request, _| {
            let log = end_log.clone();
            async move {
                log.add(format!("end {}", request.input::<String>()?));
                Ok(())
            }
        })
        .open()
        .await
        .unwrap();
    let inbox = |name: &'static str| {
        let tasks = (0..4).map(|number| task(&format!("{name} {number}"), name)).collect();
        StrictInbox { name, tasks: Mutex::new(tasks), log: log.clone() }
    };
    let worker = runtime.worker().source(inbox("one")).source(inbox("two")).max_concurrent(2);
    let worker = worker.spawn();
    let completed = |texts: &[String]| {
        texts.iter().filter(|text| text.starts_with("on_complete ")).count() == 8
    };
    let mut count = 1;
    while !completed(&log.wait_for(count).await) {
        count = log.texts().len() + 1;
    }
    worker.stop().await.unwrap();
    let mut open = 0_usize;
    for text in log.texts() {
        open += usize::from(text.starts_with("claim "));
        open -= usize::from(text.starts_with("end "));
        assert!(open <= 2, "{:?}", log.texts());
    }
}

#[tokio::test]
async fn callbacks_come_after_the_calls_of_the_inbox_and_also_for_tasks_without_a_run() {
    let runtime = runtime(&Arc::default()).await;
    let log = Log::default();
    let tasks = vec![
        task("a", "Hello."),
        task("b", "fail"),
        InboxTask::new("c", Task::new("unknown")),
        InboxTask::invalid("d", longhaul::RunError::new("unreadable", "no text", "")),
    ];
    let inbox = StrictInbox { name: "strict", tasks: Mutex::new(tasks), log: log.clone() };
    let [complete_log, error_log, empty_log] = [log.clone(), log.clone(), log.clone()];
    let worker = runtime
        .worker()
        .source(inbox)
        .on_task_complete(move |_| complete_log.add("done a"))
        .on_task_error(move |task| {
            assert_eq!(task.run.is_some(), task.code == "handler_failed");
            error_log.add(format!("done {}: {}", task.task_id.as_deref().unwrap(), task.code));
        })
        .on_empty(move || empty_log.add("empty"))
        .spawn();
    let texts = log.wait_for(17).await;
    worker.stop().await.unwrap();
    assert_eq!(log.texts().len(), 17, "{texts:?}");
    for expected in [
        ["claim a", "complete a", "on_complete a", "done a"],
        ["claim b", "fail b", "on_error b", "done b: handler_failed"],
        ["claim c", "fail c", "on_error c", "done c: agent_not_found"],
        ["claim d", "fail d", "on_error d", "done d: unreadable"],
        ["claim a", "claim b", "claim d", "empty"],
    ] {
        let positions = expected.map(|text| {
            let position = texts.iter().position(|other| other == text);
            position.unwrap_or_else(|| panic!("{text} is not in {texts:?}"))
        });
        assert!(positions.is_sorted(), "{expected:?}: {texts:?}");
    }
}

#[tokio::test]
async fn the_types_and_the_filter_of_a_worker_reach_its_inboxes() {
    let runtime = runtime(&Arc::default()).await;
    let log = Log::default();
    let echo = |id: &str, kind: &str, priority: i32| {
        let task = Task::new("echo").input("Hello.").kind(kind).priority(priority);
        InboxTask::new(id, task)
    };
    let tasks = vec![echo("a", "mail", 0), echo("b", "mail", 1), echo("c", "note", 1)];
    let inbox = StrictInbox { name: "strict", tasks: Mutex::new(tasks), log: log.clone() };
    let empty_log = log.clone();
    let worker = runtime
        .worker()
        .source(inbox)
        .types(["mail"])
        .filter(|task| task.inbox.as_str() == "strict" && task.priority > 0)
        .on_empty(move || empty_log.add("empty"))
        .spawn();
    let mut texts = log.wait_for(4).await;
    worker.stop().await.unwrap();
    texts.sort();
    assert_eq!(texts, ["claim b", "complete b", "empty", "on_complete b"]);
}

#[tokio::test]
async fn an_invalid_inbox_name_is_an_error_of_the_worker() {
    let runtime = runtime(&Arc::default()).await;
    let inbox = TestInbox { name: "two\nlines", claim: Vec::new, ends: Log::default() };
    let worker = runtime.worker().source(inbox).spawn();
    assert_eq!(worker.stop().await.unwrap_err().code(), "invalid_name");
}
