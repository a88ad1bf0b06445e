//! The tools that an agent may call, and the guarded way out to the network.
//!
//! Never: names a concrete sandbox. A tool that needs one is handed the port.

mod vault;
pub mod witness;

pub use vault::Vault;
