//! The tools that an agent may call, and the guarded way out to the network.
//!
//! Never: names a concrete sandbox. A tool that needs one is handed the port.

mod atomic_write;
pub mod command;
pub mod context;
pub mod crash_probe;
mod filename_fold;
mod files;
mod http_fetch;
mod interaction;
mod jsonl;
mod location;
pub mod memory;
pub mod message;
mod openat;
pub mod outbound;
mod safe_dir;
mod shell;
mod skill;
mod tls;
mod tool_support;
pub mod typed;
mod vault;

pub use files::Files;
pub use http_fetch::HttpFetch;
pub use interaction::LogInteraction;
pub use location::Location;
pub use memory::Memory;
pub use shell::Shell;
pub use skill::Skills;
pub use vault::Vault;
