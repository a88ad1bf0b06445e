//! Tests of the workers of one runtime: several in sequence, and the effect of a failed one on callers.

use std::env;
use std::error::Error as _;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use longhaul::{Agent, CancellationToken, Error, Runtime, RuntimeBuilder, Status, Task, models};
use tokio::task::{JoinSet, spawn_blocking};
use tokio::time::timeout;

/// Variable with the folder of the child process, which trusts everything. It is not set in the test itself.
const FOLDER_VAR: &str = "WORKER_TEST_FOLDER";

/// A minimal MCP server as a shell script. It appends a line to the file `started` when it starts.
const MCP_SERVER_SCRIPT: &str = r#"
echo started >> started
while read -r line; do
  id=$(printf '%s' "$line" | sed -n 's/.*"id":\([0-9]*\).*/\1/p')
  answer() { printf '{"jsonrpc":"2.0","id":%s,"result":%s}\n' "$id" "$1"; }
  case "$line" in
    *'"initialize"'*) answer '{"protocolVersion":"2025-06-18","capabilities":{"tools":{}},"serverInfo":{"name":"hi","version":"1"}}' ;;
    *'"tools/list"'*) answer '{"tools":[{"name":"greet","inputSchema":{"type":"object"},"annotations":{"readOnlyHint":true}}]}' ;;
    *'"tools/call"'*) answer '{"content":[{"type":"text","text":"Hello from the server."}]}' ;;
    *'"id"'*) printf '{"jsonrpc":"2.0","id":%s,"error":{"code":-32601,"message":"unknown"}}\n' "$id" ;;
  esac
done
"#;

async fn call_tool_with_two_workers(folder: &Path) {
    let script = "replies: [{ tools: [{ name: 'mcp:hi/greet', input: {} }] }, \
                  { text: '{{ last_result }}' }]";
    let builder = Runtime::builder()
        .store("sqlite::memory:")
        .project(folder)
        .model("script", models::scripted("greets", script).unwrap())
        .agent(Agent::new("greeter").model("script").tool("mcp:hi/greet"));
    let runtime = builder.open().await.unwrap();
    for expected_starts in [1, 2] {
        let worker = runtime.worker().spawn();
        let other_worker = runtime.worker().spawn();
        other_worker.stop().await.unwrap();
        let run = runtime.submit(Task::new("greeter")).await.unwrap();
        let mut events = run.events();
        while let Some(entry) = events.next().await {
            let entry = entry.unwrap();
            assert_ne!(entry.event.kind(), "run.blocked", "{entry:?}");
        }
        let done = run.wait().await.unwrap();
        assert_eq!(done.status, Status::Completed, "{done:?}");
        assert!(done.text().unwrap().contains("Hello from"), "{done:?}");
        worker.stop().await.unwrap();
        let start_log = fs::read_to_string(folder.join("started")).unwrap();
        assert_eq!(start_log.lines().count(), expected_starts);
    }
}

#[tokio::test]
async fn the_mcp_servers_of_a_project_serve_the_next_worker_too() {
    if let Some(folder) = env::var_os(FOLDER_VAR) {
        return call_tool_with_two_workers(Path::new(&folder)).await;
    }
    let folder = tempfile::tempdir().unwrap();
    let servers = r#"{ "mcpServers": { "hi": { "command": "sh", "args": ["server.sh"] } } }"#;
    for (file, text) in
        [("longhaul.toml", ""), (".mcp.json", servers), ("server.sh", MCP_SERVER_SCRIPT)]
    {
        fs::write(folder.path().join(file), text).unwrap();
    }
    // A child process, since the variable that trusts the server must not be set in the test process.
    let child = Command::new(env::current_exe().unwrap())
        .args(["suite::worker::the_mcp_servers_of_a_project_serve_the_next_worker_too"])
        .args(["--exact", "--nocapture"])
        .env(FOLDER_VAR, folder.path())
        .env("LONGHAUL_TRUST", "1")
        .output()
        .unwrap();
    let stderr = String::from_utf8_lossy(&child.stderr);
    assert!(child.status.success(), "{stderr}");
}

fn hello_builder() -> RuntimeBuilder {
    let builder = Runtime::builder().store("sqlite::memory:");
    builder.handler("hello", |_, _| async move { Ok("Hello.") })
}

#[tokio::test]
async fn a_task_waits_in_its_inbox_for_the_worker_that_takes_from_there() {
    let runtime = hello_builder().open().await.unwrap();
    let mail_run = Task::new("hello").inbox("mail").priority(9);
    let mail_run = runtime.submit(mail_run).await.unwrap();
    let default_run = runtime.submit(Task::new("hello")).await.unwrap();
    let worker = runtime.worker().spawn();
    default_run.wait().await.unwrap();
    worker.stop().await.unwrap();
    assert_eq!(mail_run.view().await.unwrap().status, Status::Pending);
    let worker = runtime.worker().inbox("default").inbox("mail").spawn();
    assert_eq!(mail_run.wait().await.unwrap().text().unwrap(), "Hello.");
    worker.stop().await.unwrap();
}

#[tokio::test]
async fn wait_and_submit_return_the_error_of_the_failed_worker() {
    let runtime = hello_builder().open().await.unwrap();
    let task = || Task::new("hello").inbox("mail").idempotency_key("one");
    let run = runtime.submit(task()).await.unwrap();
    let mut waiters = JoinSet::new();
    let waited_run = run.clone();
    waiters.spawn(async move { waited_run.wait().await.map(drop) });
    let good_worker = runtime.worker().spawn();
    let bad_worker = runtime.worker().inbox("two\nlines").spawn();
    let error = bad_worker.stop().await.unwrap_err();
    // Another worker is running, so only the failed worker reports the error.
    assert_eq!(error.code(), "invalid_name");
    let message = error.to_string();
    assert!(message.starts_with("the worker has failed: "), "{message}");
    assert!(message.contains("inbox"), "{message}");
    assert!(error.source().is_some(), "{error:?}");
    // Other callers see no error while a worker is running.
    runtime.submit(task()).await.unwrap();
    good_worker.stop().await.unwrap();
    let error = waiters.join_next().await.unwrap().unwrap().unwrap_err();
    assert!(matches!(error, Error::WorkerFailed(_)), "{error}");
    assert_eq!(error.code(), "worker_failed");
    assert!(error.to_string().contains("inbox"), "{error}");
    assert!(error.source().is_some(), "{error:?}");
    let error = runtime.submit(task()).await.unwrap_err();
    assert!(matches!(error, Error::WorkerFailed(_)), "{error}");
    let mut events = run.events();
    let first = events.next().await.unwrap().unwrap();
    assert_eq!(first.event.kind(), "run.created");
    let error = loop {
        match events.next().await.expect("the stream ends with an error") {
            Ok(_) => {}
            Err(error) => break error,
        }
    };
    assert!(matches!(error, Error::WorkerFailed(_)), "{error}");
    assert!(events.next().await.is_none());
    // The next worker takes over.
    let worker = runtime.worker().inbox("mail").spawn();
    let run = runtime.submit(task()).await.unwrap();
    assert_eq!(run.wait().await.unwrap().text().unwrap(), "Hello.");
    worker.stop().await.unwrap();
    // An ended run can be read whatever happens to workers.
    let error = runtime.worker().inbox("").spawn().stop().await;
    assert!(error.is_err());
    assert_eq!(run.wait().await.unwrap().text().unwrap(), "Hello.");
}

#[tokio::test]
async fn wait_returns_an_error_after_the_worker_panicked() {
    let runtime = hello_builder().open().await.unwrap();
    let run = runtime.submit(Task::new("hello").inbox("mail"));
    let run = run.await.unwrap();
    let worker = runtime.worker();
    // Without timers Tokio panics as soon as the worker waits.
    let join_handle = spawn_blocking(move || {
        let timerless_runtime = tokio::runtime::Builder::new_current_thread().build();
        timerless_runtime.unwrap().block_on(worker.run(CancellationToken::new()))
    });
    assert!(join_handle.await.unwrap_err().is_panic());
    let wait_result = timeout(Duration::from_secs(10), run.wait()).await;
    let error = wait_result.expect("`wait` returns in time").unwrap_err();
    assert!(matches!(error, Error::WorkerFailed(_)), "{error}");
    assert!(error.to_string().contains("panicked"), "{error}");
    assert!(runtime.submit(Task::new("hello")).await.is_err());
    let worker = runtime.worker().inbox("mail").spawn();
    assert_eq!(run.wait().await.unwrap().text().unwrap(), "Hello.");
    worker.stop().await.unwrap();
}

/// Returns a handler that counts its calls in progress, and the highest count so far.
fn counting_builder() -> (RuntimeBuilder, Arc<AtomicUsize>) {
    let (running, max_running) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let max_seen = Arc::clone(&max_running);
    let builder = Runtime::builder().store("sqlite::memory:").handler("count", move |_, _| {
        let (running, max_running) = (Arc::clone(&running), Arc::clone(&max_running));
        async move {
            max_running.fetch_max(running.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
            for _ in 0..100 {
                tokio::task::yield_now().await;
            }
            running.fetch_sub(1, Ordering::SeqCst);
            Ok(())
        }
    });
    (builder, max_seen)
}

#[tokio::test]
async fn a_worker_drives_one_run_at_a_time_unless_told_otherwise() {
    let (builder, max_running) = counting_builder();
    let runtime = builder.open().await.unwrap();
    let worker = runtime.worker().spawn();
    let mut runs = Vec::new();
    for _ in 0..5 {
        runs.push(runtime.submit(Task::new("count")).await.unwrap());
    }
    for run in runs {
        run.wait().await.unwrap();
    }
    worker.stop().await.unwrap();
    assert_eq!(max_running.load(Ordering::SeqCst), 1);
    let error = runtime.worker().max_concurrent(0).spawn().stop().await.unwrap_err();
    assert_eq!(error.code(), "invalid_concurrency");
    assert!(error.to_string().contains("max_concurrent(0)"), "{error}");
}

#[tokio::test]
async fn the_project_sets_the_number_of_concurrent_runs() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("longhaul.toml"), "[worker]\nconcurrency = 3\n").unwrap();
    // Each call waits until three of them run at the same time.
    let barrier = Arc::new(tokio::sync::Barrier::new(3));
    let builder = Runtime::builder().handler("meet", move |_, _| {
        let barrier = Arc::clone(&barrier);
        async move {
            barrier.wait().await;
            Ok("met")
        }
    });
    let runtime = builder.project(folder.path()).open().await.unwrap();
    let mut runs = Vec::new();
    for _ in 0..3 {
        runs.push(runtime.submit(Task::new("meet")).await.unwrap());
    }
    let worker = runtime.worker().spawn();
    for run in runs {
        let done = timeout(Duration::from_secs(30), run.wait()).await;
        assert_eq!(done.expect("three runs at the same time").unwrap().text().unwrap(), "met");
    }
    worker.stop().await.unwrap();
}

#[tokio::test]
async fn a_running_worker_is_not_started_twice_and_can_be_restarted() {
    let runtime = hello_builder().open().await.unwrap();
    let worker = runtime.worker();
    let handle = worker.spawn();
    // Returns at once, although nothing has cancelled its token.
    let second_start = timeout(Duration::from_secs(10), worker.run(CancellationToken::new())).await;
    second_start.expect("a second start returns").unwrap();
    worker.clone().spawn().stop().await.unwrap();
    let hello = runtime.submit(Task::new("hello")).await.unwrap();
    assert_eq!(hello.wait().await.unwrap().text().unwrap(), "Hello.");
    handle.stop().await.unwrap();
    let running_worker = worker.clone();
    let mut worker_tasks = JoinSet::new();
    worker_tasks.spawn(async move { running_worker.run(CancellationToken::new()).await });
    let hello = runtime.submit(Task::new("hello")).await.unwrap();
    hello.wait().await.unwrap();
    worker.stop();
    let join_result = timeout(Duration::from_secs(10), worker_tasks.join_next()).await;
    join_result.expect("`stop` ends the loop").unwrap().unwrap().unwrap();
}

#[tokio::test]
async fn callbacks_that_block_or_panic_do_not_stop_the_worker() {
    let runtime = hello_builder().open().await.unwrap();
    let (_sender, receiver) = std::sync::mpsc::channel::<()>();
    let receiver = Mutex::new(receiver);
    let worker = runtime
        .worker()
        .on_task_start(|_| panic!("a bug in the callback"))
        .on_task_complete(move |_| _ = receiver.lock().map(|receiver| receiver.recv()))
        .on_empty(|| panic!("a bug in the callback"))
        .spawn();
    for _ in 0..3 {
        let run = runtime.submit(Task::new("hello")).await.unwrap();
        let wait_result = timeout(Duration::from_secs(20), run.wait()).await;
        assert_eq!(wait_result.expect("the run ends").unwrap().text().unwrap(), "Hello.");
    }
    worker.stop().await.unwrap();
}

#[tokio::test]
async fn callbacks_come_in_order_and_a_filter_leaves_tasks_to_others() {
    let calls = Arc::<Mutex<Vec<&str>>>::default();
    let record = |name: &'static str| {
        let calls = Arc::clone(&calls);
        move || calls.lock().unwrap().push(name)
    };
    let (record_start, record_complete, record_empty) =
        (record("start"), record("complete"), record("empty"));
    let runtime = hello_builder().open().await.unwrap();
    let low_run = runtime.submit(Task::new("hello")).await.unwrap();
    let high_run = runtime.submit(Task::new("hello").priority(1)).await.unwrap();
    let stop = CancellationToken::new();
    let stop_token = stop.clone();
    let worker = runtime
        .worker()
        .filter(|task| task.priority > 0)
        .on_task_start(move |_| record_start())
        .on_task_complete(move |_| record_complete())
        .on_empty(move || {
            record_empty();
            stop_token.cancel();
        });
    worker.run(stop).await.unwrap();
    assert_eq!(*calls.lock().unwrap(), ["start", "complete", "empty"]);
    assert_eq!(high_run.wait().await.unwrap().text().unwrap(), "Hello.");
    assert_eq!(low_run.view().await.unwrap().status, Status::Pending);
}

/// Stops a worker with a signal to this process, and checks that its run is ready at once.
async fn stop_worker_by_signal(signal: &str) {
    let calls = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&calls);
    let builder = Runtime::builder().store("sqlite::memory:").handler("waits", move |_, _| {
        let first = count.fetch_add(1, Ordering::SeqCst) == 0;
        async move {
            if first {
                std::future::pending::<()>().await;
            }
            Ok("Hello.")
        }
    });
    let runtime = builder.open().await.unwrap();
    let (start_sender, mut start_receiver) = tokio::sync::mpsc::unbounded_channel();
    let worker = runtime
        .worker()
        .grace(Duration::from_millis(50))
        .stop_on_signals()
        .on_task_start(move |run| _ = start_sender.send(run));
    let run = runtime.submit(Task::new("waits")).await.unwrap();
    let mut worker_tasks = JoinSet::new();
    worker_tasks.spawn(async move { worker.run(CancellationToken::new()).await });
    start_receiver.recv().await.unwrap();
    while calls.load(Ordering::SeqCst) == 0 {
        tokio::task::yield_now().await;
    }
    let pid = std::process::id().to_string();
    let kill_status = Command::new("kill").args([signal, &pid]).status().unwrap();
    assert!(kill_status.success());
    let join_result = timeout(Duration::from_secs(30), worker_tasks.join_next()).await;
    join_result.expect("the signal ends the loop").unwrap().unwrap().unwrap();
    assert_eq!(run.view().await.unwrap().reason.as_deref(), Some("worker"));
    let next_worker = runtime.worker().spawn();
    let wait_result = timeout(Duration::from_secs(10), run.wait()).await;
    assert_eq!(wait_result.expect("the run is claimed at once").unwrap().text().unwrap(), "Hello.");
    next_worker.stop().await.unwrap();
}

/// One test for both signals, since each of them reaches every worker of the process.
#[tokio::test]
async fn sigterm_and_sigint_stop_the_worker_and_its_run_is_ready_at_once() {
    for signal in ["-TERM", "-INT"] {
        stop_worker_by_signal(signal).await;
    }
}
