//! How a worker works.
//!
//! Never: reads a file or a variable; everything is handed in.

use longhaul_core::id::InboxName;
use longhaul_core::time::Millis;

use crate::sweep::Retention;

/// The usual number of crashes after which a run is blocked.
const CRASH_LIMIT: u32 = 3;

/// How a worker works.
#[derive(Debug, Clone)]
pub struct WorkerOptions {
    /// From which inboxes it claims, in this order.
    pub inboxes: Vec<InboxName>,
    /// Of which types; empty: any.
    pub types: Vec<String>,
    /// So many runs at once.
    pub concurrency: usize,
    /// Silent for longer, it counts as dead.
    pub lease: Millis,
    /// Without a sign it looks this often.
    pub poll: Millis,
    /// So long may runs go on after the order to stop.
    pub drain_timeout: Millis,
    /// A run is blocked after so many crashes of its worker at the same place; none:
    /// never.
    pub crash_limit: Option<u32>,
    /// On which machine.
    pub host: String,
    /// Which build.
    pub build: String,
    /// What the sweep forgets.
    pub retention: Retention,
}

impl WorkerOptions {
    /// The usual, for this inbox.
    pub fn new(inbox: InboxName) -> Self {
        Self {
            inboxes: vec![inbox],
            types: Vec::new(),
            concurrency: 256,
            lease: Millis::from_secs(15),
            poll: Millis::from_secs(1),
            drain_timeout: Millis::from_secs(30),
            crash_limit: Some(CRASH_LIMIT),
            host: "local".to_owned(),
            build: env!("CARGO_PKG_VERSION").to_owned(),
            retention: Retention { runs: None },
        }
    }
}
