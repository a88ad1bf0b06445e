//! What was asked so far, and what it took: for whoever measures against a mock.
//!
//! Never: a word of what was asked.

use std::sync::atomic::{AtomicU64, Ordering};

use serde_json::{Value, json};

use crate::cpu::cpu_us;

/// Questions for a reply, whatever came of them.
#[derive(Debug, Default)]
pub(crate) struct RequestCounts {
    requests: AtomicU64,
    body_bytes: AtomicU64,
}

impl RequestCounts {
    /// Counts a question with a body of so many bytes.
    pub(crate) fn add(&self, body: usize) {
        self.requests.fetch_add(1, Ordering::Relaxed);
        self.body_bytes.fetch_add(body as u64, Ordering::Relaxed);
    }

    pub(crate) fn to_json(&self) -> Value {
        json!({
            "requests": self.requests.load(Ordering::Relaxed),
            "body_bytes": self.body_bytes.load(Ordering::Relaxed),
            "cpu_us": cpu_us().round() as u64,
        })
    }
}
