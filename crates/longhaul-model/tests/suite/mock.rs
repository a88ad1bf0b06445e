//! Tests of the mock provider, as adapters and SDKs use it.

mod errors;
mod event_order;
mod faults;
mod harness;
mod properties;
mod replies;
mod spec;
mod turn_counting;
