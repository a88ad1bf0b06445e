//! Panics: the message of a caught panic, and locks that a panic does not make unusable.

use std::any::Any;
use std::sync::{Mutex, PoisonError};

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
