//! The proof of the heart: many workers, crashes between any two steps, people
//! who answer, write and cancel, clocks that jump, over one store.
//!
//! Never: the engine. A small driver stands in for it here; the engine's own
//! tests hire the real one.

pub mod check;
pub mod cluster;
pub mod driver;
pub mod driver_factory;
pub mod external_actors;
pub mod external_world;
pub mod journals;
pub mod kill;
pub mod rng;
pub mod scenario;
pub mod script;
pub mod seeds;
pub mod single_run;

/// A call of the store that failed, or a run that did not fold: a fault.
pub type SimError = Box<dyn std::error::Error + Send + Sync>;
