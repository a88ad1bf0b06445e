//! Work besides the runs: timers, repair and retention, schedules, delivery to external inboxes, the
//! reports of ended child runs, stalled drivers, and sandboxes.

pub mod outbox;
pub(crate) mod sandboxes;
pub(crate) mod schedule;
pub mod spend_caps;
pub mod sweep;
