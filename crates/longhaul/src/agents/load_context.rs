//! What agents' files are read against: the project, and what may be named in it.
//!
//! Never: looks anything up. Whoever fills it has looked.

use std::path::Path;

use longhaul_engine::agent::config::Skill;

use crate::agents::built_in::BuiltInAgent;

/// Why no MCP server can be had.
#[derive(Debug, Clone, Copy)]
pub enum ServersUnavailable<'a> {
    /// No file names one; this sentence says so.
    NotConfigured(&'a str),
    /// The file can't be used; this sentence says why.
    Invalid(&'a str),
}

/// Where to look, and what may be named.
#[derive(Debug, Clone, Copy)]
pub struct LoadContext<'a> {
    /// The project's folder.
    pub root: &'a Path,
    /// The same folder as it is said to people; empty where they stand in it.
    pub display_root: &'a Path,
    /// What ships with the binary.
    pub built_in: &'a [BuiltInAgent],
    /// The names of the tools that exist.
    pub tools: &'a [&'a str],
    /// The names of the MCP servers; none: nobody knows, and none is refused.
    pub servers: &'a [&'a str],
    /// Why there are none, where that is known.
    pub servers_unavailable: Option<ServersUnavailable<'a>>,
    /// The skills that can be used.
    pub skills: &'a [Skill],
    /// The names of those that can't.
    pub broken_skills: &'a [String],
    /// The short names of models.
    pub short_names: &'a [&'a str],
}

impl<'a> LoadContext<'a> {
    /// A project with these tools and nothing else.
    pub const fn new(root: &'a Path, tools: &'a [&'a str]) -> Self {
        Self {
            root,
            display_root: root,
            built_in: &[],
            tools,
            servers: &[],
            servers_unavailable: None,
            skills: &[],
            broken_skills: &[],
            short_names: &[],
        }
    }
}
