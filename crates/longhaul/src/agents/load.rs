//! Loads every agent there is: the project's files over those built in.
//!
//! Never: lets a broken file stop the others, and never puts a built-in agent
//! in the place of a broken file of the same name.

use std::collections::BTreeMap;
use std::io::Read as _;
use std::path::{Path, PathBuf};

use longhaul_core::id::AgentName;
use longhaul_engine::agent::{Agent, Roster};

use crate::agents::cut::{BODY_BYTES_MAX, FRONT_BYTES_MAX};
use crate::agents::front;
use crate::agents::problem::{Problem, ProblemKind};
use crate::agents::sheet::Sheet;
use crate::like;
use crate::written::Place;

/// An agent that ships with the binary.
#[derive(Debug, Clone, Copy)]
pub struct BuiltIn {
    /// Its name.
    pub name: &'static str,
    /// Its file.
    pub text: &'static str,
}

/// The agents that ship with this build, as files under `crates/longhaul/agents/`:
/// `BuiltIn { name: "plan", text: include_str!("../../agents/plan.md") }`.
pub const BUILT_IN: &[BuiltIn] = &[];

/// Where to look, and what may be named.
#[derive(Debug, Clone, Copy)]
pub struct Shelf<'a> {
    /// The project's folder with agents.
    pub folder: &'a Path,
    /// The same folder as it is said to people.
    pub said: &'a Path,
    /// What ships with the binary.
    pub built_in: &'a [BuiltIn],
    /// The names of the tools that exist.
    pub tools: &'a [&'a str],
}

/// Where an agent comes from, the strongest first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Source {
    /// The project's `agents/`.
    Project,
    /// The binary.
    BuiltIn,
}

impl Source {
    /// The source's name.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Project => "project",
            Self::BuiltIn => "built-in",
        }
    }
}

/// An agent that can be used.
#[derive(Debug, Clone, PartialEq)]
pub struct LoadedAgent {
    /// What the file says.
    pub agent: Agent,
    /// The file.
    pub path: PathBuf,
    /// Where it comes from.
    pub source: Source,
}

/// An agent that can't be used; the problems of its file say why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Broken {
    /// Its name.
    pub name: String,
    /// The file.
    pub path: PathBuf,
    /// Where it comes from.
    pub source: Source,
}

/// An agent that nobody gets, since a stronger one has its name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hidden {
    /// Its name.
    pub name: String,
    /// Its file.
    pub path: PathBuf,
    /// Where it comes from.
    pub source: Source,
    /// The file that hides it.
    pub by: PathBuf,
}

/// All agents, by name.
#[derive(Debug, Clone, Default)]
pub struct Loaded {
    /// Those that can be used.
    pub agents: Vec<LoadedAgent>,
    /// Those that can't.
    pub broken: Vec<Broken>,
    /// Every problem of every file.
    pub problems: Vec<Problem>,
    /// Those that are hidden by others.
    pub hidden: Vec<Hidden>,
}

/// Why an agent can't be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AgentError {
    /// There is none of this name.
    #[error("{0}")]
    Unknown(String),
    /// Its file has problems.
    #[error("the agent `{name}` can't be used:\n{}", .problems.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"))]
    Broken {
        /// Its name.
        name: String,
        /// What is wrong.
        problems: Vec<Problem>,
    },
}

impl Loaded {
    /// The agent of this name, or why it can't be used.
    pub fn find(&self, name: &str) -> Result<&LoadedAgent, AgentError> {
        let found = self
            .agents
            .iter()
            .find(|one| one.agent.name.as_str() == name);
        found.ok_or_else(|| match self.broken.iter().find(|one| one.name == name) {
            Some(broken) => AgentError::Broken {
                name: name.to_owned(),
                problems: self.problems_of(&broken.path).cloned().collect(),
            },
            None => AgentError::Unknown(like::unknown("agent", name, &self.names())),
        })
    }

    /// What is wrong with a file.
    pub fn problems_of<'a>(&'a self, path: &'a Path) -> impl Iterator<Item = &'a Problem> {
        self.problems
            .iter()
            .filter(move |problem| problem.path == path)
    }

    /// The agents that can be used, as the engine takes them.
    pub fn roster(&self) -> Roster {
        let mut roster = Roster::default();
        for one in &self.agents {
            roster.register(one.agent.clone());
        }
        roster
    }

    fn names(&self) -> Vec<&str> {
        let usable = self.agents.iter().map(|one| one.agent.name.as_str());
        let broken = self.broken.iter().map(|one| one.name.as_str());
        usable.chain(broken).collect()
    }
}

/// Loads all that is on the shelf.
pub fn load(shelf: &Shelf<'_>) -> Loaded {
    let mut loaded = Loaded::default();
    // Who has which name, by its file.
    let mut taken: BTreeMap<String, PathBuf> = BTreeMap::new();
    let (files, problem) = files(shelf);
    loaded.problems.extend(problem);
    for file in files {
        let bytes = bytes(&shelf.folder.join(format!("{}.md", file.stem)));
        taken.insert(file.stem.clone(), file.path.clone());
        take(&mut loaded, file, bytes, shelf.tools);
    }
    for built_in in shelf.built_in {
        let file = File {
            stem: built_in.name.to_owned(),
            path: PathBuf::from(format!("built-in/{}.md", built_in.name)),
            source: Source::BuiltIn,
        };
        match taken.get(built_in.name) {
            None => take(&mut loaded, file, Ok(built_in.text.into()), shelf.tools),
            Some(by) => loaded.hidden.push(Hidden {
                name: file.stem,
                path: file.path,
                source: file.source,
                by: by.clone(),
            }),
        }
    }
    loaded
        .agents
        .sort_by(|a, b| a.agent.name.cmp(&b.agent.name));
    loaded.broken.sort_by(|a, b| a.name.cmp(&b.name));
    loaded
}

#[derive(Debug)]
struct File {
    stem: String,
    path: PathBuf,
    source: Source,
}

fn take(loaded: &mut Loaded, file: File, bytes: Result<Vec<u8>, String>, tools: &[&str]) {
    let mut sheet = Sheet::default();
    let agent = match (bytes, name(&file.stem)) {
        (Ok(bytes), Ok(name)) => Some(front::read(&mut sheet, &name, &bytes, tools)),
        (Err(message), _) | (Ok(_), Err(message)) => {
            sheet.fault(Place::START, message);
            None
        }
    };
    sheet.found.sort_by_key(|found| found.place);
    if let Some(agent) = agent.filter(|_| sheet.found.is_empty()) {
        loaded.agents.push(LoadedAgent {
            agent,
            path: file.path,
            source: file.source,
        });
        return;
    }
    loaded
        .problems
        .extend(sheet.found.into_iter().map(|found| Problem {
            path: file.path.clone(),
            line: found.place.line,
            column: found.place.column,
            message: found.message,
            kind: found.kind,
        }));
    loaded.broken.push(Broken {
        name: file.stem,
        path: file.path,
        source: file.source,
    });
}

/// A name that needs no quotes in a shell, an address or a file.
fn name(stem: &str) -> Result<AgentName, String> {
    let fits = |c: char| c.is_alphanumeric() || matches!(c, '-' | '_' | '.');
    let right = stem.chars().all(fits) && stem.starts_with(char::is_alphanumeric);
    let name = AgentName::new(stem).ok().filter(|_| right);
    name.ok_or_else(|| {
        format!("`{stem}` is no name for an agent: use letters, digits, `-`, `_` and `.`")
    })
}

/// The project's files, by name, and why they can't be listed. Hidden files and
/// what does not end in `.md` are none of ours.
fn files(shelf: &Shelf<'_>) -> (Vec<File>, Option<Problem>) {
    let problem = |error: &std::io::Error| Problem {
        path: shelf.said.to_path_buf(),
        line: 1,
        column: 1,
        message: format!("the folder can't be read: {error}"),
        kind: ProblemKind::Fault,
    };
    let entries = match std::fs::read_dir(shelf.folder) {
        Ok(entries) => entries,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return (Vec::new(), None),
        Err(error) => return (Vec::new(), Some(problem(&error))),
    };
    let mut files = Vec::new();
    let mut failed = None;
    for entry in entries {
        match entry {
            Ok(entry) => {
                let name = entry.file_name();
                let name = name.to_string_lossy();
                let stem = name
                    .strip_suffix(".md")
                    .filter(|stem| !stem.starts_with('.'));
                if let Some(stem) = stem.filter(|stem| !stem.is_empty()) {
                    files.push(File {
                        stem: stem.to_owned(),
                        path: shelf.said.join(name.as_ref()),
                        source: Source::Project,
                    });
                }
            }
            Err(error) => failed = Some(problem(&error)),
        }
    }
    files.sort_by(|a, b| a.stem.cmp(&b.stem));
    (files, failed)
}

fn bytes(path: &Path) -> Result<Vec<u8>, String> {
    let said = |error: std::io::Error| format!("can't be read: {error}");
    // A pipe of that name would be waited for without end.
    if !std::fs::metadata(path).map_err(said)?.is_file() {
        return Err("is no file".to_owned());
    }
    // Line ends of two bytes and the fences come on top; the exact caps are the cutter's.
    let most = 2 * (FRONT_BYTES_MAX + BODY_BYTES_MAX) as u64;
    let mut bytes = Vec::new();
    let file = std::fs::File::open(path).map_err(said)?;
    file.take(most + 1).read_to_end(&mut bytes).map_err(said)?;
    if bytes.len() as u64 > most {
        return Err(format!(
            "is too long: {FRONT_BYTES_MAX} bytes of front matter and {BODY_BYTES_MAX} of prompt at most"
        ));
    }
    Ok(bytes)
}
