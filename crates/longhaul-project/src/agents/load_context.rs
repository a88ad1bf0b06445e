//! The context for loading agent files: the project, and the names that files may refer to. The
//! caller fills it.

use std::path::Path;

use longhaul_engine::agent::config::Skill;

use crate::agents::built_in::BuiltInAgent;
use crate::config::schema::SANDBOX_PROVIDERS;

/// Reason why no MCP server is available.
#[derive(Debug, Clone, Copy)]
pub enum McpUnavailableReason<'a> {
    /// No MCP server is configured. The text is a message for people about that.
    NotConfigured(&'a str),
    /// The MCP configuration file is invalid. The text is the reason.
    Invalid(&'a str),
}

/// Knows which models can never be used.
pub trait ModelNames: std::fmt::Debug + Sync {
    /// Returns why this model or short name can't be used, whatever keys are set: its provider or
    /// its script does not exist. `None` means that it may be usable.
    fn unusable_reason(&self, model_name: &str) -> Option<String>;
}

/// The project whose agents are loaded, and the names that its agent files may refer to.
#[derive(Debug, Clone, Copy)]
pub struct AgentLoadContext<'a> {
    /// Root folder of the project.
    pub root: &'a Path,
    /// Path of the root folder as shown to people. Empty if it is the working directory.
    pub display_root: &'a Path,
    /// Built-in agents: those that are part of the binary.
    pub built_in: &'a [BuiltInAgent],
    /// Names of the tools that agents may use.
    pub tools: &'a [&'a str],
    /// Names of the MCP servers. An empty list means that they are unknown, so every name is
    /// accepted.
    pub servers: &'a [&'a str],
    /// Names of the MCP servers whose definition is invalid, each with the reason.
    pub broken_servers: &'a [(&'a str, String)],
    /// Reason why no MCP server is available, if known.
    pub servers_unavailable: Option<McpUnavailableReason<'a>>,
    /// Usable skills of the project.
    pub skills: &'a [Skill],
    /// Names of the project's skills whose files are invalid.
    pub broken_skills: &'a [String],
    /// Model aliases that agent files may name.
    pub short_names: &'a [&'a str],
    /// Names of the sandbox providers.
    pub sandbox_providers: &'a [&'a str],
    /// The models of the project. `None` means that every name is accepted.
    pub models: Option<&'a dyn ModelNames>,
    /// Whether the agents are built in. Then their output schemas are not checked, because that
    /// takes a large part of the time in which a command starts. A test checks them.
    pub is_built_in: bool,
}

impl<'a> AgentLoadContext<'a> {
    /// Creates a context with these tools and the sandbox providers of this build, and without
    /// built-in agents, MCP servers, skills and model aliases.
    pub const fn new(root: &'a Path, tools: &'a [&'a str]) -> Self {
        Self {
            root,
            display_root: root,
            built_in: &[],
            tools,
            servers: &[],
            broken_servers: &[],
            servers_unavailable: None,
            skills: &[],
            broken_skills: &[],
            short_names: &[],
            sandbox_providers: &SANDBOX_PROVIDERS,
            models: None,
            is_built_in: false,
        }
    }
}
