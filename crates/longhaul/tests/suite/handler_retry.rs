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
fn failing(errors: impl IntoIterator<Item = HandlerError>) -> Handler {
    let errors = Arc::new(Mutex::new(errors.into_iter().collect::<Vec<_>>()));
    Handler::new("fails", move |request, _| {
        let error = errors.lock().unwrap().pop();
        async move { error.map_or(Ok(request.attempt), Err) }
    })
}

#[tokio::test]
async fn only_a_transient_error_is_retried_and_only_once() {
    let busy = || HandlerError::transient("busy");
    let reset = || HandlerError::from(IoError::from(ErrorKind::ConnectionReset));
    let wrong = || HandlerError::permanent("wrong");
    let missing = || HandlerError::from(IoError::from(ErrorKind::NotFound));
    for (errors, attempts, message) in [
        (vec![busy()], 2, None),
        (vec![reset()], 2, None),
        (vec![busy(), busy()], 2, Some("busy")),
        (vec![wrong()], 1, Some("wrong")),
        (vec![missing()], 1, Some("entity not found")),
    ] {
        let what = format!("{errors:?}");
        let builder = Runtime::builder().register(failing(errors));
        let (runtime, done) = run_to_end(builder, Task::new("fails")).await;
        let view = runtime.run(done.id).view().await.unwrap();
        assert_eq!(view.attempt, attempts, "{what}");
        match message {
            None => assert_eq!(done.data::<u32>().unwrap(), attempts, "{what}"),
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
    let seen = Arc::clone(&keys);
    let slow = Handler::new("slow", move |request, _| {
        seen.lock().unwrap().push((request.attempt, request.key));
        async move {
            match request.attempt {
                1 => std::future::pending::<Result<u32, HandlerError>>().await,
                attempt => Ok(attempt),
            }
        }
    });
    let builder = Runtime::builder().register(slow.hard_timeout(Duration::from_millis(100)));
    let (_, done) = run_to_end(builder, Task::new("slow")).await;
    assert_eq!(done.data::<u32>().unwrap(), 2);
    let key = done.id.to_string();
    assert_eq!(*keys.lock().unwrap(), [(1, key.clone()), (2, key)]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn a_handler_that_does_not_yield_is_counted_and_its_late_result_is_dropped() {
    let (release, released) = mpsc::channel::<()>();
    let released = Arc::new(Mutex::new(released));
    let calls = Arc::new(AtomicU32::new(0));
    let counted = Arc::clone(&calls);
    let stuck = Handler::new("stuck", move |_, _| {
        let released = Arc::clone(&released);
        counted.fetch_add(1, Ordering::Relaxed);
        async move {
            // Blocks the thread, as a function does that never awaits.
            _ = released.lock().unwrap().recv();
            Ok("late")
        }
    });
    let stuck = stuck.hard_timeout(Duration::from_millis(100)).max_retries(0);
    let (runtime, done) = run_to_end(Runtime::builder().register(stuck), Task::new("stuck")).await;
    assert_eq!(done.status, Status::Failed);
    assert_eq!(done.error.unwrap().code, "timeout");
    let until = |count: usize| {
        let runtime = runtime.clone();
        tokio::time::timeout(TIMEOUT, async move {
            while runtime.stuck_handlers() != count {
                tokio::task::yield_now().await;
            }
        })
    };
    until(1).await.expect("the stuck handler is counted");
    drop(release);
    until(0).await.expect("the handler has returned");
    assert_eq!(runtime.run(done.id).view().await.unwrap().status, Status::Failed);
    assert_eq!(calls.load(Ordering::Relaxed), 1);
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
    let unknown = runtime.submit(Task::new("divid")).await.unwrap_err();
    assert_eq!(unknown.code(), "no_agent", "{unknown}");
    assert!(unknown.to_string().contains("`divide`"), "{unknown}");
    worker.stop().await.unwrap();
}
