//! The one thread that writes: takes what waits, commits once, answers everybody.
//!
//! Never: lingers for more to come, or goes on after a commit of which nothing
//! is known. Groups grow by themselves while a commit runs.

use std::fmt;
use std::sync::Arc;
use std::thread::{self, JoinHandle};

use longhaul_core::port::store::StoreError;
use longhaul_core::time::{Clock, Millis};
use rusqlite::Connection;
use rusqlite::config::DbConfig;
use tokio::sync::{mpsc, oneshot, watch};

use crate::options::{CommitFault, Fatal, Faults};
use crate::sqlite::fault::{Fault, Lost, io_error};
use crate::sqlite::lock::DriverLock;
use crate::sqlite::tx::Tx;
use crate::sqlite::work::{Done, Ran, Task, Work};

/// So many commands go into one commit at most.
const GROUP_MAX: usize = 256;
/// So much work goes into one commit at most.
const GROUP_SPAN_MAX: Millis = Millis(2);
/// So many commands may wait; whoever comes then waits to wait.
const WAITING_MAX: usize = 1_024;

type Inbox = mpsc::Receiver<Box<dyn Work>>;

/// Everything the writer owns.
pub(crate) struct Writer {
    pub(crate) conn: Connection,
    pub(crate) at: Arc<str>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) changes: watch::Sender<u64>,
    pub(crate) fatal: Option<Fatal>,
    pub(crate) faults: Option<Arc<dyn Faults>>,
    /// Held as long as this thread writes, and no longer.
    pub(crate) lock: Option<DriverLock>,
}

/// The way to the writer. When it is dropped the writer finishes what waits,
/// closes the file and lets go of the lock before the drop returns.
pub(crate) struct WriterHandle {
    at: Arc<str>,
    commands: Option<mpsc::Sender<Box<dyn Work>>>,
    thread: Option<JoinHandle<()>>,
}

impl fmt::Debug for WriterHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WriterHandle")
            .field("at", &self.at)
            .finish_non_exhaustive()
    }
}

impl Writer {
    /// Starts the thread.
    pub(crate) fn start(self) -> Result<WriterHandle, StoreError> {
        let at = Arc::clone(&self.at);
        let (commands, inbox) = mpsc::channel(WAITING_MAX);
        let thread = thread::Builder::new()
            .name("store-writer".to_owned())
            .spawn(move || self.write(inbox))
            .map_err(|error| io_error(error, &at))?;
        Ok(WriterHandle {
            at,
            commands: Some(commands),
            thread: Some(thread),
        })
    }

    fn write(mut self, mut inbox: Inbox) {
        let mut closed: Option<Lost> = None;
        while let Some(first) = inbox.blocking_recv() {
            if let Some(lost) = &closed {
                answer([first], Some(lost), &self.at);
            } else {
                closed = self.group(first, &mut inbox);
            }
        }
        if let Some(lock) = self.lock.take() {
            // The file is closed before anybody else may drive it.
            drop(self.conn);
            drop(lock);
        }
    }

    /// One commit: the first command, and what comes in while it is being done.
    /// Gives back the reason if the store can't go on.
    fn group(&mut self, first: Box<dyn Work>, inbox: &mut Inbox) -> Option<Lost> {
        let mut ran = Vec::with_capacity(GROUP_MAX);
        if let Err(error) = self.say("BEGIN IMMEDIATE") {
            // Whoever waits behind would only wait as long again.
            ran.push(first);
            while let Ok(more) = inbox.try_recv() {
                ran.push(more);
            }
            answer(ran, Some(&Lost::by(&error)), &self.at);
            return None;
        }
        let begun = self.clock.now();
        let mut is_news = false;
        let mut next = Some(first);
        while let Some(mut work) = next {
            let told = self.one(work.as_mut());
            ran.push(work);
            match told {
                Ok(news) => is_news |= news,
                Err(lost) => {
                    self.roll_back();
                    answer(ran, Some(&lost), &self.at);
                    return None;
                }
            }
            let is_full = ran.len() >= GROUP_MAX || self.clock.now().since(begun) >= GROUP_SPAN_MAX;
            next = if is_full { None } else { inbox.try_recv().ok() };
        }
        match self.commit() {
            Ok(()) => {
                if is_news {
                    self.changes
                        .send_modify(|count| *count = count.wrapping_add(1));
                }
                answer(ran, None, &self.at);
                None
            }
            Err(lost) => {
                answer(ran, Some(&lost), &self.at);
                matches!(lost, Lost::Closed(_)).then_some(lost)
            }
        }
    }

    /// One command in its savepoint; whether it wrote what others wait for. An
    /// error means that the whole commit is gone.
    fn one(&self, work: &mut dyn Work) -> Result<bool, Lost> {
        self.say("SAVEPOINT one")
            .map_err(|error| Lost::by(&error))?;
        let tx = Tx {
            conn: &self.conn,
            now: self.clock.now(),
        };
        let ran = work.run(&tx, &self.at);
        if let Ran::Broke(lost) = &ran
            && self.conn.is_autocommit()
        {
            // The database has rolled everything back by itself.
            return Err(lost.clone());
        }
        let undone = matches!(ran, Ran::Undone | Ran::Broke(_));
        if undone {
            self.say("ROLLBACK TO one")
                .map_err(|error| Lost::by(&error))?;
        }
        self.say("RELEASE one").map_err(|error| Lost::by(&error))?;
        Ok(matches!(ran, Ran::Kept))
    }

    fn commit(&self) -> Result<(), Lost> {
        let wanted = self.faults.as_ref().and_then(|faults| faults.at_commit());
        let lost = match wanted {
            None => match self.say("COMMIT") {
                Ok(()) => return Ok(()),
                Err(error) => Lost::by(&error),
            },
            Some(CommitFault::Full) => Lost::Full,
            Some(CommitFault::Busy) => Lost::Busy,
            Some(CommitFault::SyncLost) => Lost::Other("the sync was made to fail".to_owned()),
            Some(CommitFault::SyncStands) => {
                _ = self.say("COMMIT");
                Lost::Other("the sync was made to fail".to_owned())
            }
        };
        self.roll_back();
        match lost {
            Lost::Full | Lost::Busy => Err(lost),
            Lost::ReadOnly(why) | Lost::Corrupt(why) | Lost::Closed(why) | Lost::Other(why) => {
                Err(self.give_up(&why))
            }
        }
    }

    /// After a failed sync nobody knows what the disk holds. Writing more, or
    /// moving the log into the file, would build on that.
    fn give_up(&self, why: &str) -> Lost {
        let why = format!("a commit failed and what it left is not known ({why})");
        tracing::error!(store = %self.at, "{why}");
        _ = self
            .conn
            .set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true);
        if let Some(fatal) = &self.fatal {
            fatal(&why);
        }
        Lost::Closed(why)
    }

    fn roll_back(&self) {
        if !self.conn.is_autocommit()
            && let Err(error) = self.say("ROLLBACK")
        {
            tracing::warn!(store = %self.at, %error, "a rollback failed");
        }
    }

    fn say(&self, sql: &str) -> rusqlite::Result<()> {
        self.conn.prepare_cached(sql)?.execute(()).map(|_| ())
    }
}

fn answer(works: impl IntoIterator<Item = Box<dyn Work>>, lost: Option<&Lost>, at: &str) {
    for work in works {
        work.answer(lost.map(|lost| lost.error(at)));
    }
}

impl WriterHandle {
    /// Hands a command in and waits until its commit stands. A caller that goes
    /// away does not take its command with it.
    pub(crate) async fn write<T, F>(&self, work: F) -> Result<T, StoreError>
    where
        T: Send + 'static,
        F: FnOnce(&Tx<'_>) -> Result<Done<T>, Fault> + Send + 'static,
    {
        let (caller, answer) = oneshot::channel();
        let task = Box::new(Task::new(work, caller));
        let sent = match &self.commands {
            Some(commands) => commands.send(task).await.is_ok(),
            None => false,
        };
        if !sent {
            return Err(self.gone());
        }
        answer.await.unwrap_or_else(|_| Err(self.gone()))
    }

    fn gone(&self) -> StoreError {
        Lost::Closed("its writer has ended".to_owned()).error(&self.at)
    }
}

impl Drop for WriterHandle {
    fn drop(&mut self) {
        drop(self.commands.take());
        if let Some(thread) = self.thread.take()
            && thread.thread().id() != thread::current().id()
        {
            _ = thread.join();
        }
    }
}
