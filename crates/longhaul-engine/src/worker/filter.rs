//! The task filter of a worker: a function of the embedding program that chooses which ready runs
//! the worker claims, and the queue of the runs that it accepts.
//!
//! The filter is called on a thread of its own, outside of any transaction. If a call blocks, the
//! worker does not claim the run of that call and continues with other runs.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, mpsc};

use longhaul_core::event::Event;
use longhaul_core::id::{InboxName, RunId, Seq};
use longhaul_core::port::queue::QueuePosition;
use longhaul_core::port::store::{JournalReadRequest, StoreError};
use longhaul_core::task::TaskSpec;
use longhaul_core::time::{Clock, Millis};
use tokio::sync::oneshot;

use crate::error::Result;
use crate::panics::panic_message;
use crate::services::Services;
use crate::worker::options::WorkerOptions;

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
enum FilterVerdict {
    Accepted,
    Refused,
    /// The filter panicked, or did not return within `FILTER_TIMEOUT`.
    Failed(String),
    /// The filter can't be called now, for this reason.
    NotCalled(String),
}

/// A task for which the filter is called, and the channel for what the call returned.
type FilterCall = (TaskSpec, oneshot::Sender<Result<bool, String>>);

/// Calls the filter on a thread of its own. A new thread replaces a thread whose call blocks, which
/// ends when that call returns.
#[derive(Debug)]
struct FilterCaller {
    filter: TaskFilter,
    /// The thread that waits for the next call.
    idle: Option<mpsc::Sender<FilterCall>>,
    /// Value of which each thread holds a clone, so that its reference count counts the threads.
    threads: Arc<()>,
}

impl FilterCaller {
    async fn call_filter(&mut self, clock: &dyn Clock, task: TaskSpec) -> FilterVerdict {
        let thread = match self.idle.take().map_or_else(|| self.start_thread(), Ok) {
            Ok(thread) => thread,
            Err(reason) => return FilterVerdict::NotCalled(reason),
        };
        let (sender, returned) = oneshot::channel();
        if thread.send((task, sender)).is_err() {
            return FilterVerdict::NotCalled("filter thread has ended".to_owned());
        }
        let result = tokio::select! {
            biased;
            Ok(result) = returned => result,
            () = clock.sleep(FILTER_TIMEOUT) => {
                return FilterVerdict::Failed("did not return within 1 s".to_owned());
            }
        };
        self.idle = Some(thread);
        match result {
            Ok(true) => FilterVerdict::Accepted,
            Ok(false) => FilterVerdict::Refused,
            Err(panic) => FilterVerdict::Failed(format!("panicked: {panic}")),
        }
    }

    fn start_thread(&self) -> Result<mpsc::Sender<FilterCall>, String> {
        if Arc::strong_count(&self.threads) > BLOCKED_MAX {
            return Err(format!("{BLOCKED_MAX} earlier calls have not returned"));
        }
        let (sender, calls) = mpsc::channel::<FilterCall>();
        let (filter, thread_counter) = (self.filter.clone(), Arc::clone(&self.threads));
        let thread = std::thread::Builder::new().name("task-filter".to_owned());
        let spawned = thread.spawn(move || {
            for (task, sender) in calls {
                let result = catch_unwind(AssertUnwindSafe(|| (filter.0)(&task)));
                // Nobody waits for a result that comes too late.
                _ = sender.send(result.map_err(|panic| panic_message(&*panic).to_owned()));
            }
            drop(thread_counter);
        });
        spawned.map_err(|error| format!("filter thread can't start: {error}"))?;
        Ok(sender)
    }
}

/// Maximum number of queued runs that are read at once.
const PEEK_MAX: usize = 64;

/// Maximum time for reading one page and calling the filter for its runs. When it has passed, the
/// runs accepted so far are claimed first.
const PAGE_TIME_MAX: Millis = Millis::from_secs(1);

/// Time after which changed queues are read again from their heads, even if they were not read to
/// their ends. Also the maximum of `delay_before_next_read`.
const RESTART_INTERVAL: Millis = Millis::from_secs(5);

/// Queues that have not changed are read again after this multiple of the time that reading took,
/// so that a worker with nothing to do does not read all the time.
const REREAD_FACTOR: u64 = 10;

/// Maximum number of runs that are remembered because their task can't be read, or because the
/// filter panicked or blocked for them. At this number all of them are forgotten.
const FAILED_MAX: usize = 10_000;

/// Minimum interval between two log messages which say that the filter can't be called.
const NOT_CALLED_LOG_INTERVAL: Millis = Millis::from_secs(60);

/// Reads the queues of a worker's inboxes page by page and returns the runs that the filter
/// accepts. Each read continues after the last page, so that refused runs are not read again before
/// the end of the queues is reached or the queues have changed.
#[derive(Debug)]
pub(super) struct FilteredQueue {
    services: Services,
    options: WorkerOptions,
    caller: FilterCaller,
    cursors: BTreeMap<InboxName, QueueCursor>,
    /// The read positions in the queues before the last page was read.
    cursors_before_page: BTreeMap<InboxName, QueueCursor>,
    /// Runs whose task can't be read, or for which the filter panicked or blocked. The filter is
    /// not called for these runs.
    failed: BTreeSet<RunId>,
    /// Monotonic time at which the queues were last read from their heads.
    started: Millis,
    /// Time that was spent on reading pages since the queues were last read from their heads.
    reading: Millis,
    /// Whether the filter could not be called for a run of the last page.
    is_blocked: bool,
    /// Monotonic time of the last log message which says that the filter can't be called.
    logged_not_called: Option<Millis>,
}

#[derive(Debug, Clone, Copy, Default)]
struct QueueCursor {
    last: Option<QueuePosition>,
    is_at_end: bool,
}

impl FilteredQueue {
    pub(super) fn new(services: &Services, options: &WorkerOptions, filter: TaskFilter) -> Self {
        Self {
            services: services.clone(),
            options: options.clone(),
            caller: FilterCaller { filter, idle: None, threads: Arc::new(()) },
            cursors: BTreeMap::new(),
            cursors_before_page: BTreeMap::new(),
            failed: BTreeSet::new(),
            started: Millis(0),
            reading: Millis(0),
            is_blocked: false,
            logged_not_called: None,
        }
    }

    /// Sets where the next page is read: after the last page, or at the heads of the queues if they
    /// were read to the end and have changed. Unchanged queues are read again from time to time,
    /// because the filter may decide differently. Long queues that change are read from their heads
    /// again before their ends are reached, because runs with a higher priority may have arrived.
    pub(super) fn set_next_page_start(&mut self, have_queues_changed: bool) {
        let now = self.services.clock.monotonic_time();
        let elapsed = now.minus(self.started);
        let is_due = match (self.is_at_end(), have_queues_changed) {
            (true, true) => true,
            (true, false) => {
                let min_pause = Millis(self.reading.0.saturating_mul(REREAD_FACTOR));
                elapsed >= RESTART_INTERVAL.max(min_pause)
            }
            (false, true) => elapsed >= RESTART_INTERVAL,
            (false, false) => false,
        };
        if is_due {
            self.cursors.clear();
            self.started = now;
            self.reading = Millis(0);
        }
        for cursor in self.cursors.values_mut() {
            cursor.is_at_end = false;
        }
    }

    /// Makes the next read return the last page again, because its accepted runs were not claimed.
    pub(super) fn rewind_to_last_page(&mut self) {
        self.cursors.clone_from(&self.cursors_before_page);
    }

    /// Returns whether every queue was read to its end.
    pub(super) fn is_at_end(&self) -> bool {
        self.cursors.values().all(|cursor| cursor.is_at_end)
    }

    /// Returns whether the filter could not be called for a run of the last page, because too many
    /// earlier calls have not returned.
    pub(super) const fn is_blocked(&self) -> bool {
        self.is_blocked
    }

    /// Returns the minimum time to wait before the queues are read again: the time that reading
    /// them to their ends took, so that a long queue of refused runs is not read all the time.
    pub(super) fn delay_before_next_read(&self) -> Millis {
        if self.is_at_end() { self.reading.min(RESTART_INTERVAL) } else { Millis(0) }
    }

    /// Reads the next page of each inbox and returns at most `limit` runs that the filter accepts,
    /// shared evenly by the inboxes.
    pub(super) async fn next_accepted_runs(
        &mut self,
        inboxes: &[InboxName],
        limit: usize,
    ) -> Result<Vec<RunId>> {
        let started = self.services.clock.monotonic_time();
        self.cursors_before_page.clone_from(&self.cursors);
        self.is_blocked = false;
        let mut accepted = Vec::new();
        for (index, inbox) in inboxes.iter().enumerate() {
            let share = (limit - accepted.len()).div_ceil(inboxes.len() - index);
            let full = accepted.len() + share;
            let mut cursor = self.cursors.get(inbox).copied().unwrap_or_default();
            let page = match share == 0 || cursor.is_at_end || self.must_stop_reading_page(started)
            {
                true => Vec::new(),
                false => {
                    let request = self.options.peek_request(inbox, cursor.last, PEEK_MAX);
                    let page = self.services.store.peek_queue(request).await?;
                    cursor.is_at_end = page.len() < PEEK_MAX;
                    page
                }
            };
            for position in page {
                if accepted.len() == full || self.must_stop_reading_page(started) {
                    cursor.is_at_end = false;
                    break;
                }
                match self.filter_accepts_run(position.run).await? {
                    Some(true) => accepted.push(position.run),
                    Some(false) => {}
                    None => {
                        cursor.is_at_end = false;
                        break;
                    }
                }
                cursor.last = Some(position);
            }
            self.cursors.insert(inbox.clone(), cursor);
        }
        self.reading = self.reading.plus(self.services.clock.monotonic_time().minus(started));
        Ok(accepted)
    }

    /// Returns whether to stop reading the page whose reading started at this time, because the
    /// filter can't be called or `PAGE_TIME_MAX` has passed.
    fn must_stop_reading_page(&self, started: Millis) -> bool {
        self.is_blocked || self.services.clock.monotonic_time().minus(started) >= PAGE_TIME_MAX
    }

    /// Returns whether the filter accepts the task of a run. `None` means that the filter could not
    /// be called.
    async fn filter_accepts_run(&mut self, run: RunId) -> Result<Option<bool>> {
        if self.failed.contains(&run) {
            return Ok(Some(false));
        }
        let failure = match self.read_task(run).await {
            Ok(Some(task)) => match self.caller.call_filter(&*self.services.clock, task).await {
                FilterVerdict::Accepted => return Ok(Some(true)),
                FilterVerdict::Refused => return Ok(Some(false)),
                FilterVerdict::NotCalled(reason) => {
                    self.is_blocked = true;
                    self.log_filter_not_called(&reason);
                    return Ok(None);
                }
                FilterVerdict::Failed(failure) => format!("the task filter {failure}"),
            },
            Ok(None) => "the journal of the run has no task".to_owned(),
            Err(error @ StoreError::InvalidEvent { .. }) => error.to_string(),
            Err(error) => return Err(error.into()),
        };
        tracing::error!(%run, "the worker does not claim the run, because {failure}");
        if self.failed.len() == FAILED_MAX {
            self.failed.clear();
        }
        self.failed.insert(run);
        Ok(Some(false))
    }

    async fn read_task(&self, run: RunId) -> Result<Option<TaskSpec>, StoreError> {
        let first = JournalReadRequest { run, after: Seq::START, limit: 1 };
        let page = self.services.store.read_journal(first).await?;
        let event = page.entries.into_iter().next().map(|entry| entry.event);
        let Some(Event::RunCreated(created)) = event else { return Ok(None) };
        Ok(Some(created.task))
    }

    fn log_filter_not_called(&mut self, reason: &str) {
        let now = self.services.clock.monotonic_time();
        let is_recent = |logged: Millis| now.minus(logged) < NOT_CALLED_LOG_INTERVAL;
        if !self.logged_not_called.is_some_and(is_recent) {
            self.logged_not_called = Some(now);
            tracing::error!(
                "the worker claims no runs, because its task filter can't be called: {reason}"
            );
        }
    }
}
