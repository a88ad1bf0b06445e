//! The configuration: `longhaul.toml`, the environment and flags, made one.
//!
//! `key` is the one table of what can be set; checking and `config show` come from it.
//! `load` reads all layers and gives a `Config`.
//!
//! Never: reads the environment of the process. It is handed in.

mod confine;
pub mod dotenv;
pub mod env;
pub mod fault;
pub mod key;
pub mod kind;
pub mod known;
pub(crate) mod layer;
pub mod load;
mod own_prices;
pub mod secrets;
pub mod settings;
pub mod surroundings;
mod tracked;
pub mod value;
mod whole;
