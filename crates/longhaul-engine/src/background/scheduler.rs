//! Fires due schedules in a loop.

use longhaul_core::time::{Millis, Timestamp};

use crate::error::Result;
use crate::handle::Longhaul;

/// Interval at which the store is asked for the next due time, so that new schedules and changes of
/// the wall clock are noticed.
const POLL_INTERVAL: Millis = Millis::from_secs(1);

/// Fires due schedules forever. A failure is logged, and the schedules are tried again.
pub(crate) async fn run_scheduler(longhaul: Longhaul) {
    let clock = &longhaul.services().clock;
    let mut checked_at = None;
    loop {
        let delay = match fire_and_get_delay(&longhaul, &mut checked_at).await {
            Ok(delay) => delay,
            Err(error) => {
                tracing::warn!(%error, "could not fire the schedules");
                POLL_INTERVAL
            }
        };
        clock.sleep(delay).await;
    }
}

/// Fires the due schedules and returns how long to wait for the next ones. `checked_at` is the time
/// of the last call. At the first call, and if the clock was set back since the last one, due times
/// from a wrong clock are corrected.
async fn fire_and_get_delay(
    longhaul: &Longhaul,
    checked_at: &mut Option<Timestamp>,
) -> Result<Millis> {
    let now = longhaul.store_time().await?;
    if checked_at.is_none_or(|checked_at| now < checked_at) {
        longhaul.correct_due_times().await?;
    }
    *checked_at = Some(now);
    longhaul.fire_due_schedules().await?;
    let next = longhaul.services().schedules.next_schedule_due().await?;
    let now = longhaul.store_time().await?;
    Ok(next.map_or(POLL_INTERVAL, |due| {
        let delay = due.duration_since(now);
        // Rounded up: a wait that ends too early would be repeated at once.
        let delay = delay.plus(Millis(u64::from(now.plus(delay) < due)));
        delay.min(POLL_INTERVAL)
    }))
}
