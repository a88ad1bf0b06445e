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

use crate::options::Fatal;
use crate::sqlite::fault::Lost;
use crate::sqlite::place::OpenFile;

/// How often the file is asked whether another process has committed.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// With every so many looks it is made sure that the file is still there.
const LOOKS_AT_PLACE: u32 = 25;

/// The bell that every commit rings.
#[derive(Debug)]
pub(crate) struct Changes {
    at: Arc<str>,
    bell: watch::Sender<u64>,
    lookout: Mutex<Lookout>,
}

/// What a lookout looks at.
pub(crate) struct Post {
    /// A connection of its own.
    conn: Connection,
    /// The file, which must stay where it is.
    file: OpenFile,
    /// Called when it is gone: what is written from then on nobody would find.
    fatal: Option<Fatal>,
}

impl Post {
    /// A post over this connection to this file.
    pub(crate) const fn new(conn: Connection, file: OpenFile, fatal: Option<Fatal>) -> Self {
        Self { conn, file, fatal }
    }
}

/// Who looks for commits of other processes.
enum Lookout {
    /// There are no other processes.
    None,
    /// Nobody has asked yet: the thread begins with the first who does.
    Waiting(Post),
    /// It looks until its line is cut.
    Looking {
        line: Sender<()>,
        thread: JoinHandle<()>,
    },
}

impl fmt::Debug for Lookout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::None => "None",
            Self::Waiting(_) => "Waiting",
            Self::Looking { .. } => "Looking",
        })
    }
}

impl Changes {
    /// A bell; `others` is where others may commit.
    pub(crate) fn new(at: Arc<str>, bell: watch::Sender<u64>, others: Option<Post>) -> Self {
        Self {
            at,
            bell,
            lookout: Mutex::new(others.map_or(Lookout::None, Lookout::Waiting)),
        }
    }

    /// Hears everything from now on.
    pub(crate) fn listen(&self) -> Box<dyn Watch> {
        let heard = self.bell.subscribe();
        let mut lookout = self.lookout.lock().unwrap_or_else(PoisonError::into_inner);
        if let Lookout::Waiting(_) = &*lookout
            && let Lookout::Waiting(post) = std::mem::replace(&mut *lookout, Lookout::None)
        {
            *lookout = look_out(post, self.bell.clone());
        }
        Box::new(Listener {
            at: Arc::clone(&self.at),
            heard,
        })
    }
}

fn look_out(post: Post, bell: watch::Sender<u64>) -> Lookout {
    let (line, cut) = channel::<()>();
    // What was committed before the thread begins was heard by nobody yet.
    let mut seen = version(&post.conn);
    let thread = thread::Builder::new()
        .name("store-lookout".to_owned())
        .spawn(move || {
            let mut looks: u32 = 0;
            while cut.recv_timeout(LOOK_EVERY) == Err(RecvTimeoutError::Timeout) {
                let now = version(&post.conn);
                if now != seen {
                    seen = now;
                    bell.send_modify(|count| *count = count.wrapping_add(1));
                }
                looks = looks.wrapping_add(1);
                if looks.is_multiple_of(LOOKS_AT_PLACE)
                    && let Err(why) = post.file.check()
                {
                    tracing::error!("{why}");
                    if let Some(fatal) = &post.fatal {
                        fatal(&why);
                    }
                    return;
                }
            }
        });
    match thread {
        Ok(thread) => Lookout::Looking { line, thread },
        Err(error) => {
            tracing::warn!(%error, "nobody looks for other processes' commits");
            Lookout::None
        }
    }
}

/// Changes whenever another connection has committed; the writer's counts too,
/// which rings twice and harms nobody.
fn version(conn: &Connection) -> Option<i64> {
    let mut look = conn.prepare_cached("PRAGMA data_version").ok()?;
    look.query_row((), |row| row.get(0)).ok()
}

impl Drop for Changes {
    fn drop(&mut self) {
        let lookout = self
            .lookout
            .get_mut()
            .unwrap_or_else(PoisonError::into_inner);
        if let Lookout::Looking { line, thread } = std::mem::replace(lookout, Lookout::None) {
            drop(line);
            _ = thread.join();
        }
    }
}

#[derive(Debug)]
struct Listener {
    at: Arc<str>,
    heard: watch::Receiver<u64>,
}

#[async_trait]
impl Watch for Listener {
    async fn changed(&mut self) -> Result<(), StoreError> {
        self.heard
            .changed()
            .await
            .map_err(|_| Lost::Closed("nobody writes to it any more".to_owned()).error(&self.at))
    }
}
