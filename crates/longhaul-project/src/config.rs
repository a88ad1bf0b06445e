//! The configuration: merges `longhaul.toml`, the environment and command-line flags.
//!
//! `schema` is the table of all settings; validation and `config show` are derived from it.
//! `load` reads all layers and returns a `Config`.
//!
//! The environment of the process is a parameter: this module does not read it.

pub(crate) mod cross_checks;
pub mod dotenv;
pub mod env;
pub mod error;
pub mod inbox_folders;
pub mod load;
mod path_checks;
mod price_overrides;
pub mod process_env;
pub mod schema;
pub mod secrets;
pub mod settings;
pub(crate) mod spend_caps;
pub mod value;
pub mod value_kind;
