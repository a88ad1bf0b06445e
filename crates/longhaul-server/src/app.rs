//! Shared state of the server: the engine handle, the options, and the counters and semaphores that
//! limit requests.

use std::collections::{BTreeMap, HashMap};
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};

use axum::http::StatusCode;
use longhaul_core::raw::Hash;
use longhaul_core::time::Millis;
use longhaul_engine::Longhaul;
use longhaul_engine::secret::Secret;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, SemaphorePermit};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::limits::{
    CATCHING_UP_STREAMS_MAX, JOURNAL_READS_MAX, READ_PERMIT_TIMEOUT, STREAMS_MAX, TRANSCRIPTS_MAX,
};
use crate::options::ServerOptions;
use crate::problem::Problem;
use crate::rate_limit::RateLimits;

/// Shared state of one server. Cheap to clone; all clones refer to the same state.
#[derive(Debug, Clone)]
pub struct App(Arc<AppState>);

#[derive(Debug)]
struct AppState {
    longhaul: Longhaul,
    options: ServerOptions,
    local_key: Hash,
    address: SocketAddr,
    rates: RateLimits,
    streams: Mutex<HashMap<String, u32>>,
    stopping: CancellationToken,
    closed: CancellationToken,
    background_tasks: TaskTracker,
    catching_up: Semaphore,
    folds: Arc<Semaphore>,
    transcripts: Arc<Semaphore>,
    /// Whether the only caller is in this process.
    in_process: bool,
}

impl AppState {
    fn new(longhaul: Longhaul, options: ServerOptions, listen_address: SocketAddr) -> Self {
        Self {
            rates: RateLimits::new(options.rate),
            local_key: options.local_key.hash(),
            longhaul,
            options,
            address: listen_address,
            streams: Mutex::default(),
            stopping: CancellationToken::new(),
            closed: CancellationToken::new(),
            background_tasks: TaskTracker::new(),
            catching_up: Semaphore::new(CATCHING_UP_STREAMS_MAX),
            folds: Arc::new(Semaphore::new(JOURNAL_READS_MAX)),
            transcripts: Arc::new(Semaphore::new(TRANSCRIPTS_MAX)),
            in_process: false,
        }
    }
}

impl App {
    /// Creates the shared state of a server that listens on `listen_address`.
    pub fn new(longhaul: Longhaul, options: ServerOptions, listen_address: SocketAddr) -> Self {
        Self(Arc::new(AppState::new(longhaul, options, listen_address)))
    }

    /// Creates the state for a caller in this process. Nothing listens and no key is valid.
    pub(crate) fn in_process(longhaul: Longhaul, inboxes: BTreeMap<String, String>) -> Self {
        let no_key = Secret::from_text("");
        let options = ServerOptions { inboxes, ..ServerOptions::new(no_key) };
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        Self(Arc::new(AppState { in_process: true, ..AppState::new(longhaul, options, address) }))
    }

    /// Returns the handle of the engine that this server uses.
    pub fn longhaul(&self) -> &Longhaul {
        &self.0.longhaul
    }

    /// Returns whether the only caller is in this process: a command that has opened the store,
    /// usually beside the process that drives its runs.
    pub(crate) fn is_in_process(&self) -> bool {
        self.0.in_process
    }

    /// Begins the server's shutdown: `/readyz` reports `stopping` and all streams end.
    pub fn begin_shutdown(&self) {
        self.0.stopping.cancel();
    }

    /// Returns whether the server's shutdown has begun.
    pub(crate) fn is_stopping(&self) -> bool {
        self.0.stopping.is_cancelled()
    }

    /// Waits until the server's shutdown begins.
    pub(crate) async fn wait_for_shutdown(&self) {
        self.0.stopping.cancelled().await;
    }

    /// Makes every connection of the server close after its current response.
    pub(crate) fn request_close_of_all_connections(&self) {
        self.0.closed.cancel();
    }

    /// Waits until the connections of the server have to close.
    pub(crate) async fn wait_until_connections_must_close(&self) {
        self.0.closed.cancelled().await;
    }

    pub(crate) fn options(&self) -> &ServerOptions {
        &self.0.options
    }

    pub(crate) fn listen_address(&self) -> SocketAddr {
        self.0.address
    }

    pub(crate) fn rate_limits(&self) -> &RateLimits {
        &self.0.rates
    }

    /// Returns the tracker of tasks that must finish even if the connection that started them is
    /// closed.
    pub(crate) fn background_tasks(&self) -> &TaskTracker {
        &self.0.background_tasks
    }

    /// Waits for a permit to read a page of old events. Streams that are catching up must not slow
    /// down all other requests. `None` means that the semaphore was closed, which never happens.
    pub(crate) async fn acquire_event_catch_up_permit(&self) -> Option<SemaphorePermit<'_>> {
        self.0.catching_up.acquire().await.ok()
    }

    /// Waits for a permit to read a run's journal in order to show the run, because only a few
    /// journals may be read at a time.
    pub(crate) async fn acquire_journal_read_permit(
        &self,
    ) -> Result<OwnedSemaphorePermit, Problem> {
        self.acquire_permit_with_timeout(&self.0.folds).await
    }

    /// Waits for a permit to hold a run's transcript in memory, because transcripts can be large.
    pub(crate) async fn acquire_transcript_permit(&self) -> Result<OwnedSemaphorePermit, Problem> {
        self.acquire_permit_with_timeout(&self.0.transcripts).await
    }

    async fn acquire_permit_with_timeout(
        &self,
        semaphore: &Arc<Semaphore>,
    ) -> Result<OwnedSemaphorePermit, Problem> {
        let clock = &self.0.longhaul.services().clock;
        let permit = tokio::select! {
            biased;
            permit = Arc::clone(semaphore).acquire_owned() => permit.ok(),
            () = clock.sleep(Millis::from(READ_PERMIT_TIMEOUT)) => None,
        };
        permit.ok_or_else(|| {
            let message = "too many views of runs are being read right now";
            Problem::new(StatusCode::SERVICE_UNAVAILABLE, "too_many_views", message)
                .with_hint("try again, with fewer requests at a time")
                .with_retry_after(1)
        })
    }

    /// Returns the hash of the local machine key, which has all rights.
    pub(crate) fn local_machine_key_hash(&self) -> Hash {
        self.0.local_key
    }

    pub(crate) fn is_local_machine_key(&self, key_hash: Hash) -> bool {
        key_hash == self.0.local_key
    }

    fn update_stream_counts<T>(&self, update: impl FnOnce(&mut HashMap<String, u32>) -> T) -> T {
        update(&mut self.0.streams.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Acquires a permit for one more event stream of this caller. `None` means that the caller has
    /// the maximum number of streams open.
    pub(crate) fn acquire_stream_permit(&self, caller: &str) -> Option<EventStreamPermit> {
        self.update_stream_counts(|streams| {
            let count = streams.entry(caller.to_owned()).or_default();
            if *count >= STREAMS_MAX {
                return None;
            }
            *count += 1;
            Some(EventStreamPermit { app: self.clone(), caller: caller.to_owned() })
        })
    }
}

/// Permit for one open event stream, released on drop.
#[derive(Debug)]
pub(crate) struct EventStreamPermit {
    app: App,
    caller: String,
}

impl Drop for EventStreamPermit {
    fn drop(&mut self) {
        self.app.update_stream_counts(|streams| {
            if let Some(count) = streams.get_mut(&self.caller) {
                *count -= 1;
                if *count == 0 {
                    streams.remove(&self.caller);
                }
            }
        });
    }
}
