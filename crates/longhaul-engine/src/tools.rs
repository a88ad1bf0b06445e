//! The tools of runs: the registry, the tools that the engine implements, and what is computed about
//! calls.

pub(crate) mod children;
pub(crate) mod control;
pub(crate) mod effect_facts;
pub(crate) mod find_tools;
pub(crate) mod output_schema;
pub mod read_output;
pub(crate) mod recorded_outputs;
pub mod registry;
