//! Spend caps of a simulation.

use longhaul_core::policy::spend_cap::{
    AtCap, CapLimitChange, CapPeriod, CapScope, CapUnit, CapWindow, CurrentCap, SpendCap, SpendRow,
};
use longhaul_core::time::{Millis, Timestamp};

use crate::sim::SimError;
use crate::sim::driver::SimServices;
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
        window: CapWindow::Day,
        tz: "UTC".to_owned(),
        per,
        pattern: None,
        unit,
        limit,
        at_cap: AtCap::Wait,
    };
    // A call holds a little more than two cents.
    let money = 45_000 + 10_000 * rng.below(6) as u64;
    let runs = 2 + rng.below(6) as u64;
    vec![cap(CapScope::All, CapUnit::Usd, money), cap(CapScope::Key, CapUnit::Runs, runs)]
}

/// Returns the caps with the windows that contain this time.
pub(crate) fn current_caps(caps: &[SpendCap], now: Timestamp) -> Vec<CurrentCap> {
    let window = 1_000 * WINDOW.0 as i64;
    let start = now.as_micros().div_euclid(window) * window;
    let period = CapPeriod {
        start: Timestamp::from_micros(start),
        end: Timestamp::from_micros(start + window),
    };
    caps.iter().map(|cap| CurrentCap { cap: cap.clone(), period }).collect()
}

/// Raises the caps at which runs wait and whose window does not end within this time. Returns
/// whether there were any.
pub(crate) async fn raise_caps(services: &SimServices, within: Millis) -> Result<bool, SimError> {
    let soon = services.records.now().await?.plus(within);
    let rows = services.records.spend_rows().await?;
    let full = |row: &&SpendRow| row.waiting > 0 && row.window_end > soon;
    let mut raised = false;
    for row in rows.iter().filter(full) {
        let limit = row.effective_limit() + row.limit;
        services.world.record_raised_cap(row.key.clone(), limit);
        let change = CapLimitChange {
            cap: row.key.cap.clone(),
            subject: Some(row.key.subject.clone()),
            period: CapPeriod { start: row.key.window_start, end: row.window_end },
            limit,
        };
        services.records.set_cap_limit(change).await?;
        raised = true;
    }
    Ok(raised)
}
