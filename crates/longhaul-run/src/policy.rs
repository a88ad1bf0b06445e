//! Policy decisions about tool calls and outputs: approval rules, digests, control tools, calls in
//! doubt (outcome unknown) and final outputs.

pub(crate) mod control_tool;
pub(crate) mod control_tool_names;
pub(crate) mod digest;
pub(crate) mod effect_keys;
pub(crate) mod gate_timers;
pub(crate) mod in_doubt;
pub(crate) mod output;
pub(crate) mod question;
pub(crate) mod rules;
