//! Panics and hangs of code outside the engine, and locks that a panic does not make unusable.

use std::any::Any;
use std::panic::AssertUnwindSafe;
use std::sync::{Mutex, PoisonError};

use futures_util::FutureExt as _;
use longhaul_core::duration::format_duration;
use longhaul_core::time::{Clock, Millis};

/// Why the work of code outside the engine has no result.
#[derive(Debug, thiserror::Error)]
pub enum GuardError {
    /// The work panicked with this message.
    #[error("panicked: {0}")]
    Panicked(String),
    /// The work took longer than this.
    #[error("took longer than {}", format_duration(*.0))]
    TimedOut(Millis),
}

/// Waits for the work of code outside the engine, such as a tool. Its panic is caught, and it is dropped
/// after the timeout.
pub async fn guard<T>(
    clock: &dyn Clock,
    timeout: Millis,
    work: impl Future<Output = T>,
) -> Result<T, GuardError> {
    tokio::select! {
        biased;
        done = AssertUnwindSafe(work).catch_unwind() => {
            done.map_err(|panic| GuardError::Panicked(panic_message(&*panic).to_owned()))
        }
        () = clock.sleep(timeout) => Err(GuardError::TimedOut(timeout)),
    }
}

/// Calls a function with the locked value.
pub(crate) fn with_lock<T, R>(mutex: &Mutex<T>, f: impl FnOnce(&mut T) -> R) -> R {
    f(&mut mutex.lock().unwrap_or_else(PoisonError::into_inner))
}

/// Returns the message of a panic payload.
pub fn panic_message(panic: &(dyn Any + Send)) -> &str {
    let message = panic
        .downcast_ref::<&str>()
        .copied()
        .or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    message.unwrap_or("no message")
}
