//! The task filter of a worker: a function of the embedding program that chooses which ready runs
//! the worker claims.
//!
//! The filter is called on a thread of its own, outside of any transaction. If a call blocks, the
//! worker does not claim the run of that call and continues with other runs.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, mpsc};

use longhaul_core::task::TaskSpec;
use longhaul_core::time::{Clock, Millis};
use tokio::sync::oneshot;

use crate::panics::panic_message;

/// Time after which a call of the filter counts as blocked.
const FILTER_TIMEOUT: Millis = Millis::from_secs(1);

/// Maximum number of threads with a blocked call of the filter. Beyond it the filter is not called.
const BLOCKED_MAX: usize = 32;

/// Function that returns whether a worker may claim the run of a task.
#[derive(Clone)]
pub struct TaskFilter(Arc<dyn Fn(&TaskSpec) -> bool + Send + Sync>);

impl TaskFilter {
    /// Creates a filter from a function that returns `true` for the tasks to claim.
    pub fn new(accepts: impl Fn(&TaskSpec) -> bool + Send + Sync + 'static) -> Self {
        Self(Arc::new(accepts))
    }

    /// Calls the filter on this thread. A panic means that the task is not accepted.
    pub fn accepts(&self, task: &TaskSpec) -> bool {
        catch_unwind(AssertUnwindSafe(|| (self.0)(task))).unwrap_or_else(|panic| {
            tracing::error!("the task filter panicked: {}", panic_message(&*panic));
            false
        })
    }
}

impl fmt::Debug for TaskFilter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TaskFilter")
    }
}

/// Result of one call of the filter.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum FilterVerdict {
    Accepted,
    Refused,
    Panicked(String),
    /// The filter did not return within `FILTER_TIMEOUT`.
    Blocked,
    /// The filter can't be called now, for this reason.
    NotCalled(String),
}

/// A task for which the filter is called on its thread, with the channel for the filter's verdict.
type FilterCall = (TaskSpec, oneshot::Sender<FilterVerdict>);

/// Calls the filter on a thread. If a call blocks, a new thread replaces its thread, which ends
/// when the call returns.
#[derive(Debug)]
pub(super) struct FilterCaller {
    filter: TaskFilter,
    thread: Option<mpsc::Sender<FilterCall>>,
    /// Value of which each thread holds a clone, so that its reference count counts the threads.
    threads: Arc<()>,
}

impl FilterCaller {
    pub(super) fn new(filter: TaskFilter) -> Self {
        Self { filter, thread: None, threads: Arc::new(()) }
    }

    pub(super) async fn call_filter(&mut self, clock: &dyn Clock, task: TaskSpec) -> FilterVerdict {
        let thread = match self.thread.take() {
            Some(thread) => thread,
            None if Arc::strong_count(&self.threads) > BLOCKED_MAX => {
                return FilterVerdict::NotCalled(format!(
                    "{BLOCKED_MAX} earlier calls have not returned"
                ));
            }
            None => match self.start_filter_thread() {
                Ok(thread) => thread,
                Err(error) => {
                    return FilterVerdict::NotCalled(format!("filter thread can't start: {error}"));
                }
            },
        };
        let ended = || FilterVerdict::NotCalled("filter thread has ended".to_owned());
        let (answer, verdict) = oneshot::channel();
        if thread.send((task, answer)).is_err() {
            return ended();
        }
        tokio::select! {
            biased;
            verdict = verdict => {
                self.thread = Some(thread);
                verdict.unwrap_or_else(|_| ended())
            }
            () = clock.sleep(FILTER_TIMEOUT) => FilterVerdict::Blocked,
        }
    }

    fn start_filter_thread(&self) -> std::io::Result<mpsc::Sender<FilterCall>> {
        let (sender, calls) = mpsc::channel::<FilterCall>();
        let (filter, thread_counter) = (self.filter.clone(), Arc::clone(&self.threads));
        std::thread::Builder::new().name("task-filter".to_owned()).spawn(move || {
            for (task, answer) in calls {
                let verdict = match catch_unwind(AssertUnwindSafe(|| (filter.0)(&task))) {
                    Ok(true) => FilterVerdict::Accepted,
                    Ok(false) => FilterVerdict::Refused,
                    Err(panic) => FilterVerdict::Panicked(panic_message(&*panic).to_owned()),
                };
                // Nobody waits for a verdict that came too late.
                _ = answer.send(verdict);
            }
            drop(thread_counter);
        })?;
        Ok(sender)
    }
}
