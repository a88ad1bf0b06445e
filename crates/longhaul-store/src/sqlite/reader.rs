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

use crate::sqlite::fault::{Fault, Lost, io_error, sql_error};
use crate::sqlite::tx::Tx;

/// So many looks may wait.
const WAITING_MAX: usize = 1_024;
/// So long may one look take.
const LOOK_SPAN_MAX: Millis = Millis::from_secs(5);
/// After so many steps of the database the time is looked at.
const STEPS_BETWEEN: i32 = 5_000;

type Look = Box<dyn FnOnce(&Glass) + Send>;
type Inbox = Arc<Mutex<mpsc::Receiver<Look>>>;

/// A connection that can't write, and the time at which its look must end.
struct Glass {
    conn: Connection,
    clock: Arc<dyn Clock>,
    /// In milliseconds of the monotonic clock.
    until: Arc<AtomicU64>,
}

impl Glass {
    fn new(mut conn: Connection, clock: &Arc<dyn Clock>) -> rusqlite::Result<Self> {
        let until = Arc::new(AtomicU64::new(u64::MAX));
        let (time, end) = (Arc::clone(clock), Arc::clone(&until));
        let is_over = move || time.monotonic().0 > end.load(Ordering::Relaxed);
        conn.progress_handler(STEPS_BETWEEN, Some(is_over))?;
        let clock = Arc::clone(clock);
        Ok(Self { conn, clock, until })
    }

    /// Reads everything from the same moment.
    fn look<T>(&self, look: impl FnOnce(&Tx<'_>) -> Result<T, Fault>) -> Result<T, Fault> {
        let (conn, now) = (&self.conn, self.clock.now());
        let until = self.clock.monotonic().plus(LOOK_SPAN_MAX);
        self.until.store(until.0, Ordering::Relaxed);
        conn.prepare_cached("BEGIN")?.execute(())?;
        let seen = look(&Tx { conn, now });
        self.until.store(u64::MAX, Ordering::Relaxed);
        let ended = conn.prepare_cached("COMMIT")?.execute(());
        let seen = seen?;
        ended?;
        Ok(seen)
    }
}

/// The way to the readers.
pub(crate) struct Readers {
    at: Arc<str>,
    looks: Option<mpsc::Sender<Look>>,
    threads: Vec<JoinHandle<()>>,
}

impl fmt::Debug for Readers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Readers")
            .field("at", &self.at)
            .finish_non_exhaustive()
    }
}

impl Readers {
    /// Starts a thread for each connection.
    pub(crate) fn start(
        connections: Vec<Connection>,
        at: &Arc<str>,
        clock: &Arc<dyn Clock>,
    ) -> Result<Self, StoreError> {
        let (looks, inbox) = mpsc::channel(WAITING_MAX);
        let inbox: Inbox = Arc::new(Mutex::new(inbox));
        let mut readers = Self {
            at: Arc::clone(at),
            looks: Some(looks),
            threads: Vec::new(),
        };
        for conn in connections {
            let inbox = Arc::clone(&inbox);
            let glass = Glass::new(conn, clock).map_err(|error| sql_error(error, at))?;
            let thread = thread::Builder::new()
                .name("store-reader".to_owned())
                .spawn(move || serve(&glass, &inbox))
                .map_err(|error| io_error(error, at))?;
            readers.threads.push(thread);
        }
        Ok(readers)
    }

    /// Looks at one snapshot.
    pub(crate) async fn read<T, F>(&self, look: F) -> Result<T, StoreError>
    where
        T: Send + 'static,
        F: FnOnce(&Tx<'_>) -> Result<T, Fault> + Send + 'static,
    {
        let (caller, answer) = oneshot::channel();
        let look: Look = Box::new(move |glass| {
            _ = caller.send(glass.look(look));
        });
        let sent = match &self.looks {
            Some(looks) => looks.send(look).await.is_ok(),
            None => false,
        };
        let gone = || Lost::Closed("its readers have ended".to_owned()).error(&self.at);
        if !sent {
            return Err(gone());
        }
        let seen = answer.await.map_err(|_| gone())?;
        seen.map_err(|fault| fault.into_error(&self.at))
    }
}

fn serve(glass: &Glass, inbox: &Inbox) {
    loop {
        // One thread waits for the next look, the others for their turn to wait.
        let look = inbox
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .blocking_recv();
        match look {
            Some(look) => look(glass),
            None => break,
        }
    }
}

impl Drop for Readers {
    fn drop(&mut self) {
        drop(self.looks.take());
        for thread in self.threads.drain(..) {
            _ = thread.join();
        }
    }
}
