//! How often each question has failed because its script says so.
//!
//! Never: grows without a bound. The oldest questions are forgotten.

use std::collections::{HashMap, VecDeque};
use std::sync::{Mutex, PoisonError};

use longhaul_core::raw::Hash;

/// So many questions are remembered.
const REQUESTS_MAX: usize = 65_536;

/// The failures so far.
#[derive(Debug, Default)]
pub(crate) struct AttemptCounter(Mutex<FailedAttempts>);

type Key = (Box<str>, Hash);

#[derive(Debug, Default)]
struct FailedAttempts {
    failed: HashMap<Key, u32>,
    order: VecDeque<Key>,
}

impl AttemptCounter {
    /// Which try of this question it is, from 1; those up to `times` fail and
    /// are counted, so that after them the question is always answered.
    pub(crate) fn next(&self, name: &str, hash: Hash, times: u32) -> u32 {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let FailedAttempts { failed, order } = &mut *kept;
        let key: Key = (name.into(), hash);
        if let Some(count) = failed.get_mut(&key) {
            let attempt = count.saturating_add(1);
            *count = attempt.min(times);
            return attempt;
        }
        if times == 0 {
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
