//! A few threads that read, each with a connection that can't write.
//!
//! Never: a snapshot that outlives one look.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};

use longhaul_core::port::store::StoreError;
use longhaul_core::time::Clock;
use rusqlite::Connection;
use tokio::sync::{mpsc, oneshot};

use crate::sqlite::fault::{Fault, Lost, io_error};
use crate::sqlite::tx::Tx;

/// So many looks may wait.
const WAITING_MAX: usize = 1_024;

type Look = Box<dyn FnOnce(&Connection) + Send>;
type Inbox = Arc<Mutex<mpsc::Receiver<Look>>>;

/// The way to the readers.
pub(crate) struct Readers {
    at: Arc<str>,
    clock: Arc<dyn Clock>,
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
            clock: Arc::clone(clock),
            looks: Some(looks),
            threads: Vec::new(),
        };
        for conn in connections {
            let inbox = Arc::clone(&inbox);
            let thread = thread::Builder::new()
                .name("store-reader".to_owned())
                .spawn(move || serve(&conn, &inbox))
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
        let clock = Arc::clone(&self.clock);
        let look: Look = Box::new(move |conn| {
            let now = clock.now();
            let seen = in_snapshot(conn, || look(&Tx { conn, now }));
            _ = caller.send(seen);
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

/// Reads everything from the same moment.
fn in_snapshot<T>(conn: &Connection, look: impl FnOnce() -> Result<T, Fault>) -> Result<T, Fault> {
    conn.prepare_cached("BEGIN")?.execute(())?;
    let seen = look();
    let ended = conn.prepare_cached("COMMIT")?.execute(());
    let seen = seen?;
    ended?;
    Ok(seen)
}

fn serve(conn: &Connection, inbox: &Inbox) {
    loop {
        // One thread waits for the next look, the others for their turn to wait.
        let look = inbox
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .blocking_recv();
        match look {
            Some(look) => look(conn),
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
