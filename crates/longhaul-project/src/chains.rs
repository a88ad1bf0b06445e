//! Chains as files: `chains/NAME.toml` of a project, and the chains that are part of the binary.
//!
//! Invariant: an invalid file does not affect other chains, and no built-in chain replaces an invalid
//! one with the same name.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use longhaul_core::chain::{ChainRepeatEndCondition, ChainRepeatSpec, ChainSpec, ChainStepSpec};
use longhaul_core::suggest;
use longhaul_engine::agent::ChainRegistry;

use crate::agents::diagnostics::{Diagnostics, Fields, integer};
use crate::agents::load_context::AgentLoadContext;
use crate::agents::problem::AgentFileProblem;
use crate::project_file;
use crate::spanned::{Position, TableEntry, toml};

/// Folder of the project's chain files, relative to the project root.
pub const CHAINS_FOLDER: &str = "chains";

/// Maximum length of a chain file in bytes.
const FILE_BYTES_MAX: usize = 64 * 1024;

/// Name and file text of each chain that is part of the binary.
const BUILT_IN_CHAINS: [(&str, &str); 2] = [
    ("full-pipeline", include_str!("../chains/full-pipeline.toml")),
    ("implement-and-review", include_str!("../chains/implement-and-review.toml")),
];

/// A usable chain, with the file that defines it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LoadedChain {
    pub name: String,
    pub spec: Arc<ChainSpec>,
    /// Path of the chain's file.
    pub path: PathBuf,
    /// Whether the chain is part of the binary.
    pub built_in: bool,
}

/// All chains of a project, sorted by name.
#[derive(Debug, Clone, Default)]
pub struct LoadedChains {
    /// Usable chains.
    pub chains: Vec<LoadedChain>,
    /// Problems of chain files. A chain whose only problem is a missing agent can be used when the
    /// agent exists.
    pub problems: Vec<AgentFileProblem>,
}

impl LoadedChains {
    /// Returns a registry of the usable chains, for the engine.
    pub fn to_chain_registry(&self) -> ChainRegistry {
        self.chains.iter().map(|one| (one.name.clone(), Arc::clone(&one.spec))).collect()
    }

    pub fn problems_of<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a AgentFileProblem> {
        self.problems
            .iter()
            .filter(move |problem| problem.path.file_stem().is_some_and(|s| s == name))
    }
}

/// Loads all chains of the project in `root`. `agents` are the names of the agents that exist.
pub fn load_chains(root: &Path, display_root: &Path, agents: &[&str]) -> LoadedChains {
    let mut loaded = LoadedChains::default();
    let mut names: Vec<String> = Vec::new();
    for file in chain_file_paths(root) {
        let Some(name) = file.file_stem().map(|stem| stem.to_string_lossy().into_owned()) else {
            continue;
        };
        let relative = file.strip_prefix(root).unwrap_or(&file);
        let path = display_root.join(relative);
        let text = project_file::read_file_in_project(root, relative, FILE_BYTES_MAX)
            .map_err(|error| format!("the file can't be read: {error}"))
            .and_then(|bytes| {
                String::from_utf8(bytes).map_err(|_| "the file is not valid UTF-8".to_owned())
            });
        names.push(name.clone());
        loaded.add_chain((name, path, false), text, agents);
    }
    for (name, text) in BUILT_IN_CHAINS {
        if !names.iter().any(|existing| existing == name) {
            let path = PathBuf::from(format!("built-in/{name}.toml"));
            loaded.add_chain((name.to_owned(), path, true), Ok(text.to_owned()), agents);
        }
    }
    loaded.chains.sort_by(|one, other| one.name.cmp(&other.name));
    loaded
}

/// Returns the paths of all chain files of the project in `root`, sorted by name.
pub fn chain_file_paths(root: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(root.join(CHAINS_FOLDER)).into_iter().flatten().flatten();
    let is_chain = |path: &PathBuf| {
        let is_hidden =
            path.file_name().is_some_and(|name| name.to_string_lossy().starts_with('.'));
        !is_hidden && path.extension().is_some_and(|end| end == "toml")
    };
    let mut files: Vec<PathBuf> = entries.map(|entry| entry.path()).filter(is_chain).collect();
    files.sort();
    files
}

impl LoadedChains {
    fn add_chain(
        &mut self,
        (name, path, built_in): (String, PathBuf, bool),
        text: Result<String, String>,
        agents: &[&str],
    ) {
        let mut diagnostics = Diagnostics::new(AgentLoadContext::new(Path::new(""), &[]), &path);
        let is_name_char = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
        let has_valid_start = name.starts_with(char::is_alphanumeric);
        if name.len() > 64 || !has_valid_start || !name.chars().all(is_name_char) {
            let message = "the name of a chain file has 1 to 64 letters, digits, `-`, `_` and `.`";
            diagnostics.report_invalid(Position::START, message);
        }
        let spec = match text {
            Ok(text) => diagnostics.parse_chain(&text, agents),
            Err(message) => {
                diagnostics.report_invalid(Position::START, message);
                None
            }
        };
        if let Some(spec) = spec.filter(|_| diagnostics.is_valid()) {
            self.chains.push(LoadedChain { name, spec: Arc::new(spec), path, built_in });
        }
        self.problems.extend(diagnostics.take_problems());
    }
}

impl Diagnostics<'_> {
    /// Parses the text of a chain file, and reports every problem in it.
    fn parse_chain(&mut self, text: &str, agents: &[&str]) -> Option<ChainSpec> {
        let node = match toml::parse(text) {
            Ok(node) => node,
            Err(error) => return self.reject(error.position, error.message),
        };
        let file = TableEntry { key: "chain".to_owned(), position: Position::START, node };
        let mut fields = Fields::new(self, &file, "steps")?;
        let description = fields.parse("description", Diagnostics::text);
        let max_runs = fields.parse("max_runs", integer(1));
        let Some(entry) = fields.get("steps") else {
            fields.diagnostics.report_invalid(
                Position::START,
                "a chain needs steps: write `[[steps]]` with an `agent`",
            );
            return None;
        };
        let entries = fields.diagnostics.list_entries(entry).unwrap_or_default();
        let steps: Vec<Option<ChainStepSpec>> =
            entries.iter().map(|step| fields.diagnostics.parse_chain_step(step, agents)).collect();
        drop(fields);
        // Problems between steps are reported only if each step is readable.
        let steps: Vec<ChainStepSpec> = steps.into_iter().collect::<Option<_>>()?;
        let spec = ChainSpec { description, max_runs, steps };
        for problem in spec.problems() {
            let step = problem.step.and_then(|step| entries.get(step));
            let position =
                step.map_or(entry.position, |step| step_field_position(step, problem.field));
            self.report_invalid(position, problem.message);
        }
        Some(spec)
    }

    fn parse_chain_step(&mut self, entry: &TableEntry, agents: &[&str]) -> Option<ChainStepSpec> {
        let mut fields = Fields::new(self, entry, "agent")?;
        let name = fields.parse("name", Diagnostics::text);
        let agent = fields.parse("agent", Diagnostics::text);
        match (&agent, fields.get("agent")) {
            (Some(agent), Some(agent_entry)) if !agents.contains(&agent.as_str()) => {
                let message = suggest::unknown_name_message("agent", agent, agents);
                fields.diagnostics.report_missing(agent_entry.node.position, message);
            }
            (None, None) => {
                fields.diagnostics.report_invalid(entry.position, "a step needs an `agent`");
            }
            (Some(_) | None, _) => {}
        }
        Some(ChainStepSpec {
            auto_approve: fields.parse("auto_approve", Diagnostics::boolean).unwrap_or_default(),
            condition: fields.parse("condition", Diagnostics::one_of).unwrap_or_default(),
            repeat: fields.parse("repeat", Diagnostics::parse_chain_repeat),
            name,
            agent: agent?,
        })
    }

    fn parse_chain_repeat(&mut self, entry: &TableEntry) -> Option<ChainRepeatSpec> {
        let mut fields = Fields::new(self, entry, "from")?;
        let from = fields.parse("from", Diagnostics::text);
        let until: Option<ChainRepeatEndCondition> = fields.parse("until", Diagnostics::one_of);
        let max = fields.parse("max", integer(1));
        for key in ["from", "max"] {
            if fields.get(key).is_none() {
                let message = format!("`repeat` needs `{key}`");
                fields.diagnostics.report_invalid(entry.node.position, message);
            }
        }
        Some(ChainRepeatSpec { from: from?, until: until.unwrap_or_default(), max: max? })
    }
}

/// Returns the position of a field of a step, or of the step if it does not have the field.
fn step_field_position(step: &TableEntry, field: Option<&str>) -> Position {
    let find = |entry: &TableEntry, key: &str| {
        let entries = entry.node.as_table().unwrap_or_default();
        entries.iter().find(|entry| entry.key == key).cloned()
    };
    let field_entry = field.and_then(|field| {
        let in_repeat = || find(&find(step, "repeat")?, field);
        find(step, field).or_else(in_repeat)
    });
    field_entry.map_or(step.position, |entry| entry.node.position)
}
