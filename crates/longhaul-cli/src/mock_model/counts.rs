//! Counters of the mock's requests and CPU time, for benchmarks. Nothing of a request's content is
//! kept.

use std::sync::atomic::{AtomicU64, Ordering};

use serde_json::{Value, json};

use crate::cpu::cpu_time_us;

/// Number and length of the requests for a model reply, whatever their outcome.
#[derive(Debug, Default)]
pub(crate) struct RequestCounts {
    requests: AtomicU64,
    body_bytes: AtomicU64,
}

impl RequestCounts {
    /// Counts a request with a body of this many bytes.
    pub(crate) fn add_request(&self, body_bytes: usize) {
        self.requests.fetch_add(1, Ordering::Relaxed);
        self.body_bytes.fetch_add(body_bytes as u64, Ordering::Relaxed);
    }

    pub(crate) fn to_json(&self) -> Value {
        json!({
            "requests": self.requests.load(Ordering::Relaxed),
            "body_bytes": self.body_bytes.load(Ordering::Relaxed),
            "cpu_us": cpu_time_us().round() as u64,
        })
    }
}
