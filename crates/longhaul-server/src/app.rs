//! Shared state of the server: the engine handle, the options, and the counters and semaphores that
//! limit requests.

use std::collections::{BTreeMap, HashMap};
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use axum::http::StatusCode;
use longhaul_core::raw::Hash;
use longhaul_core::time::Millis;
use longhaul_engine::Longhaul;
use longhaul_engine::secret::Secret;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
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
pub struct App {
    pub(crate) state: Arc<AppState>,
}

#[derive(Debug)]
pub(crate) struct AppState {
    longhaul: Longhaul,
    pub(crate) options: ServerOptions,
    /// Hash of the local machine key, which has all rights.
    pub(crate) local_key: Hash,
    /// Address at which the server listens.
    pub(crate) address: SocketAddr,
    /// Made on first use: the clock of the limits is calibrated for several milliseconds, and a caller
    /// in this process has no limits.
    rates: OnceLock<RateLimits>,
    streams: Mutex<HashMap<String, u32>>,
    /// Cancelled when the shutdown begins.
    pub(crate) stopping: CancellationToken,
    /// Cancelled when every connection has to close after its current response.
    pub(crate) closed: CancellationToken,
    /// Tasks that must finish even if the connection that started them is closed.
    pub(crate) background_tasks: TaskTracker,
    /// Permits to read a page of old events: streams that are catching up must not slow down all
    /// other requests.
    pub(crate) catching_up: Semaphore,
    folds: Arc<Semaphore>,
    transcripts: Arc<Semaphore>,
    /// Whether the only caller is in this process: a command that has opened the store, usually
    /// beside the process that drives its runs.
    pub(crate) in_process: bool,
}

impl AppState {
    fn new(longhaul: Longhaul, options: ServerOptions, listen_address: SocketAddr) -> Self {
        Self {
            rates: OnceLock::new(),
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

    /// Returns the rate limits of the callers.
    pub(crate) fn rates(&self) -> &RateLimits {
        self.rates.get_or_init(|| RateLimits::new(self.options.rate))
    }
}

impl App {
    /// Creates the shared state of a server that listens on `listen_address`.
    pub fn new(longhaul: Longhaul, options: ServerOptions, listen_address: SocketAddr) -> Self {
        let state = AppState::new(longhaul, options, listen_address);
        // The first request does not wait for the calibration.
        state.rates();
        Self { state: Arc::new(state) }
    }

    /// Creates the state for a caller in this process. Nothing listens and no key is valid.
    pub(crate) fn in_process(longhaul: Longhaul, inboxes: BTreeMap<String, String>) -> Self {
        let no_key = Secret::from_text("");
        let options = ServerOptions { inboxes, ..ServerOptions::new(no_key) };
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        let state = AppState::new(longhaul, options, address);
        Self { state: Arc::new(AppState { in_process: true, ..state }) }
    }

    /// Returns the handle of the engine that this server uses.
    pub fn longhaul(&self) -> &Longhaul {
        &self.state.longhaul
    }

    /// Begins the server's shutdown: `/readyz` reports `stopping` and all streams end.
    pub fn begin_shutdown(&self) {
        self.state.stopping.cancel();
    }

    /// Waits for a permit to read a run's journal in order to show the run, because only a few
    /// journals may be read at a time.
    pub(crate) async fn acquire_read_permit(&self) -> Result<OwnedSemaphorePermit, Problem> {
        self.acquire_permit_with_timeout(&self.state.folds).await
    }

    /// Waits for a permit to hold a run's transcript in memory, because transcripts can be large.
    pub(crate) async fn acquire_transcript_permit(&self) -> Result<OwnedSemaphorePermit, Problem> {
        self.acquire_permit_with_timeout(&self.state.transcripts).await
    }

    async fn acquire_permit_with_timeout(
        &self,
        semaphore: &Arc<Semaphore>,
    ) -> Result<OwnedSemaphorePermit, Problem> {
        let clock = &self.state.longhaul.services().clock;
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

    fn update_stream_counts<T>(&self, update: impl FnOnce(&mut HashMap<String, u32>) -> T) -> T {
        update(&mut self.state.streams.lock().unwrap_or_else(PoisonError::into_inner))
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
