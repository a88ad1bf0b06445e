//! Loads all agents. Agents in the project's folder take precedence over those of `.claude/agents`,
//! and these over built-in agents. The project rules in `AGENTS.md` or `CLAUDE.md` apply to all of them and are never
//! truncated, since a part of them could mean something else.
//!
//! Invariant: an invalid file does not affect other agents, and no agent of lower precedence
//! replaces an invalid one with the same name.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::panic::resume_unwind;
use std::path::{Path, PathBuf};
use std::thread;

use longhaul_engine::agent::Agent;

use crate::agents::diagnostics::Diagnostics;
use crate::agents::files::{self, AgentFile, AgentFileContent};
use crate::agents::load_context::AgentLoadContext;
use crate::agents::loaded_agents::{
    AgentSource, BrokenAgent, LoadedAgent, LoadedAgents, ShadowedAgent,
};
use crate::agents::problem::{AgentFileProblem, ProblemKind};
use crate::agents::{claude, front_matter};
use crate::project_file::{self, ProjectFileError};
use crate::spanned::{Position, escape_to_one_line};

/// Folder of the project's agent files, relative to the project root.
pub const AGENTS_FOLDER: &str = "agents";

/// Folder of Claude Code's agent files, relative to the project root.
pub const CLAUDE_AGENTS_FOLDER: &str = ".claude/agents";

/// Folders of agent files, in order of precedence.
const FOLDERS: [(&str, AgentSource); 2] =
    [(AGENTS_FOLDER, AgentSource::Project), (CLAUDE_AGENTS_FOLDER, AgentSource::Claude)];

/// Loads all agents of the project that `ctx` describes.
pub fn load_all_agents(ctx: &AgentLoadContext<'_>) -> LoadedAgents {
    let mut loader = AgentLoader::new(ctx);
    let (mut files, mut listings) = (Vec::new(), Vec::new());
    for (dir, source) in FOLDERS {
        let listing = files::list_files(&ctx.root.join(dir), &ctx.display_root.join(dir), source);
        listings.push((listing.problems, listing.notes, listing.files.len()));
        files.extend(listing.files);
    }
    files.extend(ctx.built_in.iter().map(|built_in| AgentFile {
        stem: built_in.name.to_owned(),
        path: PathBuf::from(format!("built-in/{}.md", built_in.name)),
        source: AgentSource::BuiltIn,
        content: AgentFileContent::Text(built_in.file.to_owned()),
    }));
    let mut parsed = parse_files(ctx, &files).into_iter();
    for (problems, notes, file_count) in listings {
        loader.loaded.problems.extend(problems);
        loader.loaded.notes.extend(notes);
        parsed.by_ref().take(file_count).for_each(|file| loader.add_parsed_file(file));
    }
    parsed.for_each(|built_in| loader.add_parsed_file(built_in));
    loader.into_sorted_agents()
}

/// Returns the paths of all agent files of the project in `root`.
pub fn agent_file_paths(root: &Path) -> Vec<PathBuf> {
    let listings = FOLDERS.map(|(dir, source)| {
        let folder = root.join(dir);
        files::list_files(&folder, &folder, source)
    });
    listings.into_iter().flat_map(|listing| listing.files).map(|file| file.path).collect()
}

/// Returns the problems that a project agent `name` would have if `text` were its file.
pub fn text_problems(ctx: &AgentLoadContext<'_>, name: &str, text: &str) -> Vec<AgentFileProblem> {
    let file = AgentFile {
        stem: name.to_owned(),
        path: ctx.display_root.join(AGENTS_FOLDER).join(format!("{name}.md")),
        source: AgentSource::Project,
        content: AgentFileContent::Text(text.to_owned()),
    };
    let mut loader = AgentLoader::new(ctx);
    loader.add_parsed_file(parse_agent_file(ctx, &file));
    loader.into_sorted_agents().problems
}

/// What an agent file defines.
struct ParsedAgentFile<'c> {
    file: AgentFile,
    diagnostics: Diagnostics<'c>,
    /// Name and definition of the agent, where a definition of `None` means that it is invalid. The
    /// outer `None` means that the file defines no agent.
    agent: Option<(String, Option<Agent>)>,
}

/// Parses agent files, half of them on a second thread, because that takes a large part of the time
/// in which a command starts. The result is in the order of the files.
fn parse_files<'c>(ctx: &AgentLoadContext<'c>, files: &[AgentFile]) -> Vec<ParsedAgentFile<'c>> {
    let parse_all = |files: &[AgentFile]| -> Vec<ParsedAgentFile<'c>> {
        files.iter().map(|file| parse_agent_file(ctx, file)).collect()
    };
    let (first_half, second_half) = files.split_at(files.len() / 2);
    thread::scope(|scope| {
        let second_thread = thread::Builder::new().spawn_scoped(scope, || parse_all(second_half));
        let mut parsed = parse_all(first_half);
        match second_thread.map(thread::ScopedJoinHandle::join) {
            Ok(Ok(rest)) => parsed.extend(rest),
            Ok(Err(panic)) => resume_unwind(panic),
            // The machine allows no further thread.
            Err(_) => parsed.extend(parse_all(second_half)),
        }
        parsed
    })
}

fn parse_agent_file<'c>(ctx: &AgentLoadContext<'c>, file: &AgentFile) -> ParsedAgentFile<'c> {
    let is_built_in = file.source == AgentSource::BuiltIn;
    let mut diagnostics = Diagnostics::new(AgentLoadContext { is_built_in, ..*ctx }, &file.path);
    let bytes = match &file.content {
        AgentFileContent::OnDisk(at) => files::read_agent_file(ctx.root, at).map(Cow::Owned),
        AgentFileContent::Text(text) => Ok(Cow::Borrowed(text.as_bytes())),
    };
    let agent = match bytes {
        Ok(bytes) => parse_agent_definition(&mut diagnostics, file, &bytes),
        Err(message) => {
            diagnostics.report_invalid(Position::START, message);
            Some((file.stem.clone(), None))
        }
    };
    ParsedAgentFile { file: file.clone(), diagnostics, agent }
}

/// Parses the agent's name and definition from the bytes of a file. The outer `None` means that the
/// file defines no agent; the inner `None` means that the agent is invalid.
fn parse_agent_definition(
    diagnostics: &mut Diagnostics<'_>,
    file: &AgentFile,
    bytes: &[u8],
) -> Option<(String, Option<Agent>)> {
    if file.source == AgentSource::Claude {
        let agent = claude::parse_claude_agent(diagnostics, &file.stem, bytes)?;
        let name = agent.as_ref().map(|agent| agent.name.to_string());
        return Some((name.unwrap_or_else(|| file.stem.clone()), agent));
    }
    let agent = match files::parse_agent_name(&file.stem) {
        Ok(name) => Some(front_matter::parse(diagnostics, &name, bytes)),
        Err(message) => {
            diagnostics.report_invalid(Position::START, message);
            None
        }
    };
    Some((file.stem.clone(), agent))
}

struct AgentLoader {
    loaded: LoadedAgents,
    /// Text of the project rules. `None` means that the file can't be read.
    rules: Option<String>,
    /// Path of the file that defines each agent, by the agent's name.
    path_by_name: BTreeMap<String, PathBuf>,
    /// Names in Claude Code's files that are not valid, each with the agent's name.
    replaced_names: Vec<(String, String)>,
}

impl AgentLoader {
    fn new(ctx: &AgentLoadContext<'_>) -> Self {
        let mut loaded = LoadedAgents::default();
        let rules = match load_project_rules(ctx) {
            Ok(Some((path, rules))) => {
                let note = (path != ctx.display_root.join(RULES_FILES[0]))
                    .then(|| claude_rules_note(&rules));
                loaded.notes.extend(note.map(|note| (path, note)));
                Some(rules)
            }
            Ok(None) => Some(String::new()),
            Err(problem) => {
                loaded.unreadable_rules = Some(problem.path.clone());
                loaded.problems.push(problem);
                None
            }
        };
        loaded.mcp_servers = ctx.servers.iter().map(|&name| name.to_owned()).collect();
        Self { loaded, rules, path_by_name: BTreeMap::new(), replaced_names: Vec::new() }
    }

    fn into_sorted_agents(mut self) -> LoadedAgents {
        let loaded = &mut self.loaded;
        if let Some(note) = replaced_names_note("an agent", &self.replaced_names) {
            loaded.notes.push((PathBuf::from(CLAUDE_AGENTS_FOLDER), note));
        }
        loaded.agents.sort_by(|a, b| a.agent.name.cmp(&b.agent.name));
        loaded.broken.sort_by(|a, b| a.name.cmp(&b.name));
        loaded.files.sort();
        loaded.files.dedup();
        self.loaded
    }

    /// Adds the agent of a file, unless a file of higher precedence defines an agent with the same
    /// name.
    fn add_parsed_file(&mut self, parsed: ParsedAgentFile<'_>) {
        let ParsedAgentFile { file, mut diagnostics, agent } = parsed;
        let Some((name, agent)) = agent else {
            let notes = diagnostics.notes.into_iter();
            return self.loaded.notes.extend(notes.map(|note| (file.path.clone(), note)));
        };
        if let Some(hiding_path) = self.path_by_name.get(&name) {
            return self.loaded.hidden.push(ShadowedAgent {
                name,
                path: file.path,
                source: file.source,
                hidden_by: hiding_path.clone(),
            });
        }
        self.path_by_name.insert(name.clone(), file.path.clone());
        self.replaced_names.extend(diagnostics.replaced_name.take().map(|old| (old, name.clone())));
        self.loaded.files.append(&mut diagnostics.files);
        self.add_loaded_or_broken_agent(file, name, agent, diagnostics);
    }

    /// Adds the agent to the usable agents or, if it has problems, to the invalid ones.
    fn add_loaded_or_broken_agent(
        &mut self,
        file: AgentFile,
        name: String,
        agent: Option<Agent>,
        mut diagnostics: Diagnostics<'_>,
    ) {
        let valid_agent = agent.filter(|_| diagnostics.is_valid());
        let (missing, problems): (Vec<_>, Vec<_>) = diagnostics
            .take_problems()
            .into_iter()
            .partition(|problem| problem.kind == ProblemKind::Missing);
        self.loaded.missing_references.extend(missing);
        if let (Some(agent), Some(rules)) = (valid_agent, &self.rules) {
            return self.loaded.agents.push(LoadedAgent {
                agent: Agent { project_rules: rules.clone(), ..agent },
                path: file.path.clone(),
                source: file.source,
                notes: diagnostics.notes,
            });
        }
        self.loaded.problems.extend(problems);
        self.loaded.broken.push(BrokenAgent { name, path: file.path, source: file.source });
    }
}

/// Returns the note about names in Claude Code's files that are not valid. `None` means that all
/// names are valid.
pub(crate) fn replaced_names_note(kind: &str, replaced: &[(String, String)]) -> Option<String> {
    let names =
        replaced.iter().map(|(old, new)| format!("`{}` is `{new}`", escape_to_one_line(old)));
    let names: Vec<String> = names.collect();
    let rule = format!("the name of {kind} has no spaces, so names are made from the file names");
    (!names.is_empty()).then(|| format!("{rule}: {}", names.join(", ")))
}

/// Files with the project rules. The first one that exists is used.
pub const RULES_FILES: [&str; 3] = ["AGENTS.md", "CLAUDE.md", ".claude/CLAUDE.md"];

/// Maximum size of the project rules in bytes.
const RULES_BYTES_MAX: usize = 256 << 10;

/// Loads the project rules and returns them with the path of their file. `None` means that there is
/// no file.
fn load_project_rules(
    ctx: &AgentLoadContext<'_>,
) -> Result<Option<(PathBuf, String)>, AgentFileProblem> {
    for file in RULES_FILES {
        let path = ctx.display_root.join(file);
        let problem = |message: String| {
            let consequence = "the file contains the rules of all agents, so no agent can be used";
            AgentFileProblem::of_file(&path, format!("{message}; {consequence}"))
        };
        let bytes =
            match project_file::read_file_in_project(ctx.root, Path::new(file), RULES_BYTES_MAX) {
                Ok(bytes) => bytes,
                Err(ProjectFileError::Missing) => continue,
                Err(error) => return Err(problem(error.to_string())),
            };
        let text = String::from_utf8(bytes)
            .map_err(|_| problem("the file is not UTF-8: save it as UTF-8".to_owned()))?;
        let text = text.strip_prefix('\u{feff}').unwrap_or(&text);
        return Ok(Some((path, text.replace("\r\n", "\n").trim().to_owned())));
    }
    Ok(None)
}

/// Returns the note about project rules that are in a file of Claude Code.
fn claude_rules_note(rules: &str) -> String {
    let has_imports = rules.lines().any(|line| line.starts_with('@'));
    let imports = if has_imports { "; its lines `@FILE` are not followed" } else { "" };
    format!("the rules of all agents, because there is no {}{imports}", RULES_FILES[0])
}
