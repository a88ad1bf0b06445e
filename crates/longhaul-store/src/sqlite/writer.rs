//! The writer thread: takes all queued commands, commits once and answers all callers (group
//! commit).
//!
//! The thread does not wait for more commands, because groups form by themselves while a commit
//! runs. After a commit with an unknown result the thread stops writing.

use std::fmt;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use longhaul_core::port::store::StoreError;
use longhaul_core::time::{Clock, Millis};
use rusqlite::Connection;
use rusqlite::config::DbConfig;
use tokio::sync::{mpsc, oneshot, watch};

use crate::options::{CommitFault, FatalHook, FaultInjector};
use crate::sqlite::command::{
    CommandOutcome, CommandOutcomeKind, PendingWriteCommand, WriteCommand,
};
use crate::sqlite::error::{
    CommitError, WriteCommandError, store_error_from_io, store_error_from_sql,
};
use crate::sqlite::location::OpenedDatabaseFile;
use crate::sqlite::lock::ReacquirableDriverLock;
use crate::sqlite::tx::Tx;

/// Maximum number of commands that one commit may contain.
const GROUP_MAX: usize = 256;
/// Maximum time for running the commands of one commit. Commands that arrive later go into the next
/// commit.
const GROUP_TIME_MAX: Millis = Millis(2);
/// Maximum number of queued commands. Further callers wait until the queue has room.
const QUEUE_MAX: usize = 1_024;

/// Interval between attempts to begin a transaction while another process writes. SQLite's own busy
/// handler retries only about ten times a second, which would miss the short gaps of a process that
/// writes all the time.
const BUSY_RETRY_INTERVAL: Duration = Duration::from_millis(1);

type CommandQueue = mpsc::Receiver<Box<dyn WriteCommand>>;

/// State of the writer thread: its connection, clock, lock and hooks.
pub(crate) struct Writer {
    pub(crate) conn: Connection,
    pub(crate) location: Arc<str>,
    pub(crate) clock: Arc<dyn Clock>,
    /// How long a transaction waits for other processes that are writing.
    pub(crate) busy_timeout: Duration,
    pub(crate) change_sender: watch::Sender<u64>,
    pub(crate) on_fatal: Option<FatalHook>,
    pub(crate) fault_injector: Option<Arc<dyn FaultInjector>>,
    /// Driver lock (held by the process that executes the runs), released when this thread ends.
    /// `None` means a store in memory.
    pub(crate) driver_lock: Option<Arc<ReacquirableDriverLock>>,
    /// Database file. `None` means a store in memory.
    pub(crate) file: Option<OpenedDatabaseFile>,
}

/// Handle of the writer thread. Dropping the handle completes the queued commands, closes the file
/// and releases the driver lock.
pub(crate) struct WriterHandle {
    location: Arc<str>,
    commands: Option<mpsc::Sender<Box<dyn WriteCommand>>>,
    thread: Option<JoinHandle<()>>,
    /// Error with which every command fails, if nothing can be written. `None` means that the store
    /// is writable.
    unavailable: Option<CommitError>,
}

impl fmt::Debug for WriterHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WriterHandle").field("location", &self.location).finish_non_exhaustive()
    }
}

impl Writer {
    pub(crate) fn start_writer_thread(self) -> Result<WriterHandle, StoreError> {
        let location = Arc::clone(&self.location);
        // From here on the thread itself retries instead of SQLite.
        let result = self.conn.busy_timeout(Duration::ZERO);
        result.map_err(|error| store_error_from_sql(error, &location))?;
        let (commands, queue) = mpsc::channel(QUEUE_MAX);
        let thread = thread::Builder::new()
            .name("store-writer".to_owned())
            .spawn(move || self.run_writer_loop(queue))
            .map_err(|error| store_error_from_io(error, &location))?;
        Ok(WriterHandle {
            location,
            commands: Some(commands),
            thread: Some(thread),
            unavailable: None,
        })
    }

    fn run_writer_loop(self, mut queue: CommandQueue) {
        let mut closed: Option<CommitError> = None;
        while let Some(first) = queue.blocking_recv() {
            if let Some(error) = &closed {
                respond_to_callers([first], Some(error), &self.location);
            } else {
                closed = self.commit_command_group(first, &mut queue);
            }
        }
        // The file is closed before another process may drive it.
        drop(self.conn);
        if let Some(lock) = self.driver_lock {
            lock.release();
        }
    }

    /// Commits one group of commands: the first command and all that arrive while it runs. Returns
    /// an error only if the store must be closed, because it is unknown what is on disk.
    fn commit_command_group(
        &self,
        first: Box<dyn WriteCommand>,
        queue: &mut CommandQueue,
    ) -> Option<CommitError> {
        let mut commands = Vec::with_capacity(GROUP_MAX);
        commands.push(first);
        let must_notify =
            self.run_command_batch(&mut commands, queue).and_then(|outcome| match outcome {
                Some(must_notify) => Ok(must_notify),
                None => self.run_commands_with_savepoints(&mut commands),
            });
        let result =
            must_notify.and_then(|must_notify| self.commit_transaction().map(|()| must_notify));
        let error = match result {
            Ok(must_notify) => {
                if must_notify {
                    self.change_sender.send_modify(|count| *count = count.wrapping_add(1));
                }
                None
            }
            Err(error) => {
                self.roll_back();
                Some(error)
            }
        };
        respond_to_callers(commands, error.as_ref(), &self.location);
        error.filter(|error| matches!(error, CommitError::Closed(_)))
    }

    /// Runs commands as they arrive, without savepoints. A savepoint is only needed if a command
    /// must be rolled back, and costs a copy of every page that the next command changes. Returns
    /// whether watchers must be notified. `None` means that a command had to be rolled back, and
    /// that all commands of this commit were rolled back with it.
    fn run_command_batch(
        &self,
        commands: &mut Vec<Box<dyn WriteCommand>>,
        queue: &mut CommandQueue,
    ) -> Result<Option<bool>, CommitError> {
        if let Err(error) = self.begin_transaction() {
            // The queued commands would have to wait for the same time again.
            while let Ok(more) = queue.try_recv() {
                commands.push(more);
            }
            return Err(CommitError::from_sql_error(&error));
        }
        let started = self.clock.monotonic_time();
        let mut must_notify = false;
        let mut total_changes = self.conn.total_changes();
        while let Some(work) = commands.last_mut() {
            let outcome = work.run_in_transaction(&self.new_tx(), &self.location);
            let before = std::mem::replace(&mut total_changes, self.conn.total_changes());
            match outcome {
                CommandOutcomeKind::Changed => must_notify = true,
                CommandOutcomeKind::Silent => {}
                CommandOutcomeKind::Rollback if total_changes == before => {}
                CommandOutcomeKind::Rollback | CommandOutcomeKind::Failed(_) => {
                    self.roll_back();
                    return Ok(None);
                }
            }
            let is_full = commands.len() >= GROUP_MAX
                || self.clock.monotonic_time().minus(started) >= GROUP_TIME_MAX;
            if is_full {
                break;
            }
            let Ok(more) = queue.try_recv() else {
                break;
            };
            commands.push(more);
        }
        Ok(Some(must_notify))
    }

    /// Runs the commands of one commit again, each in a savepoint, so that a refused command rolls
    /// back only its own writes. Returns whether watchers must be notified. An error means that the
    /// whole transaction is lost.
    fn run_commands_with_savepoints(
        &self,
        commands: &mut [Box<dyn WriteCommand>],
    ) -> Result<bool, CommitError> {
        self.begin_transaction().map_err(|error| CommitError::from_sql_error(&error))?;
        let mut must_notify = false;
        for work in commands {
            self.exec_or_commit_error("SAVEPOINT command")?;
            match work.run_in_transaction(&self.new_tx(), &self.location) {
                CommandOutcomeKind::Changed => must_notify = true,
                CommandOutcomeKind::Silent => {}
                CommandOutcomeKind::Rollback => self.exec_or_commit_error("ROLLBACK TO command")?,
                // SQLite may have rolled back the whole transaction by itself.
                CommandOutcomeKind::Failed(error) if self.conn.is_autocommit() => {
                    return Err(error);
                }
                CommandOutcomeKind::Failed(_) => {
                    self.exec_or_commit_error("ROLLBACK TO command")?
                }
            }
            self.exec_or_commit_error("RELEASE command")?;
        }
        Ok(must_notify)
    }

    /// Begins a transaction, waiting while other processes write.
    fn begin_transaction(&self) -> rusqlite::Result<()> {
        let mut waited = Duration::ZERO;
        loop {
            match self.exec_sql("BEGIN IMMEDIATE") {
                Err(error)
                    if waited < self.busy_timeout
                        && matches!(CommitError::from_sql_error(&error), CommitError::Busy) =>
                {
                    thread::sleep(BUSY_RETRY_INTERVAL);
                    waited += BUSY_RETRY_INTERVAL;
                }
                result => return result,
            }
        }
    }

    fn commit_transaction(&self) -> Result<(), CommitError> {
        let fault = self.fault_injector.as_ref().and_then(|faults| faults.next_commit_fault());
        let error = match fault {
            None => match self.exec_sql("COMMIT") {
                Ok(()) => return self.check_file_not_replaced(),
                Err(error) => CommitError::from_sql_error(&error),
            },
            Some(CommitFault::Full) => CommitError::DiskFull,
            Some(CommitFault::Busy) => CommitError::Busy,
            Some(CommitFault::SyncFailedLost) => {
                CommitError::Other("injected sync failure".to_owned())
            }
            Some(CommitFault::SyncFailedStored) => {
                _ = self.exec_sql("COMMIT");
                CommitError::Other("injected sync failure".to_owned())
            }
        };
        self.roll_back();
        match error {
            CommitError::DiskFull | CommitError::Busy => Err(error),
            CommitError::ReadOnly(reason)
            | CommitError::Corrupt(reason)
            | CommitError::Closed(reason)
            | CommitError::Other(reason) => Err(self.close_store_after_failure(format!(
                "a commit failed with an unknown result ({reason})"
            ))),
        }
    }

    /// Returns an error if the database file was deleted or replaced. Checked after every commit,
    /// because writes to such a file must not be acknowledged.
    fn check_file_not_replaced(&self) -> Result<(), CommitError> {
        match self.file.as_ref().map_or(Ok(()), OpenedDatabaseFile::check_not_replaced) {
            Ok(()) => Ok(()),
            Err(reason) => Err(self.close_store_after_failure(reason)),
        }
    }

    /// Closes the store for writing and calls the fatal hook. After a failed sync the content of
    /// the disk is unknown, and further writes or moving the log into the file would build on that
    /// unknown content.
    fn close_store_after_failure(&self, failure: String) -> CommitError {
        tracing::error!(store = %self.location, "{failure}");
        _ = self.conn.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true);
        if let Some(on_fatal) = &self.on_fatal {
            on_fatal(&failure);
        }
        CommitError::Closed(failure)
    }

    fn roll_back(&self) {
        if !self.conn.is_autocommit()
            && let Err(error) = self.exec_sql("ROLLBACK")
        {
            tracing::warn!(store = %self.location, %error, "rollback failed");
        }
    }

    fn new_tx(&self) -> Tx<'_> {
        Tx { conn: &self.conn, now: self.clock.now() }
    }

    fn exec_or_commit_error(&self, sql: &str) -> Result<(), CommitError> {
        self.exec_sql(sql).map_err(|error| CommitError::from_sql_error(&error))
    }

    fn exec_sql(&self, sql: &str) -> rusqlite::Result<()> {
        self.conn.prepare_cached(sql)?.execute(()).map(|_| ())
    }
}

fn respond_to_callers(
    commands: impl IntoIterator<Item = Box<dyn WriteCommand>>,
    commit_error: Option<&CommitError>,
    location: &str,
) {
    for work in commands {
        work.respond_to_caller(
            commit_error.map(|commit_error| commit_error.to_store_error(location)),
        );
    }
}

impl WriterHandle {
    /// Creates a handle for a store that can't be written to. Every command fails with this error.
    pub(crate) fn new_for_unwritable_store(location: Arc<str>, error: CommitError) -> Self {
        Self { location, commands: None, thread: None, unavailable: Some(error) }
    }

    /// Sends a command to the writer thread and waits until its commit is durable. If the caller is
    /// dropped, the command is executed anyway.
    pub(crate) async fn run_command<T, F>(&self, command: F) -> Result<T, StoreError>
    where
        T: Send + 'static,
        F: Fn(&Tx<'_>) -> Result<CommandOutcome<T>, WriteCommandError> + Send + 'static,
    {
        let (caller, answer) = oneshot::channel();
        let task = Box::new(PendingWriteCommand::new(command, caller));
        let is_sent = match &self.commands {
            Some(commands) => commands.send(task).await.is_ok(),
            None => false,
        };
        if !is_sent {
            return Err(self.writer_closed_error());
        }
        answer.await.unwrap_or_else(|_| Err(self.writer_closed_error()))
    }

    fn writer_closed_error(&self) -> StoreError {
        if let Some(error) = &self.unavailable {
            return error.to_store_error(&self.location);
        }
        CommitError::Closed("the writer thread has stopped".to_owned())
            .to_store_error(&self.location)
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
