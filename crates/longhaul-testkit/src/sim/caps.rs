//! Spend caps of a simulation.

use longhaul_core::policy::spend_cap::{
    CapReachedAction, CapUnit, CapUsageGrouping, CapWindowLength, CapWindowRange, CapWithWindow,
    SpendCap,
};
use longhaul_core::time::{Millis, Timestamp};

use crate::sim::rng::SeededRng;

/// Length of the windows of the reference driver. They are short, so that many of them end while
/// runs wait.
const WINDOW: Millis = Millis::from_secs(90);

/// Returns no caps, or a cap on money for all runs and one on runs per submitter.
pub fn random_caps(rng: &mut SeededRng) -> Vec<SpendCap> {
    if rng.one_in(2) {
        return Vec::new();
    }
    let cap = |per, unit, limit| SpendCap {
        window: CapWindowLength::Day,
        tz: "UTC".to_owned(),
        per,
        pattern: None,
        unit,
        limit,
        at_cap: CapReachedAction::Wait,
    };
    // A call holds a little more than two cents.
    let money = 45_000 + 10_000 * rng.below(6) as u64;
    let runs = 2 + rng.below(6) as u64;
    vec![
        cap(CapUsageGrouping::All, CapUnit::Usd, money),
        cap(CapUsageGrouping::Key, CapUnit::Runs, runs),
    ]
}

/// Returns the caps with the windows that contain this time.
pub(crate) fn current_caps(caps: &[SpendCap], now: Timestamp) -> Vec<CapWithWindow> {
    let window = 1_000 * WINDOW.0 as i64;
    let start = now.as_micros().div_euclid(window) * window;
    let period = CapWindowRange {
        start: Timestamp::from_micros(start),
        end: Timestamp::from_micros(start + window),
    };
    caps.iter().map(|cap| CapWithWindow { cap: cap.clone(), period }).collect()
}
