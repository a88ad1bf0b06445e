//! What the tests of every crate share: doubles at the ports, suites that any
//! implementation of a port must pass, and the simulation.
//!
//! Never: part of a build that ships. It is a dev-dependency, used from
//! `tests/` only.

pub mod clock;
pub mod conformance;
pub mod faulty_store;
pub mod ids;
pub mod latch;
pub mod mem_store;
pub mod sim;
