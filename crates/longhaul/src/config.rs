//! The configuration: `longhaul.toml`, the environment and flags, made one.
//!
//! `key` is the one table of what can be set; checking and `config show` come from it.
//! `load` reads all layers and gives a `Config`.
//!
//! Never: reads the environment of the process. It is handed in.

pub mod built_in_providers;
mod cross_checks;
pub mod dotenv;
pub mod env;
pub mod error;
mod git_tracked;
pub(crate) mod layer;
pub mod load;
mod path_checks;
mod price_overrides;
pub mod process_env;
pub mod schema;
pub mod secrets;
pub mod settings;
pub mod value;
pub mod value_kind;
