//! Simulation that tests the state machine: several workers on one store, crashes between any
//! two steps, people who answer, steer and cancel, and clocks that jump.
//!
//! A small driver replaces the engine here. The tests of the engine run the same simulation
//! with the real one.

pub mod caps;
mod chains;
pub mod check;
pub mod children;
pub mod cluster;
pub mod driver;
pub mod driver_factory;
pub mod external_actors;
pub mod external_world;
pub mod idle_sandboxes;
pub mod journals;
pub mod kill;
pub mod rng;
pub mod sandboxes;
pub mod scenario;
pub mod script;
pub mod seeds;
pub mod single_run;
mod suspended_calls;

/// Error of a simulation: a failed store call, or a journal that can't be replayed.
pub type SimError = Box<dyn std::error::Error + Send + Sync>;
