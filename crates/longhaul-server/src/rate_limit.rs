//! Counts requests: each key has its own rate, and so has each address that
//! shows none.
//!
//! Never: one caller's haste at the cost of another.

use std::net::IpAddr;
use std::num::NonZeroU32;
use std::sync::atomic::{AtomicU32, Ordering};

use axum::http::StatusCode;
use governor::clock::{Clock as _, DefaultClock};
use governor::{DefaultDirectRateLimiter, DefaultKeyedRateLimiter, Quota, RateLimiter};

use crate::connections::network;
use crate::limits::{ANONYMOUS_RATE, LOOKUP_RATE};
use crate::problem::Problem;

/// After so many requests, callers who are gone are forgotten.
const CLEANUP_EVERY: u32 = 1_024;

/// So many lines a second tell of strangers: nobody fills a disk by knocking.
const ANONYMOUS_LOG_RATE: NonZeroU32 = NonZeroU32::new(20).unwrap();

/// The rates of this server.
#[derive(Debug)]
pub(crate) struct RateLimits {
    keys: DefaultKeyedRateLimiter<String>,
    anonymous: DefaultKeyedRateLimiter<IpAddr>,
    /// Looks into the store for those whose rate as strangers is used up.
    lookups: DefaultKeyedRateLimiter<IpAddr>,
    clock: DefaultClock,
    request_count: AtomicU32,
    anonymous_log: DefaultDirectRateLimiter,
}

impl RateLimits {
    pub(crate) fn new(per_key: NonZeroU32) -> Self {
        let strangers = NonZeroU32::new(ANONYMOUS_RATE).unwrap_or(NonZeroU32::MIN);
        let lookups = NonZeroU32::new(LOOKUP_RATE).unwrap_or(NonZeroU32::MIN);
        Self {
            keys: RateLimiter::keyed(Quota::per_second(per_key)),
            anonymous: RateLimiter::keyed(Quota::per_second(strangers)),
            lookups: RateLimiter::keyed(Quota::per_second(lookups)),
            clock: DefaultClock::default(),
            request_count: AtomicU32::new(0),
            anonymous_log: RateLimiter::direct(Quota::per_second(ANONYMOUS_LOG_RATE)),
        }
    }

    /// Whether there is room in the log for another line about a stranger.
    pub(crate) fn may_log_anonymous(&self) -> bool {
        self.anonymous_log.check().is_ok()
    }

    /// Counts a request of a key.
    pub(crate) fn check_key(&self, name: &str) -> Result<(), Problem> {
        self.cleanup();
        let counted = self.keys.check_key(&name.to_owned());
        counted.map_err(|busy| too_many_requests(busy.wait_time_from(self.clock.now())))
    }

    /// Counts a request of somebody without a key that counts.
    pub(crate) fn check_anonymous(&self, address: IpAddr) -> Result<(), Problem> {
        self.cleanup();
        let counted = self.anonymous.check_key(&network(address));
        counted.map_err(|busy| too_many_requests(busy.wait_time_from(self.clock.now())))
    }

    /// Whether the store may be asked if somebody whose rate as a stranger is used up
    /// shows something valid.
    pub(crate) fn may_look_up(&self, address: IpAddr) -> bool {
        self.lookups.check_key(&network(address)).is_ok()
    }

    fn cleanup(&self) {
        let asked = self.request_count.fetch_add(1, Ordering::Relaxed);
        if asked.is_multiple_of(CLEANUP_EVERY) {
            self.keys.retain_recent();
            self.keys.shrink_to_fit();
            for addresses in [&self.anonymous, &self.lookups] {
                addresses.retain_recent();
                addresses.shrink_to_fit();
            }
        }
    }
}

fn too_many_requests(wait: std::time::Duration) -> Problem {
    let seconds = wait.as_secs() + u64::from(wait.subsec_nanos() > 0);
    let words = "too many requests in one second";
    Problem::new(StatusCode::TOO_MANY_REQUESTS, "rate_limited", words)
        .hint("slow down, or raise `[server] rate`")
        .retry_after(u32::try_from(seconds.max(1)).unwrap_or(1))
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    #[test]
    fn rate_limits_of_inactive_callers_are_dropped() {
        let rates = RateLimits::new(NonZeroU32::new(1_000_000).unwrap());
        for number in 0..4 * CLEANUP_EVERY {
            rates.check_key(&format!("link:{number}")).unwrap();
        }
        assert!(rates.keys.len() < 2 * CLEANUP_EVERY as usize);
    }

    #[test]
    fn link_lookups_per_address_are_limited() {
        let rates = RateLimits::new(NonZeroU32::MIN);
        let [one, other] = [1, 2].map(|last| IpAddr::from(Ipv4Addr::new(192, 0, 2, last)));
        while rates.may_look_up(one) {}
        assert!(rates.may_look_up(other));
        assert!(rates.check_anonymous(one).is_ok());
    }
}
