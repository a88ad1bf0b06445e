//! The one room that waits: it claims runs, drives them and lets them rest.
//!
//! Never: decides (that is the heart's work), names a concrete adapter, or
//! writes SQL or a provider's JSON.

pub mod clock;
