//! The heart: what a run is, what may happen to it, and what must happen next.
//!
//! Never: performs anything. There is no `async`, no clock and no randomness
//! here; the same journal always folds to the same run.
