//! What the requests to the fake share: its state, its faults and the exchanges so far.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard};

use serde_json::Value;
use tempfile::TempDir;

use crate::daytona::state::World;

/// The key that the fake accepts.
pub const API_KEY: &str = "dtn_test_key";

/// A failure of one request.
#[derive(Debug, Clone)]
pub enum Fault {
    /// The request is refused with this status and message, and a header `Retry-After-...` with
    /// this number of seconds.
    Status { status: u16, message: &'static str, retry_after_secs: Option<u64> },
    /// The connection is cut after the request was carried out.
    LostResponse,
    /// The connection is cut before the request is carried out.
    LostRequest,
}

/// A request with the fake's response. Bodies that are not JSON are `Null`.
#[derive(Debug, Clone)]
pub struct Exchange {
    pub method: String,
    /// Path without the prefix of the control plane or of the toolbox.
    pub path: String,
    pub is_toolbox: bool,
    pub query: Vec<(String, String)>,
    pub request: Value,
    pub status: u16,
    pub response: Value,
    /// Whether the response is the effect of a [`Fault`].
    pub is_fault: bool,
}

/// What the requests share.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) origin: String,
    pub(super) dir: TempDir,
    pub(super) world: Mutex<World>,
    pub(super) exchanges: Mutex<Vec<Exchange>>,
    /// Faults by the method and a part of the path of the request.
    pub(super) faults: Mutex<VecDeque<(&'static str, &'static str, Fault)>>,
}

impl Shared {
    pub(super) fn world(&self) -> MutexGuard<'_, World> {
        self.world.lock().expect("no request has panicked")
    }
}
