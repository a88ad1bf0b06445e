//! The scripted model: what it plays, what it refuses, and what never moves it.

mod harness;
mod parse_errors;
mod playback;
mod properties;
mod reply_order;
