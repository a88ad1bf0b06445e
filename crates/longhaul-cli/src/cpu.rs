//! Measures the CPU time of this process, without its children.

use rustix::time::{ClockId, clock_gettime};

/// Returns the CPU time that this process has used so far, in microseconds.
pub(crate) fn cpu_time_us() -> f64 {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    time.tv_sec as f64 * 1e6 + time.tv_nsec as f64 / 1e3
}
