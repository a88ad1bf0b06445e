//! The mock model: what adapters and SDKs would see of it.

mod counting;
mod faults;
mod kit;
mod laws;
mod order;
mod refusals;
mod replies;
mod spec;
