//! Extracts the message from the payload of a caught panic.

use std::any::Any;

/// Returns the message of a panic payload.
pub fn panic_message(panic: &(dyn Any + Send)) -> &str {
    let message = panic
        .downcast_ref::<&str>()
        .copied()
        .or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    message.unwrap_or("no message")
}
