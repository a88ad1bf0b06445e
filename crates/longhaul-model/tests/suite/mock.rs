//! The mock model: what adapters and SDKs would see of it.

mod errors;
mod event_order;
mod faults;
mod harness;
mod properties;
mod replies;
mod spec;
mod turn_counting;
