//! The proof of the heart: many workers, crashes between any two steps, people
//! who answer, write and cancel, clocks that jump, over one store.
//!
//! Never: the engine. A small driver stands in for it here; the engine's own
//! tests hire the real one.

pub mod check;
pub mod dice;
pub mod driver;
pub mod fates;
pub mod journals;
pub mod kill;
pub mod lone;
pub mod outside;
pub mod people;
pub mod scenario;
pub mod script;
pub mod shepherd;
pub mod staff;

/// A call of the store that failed, or a run that did not fold: a fault.
pub type Fault = Box<dyn std::error::Error + Send + Sync>;
