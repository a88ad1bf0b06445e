//! Work besides the runs: timers, repair and retention, schedules, delivery to external inboxes, the
//! reports of ended child runs, and stalled drivers.

pub mod outbox;
pub(crate) mod schedule;
pub mod spend_caps;
pub mod sweep;
