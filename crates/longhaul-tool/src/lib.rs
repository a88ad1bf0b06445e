//! The tools that an agent may call, and the guarded way out to the network.
//!
//! Never: names a concrete sandbox. A tool that needs one is handed the port.

mod ask;
pub mod command;
pub mod context;
mod desk;
mod files;
pub mod memory;
mod http_fetch;
mod interaction;
mod lines;
pub mod message;
pub mod outbound;
pub mod mcp;
mod place;
mod skill;
mod spelling;
pub mod typed;
mod vault;
pub mod witness;

pub use files::Files;
pub use memory::Memory;
pub use skill::Skills;
pub use http_fetch::HttpFetch;
pub use interaction::LogInteraction;
pub use vault::Vault;
