//! How file systems of other platforms treat file names.
//!
//! Invariant: names are only compared and checked here. A folded name is never used to access a
//! file.

use longhaul_core::sanitize::{is_invisible, is_joiner};

/// File names that Windows reserves for devices, whatever follows the first dot.
const DEVICE_NAMES: &[&str] = &["con", "prn", "aux", "nul", "conin$", "conout$"];

/// Returns the file name in the form that file systems without case sensitivity compare.
pub(crate) fn fold_case(text: &str) -> String {
    // To upper case first: for some file systems `ß` and `SS`, `ſ` and `s` are the same.
    text.to_uppercase().to_lowercase()
}

/// Returns whether this is a control character, or one that hides or reverses the text around it.
/// Joiners are allowed, because emoji and Persian need them.
pub(crate) fn is_invisible_char(c: char) -> bool {
    is_invisible(c) && !is_joiner(c)
}

/// Returns whether Windows reserves the file name for a device.
pub(crate) fn is_windows_device_name(text: &str) -> bool {
    let stem = fold_case(text.split('.').next().unwrap_or(text));
    let stem = stem.trim_end();
    let port_suffix = stem.strip_prefix("com").or_else(|| stem.strip_prefix("lpt"));
    let is_port = port_suffix.is_some_and(|rest| {
        let mut rest = rest.chars();
        let digit = rest.next();
        digit.is_some_and(|digit| digit.is_ascii_digit() || "¹²³".contains(digit))
            && rest.next().is_none()
    });
    is_port || DEVICE_NAMES.contains(&stem)
}

/// Returns a text shortened for messages, with invisible characters escaped.
pub(crate) fn escape_for_message(text: &str) -> String {
    text.chars().take(80).flat_map(char::escape_debug).collect()
}
