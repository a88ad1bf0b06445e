//! What a call is: allowed, asked about, denied, or one that the heart itself
//! understands.
//!
//! Never: makes the call.

pub(crate) mod control_tool;
pub(crate) mod control_tool_names;
pub(crate) mod digest;
pub(crate) mod final_output;
pub(crate) mod in_doubt;
pub(crate) mod legacy_output;
pub(crate) mod rules;
