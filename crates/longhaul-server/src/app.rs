//! What every request can reach: the handle, the options, and what is counted.
//!
//! Never: a second way to a store.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};

use axum::http::StatusCode;
use longhaul_core::raw::Hash;
use longhaul_core::time::Millis;
use longhaul_engine::Longhaul;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, SemaphorePermit};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::limits::{
    CATCHING_UP_MAX, FOLD_PERMIT_TIMEOUT, FOLDS_MAX, STREAMS_MAX, TRANSCRIPTS_MAX,
};
use crate::options::Options;
use crate::problem::Problem;
use crate::rate_limit::RateLimits;

/// A server's state. Clones are the same.
#[derive(Debug, Clone)]
pub struct App(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    longhaul: Longhaul,
    options: Options,
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
}

impl App {
    /// A server at this address over this handle.
    pub fn new(longhaul: Longhaul, options: Options, address: SocketAddr) -> Self {
        Self(Arc::new(Inner {
            rates: RateLimits::new(options.rate),
            local_key: options.local_key.hash(),
            longhaul,
            options,
            address,
            streams: Mutex::default(),
            stopping: CancellationToken::new(),
            closed: CancellationToken::new(),
            background_tasks: TaskTracker::new(),
            catching_up: Semaphore::new(CATCHING_UP_MAX),
            folds: Arc::new(Semaphore::new(FOLDS_MAX)),
            transcripts: Arc::new(Semaphore::new(TRANSCRIPTS_MAX)),
        }))
    }

    /// What people and programs ask.
    pub fn longhaul(&self) -> &Longhaul {
        &self.0.longhaul
    }

    /// From now on the server says that it is not ready, and ends its streams.
    pub fn stop(&self) {
        self.0.stopping.cancel();
    }

    /// Whether it was told to stop.
    pub(crate) fn is_stopping(&self) -> bool {
        self.0.stopping.is_cancelled()
    }

    /// Returns when it was told to stop.
    pub(crate) async fn stop_requested(&self) {
        self.0.stopping.cancelled().await;
    }

    /// From now on connections end after the answer they are at.
    pub(crate) fn close(&self) {
        self.0.closed.cancel();
    }

    /// Returns when connections are to end.
    pub(crate) async fn close_requested(&self) {
        self.0.closed.cancelled().await;
    }

    pub(crate) fn options(&self) -> &Options {
        &self.0.options
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.0.address
    }

    pub(crate) fn rates(&self) -> &RateLimits {
        &self.0.rates
    }

    /// The tasks that must not end with the connection that began them.
    pub(crate) fn background_tasks(&self) -> &TaskTracker {
        &self.0.background_tasks
    }

    /// Waits for a turn to read what was written before: those who are behind
    /// must not hold up everybody else.
    pub(crate) async fn catch_up_permit(&self) -> Option<SemaphorePermit<'_>> {
        self.0.catching_up.acquire().await.ok()
    }

    /// A permit to read the journal of a run for a view.
    pub(crate) async fn fold_permit(&self) -> Result<OwnedSemaphorePermit, Problem> {
        self.permit(&self.0.folds).await
    }

    /// A permit to hold a transcript in memory.
    pub(crate) async fn transcript_permit(&self) -> Result<OwnedSemaphorePermit, Problem> {
        self.permit(&self.0.transcripts).await
    }

    async fn permit(&self, of: &Arc<Semaphore>) -> Result<OwnedSemaphorePermit, Problem> {
        let clock = &self.0.longhaul.services().clock;
        let permit = tokio::select! {
            biased;
            permit = Arc::clone(of).acquire_owned() => permit.ok(),
            () = clock.sleep(Millis::from(FOLD_PERMIT_TIMEOUT)) => None,
        };
        permit.ok_or_else(|| {
            let words = "too many views of runs are being read at this moment";
            Problem::new(StatusCode::SERVICE_UNAVAILABLE, "too_many_views", words)
                .hint("try again, with fewer requests at a time")
                .retry_after(1)
        })
    }

    /// The hash of the machine's own key.
    pub(crate) fn local_key_hash(&self) -> Hash {
        self.0.local_key
    }

    pub(crate) fn is_local_key(&self, shown: Hash) -> bool {
        shown == self.0.local_key
    }

    fn with_streams<T>(&self, use_it: impl FnOnce(&mut HashMap<String, u32>) -> T) -> T {
        use_it(&mut self.0.streams.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// A seat for one more stream of this caller; none: all are taken.
    pub(crate) fn acquire_stream(&self, caller: &str) -> Option<StreamPermit> {
        self.with_streams(|streams| {
            let count = streams.entry(caller.to_owned()).or_default();
            if *count >= STREAMS_MAX {
                return None;
            }
            *count += 1;
            Some(StreamPermit { app: self.clone(), caller: caller.to_owned() })
        })
    }
}

/// The right of one stream to be there; it is given back when it is dropped.
#[derive(Debug)]
pub(crate) struct StreamPermit {
    app: App,
    caller: String,
}

impl Drop for StreamPermit {
    fn drop(&mut self) {
        self.app.with_streams(|streams| {
            if let Some(count) = streams.get_mut(&self.caller) {
                *count -= 1;
                if *count == 0 {
                    streams.remove(&self.caller);
                }
            }
        });
    }
}
