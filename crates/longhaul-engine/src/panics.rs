//! What is said of a panic in somebody else's code.
//!
//! Never: silence. The words help whoever mends it.

use std::any::Any;

/// The words of a panic.
pub(crate) fn panic_message(panic: &(dyn Any + Send)) -> &str {
    let words = panic
        .downcast_ref::<&str>()
        .copied()
        .or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    words.unwrap_or("without words")
}
