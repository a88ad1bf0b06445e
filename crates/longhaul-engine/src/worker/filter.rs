//! The task filter of a worker: a function of the embedding program that chooses which ready runs
//! the worker claims.
//!
//! The filter is called on a thread of its own, outside of any transaction. If it blocks, the
//! worker continues without the task it was asked about.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, mpsc};

use longhaul_core::event::{EVENT_FORMAT, Event};
use longhaul_core::id::{InboxName, RunId, Seq};
use longhaul_core::port::queue::{PeekRequest, QueuePosition};
use longhaul_core::port::store::{JournalReadRequest, StoreError};
use longhaul_core::task::TaskSpec;
use longhaul_core::time::Millis;
use tokio::sync::oneshot;

use crate::error::Error;
use crate::panics::panic_message;
use crate::services::EngineServices;
use crate::worker::options::WorkerOptions;

/// Maximum number of queued runs that are read at once.
const PEEK_MAX: usize = 64;

/// Time after which reading starts again at the heads of the queues, even before their end, and
/// maximum rest between two readings.
const RESTART_INTERVAL: Millis = Millis::from_secs(5);

/// Time after which a call of the filter counts as blocked.
const FILTER_TIMEOUT: Millis = Millis::from_secs(1);

/// Maximum number of threads with a blocked call. Beyond it the filter is not called.
const BLOCKED_MAX: usize = 4;

/// Maximum number of runs that are remembered because the filter failed for them.
const FAILED_MAX: usize = 10_000;

/// Function that returns whether a worker may claim the run of a task.
#[derive(Clone)]
pub struct TaskFilter(Arc<dyn Fn(&TaskSpec) -> bool + Send + Sync>);

impl TaskFilter {
    /// Creates a filter from a function that returns `true` for the tasks to claim.
    pub fn new(accepts: impl Fn(&TaskSpec) -> bool + Send + Sync + 'static) -> Self {
        Self(Arc::new(accepts))
    }
}

impl fmt::Debug for TaskFilter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TaskFilter")
    }
}

/// Reads the queues of a worker's inboxes page by page and keeps the runs that the filter accepts.
/// It continues behind the last page, so that refused runs are not read again before the end of the
/// queues is reached or they have changed.
#[derive(Debug)]
pub(super) struct FilteredQueue {
    caller: FilterCaller,
    cursors: BTreeMap<InboxName, Cursor>,
    /// Runs for which the filter panicked or blocked. It is not called again for them.
    failed: BTreeSet<RunId>,
    /// Monotonic time at which reading has started at the heads of the queues.
    started: Millis,
    /// Time that was spent on reading since then.
    reading: Millis,
}

#[derive(Debug, Clone, Copy, Default)]
struct Cursor {
    last: Option<QueuePosition>,
    is_at_end: bool,
}

impl FilteredQueue {
    pub(super) fn new(filter: TaskFilter) -> Self {
        Self {
            caller: FilterCaller { filter, thread: None, threads: Arc::new(()) },
            cursors: BTreeMap::new(),
            failed: BTreeSet::new(),
            started: Millis(0),
            reading: Millis(0),
        }
    }

    /// Lets the next page be read: behind the last one, or at the heads of the queues if they have
    /// changed and were read to the end. A long queue is also left before its end, because runs
    /// with a higher priority may have arrived.
    pub(super) fn prepare_next_page(&mut self, now: Millis, is_changed: bool) {
        let is_due = self.is_at_end() || now.minus(self.started) >= RESTART_INTERVAL;
        if is_changed && is_due {
            self.cursors.clear();
            self.started = now;
            self.reading = Millis(0);
        }
        for cursor in self.cursors.values_mut() {
            cursor.is_at_end = false;
        }
    }

    /// Returns whether every queue was read to its end.
    pub(super) fn is_at_end(&self) -> bool {
        self.cursors.values().all(|cursor| cursor.is_at_end)
    }

    /// Returns how long to wait after the queues were read: as long as reading took, so that a long
    /// queue of refused runs is not read all the time.
    pub(super) fn delay_before_next_read(&self) -> Millis {
        if self.is_at_end() { self.reading.min(RESTART_INTERVAL) } else { Millis(0) }
    }

    /// Reads the next page of each inbox and returns at most `limit` runs that the filter accepts,
    /// shared evenly by the inboxes.
    pub(super) async fn next_accepted_runs(
        &mut self,
        services: &EngineServices,
        (options, inboxes): (&WorkerOptions, &[InboxName]),
        limit: usize,
    ) -> Result<Vec<RunId>, Error> {
        let started = services.clock.monotonic_time();
        let mut accepted = Vec::new();
        for (index, inbox) in inboxes.iter().enumerate() {
            let share = (limit - accepted.len()).div_ceil(inboxes.len() - index);
            let full = accepted.len() + share;
            let cursor = self.cursors.entry(inbox.clone()).or_default();
            if share == 0 || cursor.is_at_end {
                continue;
            }
            let request = PeekRequest {
                inbox: inbox.clone(),
                types: options.types.clone(),
                format: EVENT_FORMAT,
                host: Some(options.host.clone()),
                after: cursor.last,
                limit: PEEK_MAX,
            };
            let page = services.store.peek_queue(request).await?;
            cursor.is_at_end = page.len() < PEEK_MAX;
            for position in page {
                if accepted.len() == full {
                    self.update_inbox_cursor(inbox, |cursor| cursor.is_at_end = false);
                    break;
                }
                self.update_inbox_cursor(inbox, |cursor| cursor.last = Some(position));
                if self.is_run_accepted(services, position.run).await? {
                    accepted.push(position.run);
                }
            }
        }
        self.reading = self.reading.plus(services.clock.monotonic_time().minus(started));
        Ok(accepted)
    }

    fn update_inbox_cursor(&mut self, inbox: &InboxName, change: impl FnOnce(&mut Cursor)) {
        if let Some(cursor) = self.cursors.get_mut(inbox) {
            change(cursor);
        }
    }

    async fn is_run_accepted(
        &mut self,
        services: &EngineServices,
        run: RunId,
    ) -> Result<bool, Error> {
        if self.failed.contains(&run) {
            return Ok(false);
        }
        let first = JournalReadRequest { run, after: Seq::START, limit: 1 };
        let entry = match services.store.read_journal(first).await {
            Ok(page) => page.entries.into_iter().next(),
            Err(error @ StoreError::InvalidEvent { .. }) => {
                tracing::error!(%run, %error, "the worker does not claim the run");
                None
            }
            Err(error) => return Err(error.into()),
        };
        let Some(Event::RunCreated(created)) = entry.map(|entry| entry.event) else {
            self.failed.insert(run);
            return Ok(false);
        };
        let failure = match self.caller.call(services, created.task).await {
            FilterVerdict::Accepted => return Ok(true),
            FilterVerdict::Refused | FilterVerdict::NotCalled => return Ok(false),
            FilterVerdict::Panicked(message) => format!("panicked: {message}"),
            FilterVerdict::Blocked => "did not return within 1 s".to_owned(),
        };
        tracing::error!(%run, "the worker does not claim the run, because its task filter {failure}");
        if self.failed.len() == FAILED_MAX {
            self.failed.clear();
        }
        self.failed.insert(run);
        Ok(false)
    }
}

/// Result of one call of the filter.
#[derive(Debug, PartialEq, Eq)]
enum FilterVerdict {
    Accepted,
    Refused,
    Panicked(String),
    /// The call did not return in time.
    Blocked,
    /// Too many earlier calls have not returned.
    NotCalled,
}

/// A task for the thread of the filter, with the channel for the verdict.
type FilterCall = (TaskSpec, oneshot::Sender<FilterVerdict>);

/// Calls the filter on a thread. A thread whose call blocks is replaced; it ends when its call
/// returns.
#[derive(Debug)]
struct FilterCaller {
    filter: TaskFilter,
    thread: Option<mpsc::Sender<FilterCall>>,
    /// Counts the threads: each has a clone.
    threads: Arc<()>,
}

impl FilterCaller {
    async fn call(&mut self, services: &EngineServices, task: TaskSpec) -> FilterVerdict {
        let thread = match self.thread.take() {
            Some(thread) => thread,
            None if Arc::strong_count(&self.threads) > BLOCKED_MAX => {
                return FilterVerdict::NotCalled;
            }
            None => match self.start_thread() {
                Ok(thread) => thread,
                Err(error) => {
                    tracing::error!(%error, "the thread of the task filter can't be started");
                    return FilterVerdict::NotCalled;
                }
            },
        };
        let (answer, verdict) = oneshot::channel();
        if thread.send((task, answer)).is_err() {
            return FilterVerdict::NotCalled;
        }
        tokio::select! {
            biased;
            verdict = verdict => {
                self.thread = Some(thread);
                verdict.unwrap_or(FilterVerdict::NotCalled)
            }
            () = services.clock.sleep(FILTER_TIMEOUT) => FilterVerdict::Blocked,
        }
    }

    fn start_thread(&self) -> std::io::Result<mpsc::Sender<FilterCall>> {
        let (sender, calls) = mpsc::channel::<FilterCall>();
        let (filter, counted) = (self.filter.clone(), Arc::clone(&self.threads));
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
            drop(counted);
        })?;
        Ok(sender)
    }
}
