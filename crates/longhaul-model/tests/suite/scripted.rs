//! Tests of the scripted model: its replies, its errors and its determinism.

mod harness;
mod parse_errors;
mod playback;
mod properties;
mod reply_order;
