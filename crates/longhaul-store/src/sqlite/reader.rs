//! Reader threads, each with a read-only connection.
//!
//! Invariant: a snapshot lasts only for one query, which has a timeout. While an old snapshot is
//! open, the write-ahead log can't be moved into the database file.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};

use longhaul_core::port::store::StoreError;
use longhaul_core::time::{Clock, Millis};
use rusqlite::Connection;
use tokio::sync::{mpsc, oneshot};

use crate::sqlite::connect;
use crate::sqlite::error::{
    CommitError, WriteCommandError, store_error_from_io, store_error_from_sql,
};
use crate::sqlite::tx::Tx;

/// Maximum number of queries that wait for a reader thread.
const QUEUE_MAX: usize = 1_024;
/// Timeout of one query.
const READ_TIMEOUT: Millis = Millis::from_secs(5);
/// Number of SQLite instructions between two checks of the timeout.
const PROGRESS_STEPS: i32 = 5_000;

type ReadJob = Box<dyn FnOnce(&ReadConnection) + Send>;
type JobQueue = Arc<Mutex<mpsc::Receiver<ReadJob>>>;

/// A read-only connection and the deadline of its current query.
struct ReadConnection {
    conn: Connection,
    clock: Arc<dyn Clock>,
    /// Deadline of the current query, in milliseconds of the monotonic clock.
    deadline: Arc<AtomicU64>,
}

impl ReadConnection {
    fn new(mut conn: Connection, clock: &Arc<dyn Clock>) -> rusqlite::Result<Self> {
        let until = Arc::new(AtomicU64::new(u64::MAX));
        let (time, end) = (Arc::clone(clock), Arc::clone(&until));
        let is_over = move || time.monotonic_time().0 > end.load(Ordering::Relaxed);
        conn.progress_handler(PROGRESS_STEPS, Some(is_over))?;
        let clock = Arc::clone(clock);
        Ok(Self { conn, clock, deadline: until })
    }

    /// Runs a query on one consistent snapshot of the database.
    fn query_in_snapshot<T>(
        &self,
        job: impl FnOnce(&Tx<'_>) -> Result<T, WriteCommandError>,
    ) -> Result<T, WriteCommandError> {
        let (conn, now) = (&self.conn, self.clock.now());
        let until = self.clock.monotonic_time().plus(READ_TIMEOUT);
        self.deadline.store(until.0, Ordering::Relaxed);
        conn.prepare_cached("BEGIN")?.execute(())?;
        let result = job(&Tx { conn, now });
        self.deadline.store(u64::MAX, Ordering::Relaxed);
        let ended = conn.prepare_cached("COMMIT")?.execute(());
        let result = result?;
        ended?;
        Ok(result)
    }
}

/// Handle of the reader threads, to which queries are sent.
pub(crate) struct ReaderPool {
    location: Arc<str>,
    jobs: Option<mpsc::Sender<ReadJob>>,
    threads: Vec<JoinHandle<()>>,
}

impl fmt::Debug for ReaderPool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReaderPool").field("location", &self.location).finish_non_exhaustive()
    }
}

impl ReaderPool {
    pub(crate) fn start_reader_threads(
        connections: Vec<Connection>,
        location: &Arc<str>,
        clock: &Arc<dyn Clock>,
    ) -> Result<Self, StoreError> {
        let (job_sender, job_queue) = mpsc::channel(QUEUE_MAX);
        let job_queue: JobQueue = Arc::new(Mutex::new(job_queue));
        let mut readers =
            Self { location: Arc::clone(location), jobs: Some(job_sender), threads: Vec::new() };
        for conn in connections {
            let job_queue = Arc::clone(&job_queue);
            let read_conn = ReadConnection::new(conn, clock)
                .map_err(|error| store_error_from_sql(error, location))?;
            let thread = thread::Builder::new()
                .name("store-reader".to_owned())
                .spawn(move || run_reader_loop(&read_conn, &job_queue))
                .map_err(|error| store_error_from_io(error, location))?;
            readers.threads.push(thread);
        }
        Ok(readers)
    }

    /// Runs a query on one consistent snapshot, on one of the reader threads.
    pub(crate) async fn run_query<T, F>(&self, job: F) -> Result<T, StoreError>
    where
        T: Send + 'static,
        F: FnOnce(&Tx<'_>) -> Result<T, WriteCommandError> + Send + 'static,
    {
        let (caller, answer) = oneshot::channel();
        let job: ReadJob = Box::new(move |read_conn| {
            _ = caller.send(read_conn.query_in_snapshot(job));
        });
        let is_sent = match &self.jobs {
            Some(job_sender) => job_sender.send(job).await.is_ok(),
            None => false,
        };
        let closed = || {
            CommitError::Closed("the reader threads have stopped".to_owned())
                .to_store_error(&self.location)
        };
        if !is_sent {
            return Err(closed());
        }
        let result = answer.await.map_err(|_| closed())?;
        result.map_err(|error| error.into_store_error(&self.location))
    }
}

fn run_reader_loop(read_conn: &ReadConnection, job_queue: &JobQueue) {
    // One thread waits for the next job; the others wait for the mutex.
    let next_job = || job_queue.lock().unwrap_or_else(PoisonError::into_inner).blocking_recv();
    let mut job = next_job();
    // Only when there is a query, so that opening a store does not wait for the schema. A failure
    // only leaves the cache at SQLite's default size; the query reports what is wrong.
    if job.is_some() {
        _ = connect::limit_reader_cache(&read_conn.conn);
    }
    while let Some(run) = job {
        run(read_conn);
        job = next_job();
    }
}

impl Drop for ReaderPool {
    fn drop(&mut self) {
        drop(self.jobs.take());
        for thread in self.threads.drain(..) {
            _ = thread.join();
        }
    }
}
