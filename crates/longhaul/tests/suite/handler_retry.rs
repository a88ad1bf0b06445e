//! Tests of retries and timeouts of handlers, of handlers that run once only, and of handlers that do
//! not yield.

use std::io::{Error as IoError, ErrorKind};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

use longhaul::{FinishedRun, Handler, HandlerError, Runtime, RuntimeBuilder, Status, Task};

/// Maximum time that a test waits for a condition.
const TIMEOUT: Duration = Duration::from_secs(60);

async fn run_to_end(builder: RuntimeBuilder, task: Task) -> (Runtime, FinishedRun) {
    let runtime = builder.store("sqlite::memory:").open().await.unwrap();
    let worker = runtime.worker().spawn();
    let done = runtime.submit(task).await.unwrap().wait().await.unwrap();
    worker.stop().await.unwrap();
    (runtime, done)
}

/// A handler that fails with these errors and then returns the number of its attempt.
fn failing_handler(errors: impl IntoIterator<Item = HandlerError>) -> Handler {
    let errors = Arc::new(Mutex::new(errors.into_iter().collect::<Vec<_>>()));
    Handler::new("fails", move |request, _| {
        let error = errors.lock().unwrap().pop();
        async move { error.map_or(Ok(request.attempt), Err) }
    })
}

#[tokio::test]
async fn only_a_transient_error_is_retried_and_only_once() {
    let busy_error = || HandlerError::transient("busy");
    let reset_error = || HandlerError::from(IoError::from(ErrorKind::ConnectionReset));
    let permanent_error = || HandlerError::permanent("wrong");
    let missing_error = || HandlerError::from(IoError::from(ErrorKind::NotFound));
    let elapsed = tokio::time::timeout(Duration::ZERO, std::future::pending::<()>()).await;
    let elapsed = HandlerError::from(elapsed.unwrap_err());
    for (errors, attempts, message) in [
        (vec![busy_error()], 2, None),
        (vec![reset_error()], 2, None),
        (vec![elapsed], 2, None),
        (vec![busy_error(), busy_error()], 2, Some("busy")),
        (vec![permanent_error()], 1, Some("wrong")),
        (vec![missing_error()], 1, Some("entity not found")),
    ] {
        let label = format!("{errors:?}");
        let builder = Runtime::builder().register(failing_handler(errors));
        let (runtime, done) = run_to_end(builder, Task::new("fails")).await;
        let view = runtime.run(done.id).view().await.unwrap();
        assert_eq!(view.attempt, attempts, "{label}");
        match message {
            None => assert_eq!(done.data::<u32>().unwrap(), attempts, "{label}"),
            Some(message) => {
                let error = done.error.unwrap();
                assert_eq!(
                    (error.code.as_str(), error.message.as_str()),
                    ("handler_failed", message)
                );
            }
        }
    }
}

#[tokio::test]
async fn a_hard_timeout_ends_the_attempt_and_the_next_one_gets_the_same_key() {
    let keys = Arc::new(Mutex::new(Vec::new()));
    let recorded_keys = Arc::clone(&keys);
    let slow_handler = Handler::new("slow", move |request, _| {
        recorded_keys.lock().unwrap().push((request.attempt, request.key));
        async move {
            match request.attempt {
                1 => std::future::pending::<Result<u32, HandlerError>>().await,
                attempt => Ok(attempt),
            }
        }
    });
    let builder = Runtime::builder().register(slow_handler.hard_timeout(Duration::from_secs(1)));
    let (_, done) = run_to_end(builder, Task::new("slow")).await;
    assert_eq!(done.data::<u32>().unwrap(), 2);
    let key = done.id.to_string();
    assert_eq!(*keys.lock().unwrap(), [(1, key.clone()), (2, key)]);
}

/// Waits until this number of handlers is stuck.
async fn wait_for_stuck_handlers(runtime: &Runtime, count: usize) {
    let poll = async {
        while runtime.stuck_handlers() != count {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(TIMEOUT, poll).await.expect("this number of handlers is stuck");
}

// On a runtime with one thread, which a blocked handler must not take away from timers and other runs.
#[tokio::test(flavor = "current_thread")]
async fn blocked_handlers_are_counted_their_results_dropped_and_other_runs_completed() {
    let (release_sender, release_receiver) = mpsc::channel::<()>();
    let release_receiver = Arc::new(Mutex::new(release_receiver));
    let calls = Arc::new(AtomicU32::new(0));
    let call_counter = Arc::clone(&calls);
    let stuck_handler = Handler::new("stuck", move |_, _| {
        let release_receiver = Arc::clone(&release_receiver);
        call_counter.fetch_add(1, Ordering::Relaxed);
        async move {
            // Blocks the thread, as a function does that never awaits.
            _ = release_receiver.lock().unwrap().recv();
            Ok("late")
        }
    });
    let stuck_handler = stuck_handler.hard_timeout(Duration::from_millis(100)).max_retries(1);
    let builder = Runtime::builder().register(stuck_handler);
    let builder = builder.handler("quick", |request, _| async move { Ok(request.attempt) });
    let (runtime, done) = run_to_end(builder, Task::new("stuck")).await;
    assert_eq!(done.status, Status::Failed);
    assert_eq!(done.error.unwrap().code, "timeout");
    wait_for_stuck_handlers(&runtime, 2).await;
    let worker = runtime.worker().spawn();
    let quick_run = runtime.submit(Task::new("quick")).await.unwrap().wait().await.unwrap();
    assert_eq!(quick_run.data::<u32>().unwrap(), 1);
    worker.stop().await.unwrap();
    assert_eq!(runtime.stuck_handlers(), 2);
    drop(release_sender);
    wait_for_stuck_handlers(&runtime, 0).await;
    assert_eq!(runtime.run(done.id).view().await.unwrap().status, Status::Failed);
    assert_eq!(calls.load(Ordering::Relaxed), 2);
}

#[tokio::test]
async fn a_retried_run_gets_the_key_of_the_first_run_and_counts_its_attempts() {
    let calls = Arc::new(Mutex::new(Vec::new()));
    let recorded_calls = Arc::clone(&calls);
    let pay_handler = Handler::new("pay", move |request, _| {
        recorded_calls.lock().unwrap().push((request.attempt, request.key));
        async move {
            match request.attempt {
                1 | 2 => Err(HandlerError::transient("busy")),
                3 => Err(HandlerError::permanent("closed")),
                attempt => Ok(attempt),
            }
        }
    });
    let (runtime, first) =
        run_to_end(Runtime::builder().register(pay_handler), Task::new("pay")).await;
    let worker = runtime.worker().spawn();
    let second = runtime.run(first.id).retry().await.unwrap().wait().await.unwrap();
    assert_eq!(second.error.unwrap().message, "closed");
    let third = runtime.run(second.id).retry().await.unwrap().wait().await.unwrap();
    assert_eq!(third.data::<u32>().unwrap(), 4);
    worker.stop().await.unwrap();
    let key = first.id.to_string();
    assert_eq!(*calls.lock().unwrap(), [1, 2, 3, 4].map(|attempt| (attempt, key.clone())));
}

#[tokio::test]
async fn runs_of_one_handler_share_nothing_and_a_panic_fails_only_its_run() {
    let runtime = Runtime::builder()
        .handler("divide", |request, progress| async move {
            let number: u32 = request.input()?;
            progress.report(Some(number as u8), "dividing");
            Ok(12 / number)
        })
        .store("sqlite::memory:")
        .open()
        .await
        .unwrap();
    let worker = runtime.worker().max_concurrent(4).spawn();
    let mut runs = Vec::new();
    for number in [0, 1, 2, 0, 3] {
        runs.push((number, runtime.submit(Task::new("divide").input(number)).await.unwrap()));
    }
    for (number, run) in runs {
        let done = run.wait().await.unwrap();
        match number {
            0 => assert!(done.error.unwrap().message.contains("divide by zero")),
            number => assert_eq!(done.data::<u32>().unwrap(), 12 / number),
        }
    }
    let error = runtime.submit(Task::new("divid")).await.unwrap_err();
    assert_eq!(error.code(), "agent_not_found", "{error}");
    assert!(error.to_string().contains("`divide`"), "{error}");
    worker.stop().await.unwrap();
}
