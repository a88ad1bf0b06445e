//! Tells those who wait that something was committed, here or in another process.
//!
//! Never: says what. Whoever is told looks for itself.

use std::fmt;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use async_trait::async_trait;
use longhaul_core::port::store::{StoreError, Watch};
use rusqlite::Connection;
use tokio::sync::watch;

use crate::options::FatalHook;
use crate::sqlite::error::CommitError;
use crate::sqlite::location::OpenedFile;

/// How often the file is asked whether another process has committed.
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// With every so many looks it is made sure that the file is still there.
const POLLS_PER_FILE_CHECK: u32 = 25;

/// The bell that every commit rings.
#[derive(Debug)]
pub(crate) struct ChangeNotifier {
    at: Arc<str>,
    sender: watch::Sender<u64>,
    watcher: Mutex<FileWatcher>,
}

/// What a lookout looks at.
pub(crate) struct WatchTarget {
    /// A connection of its own.
    conn: Connection,
    /// The file, which must stay where it is.
    file: OpenedFile,
    /// Called when it is gone: what is written from then on nobody would find.
    on_fatal: Option<FatalHook>,
}

impl WatchTarget {
    /// A post over this connection to this file.
    pub(crate) const fn new(conn: Connection, file: OpenedFile, fatal: Option<FatalHook>) -> Self {
        Self { conn, file, on_fatal: fatal }
    }
}

/// Who looks for commits of other processes.
enum FileWatcher {
    /// There are no other processes.
    Disabled,
    /// Nobody has asked yet: the thread begins with the first who does.
    Idle(WatchTarget),
    /// It looks until its line is cut.
    Running { stop: Sender<()>, thread: JoinHandle<()> },
}

impl fmt::Debug for FileWatcher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Disabled => "Disabled",
            Self::Idle(_) => "Idle",
            Self::Running { .. } => "Running",
        })
    }
}

impl ChangeNotifier {
    /// A bell; `others` is where others may commit.
    pub(crate) fn new(at: Arc<str>, bell: watch::Sender<u64>, others: Option<WatchTarget>) -> Self {
        Self {
            at,
            sender: bell,
            watcher: Mutex::new(others.map_or(FileWatcher::Disabled, FileWatcher::Idle)),
        }
    }

    /// Hears everything from now on.
    pub(crate) fn subscribe(&self) -> Box<dyn Watch> {
        let heard = self.sender.subscribe();
        let mut lookout = self.watcher.lock().unwrap_or_else(PoisonError::into_inner);
        if let FileWatcher::Idle(_) = &*lookout
            && let FileWatcher::Idle(post) = std::mem::replace(&mut *lookout, FileWatcher::Disabled)
        {
            *lookout = spawn_watcher(post, self.sender.clone());
        }
        Box::new(ChangeListener { at: Arc::clone(&self.at), receiver: heard })
    }
}

fn spawn_watcher(post: WatchTarget, bell: watch::Sender<u64>) -> FileWatcher {
    let (line, cut) = channel::<()>();
    // What was committed before the thread begins was heard by nobody yet.
    let mut seen = data_version(&post.conn);
    let thread = thread::Builder::new().name("store-watcher".to_owned()).spawn(move || {
        let mut looks: u32 = 0;
        while cut.recv_timeout(POLL_INTERVAL) == Err(RecvTimeoutError::Timeout) {
            let now = data_version(&post.conn);
            if now != seen {
                seen = now;
                bell.send_modify(|count| *count = count.wrapping_add(1));
            }
            looks = looks.wrapping_add(1);
            if looks.is_multiple_of(POLLS_PER_FILE_CHECK)
                && let Err(why) = post.file.check_in_place()
            {
                tracing::error!("{why}");
                if let Some(fatal) = &post.on_fatal {
                    fatal(&why);
                }
                return;
            }
        }
    });
    match thread {
        Ok(thread) => FileWatcher::Running { stop: line, thread },
        Err(error) => {
            tracing::warn!(%error, "nobody looks for other processes' commits");
            FileWatcher::Disabled
        }
    }
}

/// Changes whenever another connection has committed; the writer's counts too,
/// which rings twice and harms nobody.
fn data_version(conn: &Connection) -> Option<i64> {
    let mut look = conn.prepare_cached("PRAGMA data_version").ok()?;
    look.query_row((), |row| row.get(0)).ok()
}

impl Drop for ChangeNotifier {
    fn drop(&mut self) {
        let lookout = self.watcher.get_mut().unwrap_or_else(PoisonError::into_inner);
        if let FileWatcher::Running { stop: line, thread } =
            std::mem::replace(lookout, FileWatcher::Disabled)
        {
            drop(line);
            _ = thread.join();
        }
    }
}

#[derive(Debug)]
struct ChangeListener {
    at: Arc<str>,
    receiver: watch::Receiver<u64>,
}

#[async_trait]
impl Watch for ChangeListener {
    async fn changed(&mut self) -> Result<(), StoreError> {
        self.receiver.changed().await.map_err(|_| {
            CommitError::Closed("nobody writes to it any more".to_owned()).to_store_error(&self.at)
        })
    }
}
