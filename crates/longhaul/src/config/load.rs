//! Puts the layers on each other: flag over environment over project file over
//! user file over default.
//!
//! Never: stops at the first fault.

use std::collections::BTreeMap;
use std::path::Path;

use crate::config::fault::{ConfigError, Fault, Spot};
use crate::config::key::{self, Found, KEYS};
use crate::config::layer;
use crate::config::settings::Config;
use crate::config::surroundings::{FILE_NAME, Surroundings};
use crate::config::value::{Origin, Setting};
use crate::like;
use crate::written::toml;

/// A setting that a flag of the command line makes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Flag {
    /// The flag, such as `--store`.
    pub name: String,
    /// The path of the key that it sets.
    pub key: String,
    /// What was written behind it.
    pub words: String,
}

/// Variables of ours that are no settings, by their beginnings.
const OTHER_NAMES: &[&str] = &["LONGHAUL_TRUST", "LONGHAUL_TEST", "LONGHAUL_PROVE"];

/// Loads everything that is said here.
pub fn load(here: &Surroundings, flags: &[Flag]) -> Result<Config, ConfigError> {
    let mut pile = Pile::default();
    pile.defaults();
    let user_file = here.user_file();
    if let Some(path) = &user_file {
        pile.file(here, path, Origin::UserFile);
    }
    let project = here.project().map(Path::to_path_buf);
    // A home that is a project must not be read twice under two names.
    let project_file = project.as_ref().map(|root| root.join(FILE_NAME));
    if let Some(path) = project_file
        .as_ref()
        .filter(|path| Some(*path) != user_file.as_ref())
    {
        pile.file(here, path, Origin::ProjectFile);
    }
    pile.environment(here);
    pile.flags(flags);
    if !pile.faults.is_empty() {
        return Err(ConfigError {
            faults: pile.faults,
        });
    }
    Ok(Config {
        root: project.clone().unwrap_or_else(|| here.cwd.clone()),
        in_project: project.is_some(),
        project_file: project_file.filter(|path| path.is_file()),
        user_file,
        settings: pile.settings,
        notes: notes(here),
    })
}

#[derive(Default)]
struct Pile {
    settings: BTreeMap<String, Setting>,
    faults: Vec<Fault>,
}

impl Pile {
    fn defaults(&mut self) {
        for key in KEYS {
            let Some(text) = key.default else { continue };
            let read = toml::read_value(text).map_err(|fault| fault.message);
            match read.and_then(|node| key.kind.read(&node)) {
                Ok(value) => {
                    let origin = Origin::Default;
                    self.settings
                        .insert(key.path.to_owned(), Setting { value, origin });
                }
                Err(message) => self.faults.push(Fault {
                    spot: Spot::Default(key.path),
                    message,
                }),
            }
        }
    }

    fn file(
        &mut self,
        here: &Surroundings,
        path: &Path,
        origin: fn(std::path::PathBuf, usize) -> Origin,
    ) {
        let said = here.said(path);
        let Some(layer) = layer::read(path, &said) else {
            return;
        };
        self.faults.extend(layer.faults);
        for list in layer.lists {
            let below = format!("{list}.");
            self.settings.retain(|path, _| !path.starts_with(&below));
        }
        for (path, (value, line)) in layer.values {
            let origin = origin(said.clone(), line);
            self.settings.insert(path, Setting { value, origin });
        }
    }

    fn environment(&mut self, here: &Surroundings) {
        for key in KEYS {
            let Some(name) = key.env() else { continue };
            let Some(words) = here.var(&name) else {
                continue;
            };
            match key.kind.read_words(words) {
                Ok(value) => {
                    let origin = Origin::Environment(name);
                    self.settings
                        .insert(key.path.to_owned(), Setting { value, origin });
                }
                Err(message) => self.faults.push(Fault {
                    spot: Spot::Environment(name),
                    message,
                }),
            }
        }
    }

    fn flags(&mut self, flags: &[Flag]) {
        for flag in flags {
            let path: Vec<&str> = flag.key.split('.').collect();
            let read = match key::find(&path) {
                Found::Key(key) => key.kind.read_words(&flag.words),
                Found::Table | Found::Tables | Found::Unknown => {
                    let known: Vec<&str> = KEYS.iter().map(|key| key.path).collect();
                    Err(like::unknown("key", &flag.key, &known))
                }
            };
            match read {
                Ok(value) => {
                    let origin = Origin::Flag(flag.name.clone());
                    self.settings
                        .insert(flag.key.clone(), Setting { value, origin });
                }
                Err(message) => self.faults.push(Fault {
                    spot: Spot::Flag(flag.name.clone()),
                    message,
                }),
            }
        }
    }
}

/// Variables that look like ours and set nothing.
fn notes(here: &Surroundings) -> Vec<String> {
    let known: Vec<String> = KEYS.iter().filter_map(key::Key::env).collect();
    let known: Vec<&str> = known.iter().map(String::as_str).collect();
    let ours = here.env.keys().filter(|name| {
        let other = OTHER_NAMES.iter().any(|other| name.starts_with(other));
        name.starts_with("LONGHAUL_") && !known.contains(&name.as_str()) && !other
    });
    let notes = ours.map(|name| {
        let word = name.trim_start_matches("LONGHAUL_");
        let words = known
            .iter()
            .map(|name| name.trim_start_matches("LONGHAUL_"));
        let near = like::nearest(word, words);
        let near = near.map(|near| format!(", did you mean LONGHAUL_{near}?"));
        format!("{name} sets nothing{}", near.unwrap_or_default())
    });
    notes.collect()
}
