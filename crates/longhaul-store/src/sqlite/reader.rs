//! A few threads that read, each with a connection that can't write.
//!
//! Never: a snapshot that outlives one look, or a look without an end: as long
//! as anybody looks at an old moment, the log can't be moved into the file.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};

use longhaul_core::port::store::StoreError;
use longhaul_core::time::{Clock, Millis};
use rusqlite::Connection;
use tokio::sync::{mpsc, oneshot};

use crate::sqlite::error::{CommandError, CommitError, io_error, sql_error};
use crate::sqlite::tx::Tx;

/// So many looks may wait.
const QUEUE_MAX: usize = 1_024;
/// So long may one look take.
const READ_TIMEOUT: Millis = Millis::from_secs(5);
/// After so many steps of the database the time is looked at.
const PROGRESS_STEPS: i32 = 5_000;

type ReadJob = Box<dyn FnOnce(&ReadConnection) + Send>;
type JobQueue = Arc<Mutex<mpsc::Receiver<ReadJob>>>;

/// A connection that can't write, and the time at which its look must end.
struct ReadConnection {
    conn: Connection,
    clock: Arc<dyn Clock>,
    /// In milliseconds of the monotonic clock.
    deadline: Arc<AtomicU64>,
}

impl ReadConnection {
    fn new(mut conn: Connection, clock: &Arc<dyn Clock>) -> rusqlite::Result<Self> {
        let until = Arc::new(AtomicU64::new(u64::MAX));
        let (time, end) = (Arc::clone(clock), Arc::clone(&until));
        let is_over = move || time.monotonic().0 > end.load(Ordering::Relaxed);
        conn.progress_handler(PROGRESS_STEPS, Some(is_over))?;
        let clock = Arc::clone(clock);
        Ok(Self { conn, clock, deadline: until })
    }

    /// Reads everything from the same moment.
    fn read_snapshot<T>(
        &self,
        look: impl FnOnce(&Tx<'_>) -> Result<T, CommandError>,
    ) -> Result<T, CommandError> {
        let (conn, now) = (&self.conn, self.clock.now());
        let until = self.clock.monotonic().plus(READ_TIMEOUT);
        self.deadline.store(until.0, Ordering::Relaxed);
        conn.prepare_cached("BEGIN")?.execute(())?;
        let seen = look(&Tx { conn, now });
        self.deadline.store(u64::MAX, Ordering::Relaxed);
        let ended = conn.prepare_cached("COMMIT")?.execute(());
        let seen = seen?;
        ended?;
        Ok(seen)
    }
}

/// The way to the readers.
pub(crate) struct ReaderPool {
    at: Arc<str>,
    jobs: Option<mpsc::Sender<ReadJob>>,
    threads: Vec<JoinHandle<()>>,
}

impl fmt::Debug for ReaderPool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReaderPool").field("at", &self.at).finish_non_exhaustive()
    }
}

impl ReaderPool {
    /// Starts a thread for each connection.
    pub(crate) fn start(
        connections: Vec<Connection>,
        at: &Arc<str>,
        clock: &Arc<dyn Clock>,
    ) -> Result<Self, StoreError> {
        let (looks, inbox) = mpsc::channel(QUEUE_MAX);
        let inbox: JobQueue = Arc::new(Mutex::new(inbox));
        let mut readers = Self { at: Arc::clone(at), jobs: Some(looks), threads: Vec::new() };
        for conn in connections {
            let inbox = Arc::clone(&inbox);
            let glass = ReadConnection::new(conn, clock).map_err(|error| sql_error(error, at))?;
            let thread = thread::Builder::new()
                .name("store-reader".to_owned())
                .spawn(move || run_jobs(&glass, &inbox))
                .map_err(|error| io_error(error, at))?;
            readers.threads.push(thread);
        }
        Ok(readers)
    }

    /// Looks at one snapshot.
    pub(crate) async fn read<T, F>(&self, look: F) -> Result<T, StoreError>
    where
        T: Send + 'static,
        F: FnOnce(&Tx<'_>) -> Result<T, CommandError> + Send + 'static,
    {
        let (caller, answer) = oneshot::channel();
        let look: ReadJob = Box::new(move |glass| {
            _ = caller.send(glass.read_snapshot(look));
        });
        let sent = match &self.jobs {
            Some(looks) => looks.send(look).await.is_ok(),
            None => false,
        };
        let gone =
            || CommitError::Closed("its readers have ended".to_owned()).to_store_error(&self.at);
        if !sent {
            return Err(gone());
        }
        let seen = answer.await.map_err(|_| gone())?;
        seen.map_err(|fault| fault.into_store_error(&self.at))
    }
}

fn run_jobs(glass: &ReadConnection, inbox: &JobQueue) {
    loop {
        // One thread waits for the next look, the others for their turn to wait.
        let look = inbox.lock().unwrap_or_else(PoisonError::into_inner).blocking_recv();
        match look {
            Some(look) => look(glass),
            None => break,
        }
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
