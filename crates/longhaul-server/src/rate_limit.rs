//! Rate limits of requests: one per API key, and one per address for requests without a valid key.
//! No caller can use up the rate of another caller.

use std::net::IpAddr;
use std::num::NonZeroU32;
use std::sync::atomic::{AtomicU32, Ordering};

use axum::http::StatusCode;
use governor::clock::{Clock as _, DefaultClock};
use governor::{DefaultDirectRateLimiter, DefaultKeyedRateLimiter, Quota, RateLimiter};

use crate::connections::subscriber_network;
use crate::limits::{ANONYMOUS_RATE, LOOKUP_RATE};
use crate::problem::Problem;

/// Number of requests after which the rate limits of inactive callers are removed from memory.
const CLEANUP_EVERY: u32 = 1_024;

/// Maximum number of log lines per second about unauthenticated requests, so that nobody can fill
/// the disk with log lines.
const ANONYMOUS_LOG_RATE: NonZeroU32 = NonZeroU32::new(20).unwrap();

/// Rate limits of this server's callers.
#[derive(Debug)]
pub(crate) struct RateLimits {
    keys: DefaultKeyedRateLimiter<String>,
    anonymous: DefaultKeyedRateLimiter<IpAddr>,
    /// Limits the credential lookups in the store for addresses that have used up their anonymous
    /// rate.
    lookups: DefaultKeyedRateLimiter<IpAddr>,
    clock: DefaultClock,
    request_count: AtomicU32,
    anonymous_log: DefaultDirectRateLimiter,
}

impl RateLimits {
    pub(crate) fn new(key_requests_per_second: NonZeroU32) -> Self {
        let anonymous_rate = NonZeroU32::new(ANONYMOUS_RATE).unwrap_or(NonZeroU32::MIN);
        let lookups = NonZeroU32::new(LOOKUP_RATE).unwrap_or(NonZeroU32::MIN);
        Self {
            keys: RateLimiter::keyed(Quota::per_second(key_requests_per_second)),
            anonymous: RateLimiter::keyed(Quota::per_second(anonymous_rate)),
            lookups: RateLimiter::keyed(Quota::per_second(lookups)),
            clock: DefaultClock::default(),
            request_count: AtomicU32::new(0),
            anonymous_log: RateLimiter::direct(Quota::per_second(ANONYMOUS_LOG_RATE)),
        }
    }

    /// Returns whether one more log line about an unauthenticated request is allowed.
    pub(crate) fn may_log_anonymous_request(&self) -> bool {
        self.anonymous_log.check().is_ok()
    }

    /// Counts a request with the API key of this name. Returns an error if the key's rate limit is
    /// exceeded.
    pub(crate) fn check_api_key_rate(&self, key_name: &str) -> Result<(), Problem> {
        self.remove_limits_of_idle_callers();
        let result = self.keys.check_key(&key_name.to_owned());
        result.map_err(|rejection| too_many_requests(rejection.wait_time_from(self.clock.now())))
    }

    /// Counts a request without a valid key. Returns an error if the address's rate limit is
    /// exceeded.
    pub(crate) fn check_anonymous_rate(&self, address: IpAddr) -> Result<(), Problem> {
        self.remove_limits_of_idle_callers();
        let result = self.anonymous.check_key(&subscriber_network(address));
        result.map_err(|rejection| too_many_requests(rejection.wait_time_from(self.clock.now())))
    }

    /// Returns whether one more credential may be looked up in the store for an address that has
    /// used up its anonymous rate.
    pub(crate) fn may_look_up_credential(&self, address: IpAddr) -> bool {
        self.lookups.check_key(&subscriber_network(address)).is_ok()
    }

    fn remove_limits_of_idle_callers(&self) {
        let count = self.request_count.fetch_add(1, Ordering::Relaxed);
        if count.is_multiple_of(CLEANUP_EVERY) {
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
    let message = "too many requests in one second";
    Problem::new(StatusCode::TOO_MANY_REQUESTS, "rate_limited", message)
        .with_hint("slow down, or raise `[server] rate`")
        .with_retry_after(u32::try_from(seconds.max(1)).unwrap_or(1))
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    #[test]
    fn rate_limits_of_inactive_callers_are_dropped() {
        let rates = RateLimits::new(NonZeroU32::new(1_000_000).unwrap());
        for number in 0..4 * CLEANUP_EVERY {
            rates.check_api_key_rate(&format!("link:{number}")).unwrap();
        }
        assert!(rates.keys.len() < 2 * CLEANUP_EVERY as usize);
    }

    #[test]
    fn credential_lookups_are_limited_per_address() {
        let rates = RateLimits::new(NonZeroU32::MIN);
        let [one, other] = [1, 2].map(|last| IpAddr::from(Ipv4Addr::new(192, 0, 2, last)));
        while rates.may_look_up_credential(one) {}
        assert!(rates.may_look_up_credential(other));
        assert!(rates.check_anonymous_rate(one).is_ok());
    }
}
