//! Words and conditions that every part of this bench says.
//!
//! Never: a figure.

/// Whether a target is met.
pub(crate) const fn met(is_met: bool) -> &'static str {
    if is_met { "met" } else { "missed" }
}

/// How many cores there are.
pub(crate) fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// What kind of build this is.
pub(crate) const fn build() -> &'static str {
    if cfg!(debug_assertions) {
        "debug build: not for comparing"
    } else {
        "release"
    }
}
