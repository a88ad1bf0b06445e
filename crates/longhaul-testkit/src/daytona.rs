//! A fake of Daytona: a server on a real socket with the control plane and the toolboxes of its
//! sandboxes, whose commands are really run, by bubblewrap.
//!
//! Nothing happens by the clock: a sandbox changes its state when the state is read often enough,
//! and its automatic stop follows a virtual time.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard};

use longhaul_core::time::Millis;
use serde_json::Value;
use tempfile::TempDir;
use tokio::net::TcpListener;
use tokio::task::JoinSet;

use crate::daytona::state::World;

mod control_plane;
mod machine;
mod server;
mod state;
mod toolbox;

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

/// The fake. It stops when it is dropped.
#[derive(Debug)]
pub struct FakeDaytona {
    shared: Arc<Shared>,
    origin: String,
    _tasks: JoinSet<()>,
}

/// What the requests share.
#[derive(Debug)]
struct Shared {
    origin: String,
    dir: TempDir,
    world: Mutex<World>,
    exchanges: Mutex<Vec<Exchange>>,
    /// Faults by the method and a part of the path of the request.
    faults: Mutex<VecDeque<(&'static str, &'static str, Fault)>>,
}

impl Shared {
    fn world(&self) -> MutexGuard<'_, World> {
        self.world.lock().expect("no request has panicked")
    }
}

impl FakeDaytona {
    /// Starts the fake. Panics if bubblewrap is missing.
    pub async fn start() -> Self {
        machine::check_bubblewrap().await;
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("bind");
        let origin = format!("http://{}", listener.local_addr().expect("an address"));
        let shared = Arc::new(Shared {
            origin: origin.clone(),
            dir: tempfile::tempdir().expect("create a directory"),
            world: Mutex::default(),
            exchanges: Mutex::default(),
            faults: Mutex::default(),
        });
        let mut tasks = JoinSet::new();
        tasks.spawn(server::serve(listener, shared.clone()));
        Self { shared, origin, _tasks: tasks }
    }

    /// Returns the address of the control plane.
    pub fn url(&self) -> String {
        format!("{}/api", self.origin)
    }

    /// Lets the next request with this method, whose path contains this text, fail.
    pub fn fail_next(&self, method: &'static str, path: &'static str, fault: Fault) {
        self.shared.faults.lock().expect("faults").push_back((method, path, fault));
    }

    /// Returns how many faults have not happened yet.
    pub fn pending_faults(&self) -> usize {
        self.shared.faults.lock().expect("faults").len()
    }

    /// Sets how often a state is read before it changes.
    pub fn set_reads_per_state(&self, reads: u32) {
        self.shared.world().reads_per_state = reads;
    }

    /// Sets the states through which new sandboxes go, the last of which is final.
    pub fn set_creation(&self, states: &[&'static str]) {
        self.shared.world().creation = states.to_vec();
    }

    /// Sets the maximum number of vCPUs of all running sandboxes.
    pub fn set_cpu_quota(&self, cpus: u64) {
        self.shared.world().cpu_quota = cpus;
    }

    /// Adds a snapshot with this name.
    pub fn add_snapshot(&self, name: &str) {
        self.shared.world().snapshots.insert(name.to_owned());
    }

    /// Sets the state of the sandbox with this name, as if it were changed by the operator.
    pub fn set_state(&self, name: &str, state: &'static str) {
        self.shared.world().set_state(name, state);
    }

    /// Lets time pass: sandboxes that were not used for long enough are stopped.
    pub fn advance(&self, duration: Millis) {
        self.shared.world().advance(duration);
    }

    /// Returns the number of sandboxes.
    pub fn sandbox_count(&self) -> usize {
        self.shared.world().sandboxes.len()
    }

    /// Returns the names of the sessions of all sandboxes.
    pub fn sessions(&self) -> Vec<String> {
        let world = self.shared.world();
        world.sandboxes.values().flat_map(|sandbox| sandbox.sessions.keys().cloned()).collect()
    }

    /// Returns all requests so far, with their responses.
    pub fn exchanges(&self) -> Vec<Exchange> {
        self.shared.exchanges.lock().expect("exchanges").clone()
    }
}
