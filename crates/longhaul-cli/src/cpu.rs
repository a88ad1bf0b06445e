//! The CPU time that this process has taken.
//!
//! Never: that of its children, or of anybody else.

use rustix::time::{ClockId, clock_gettime};

/// In microseconds, so far.
pub(crate) fn cpu_us() -> f64 {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    time.tv_sec as f64 * 1e6 + time.tv_nsec as f64 / 1e3
}
