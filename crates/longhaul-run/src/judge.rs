//! What a call is: allowed, asked about, denied, or one that the heart itself
//! understands.
//!
//! Never: makes the call.

pub(crate) mod control_tool;
pub(crate) mod digest;
pub(crate) mod doubt;
pub(crate) mod ending;
pub(crate) mod names;
pub(crate) mod output;
pub(crate) mod rules;
