//! Notifies watchers of every commit that changes runs, by this process or another one. A
//! notification does not say what has changed.

use std::fmt;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use async_trait::async_trait;
use longhaul_core::port::store::{StoreError, StoreWatcher};
use rusqlite::Connection;
use tokio::sync::watch;

use crate::options::FatalHook;
use crate::sqlite::error::CommitError;
use crate::sqlite::location::OpenedDatabaseFile;

/// Interval at which the watcher checks for commits of other processes.
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// Number of checks for commits after which the watcher also checks that the file still exists.
const POLLS_PER_FILE_CHECK: u32 = 25;

/// Notifies its subscribers of every commit that changes runs.
#[derive(Debug)]
pub(crate) struct ChangeNotifier {
    location: Arc<str>,
    sender: watch::Sender<u64>,
    watcher: Mutex<FileWatcherState>,
}

/// The file that the watcher thread watches, and the connection that it uses.
pub(crate) struct WatchedFile {
    /// Database connection of the watcher thread.
    conn: Connection,
    /// Database file, which must not be moved or deleted while it is open.
    file: OpenedDatabaseFile,
    /// Hook that is called when the database file is gone, because later writes would be lost.
    /// `None` means that nothing is called.
    on_fatal: Option<FatalHook>,
}

impl WatchedFile {
    pub(crate) const fn new(
        conn: Connection,
        file: OpenedDatabaseFile,
        on_fatal: Option<FatalHook>,
    ) -> Self {
        Self { conn, file, on_fatal }
    }
}

/// State of the watcher thread, which polls for commits of other processes.
enum FileWatcherState {
    /// No thread is needed, because no other process can access the database.
    Disabled,
    /// The thread is not started yet. It starts with the first subscriber.
    Idle(WatchedFile),
    /// The thread is running. It ends when `stop` is dropped.
    Running { stop: Sender<()>, thread: JoinHandle<()> },
}

impl fmt::Debug for FileWatcherState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Disabled => "Disabled",
            Self::Idle(_) => "Idle",
            Self::Running { .. } => "Running",
        })
    }
}

impl ChangeNotifier {
    /// Creates a notifier. `watch_target` is the file to watch, or `None` if no other process can
    /// access the database.
    pub(crate) fn new(
        location: Arc<str>,
        sender: watch::Sender<u64>,
        watch_target: Option<WatchedFile>,
    ) -> Self {
        Self {
            location,
            sender,
            watcher: Mutex::new(
                watch_target.map_or(FileWatcherState::Disabled, FileWatcherState::Idle),
            ),
        }
    }

    /// Creates a subscription to all commits from now on.
    pub(crate) fn subscribe(&self) -> Box<dyn StoreWatcher> {
        let receiver = self.sender.subscribe();
        let mut watcher = self.watcher.lock().unwrap_or_else(PoisonError::into_inner);
        if let FileWatcherState::Idle(_) = &*watcher
            && let FileWatcherState::Idle(watched_file) =
                std::mem::replace(&mut *watcher, FileWatcherState::Disabled)
        {
            *watcher = spawn_watcher_thread(watched_file, self.sender.clone());
        }
        Box::new(ChangeListener { location: Arc::clone(&self.location), receiver })
    }
}

fn spawn_watcher_thread(target: WatchedFile, sender: watch::Sender<u64>) -> FileWatcherState {
    let (stop_sender, stop_receiver) = channel::<()>();
    // Read before the thread starts, so that no commit is missed in between.
    let mut version = read_data_version(&target.conn);
    let thread = thread::Builder::new().name("store-watcher".to_owned()).spawn(move || {
        let mut polls: u32 = 0;
        while stop_receiver.recv_timeout(POLL_INTERVAL) == Err(RecvTimeoutError::Timeout) {
            let now = read_data_version(&target.conn);
            if now != version {
                version = now;
                sender.send_modify(|count| *count = count.wrapping_add(1));
            }
            polls = polls.wrapping_add(1);
            if polls.is_multiple_of(POLLS_PER_FILE_CHECK)
                && let Err(reason) = target.file.check_not_replaced()
            {
                tracing::error!("{reason}");
                if let Some(on_fatal) = &target.on_fatal {
                    on_fatal(&reason);
                }
                return;
            }
        }
    });
    match thread {
        Ok(thread) => FileWatcherState::Running { stop: stop_sender, thread },
        Err(error) => {
            tracing::warn!(%error, "can't watch for commits of other processes");
            FileWatcherState::Disabled
        }
    }
}

/// Returns a number that changes with every commit of another connection. `None` means that SQLite
/// returned an error. Commits of this process's own writer count too, which only causes an extra
/// notification.
fn read_data_version(conn: &Connection) -> Option<i64> {
    let mut statement = conn.prepare_cached("PRAGMA data_version").ok()?;
    statement.query_row((), |row| row.get(0)).ok()
}

impl Drop for ChangeNotifier {
    fn drop(&mut self) {
        let watcher = self.watcher.get_mut().unwrap_or_else(PoisonError::into_inner);
        if let FileWatcherState::Running { stop: stop_sender, thread } =
            std::mem::replace(watcher, FileWatcherState::Disabled)
        {
            drop(stop_sender);
            _ = thread.join();
        }
    }
}

#[derive(Debug)]
struct ChangeListener {
    location: Arc<str>,
    receiver: watch::Receiver<u64>,
}

#[async_trait]
impl StoreWatcher for ChangeListener {
    async fn wait_for_change(&mut self) -> Result<(), StoreError> {
        self.receiver.changed().await.map_err(|_| {
            CommitError::Closed("the writer has stopped".to_owned()).to_store_error(&self.location)
        })
    }
}
