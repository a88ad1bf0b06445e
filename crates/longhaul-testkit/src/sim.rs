//! The proof of the heart: many workers, crashes between any two steps, people
//! who answer, write and cancel, clocks that jump, over one store.
//!
//! Never: the engine. A small driver stands in for it; what it drives, the
//! heart and the store, is the real thing.

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

/// A call of the store that failed, or a run that did not fold: a fault.
pub type Fault = Box<dyn std::error::Error + Send + Sync>;
