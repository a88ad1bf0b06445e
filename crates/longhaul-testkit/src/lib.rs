//! Shared test utilities: test doubles for the ports, conformance suites for their
//! implementations, and the simulation. It is a dev-dependency and used only from `tests/`.

pub mod clock;
pub mod conformance;
pub mod conversation;
pub mod daytona;
pub mod fake_sandboxes;
pub mod faulty_store;
pub mod ids;
pub mod latch;
pub mod mem_store;
pub mod sim;
