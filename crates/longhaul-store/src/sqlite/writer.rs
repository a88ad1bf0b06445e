//! The one thread that writes: takes what waits, commits once, answers everybody.
//!
//! Never: lingers for more to come, or goes on after a commit of which nothing
//! is known. Groups grow by themselves while a commit runs.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use longhaul_core::port::store::StoreError;
use longhaul_core::time::{Clock, Millis};
use rusqlite::Connection;
use rusqlite::config::DbConfig;
use tokio::sync::{mpsc, oneshot, watch};

use crate::options::{CommitFault, Fatal, Faults};
use crate::sqlite::fault::{Fault, Lost, io_error, sql_error};
use crate::sqlite::lock::DriverLock;
use crate::sqlite::place::OpenFile;
use crate::sqlite::tx::Tx;
use crate::sqlite::work::{Done, Ran, Task, Work};

/// So many commands go into one commit at most.
const GROUP_MAX: usize = 256;
/// So much work goes into one commit at most.
const GROUP_SPAN_MAX: Millis = Millis(2);
/// So many commands may wait; whoever comes then waits to wait.
const WAITING_MAX: usize = 1_024;

/// So often the file is tried while another process writes. One that writes all
/// the time leaves only short gaps, and SQLite by itself would look for one ten
/// times a second.
const TRY_EVERY: Duration = Duration::from_millis(1);

type Inbox = mpsc::Receiver<Box<dyn Work>>;

/// Everything the writer owns.
pub(crate) struct Writer {
    pub(crate) conn: Connection,
    pub(crate) at: Arc<str>,
    pub(crate) clock: Arc<dyn Clock>,
    /// How long another process that writes is waited for.
    pub(crate) busy: Duration,
    pub(crate) changes: watch::Sender<u64>,
    /// Commits of this thread that were news to anybody.
    pub(crate) commits: Arc<AtomicU64>,
    pub(crate) fatal: Option<Fatal>,
    pub(crate) faults: Option<Arc<dyn Faults>>,
    /// Held as long as this thread writes, and no longer.
    pub(crate) lock: Option<DriverLock>,
    /// The file that is written; `None` for a store in memory.
    pub(crate) file: Option<OpenFile>,
}

/// The way to the writer. When it is dropped the writer finishes what waits,
/// closes the file and lets go of the lock before the drop returns.
pub(crate) struct WriterHandle {
    at: Arc<str>,
    commits: Arc<AtomicU64>,
    commands: Option<mpsc::Sender<Box<dyn Work>>>,
    thread: Option<JoinHandle<()>>,
    /// Nothing can be written at all, and why.
    shut: Option<Lost>,
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
        // From here on this thread does the waiting.
        let alone = self.conn.busy_timeout(Duration::ZERO);
        alone.map_err(|error| sql_error(error, &at))?;
        let commits = Arc::clone(&self.commits);
        let (commands, inbox) = mpsc::channel(WAITING_MAX);
        let thread = thread::Builder::new()
            .name("store-writer".to_owned())
            .spawn(move || self.write(inbox))
            .map_err(|error| io_error(error, &at))?;
        Ok(WriterHandle {
            at,
            commits,
            commands: Some(commands),
            thread: Some(thread),
            shut: None,
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
    fn group(&self, first: Box<dyn Work>, inbox: &mut Inbox) -> Option<Lost> {
        let mut works = Vec::with_capacity(GROUP_MAX);
        works.push(first);
        let is_news = self
            .swiftly(&mut works, inbox)
            .and_then(|swift| match swift {
                Some(is_news) => Ok(is_news),
                None => self.one_by_one(&mut works),
            });
        let done = is_news.and_then(|is_news| self.commit().map(|()| is_news));
        let lost = match done {
            Ok(is_news) => {
                if is_news {
                    self.commits.fetch_add(1, Ordering::Relaxed);
                    self.changes
                        .send_modify(|count| *count = count.wrapping_add(1));
                }
                None
            }
            Err(lost) => {
                self.roll_back();
                Some(lost)
            }
        };
        answer(works, lost.as_ref(), &self.at);
        lost.filter(|lost| matches!(lost, Lost::Closed(_)))
    }

    /// Does what comes in, with nothing between the commands: as long as none of
    /// them has to be undone, none needs a savepoint, and a savepoint costs a copy
    /// of every page that the next command changes. Whether anything is news;
    /// none: one has to be undone, and with it, for now, all of them.
    fn swiftly(
        &self,
        works: &mut Vec<Box<dyn Work>>,
        inbox: &mut Inbox,
    ) -> Result<Option<bool>, Lost> {
        if let Err(error) = self.begin() {
            // Whoever waits behind would only wait as long again.
            while let Ok(more) = inbox.try_recv() {
                works.push(more);
            }
            return Err(Lost::by(&error));
        }
        let begun = self.clock.monotonic();
        let mut is_news = false;
        let mut written = self.conn.total_changes();
        while let Some(work) = works.last_mut() {
            let ran = work.run(&self.tx(), &self.at);
            let before = std::mem::replace(&mut written, self.conn.total_changes());
            match ran {
                Ran::Kept => is_news = true,
                Ran::Quiet => {}
                Ran::Undone if written == before => {}
                Ran::Undone | Ran::Broke(_) => {
                    self.roll_back();
                    return Ok(None);
                }
            }
            let is_full =
                works.len() >= GROUP_MAX || self.clock.monotonic().minus(begun) >= GROUP_SPAN_MAX;
            if is_full {
                break;
            }
            let Ok(more) = inbox.try_recv() else {
                break;
            };
            works.push(more);
        }
        Ok(Some(is_news))
    }

    /// Does the same commands again, each in a savepoint: whichever is refused
    /// undoes only itself. An error means that the whole commit is gone.
    fn one_by_one(&self, works: &mut [Box<dyn Work>]) -> Result<bool, Lost> {
        self.begin().map_err(|error| Lost::by(&error))?;
        let mut is_news = false;
        for work in works {
            self.must_say("SAVEPOINT one")?;
            match work.run(&self.tx(), &self.at) {
                Ran::Kept => is_news = true,
                Ran::Quiet => {}
                Ran::Undone => self.must_say("ROLLBACK TO one")?,
                // The database may have rolled everything back by itself.
                Ran::Broke(lost) if self.conn.is_autocommit() => return Err(lost),
                Ran::Broke(_) => self.must_say("ROLLBACK TO one")?,
            }
            self.must_say("RELEASE one")?;
        }
        Ok(is_news)
    }

    /// Begins a commit as soon as no other process writes.
    fn begin(&self) -> rusqlite::Result<()> {
        let mut waited = Duration::ZERO;
        loop {
            match self.say("BEGIN IMMEDIATE") {
                Err(error) if waited < self.busy && matches!(Lost::by(&error), Lost::Busy) => {
                    thread::sleep(TRY_EVERY);
                    waited += TRY_EVERY;
                }
                begun => return begun,
            }
        }
    }

    fn commit(&self) -> Result<(), Lost> {
        let wanted = self.faults.as_ref().and_then(|faults| faults.at_commit());
        let lost = match wanted {
            None => match self.say("COMMIT") {
                Ok(()) => return self.must_be_in_place(),
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
                Err(self.give_up(format!(
                    "a commit failed and what it left is not known ({why})"
                )))
            }
        }
    }

    /// Checked after every commit: what went into a file that nobody will find again is
    /// not acknowledged.
    fn must_be_in_place(&self) -> Result<(), Lost> {
        match self.file.as_ref().map_or(Ok(()), OpenFile::check) {
            Ok(()) => Ok(()),
            Err(why) => Err(self.give_up(why)),
        }
    }

    /// After a failed sync nobody knows what the disk holds. Writing more, or
    /// moving the log into the file, would build on that.
    fn give_up(&self, why: String) -> Lost {
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

    fn tx(&self) -> Tx<'_> {
        Tx {
            conn: &self.conn,
            now: self.clock.now(),
        }
    }

    fn must_say(&self, sql: &str) -> Result<(), Lost> {
        self.say(sql).map_err(|error| Lost::by(&error))
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
    /// A way that leads nowhere: every command hears why.
    pub(crate) fn shut(at: Arc<str>, why: Lost) -> Self {
        Self {
            at,
            commits: Arc::default(),
            commands: None,
            thread: None,
            shut: Some(why),
        }
    }

    /// How many commits of this process were news to anybody.
    pub(crate) fn commits(&self) -> u64 {
        self.commits.load(Ordering::Relaxed)
    }

    /// Hands a command in and waits until its commit stands. A caller that goes
    /// away does not take its command with it.
    pub(crate) async fn write<T, F>(&self, work: F) -> Result<T, StoreError>
    where
        T: Send + 'static,
        F: Fn(&Tx<'_>) -> Result<Done<T>, Fault> + Send + 'static,
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
        if let Some(why) = &self.shut {
            return why.error(&self.at);
        }
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
