//! Loads every agent there is: the project's files over Claude's over those built in.
//!
//! Never: lets a broken file stop the others, and never puts a weaker agent in
//! the place of a broken file of the same name.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use longhaul_engine::agent::Agent;

use crate::agents::claude;
use crate::agents::files::{self, File};
use crate::agents::front;
use crate::agents::house;
use crate::agents::loaded::{Broken, Hidden, Loaded, LoadedAgent, Source};
use crate::agents::problem::Problem;
use crate::agents::sheet::{Found, Sheet};
use crate::agents::shelf::Shelf;
use crate::written::Place;

/// The project's own agents.
pub const OWN: &str = "agents";

/// Those that Claude Code reads.
pub const CLAUDE: &str = ".claude/agents";

/// Loads all that is on the shelf.
pub fn load(shelf: &Shelf<'_>) -> Loaded {
    let mut loading = Loading::new(shelf);
    for (place, source) in [(OWN, Source::Project), (CLAUDE, Source::Claude)] {
        let folder = shelf.root.join(place);
        let listed = files::list(&folder, &shelf.said.join(place), source);
        loading.loaded.problems.extend(listed.problems);
        loading.loaded.notes.extend(listed.notes);
        for (at, file) in listed.files {
            loading.take(file, files::bytes(shelf.root, &at));
        }
    }
    for built_in in shelf.built_in {
        let file = File {
            stem: built_in.name.to_owned(),
            path: PathBuf::from(format!("built-in/{}.md", built_in.name)),
            source: Source::BuiltIn,
        };
        loading.take(file, Ok(built_in.file.into()));
    }
    loading.done()
}

/// Where the files of a project's agents are.
pub fn places(root: &Path) -> Vec<PathBuf> {
    let folders = [(OWN, Source::Project), (CLAUDE, Source::Claude)];
    let listed = folders.map(|(place, source)| files::list(&root.join(place), root, source));
    let files = listed.into_iter().flat_map(|listed| listed.files);
    files.map(|(at, _)| at).collect()
}

/// What is wrong with this text as the file of a project's agent, if anything is.
pub fn try_text(shelf: &Shelf<'_>, name: &str, text: &str) -> Vec<Problem> {
    let file = File {
        stem: name.to_owned(),
        path: shelf.said.join(OWN).join(format!("{name}.md")),
        source: Source::Project,
    };
    let mut loading = Loading::new(shelf);
    loading.take(file, Ok(text.into()));
    loading.done().problems
}

struct Loading<'a> {
    shelf: &'a Shelf<'a>,
    loaded: Loaded,
    /// The project's rules; none: they can't be read.
    rules: Option<String>,
    /// Who has which name, by its file.
    taken: BTreeMap<String, PathBuf>,
}

impl<'a> Loading<'a> {
    fn new(shelf: &'a Shelf<'a>) -> Self {
        let mut loaded = Loaded::default();
        let rules = match house::rules(shelf) {
            Ok(rules) => Some(rules),
            Err(problem) => {
                loaded.rules = Some(problem.path.clone());
                loaded.problems.push(problem);
                None
            }
        };
        Self {
            shelf,
            loaded,
            rules,
            taken: BTreeMap::new(),
        }
    }

    fn done(mut self) -> Loaded {
        let loaded = &mut self.loaded;
        loaded
            .agents
            .sort_by(|a, b| a.agent.name.cmp(&b.agent.name));
        loaded.broken.sort_by(|a, b| a.name.cmp(&b.name));
        loaded.files.sort();
        loaded.files.dedup();
        self.loaded
    }

    /// Reads a file, unless a stronger one has its name.
    fn take(&mut self, file: File, bytes: Result<Vec<u8>, String>) {
        let mut sheet = Sheet::default();
        let (name, agent) = match bytes {
            Ok(bytes) => match self.read(&mut sheet, &file, &bytes) {
                Some(read) => read,
                None => {
                    let notes = sheet.notes.into_iter();
                    let notes = notes.map(|note| (file.path.clone(), note));
                    return self.loaded.notes.extend(notes);
                }
            },
            Err(message) => {
                sheet.fault(Place::START, message);
                (file.stem.clone(), None)
            }
        };
        if let Some(by) = self.taken.get(&name) {
            return self.loaded.hidden.push(Hidden {
                name,
                path: file.path,
                source: file.source,
                by: by.clone(),
            });
        }
        self.taken.insert(name.clone(), file.path.clone());
        self.loaded.files.append(&mut sheet.files);
        self.put(file, name, agent, sheet);
    }

    /// The name of a file's agent, and the agent as far as it can be read; nothing
    /// where the file is no agent at all.
    fn read(
        &self,
        sheet: &mut Sheet,
        file: &File,
        bytes: &[u8],
    ) -> Option<(String, Option<Agent>)> {
        if file.source == Source::Claude {
            let agent = claude::read(sheet, &file.stem, bytes, self.shelf)?;
            let name = agent.as_ref().map(|agent| agent.name.to_string());
            return Some((name.unwrap_or_else(|| file.stem.clone()), agent));
        }
        let agent = match files::name(&file.stem) {
            Ok(name) => Some(front::read(sheet, &name, bytes, self.shelf)),
            Err(message) => {
                sheet.fault(Place::START, message);
                None
            }
        };
        Some((file.stem.clone(), agent))
    }

    fn put(&mut self, file: File, name: String, agent: Option<Agent>, mut sheet: Sheet) {
        sheet.found.sort_by_key(|found| found.place);
        let problem = |found: Found| found.problem(&file.path);
        self.loaded
            .lacks
            .extend(sheet.lacks.into_iter().map(problem));
        let sound = agent.filter(|_| sheet.found.is_empty());
        if let (Some(agent), Some(rules)) = (sound, &self.rules) {
            return self.loaded.agents.push(LoadedAgent {
                agent: Agent {
                    house_rules: rules.clone(),
                    ..agent
                },
                path: file.path.clone(),
                source: file.source,
                notes: sheet.notes,
            });
        }
        self.loaded
            .problems
            .extend(sheet.found.into_iter().map(problem));
        self.loaded.broken.push(Broken {
            name,
            path: file.path,
            source: file.source,
        });
    }
}
