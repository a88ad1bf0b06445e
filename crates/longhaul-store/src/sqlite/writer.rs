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

use crate::options::{CommitFault, FatalHook, FaultInjector};
use crate::sqlite::command::{CommandOutcome, CommandStatus, PendingCommand, WriteCommand};
use crate::sqlite::error::{CommandError, CommitError, io_error, sql_error};
use crate::sqlite::location::OpenedFile;
use crate::sqlite::lock::DriverLock;
use crate::sqlite::tx::Tx;

/// So many commands go into one commit at most.
const GROUP_MAX: usize = 256;
/// So much work goes into one commit at most.
const GROUP_TIME_MAX: Millis = Millis(2);
/// So many commands may wait; whoever comes then waits to wait.
const QUEUE_MAX: usize = 1_024;

/// So often the file is tried while another process writes. One that writes all
/// the time leaves only short gaps, and SQLite by itself would look for one ten
/// times a second.
const BUSY_RETRY_INTERVAL: Duration = Duration::from_millis(1);

type CommandQueue = mpsc::Receiver<Box<dyn WriteCommand>>;

/// Everything the writer owns.
pub(crate) struct Writer {
    pub(crate) conn: Connection,
    pub(crate) at: Arc<str>,
    pub(crate) clock: Arc<dyn Clock>,
    /// How long another process that writes is waited for.
    pub(crate) busy_timeout: Duration,
    pub(crate) change_sender: watch::Sender<u64>,
    /// Commits of this thread that were news to anybody.
    pub(crate) commits: Arc<AtomicU64>,
    pub(crate) on_fatal: Option<FatalHook>,
    pub(crate) fault_injector: Option<Arc<dyn FaultInjector>>,
    /// Held as long as this thread writes, and no longer.
    pub(crate) lock: Option<DriverLock>,
    /// The file that is written; `None` for a store in memory.
    pub(crate) file: Option<OpenedFile>,
}

/// The way to the writer. When it is dropped the writer finishes what waits,
/// closes the file and lets go of the lock before the drop returns.
pub(crate) struct WriterHandle {
    at: Arc<str>,
    commits: Arc<AtomicU64>,
    commands: Option<mpsc::Sender<Box<dyn WriteCommand>>>,
    thread: Option<JoinHandle<()>>,
    /// Nothing can be written at all, and why.
    unavailable: Option<CommitError>,
}

impl fmt::Debug for WriterHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WriterHandle").field("at", &self.at).finish_non_exhaustive()
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
        let (commands, inbox) = mpsc::channel(QUEUE_MAX);
        let thread = thread::Builder::new()
            .name("store-writer".to_owned())
            .spawn(move || self.run(inbox))
            .map_err(|error| io_error(error, &at))?;
        Ok(WriterHandle {
            at,
            commits,
            commands: Some(commands),
            thread: Some(thread),
            unavailable: None,
        })
    }

    fn run(mut self, mut inbox: CommandQueue) {
        let mut closed: Option<CommitError> = None;
        while let Some(first) = inbox.blocking_recv() {
            if let Some(lost) = &closed {
                respond_all([first], Some(lost), &self.at);
            } else {
                closed = self.commit_group(first, &mut inbox);
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
    fn commit_group(
        &self,
        first: Box<dyn WriteCommand>,
        inbox: &mut CommandQueue,
    ) -> Option<CommitError> {
        let mut works = Vec::with_capacity(GROUP_MAX);
        works.push(first);
        let is_news = self.run_batch(&mut works, inbox).and_then(|swift| match swift {
            Some(is_news) => Ok(is_news),
            None => self.run_with_savepoints(&mut works),
        });
        let done = is_news.and_then(|is_news| self.commit().map(|()| is_news));
        let lost = match done {
            Ok(is_news) => {
                if is_news {
                    self.commits.fetch_add(1, Ordering::Relaxed);
                    self.change_sender.send_modify(|count| *count = count.wrapping_add(1));
                }
                None
            }
            Err(lost) => {
                self.roll_back();
                Some(lost)
            }
        };
        respond_all(works, lost.as_ref(), &self.at);
        lost.filter(|lost| matches!(lost, CommitError::Closed(_)))
    }

    /// Does what comes in, with nothing between the commands: as long as none of
    /// them has to be undone, none needs a savepoint, and a savepoint costs a copy
    /// of every page that the next command changes. Whether anything is news;
    /// none: one has to be undone, and with it, for now, all of them.
    fn run_batch(
        &self,
        works: &mut Vec<Box<dyn WriteCommand>>,
        inbox: &mut CommandQueue,
    ) -> Result<Option<bool>, CommitError> {
        if let Err(error) = self.begin() {
            // Whoever waits behind would only wait as long again.
            while let Ok(more) = inbox.try_recv() {
                works.push(more);
            }
            return Err(CommitError::from_sql(&error));
        }
        let begun = self.clock.monotonic();
        let mut is_news = false;
        let mut written = self.conn.total_changes();
        while let Some(work) = works.last_mut() {
            let ran = work.run(&self.tx(), &self.at);
            let before = std::mem::replace(&mut written, self.conn.total_changes());
            match ran {
                CommandStatus::Changed => is_news = true,
                CommandStatus::Silent => {}
                CommandStatus::Rollback if written == before => {}
                CommandStatus::Rollback | CommandStatus::Failed(_) => {
                    self.roll_back();
                    return Ok(None);
                }
            }
            let is_full =
                works.len() >= GROUP_MAX || self.clock.monotonic().minus(begun) >= GROUP_TIME_MAX;
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
    fn run_with_savepoints(
        &self,
        works: &mut [Box<dyn WriteCommand>],
    ) -> Result<bool, CommitError> {
        self.begin().map_err(|error| CommitError::from_sql(&error))?;
        let mut is_news = false;
        for work in works {
            self.exec_or_fail("SAVEPOINT command")?;
            match work.run(&self.tx(), &self.at) {
                CommandStatus::Changed => is_news = true,
                CommandStatus::Silent => {}
                CommandStatus::Rollback => self.exec_or_fail("ROLLBACK TO command")?,
                // The database may have rolled everything back by itself.
                CommandStatus::Failed(lost) if self.conn.is_autocommit() => return Err(lost),
                CommandStatus::Failed(_) => self.exec_or_fail("ROLLBACK TO command")?,
            }
            self.exec_or_fail("RELEASE command")?;
        }
        Ok(is_news)
    }

    /// Begins a commit as soon as no other process writes.
    fn begin(&self) -> rusqlite::Result<()> {
        let mut waited = Duration::ZERO;
        loop {
            match self.exec("BEGIN IMMEDIATE") {
                Err(error)
                    if waited < self.busy_timeout
                        && matches!(CommitError::from_sql(&error), CommitError::Busy) =>
                {
                    thread::sleep(BUSY_RETRY_INTERVAL);
                    waited += BUSY_RETRY_INTERVAL;
                }
                begun => return begun,
            }
        }
    }

    fn commit(&self) -> Result<(), CommitError> {
        let wanted = self.fault_injector.as_ref().and_then(|faults| faults.at_commit());
        let lost = match wanted {
            None => match self.exec("COMMIT") {
                Ok(()) => return self.check_file_in_place(),
                Err(error) => CommitError::from_sql(&error),
            },
            Some(CommitFault::Full) => CommitError::DiskFull,
            Some(CommitFault::Busy) => CommitError::Busy,
            Some(CommitFault::SyncFailedLost) => {
                CommitError::Other("the sync was made to fail".to_owned())
            }
            Some(CommitFault::SyncFailedStored) => {
                _ = self.exec("COMMIT");
                CommitError::Other("the sync was made to fail".to_owned())
            }
        };
        self.roll_back();
        match lost {
            CommitError::DiskFull | CommitError::Busy => Err(lost),
            CommitError::ReadOnly(why)
            | CommitError::Corrupt(why)
            | CommitError::Closed(why)
            | CommitError::Other(why) => {
                Err(self
                    .fail_closed(format!("a commit failed and what it left is not known ({why})")))
            }
        }
    }

    /// Checked after every commit: what went into a file that nobody will find again is
    /// not acknowledged.
    fn check_file_in_place(&self) -> Result<(), CommitError> {
        match self.file.as_ref().map_or(Ok(()), OpenedFile::check_in_place) {
            Ok(()) => Ok(()),
            Err(why) => Err(self.fail_closed(why)),
        }
    }

    /// After a failed sync nobody knows what the disk holds. Writing more, or
    /// moving the log into the file, would build on that.
    fn fail_closed(&self, why: String) -> CommitError {
        tracing::error!(store = %self.at, "{why}");
        _ = self.conn.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true);
        if let Some(fatal) = &self.on_fatal {
            fatal(&why);
        }
        CommitError::Closed(why)
    }

    fn roll_back(&self) {
        if !self.conn.is_autocommit()
            && let Err(error) = self.exec("ROLLBACK")
        {
            tracing::warn!(store = %self.at, %error, "a rollback failed");
        }
    }

    fn tx(&self) -> Tx<'_> {
        Tx { conn: &self.conn, now: self.clock.now() }
    }

    fn exec_or_fail(&self, sql: &str) -> Result<(), CommitError> {
        self.exec(sql).map_err(|error| CommitError::from_sql(&error))
    }

    fn exec(&self, sql: &str) -> rusqlite::Result<()> {
        self.conn.prepare_cached(sql)?.execute(()).map(|_| ())
    }
}

fn respond_all(
    works: impl IntoIterator<Item = Box<dyn WriteCommand>>,
    lost: Option<&CommitError>,
    at: &str,
) {
    for work in works {
        work.respond(lost.map(|lost| lost.to_store_error(at)));
    }
}

impl WriterHandle {
    /// A way that leads nowhere: every command hears why.
    pub(crate) fn unavailable(at: Arc<str>, why: CommitError) -> Self {
        Self { at, commits: Arc::default(), commands: None, thread: None, unavailable: Some(why) }
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
        F: Fn(&Tx<'_>) -> Result<CommandOutcome<T>, CommandError> + Send + 'static,
    {
        let (caller, answer) = oneshot::channel();
        let task = Box::new(PendingCommand::new(work, caller));
        let sent = match &self.commands {
            Some(commands) => commands.send(task).await.is_ok(),
            None => false,
        };
        if !sent {
            return Err(self.closed_error());
        }
        answer.await.unwrap_or_else(|_| Err(self.closed_error()))
    }

    fn closed_error(&self) -> StoreError {
        if let Some(why) = &self.unavailable {
            return why.to_store_error(&self.at);
        }
        CommitError::Closed("its writer has ended".to_owned()).to_store_error(&self.at)
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
