//! Work besides the runs: timers, repair and retention, schedules, delivery to external inboxes, the
//! reports of ended child runs, and stalled drivers.

pub(crate) mod child_report;
pub mod outbox;
pub(crate) mod schedule;
pub(crate) mod scheduler;
pub mod spend_caps;
pub(crate) mod stalled;
pub mod sweep;
