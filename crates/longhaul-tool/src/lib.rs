//! The built-in tools of agents, and the guarded HTTP client for outbound requests.
//!
//! Invariant: this crate has no sandbox implementation. A tool that needs a sandbox gets it through
//! a trait.

mod atomic_write;
pub mod command;
pub mod context;
pub mod crash_probe;
mod disk_tool;
mod filename_fold;
mod files;
pub mod git;
mod http_fetch;
mod interaction;
mod jsonl;
mod location;
pub mod memory;
pub mod message;
pub mod outbound;
mod prediction;
mod safe_dir;
mod sandbox_copy;
mod shell;
mod skill;
pub mod typed;
mod vault;

pub use files::file_tools;
pub use http_fetch::HttpFetchTool;
pub use interaction::LogInteractionTool;
pub use location::FileLocation;
pub use outbound::ensure_crypto_provider;
pub use shell::ShellTool;
pub use skill::read_skill_tool;

/// Names of the tools that work in the sandbox of a run, if its agent has one.
pub const SANDBOX_TOOLS: [&str; 7] =
    ["edit_file", "git_push", "list_files", "read_file", "search_files", "shell", "write_file"];

pub use vault::vault_tools;
