//! The tools that an agent may call, and the guarded way out to the network.
//!
//! Never: names a concrete sandbox. A tool that needs one is handed the port.

mod ask;
pub mod command;
pub mod context;
mod desk;
mod files;
mod handle;
mod http_fetch;
mod interaction;
mod jsonl;
mod location;
pub mod memory;
pub mod message;
pub mod outbound;
mod place;
mod shell;
mod skill;
mod spelling;
mod tls;
pub mod typed;
mod vault;
pub mod witness;

pub use files::Files;
pub use http_fetch::HttpFetch;
pub use interaction::LogInteraction;
pub use location::Location;
pub use memory::Memory;
pub use shell::Shell;
pub use skill::Skills;
pub use vault::Vault;
