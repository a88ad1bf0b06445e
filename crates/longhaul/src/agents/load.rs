//! Loads all agents. Agents in the project's folder take precedence over those of `.claude/agents`,
//! and these over built-in agents.
//!
//! Invariant: an invalid file does not affect other agents, and no agent of lower precedence
//! replaces an invalid one with the same name.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use longhaul_engine::agent::Agent;

use crate::agents::claude;
use crate::agents::diagnostics::{Diagnostic, Diagnostics};
use crate::agents::files::{self, AgentFile};
use crate::agents::front_matter;
use crate::agents::load_context::AgentLoadContext;
use crate::agents::loaded_agents::{
    AgentSource, BrokenAgent, LoadedAgent, LoadedAgents, ShadowedAgent,
};
use crate::agents::problem::Problem;
use crate::agents::project_rules;
use crate::spanned::Position;

/// Folder of the project's agent files, relative to the project root.
pub const AGENTS_FOLDER: &str = "agents";

/// Folder of Claude Code's agent files, relative to the project root.
pub const CLAUDE_AGENTS_FOLDER: &str = ".claude/agents";

/// Loads all agents of the project that `ctx` describes.
pub fn load_all_agents(ctx: &AgentLoadContext<'_>) -> LoadedAgents {
    let mut loading = AgentLoader::new(ctx);
    for (dir, source) in
        [(AGENTS_FOLDER, AgentSource::Project), (CLAUDE_AGENTS_FOLDER, AgentSource::Claude)]
    {
        let folder = ctx.root.join(dir);
        let listed = files::list_agent_files(&folder, &ctx.display_root.join(dir), source);
        loading.loaded.problems.extend(listed.problems);
        loading.loaded.notes.extend(listed.notes);
        for (at, file) in listed.files {
            loading.load_agent_file(file, files::read_agent_file(ctx.root, &at));
        }
    }
    for built_in in ctx.built_in {
        let file = AgentFile {
            stem: built_in.name.to_owned(),
            path: PathBuf::from(format!("built-in/{}.md", built_in.name)),
            source: AgentSource::BuiltIn,
        };
        loading.load_agent_file(file, Ok(built_in.file.into()));
    }
    loading.into_sorted_agents()
}

/// Returns the paths of all agent files of the project in `root`.
pub fn agent_file_paths(root: &Path) -> Vec<PathBuf> {
    let folders =
        [(AGENTS_FOLDER, AgentSource::Project), (CLAUDE_AGENTS_FOLDER, AgentSource::Claude)];
    let listed =
        folders.map(|(dir, source)| files::list_agent_files(&root.join(dir), root, source));
    let files = listed.into_iter().flat_map(|listed| listed.files);
    files.map(|(at, _)| at).collect()
}

/// Returns the problems that a project agent `name` would have if `text` were its file.
pub fn find_agent_text_problems(
    ctx: &AgentLoadContext<'_>,
    name: &str,
    text: &str,
) -> Vec<Problem> {
    let file = AgentFile {
        stem: name.to_owned(),
        path: ctx.display_root.join(AGENTS_FOLDER).join(format!("{name}.md")),
        source: AgentSource::Project,
    };
    let mut loading = AgentLoader::new(ctx);
    loading.load_agent_file(file, Ok(text.into()));
    loading.into_sorted_agents().problems
}

struct AgentLoader<'a> {
    ctx: &'a AgentLoadContext<'a>,
    loaded: LoadedAgents,
    /// Text of the project rules in `AGENTS.md`. `None` means that the file can't be read.
    rules: Option<String>,
    /// Path of the file that defines each agent, by the agent's name.
    path_by_name: BTreeMap<String, PathBuf>,
}

impl<'a> AgentLoader<'a> {
    fn new(ctx: &'a AgentLoadContext<'a>) -> Self {
        let mut loaded = LoadedAgents::default();
        let rules = match project_rules::load_agents_md_rules(ctx) {
            Ok(rules) => Some(rules),
            Err(problem) => {
                loaded.unreadable_rules = Some(problem.path.clone());
                loaded.problems.push(problem);
                None
            }
        };
        loaded.mcp_servers = ctx.servers.iter().map(|&name| name.to_owned()).collect();
        Self { ctx, loaded, rules, path_by_name: BTreeMap::new() }
    }

    fn into_sorted_agents(mut self) -> LoadedAgents {
        let loaded = &mut self.loaded;
        loaded.agents.sort_by(|a, b| a.agent.name.cmp(&b.agent.name));
        loaded.broken.sort_by(|a, b| a.name.cmp(&b.name));
        loaded.files.sort();
        loaded.files.dedup();
        self.loaded
    }

    /// Loads an agent file, unless a file of higher precedence defines an agent with the same name.
    fn load_agent_file(&mut self, file: AgentFile, content: Result<Vec<u8>, String>) {
        let mut diagnostics = Diagnostics::default();
        let (name, agent) = match content {
            Ok(content) => match self.parse_agent_file(&mut diagnostics, &file, &content) {
                Some(read) => read,
                None => {
                    let notes = diagnostics.notes.into_iter();
                    let notes = notes.map(|note| (file.path.clone(), note));
                    return self.loaded.notes.extend(notes);
                }
            },
            Err(message) => {
                diagnostics.report_invalid(Position::START, message);
                (file.stem.clone(), None)
            }
        };
        if let Some(by) = self.path_by_name.get(&name) {
            return self.loaded.hidden.push(ShadowedAgent {
                name,
                path: file.path,
                source: file.source,
                hidden_by: by.clone(),
            });
        }
        self.path_by_name.insert(name.clone(), file.path.clone());
        self.loaded.files.append(&mut diagnostics.files);
        self.add_loaded_or_broken_agent(file, name, agent, diagnostics);
    }

    /// Parses the agent's name and definition from a file. The outer `None` means that the file
    /// defines no agent; the inner `None` means that the agent is invalid.
    fn parse_agent_file(
        &self,
        diagnostics: &mut Diagnostics,
        file: &AgentFile,
        bytes: &[u8],
    ) -> Option<(String, Option<Agent>)> {
        let ctx =
            AgentLoadContext { is_built_in: file.source == AgentSource::BuiltIn, ..*self.ctx };
        if file.source == AgentSource::Claude {
            let agent = claude::parse_claude_agent(diagnostics, &file.stem, bytes, &ctx)?;
            let name = agent.as_ref().map(|agent| agent.name.to_string());
            return Some((name.unwrap_or_else(|| file.stem.clone()), agent));
        }
        let agent = match files::parse_agent_name(&file.stem) {
            Ok(name) => Some(front_matter::parse_project_agent(diagnostics, &name, bytes, &ctx)),
            Err(message) => {
                diagnostics.report_invalid(Position::START, message);
                None
            }
        };
        Some((file.stem.clone(), agent))
    }

    /// Adds the agent to the usable agents or, if it has problems, to the invalid ones.
    fn add_loaded_or_broken_agent(
        &mut self,
        file: AgentFile,
        name: String,
        agent: Option<Agent>,
        mut diagnostics: Diagnostics,
    ) {
        diagnostics.problems.sort_by_key(|found| found.position);
        let problem = |found: Diagnostic| found.into_problem(&file.path);
        self.loaded.missing_references.extend(diagnostics.missing.into_iter().map(problem));
        let sound = agent.filter(|_| diagnostics.problems.is_empty());
        if let (Some(agent), Some(rules)) = (sound, &self.rules) {
            return self.loaded.agents.push(LoadedAgent {
                agent: Agent { project_rules: rules.clone(), ..agent },
                path: file.path.clone(),
                source: file.source,
                notes: diagnostics.notes,
            });
        }
        self.loaded.problems.extend(diagnostics.problems.into_iter().map(problem));
        self.loaded.broken.push(BrokenAgent { name, path: file.path, source: file.source });
    }
}
