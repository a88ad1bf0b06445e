//! Loads every agent there is: the project's files over Claude's over those built in.
//!
//! Never: lets a broken file stop the others, and never puts a weaker agent in
//! the place of a broken file of the same name.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use longhaul_engine::agent::Agent;

use crate::agents::claude;
use crate::agents::diagnostics::{Diagnostic, Diagnostics};
use crate::agents::files::{self, AgentFile};
use crate::agents::front_matter;
use crate::agents::load_context::LoadContext;
use crate::agents::loaded_agents::{
    AgentSource, BrokenAgent, HiddenAgent, LoadedAgent, LoadedAgents,
};
use crate::agents::problem::Problem;
use crate::agents::project_rules;
use crate::spanned::Position;

/// The project's own agents.
pub const AGENTS_FOLDER: &str = "agents";

/// Those that Claude Code reads.
pub const CLAUDE_AGENTS_FOLDER: &str = ".claude/agents";

/// Loads all that is on the shelf.
pub fn load(shelf: &LoadContext<'_>) -> LoadedAgents {
    let mut loading = Loader::new(shelf);
    for (place, source) in
        [(AGENTS_FOLDER, AgentSource::Project), (CLAUDE_AGENTS_FOLDER, AgentSource::Claude)]
    {
        let folder = shelf.root.join(place);
        let listed = files::list(&folder, &shelf.display_root.join(place), source);
        loading.loaded.problems.extend(listed.problems);
        loading.loaded.notes.extend(listed.notes);
        for (at, file) in listed.files {
            loading.load_file(file, files::read(shelf.root, &at));
        }
    }
    for built_in in shelf.built_in {
        let file = AgentFile {
            stem: built_in.name.to_owned(),
            path: PathBuf::from(format!("built-in/{}.md", built_in.name)),
            source: AgentSource::BuiltIn,
        };
        loading.load_file(file, Ok(built_in.file.into()));
    }
    loading.finish()
}

/// Where the files of a project's agents are.
pub fn file_paths(root: &Path) -> Vec<PathBuf> {
    let folders =
        [(AGENTS_FOLDER, AgentSource::Project), (CLAUDE_AGENTS_FOLDER, AgentSource::Claude)];
    let listed = folders.map(|(place, source)| files::list(&root.join(place), root, source));
    let files = listed.into_iter().flat_map(|listed| listed.files);
    files.map(|(at, _)| at).collect()
}

/// What is wrong with this text as the file of a project's agent, if anything is.
pub fn check_text(shelf: &LoadContext<'_>, name: &str, text: &str) -> Vec<Problem> {
    let file = AgentFile {
        stem: name.to_owned(),
        path: shelf.display_root.join(AGENTS_FOLDER).join(format!("{name}.md")),
        source: AgentSource::Project,
    };
    let mut loading = Loader::new(shelf);
    loading.load_file(file, Ok(text.into()));
    loading.finish().problems
}

struct Loader<'a> {
    ctx: &'a LoadContext<'a>,
    loaded: LoadedAgents,
    /// The project's rules; none: they can't be read.
    rules: Option<String>,
    /// Who has which name, by its file.
    path_by_name: BTreeMap<String, PathBuf>,
}

impl<'a> Loader<'a> {
    fn new(shelf: &'a LoadContext<'a>) -> Self {
        let mut loaded = LoadedAgents::default();
        let rules = match project_rules::load(shelf) {
            Ok(rules) => Some(rules),
            Err(problem) => {
                loaded.unreadable_rules = Some(problem.path.clone());
                loaded.problems.push(problem);
                None
            }
        };
        Self { ctx: shelf, loaded, rules, path_by_name: BTreeMap::new() }
    }

    fn finish(mut self) -> LoadedAgents {
        let loaded = &mut self.loaded;
        loaded.agents.sort_by(|a, b| a.agent.name.cmp(&b.agent.name));
        loaded.broken.sort_by(|a, b| a.name.cmp(&b.name));
        loaded.files.sort();
        loaded.files.dedup();
        self.loaded
    }

    /// Reads a file, unless a stronger one has its name.
    fn load_file(&mut self, file: AgentFile, bytes: Result<Vec<u8>, String>) {
        let mut sheet = Diagnostics::default();
        let (name, agent) = match bytes {
            Ok(bytes) => match self.parse(&mut sheet, &file, &bytes) {
                Some(read) => read,
                None => {
                    let notes = sheet.notes.into_iter();
                    let notes = notes.map(|note| (file.path.clone(), note));
                    return self.loaded.notes.extend(notes);
                }
            },
            Err(message) => {
                sheet.invalid(Position::START, message);
                (file.stem.clone(), None)
            }
        };
        if let Some(by) = self.path_by_name.get(&name) {
            return self.loaded.hidden.push(HiddenAgent {
                name,
                path: file.path,
                source: file.source,
                hidden_by: by.clone(),
            });
        }
        self.path_by_name.insert(name.clone(), file.path.clone());
        self.loaded.files.append(&mut sheet.files);
        self.add(file, name, agent, sheet);
    }

    /// The name of a file's agent, and the agent as far as it can be read; nothing
    /// where the file is no agent at all.
    fn parse(
        &self,
        sheet: &mut Diagnostics,
        file: &AgentFile,
        bytes: &[u8],
    ) -> Option<(String, Option<Agent>)> {
        if file.source == AgentSource::Claude {
            let agent = claude::parse(sheet, &file.stem, bytes, self.ctx)?;
            let name = agent.as_ref().map(|agent| agent.name.to_string());
            return Some((name.unwrap_or_else(|| file.stem.clone()), agent));
        }
        let agent = match files::parse_name(&file.stem) {
            Ok(name) => Some(front_matter::parse(sheet, &name, bytes, self.ctx)),
            Err(message) => {
                sheet.invalid(Position::START, message);
                None
            }
        };
        Some((file.stem.clone(), agent))
    }

    fn add(&mut self, file: AgentFile, name: String, agent: Option<Agent>, mut sheet: Diagnostics) {
        sheet.problems.sort_by_key(|found| found.position);
        let problem = |found: Diagnostic| found.into_problem(&file.path);
        self.loaded.missing.extend(sheet.missing.into_iter().map(problem));
        let sound = agent.filter(|_| sheet.problems.is_empty());
        if let (Some(agent), Some(rules)) = (sound, &self.rules) {
            return self.loaded.agents.push(LoadedAgent {
                agent: Agent { project_rules: rules.clone(), ..agent },
                path: file.path.clone(),
                source: file.source,
                notes: sheet.notes,
            });
        }
        self.loaded.problems.extend(sheet.problems.into_iter().map(problem));
        self.loaded.broken.push(BrokenAgent { name, path: file.path, source: file.source });
    }
}
