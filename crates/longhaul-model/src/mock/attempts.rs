//! Counts the scripted failures of each request. The number of remembered requests is bounded; the
//! oldest are forgotten.

use std::collections::{HashMap, VecDeque};
use std::sync::{Mutex, PoisonError};

use longhaul_core::raw::Hash;

/// Maximum number of requests whose failures are remembered.
const REQUESTS_MAX: usize = 65_536;

/// Counter of the failed attempts of each request.
#[derive(Debug, Default)]
pub(crate) struct FailedAttemptCounter(Mutex<FailedAttemptCounts>);

type Key = (Box<str>, Hash);

#[derive(Debug, Default)]
struct FailedAttemptCounts {
    failed: HashMap<Key, u32>,
    order: VecDeque<Key>,
}

impl FailedAttemptCounter {
    /// Returns the number of the current attempt at a request, from 1. The script makes the first
    /// `failures` attempts fail. Failures are counted up to that number, so that every later
    /// attempt succeeds.
    pub(crate) fn next_attempt(&self, script: &str, request: Hash, failures: u32) -> u32 {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let FailedAttemptCounts { failed, order } = &mut *state;
        let key: Key = (script.into(), request);
        if let Some(count) = failed.get_mut(&key) {
            let attempt = count.saturating_add(1);
            *count = attempt.min(failures);
            return attempt;
        }
        if failures == 0 {
            return 1;
        }
        if order.len() >= REQUESTS_MAX
            && let Some(oldest) = order.pop_front()
        {
            _ = failed.remove(&oldest);
        }
        order.push_back(key.clone());
        _ = failed.insert(key, 1);
        1
    }
}
