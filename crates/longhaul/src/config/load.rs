//! Puts the layers on each other: flag over environment over project file over
//! user file over default.
//!
//! Never: stops at the first fault.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use longhaul_core::suggest;

use crate::config::confine;
use crate::config::dotenv;
use crate::config::env::Env;
use crate::config::fault::{ConfigError, Fault, Spot};
use crate::config::key::{self, Found, KEYS, SECRETS, TRUST_FOLDERS};
use crate::config::kind::Kind;
use crate::config::layer::{self, Owner};
use crate::config::settings::Config;
use crate::config::surroundings::{FILE_NAME, Surroundings};
use crate::config::value::{Origin, Setting, Value};
use crate::config::whole;
use crate::trust::VARIABLE;
use crate::written::{plain_line, toml};

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

/// So many slips of the fingers make another variable of one of ours.
const SLIPS_MAX: usize = 2;

/// Loads everything that is said here.
///
/// # Errors
/// Every fault of every file, variable and flag.
pub fn load(here: &Surroundings, flags: &[Flag]) -> Result<Config, ConfigError> {
    let mut pile = Pile::default();
    pile.defaults();
    let user_file = here.user_file();
    if let Some(path) = &user_file {
        pile.file(here, path, Owner::User);
    }
    let project = here.project().map(Path::to_path_buf);
    let root = project.clone().unwrap_or_else(|| here.cwd.clone());
    if let Some(fault) = foreign(here, &root, &pile) {
        return Err(ConfigError {
            faults: vec![fault],
        });
    }
    // A home that is a project must not be read twice under two names.
    let project_file = project.as_ref().map(|root| root.join(FILE_NAME));
    if let Some(path) = project_file
        .as_ref()
        .filter(|path| Some(*path) != user_file.as_ref())
    {
        pile.file(here, path, Owner::Project);
    }
    pile.environment(here);
    pile.flags(flags);
    // What is wrong in itself would only look incomplete.
    if pile.faults.is_empty() {
        pile.faults = whole::faults(&pile.settings);
    }
    if !pile.faults.is_empty() {
        return Err(ConfigError {
            faults: pile.faults,
        });
    }
    let config = Config {
        in_project: project.is_some(),
        project_file: project_file.filter(|path| path.is_file()),
        user_file,
        state: here.state_folder(),
        settings: pile.settings,
        env: Env::of(here).hiding(dotenv::read(&root).unwrap_or_default().values),
        notes: notes(here),
        root,
    };
    match confine::faults(&config) {
        faults if faults.is_empty() => Ok(config),
        faults => Err(ConfigError { faults }),
    }
}

/// Loads what holds for a program without a project: the defaults and the environment. No file
/// is read.
///
/// # Errors
/// Every fault of every variable.
pub fn load_environment(here: &Surroundings) -> Result<Config, ConfigError> {
    let mut pile = Pile::default();
    pile.defaults();
    pile.environment(here);
    if pile.faults.is_empty() {
        pile.faults = whole::faults(&pile.settings);
    }
    match pile.faults {
        faults if faults.is_empty() => Ok(Config {
            root: here.cwd.clone(),
            in_project: false,
            project_file: None,
            user_file: None,
            state: None,
            settings: pile.settings,
            env: Env::of(here),
            notes: notes(here),
        }),
        faults => Err(ConfigError { faults }),
    }
}

/// The fault of a project that belongs to another user: its settings and agents would act as the
/// user who runs this command.
fn foreign(here: &Surroundings, root: &Path, pile: &Pile) -> Option<Fault> {
    let owner = here.foreign_owner(root)?;
    let variable = |name: &str| here.var(name).filter(|_| !here.filed.contains(name));
    let named = pile.settings.get(TRUST_FOLDERS);
    let mut folders = named
        .map(|setting| setting.value.words())
        .unwrap_or_default();
    let listed = variable("LONGHAUL_TRUST_FOLDERS");
    folders.extend(
        listed
            .and_then(|words| Kind::Texts.read_words(words).ok())
            .into_iter()
            .flat_map(|value| value.words()),
    );
    if variable(VARIABLE) == Some("1") || folders.iter().any(|folder| Path::new(folder) == root) {
        return None;
    }
    let said = match here.said(root) {
        said if said.as_os_str().is_empty() => PathBuf::from("."),
        said => said,
    };
    let root = plain_line(&root.display().to_string());
    Some(Fault {
        spot: Spot::File(said, None),
        message: format!(
            "this folder belongs to another user (uid {owner}), so nothing of it is used. If you \
             trust that user, add `[trust] folders = [\"{root}\"]` to your own file (`longhaul \
             config path` says where that is), or set LONGHAUL_TRUST_FOLDERS='{root}'. Else work in \
             a folder of your own"
        ),
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
            let read = read.and_then(|node| key.kind.read(&node));
            self.put(key.path, Origin::Default, read);
        }
    }

    /// Sets what was read, or notes why it can't be.
    fn put(&mut self, path: &str, origin: Origin, read: Result<Value, String>) {
        match read {
            Ok(value) => self.set(path, Setting { value, origin }),
            Err(message) => self.faults.push(Fault {
                spot: whole::spot(&origin),
                message,
            }),
        }
    }

    /// Puts a setting over the one that is there. Names of secrets only grow more:
    /// nobody can take out what another wants hidden.
    fn set(&mut self, path: &str, setting: Setting) {
        let setting = match self.settings.remove(path) {
            Some(before) if path == SECRETS => before.and(setting),
            Some(_) | None => setting,
        };
        self.settings.insert(path.to_owned(), setting);
    }

    fn file(&mut self, here: &Surroundings, path: &Path, owner: Owner) {
        let said = here.said(path);
        let Some(layer) = layer::read(path, &said, owner) else {
            return;
        };
        self.faults.extend(layer.faults);
        for (path, (value, line)) in layer.values {
            let origin = match owner {
                Owner::User => Origin::UserFile(said.clone(), line),
                Owner::Project => Origin::ProjectFile(said.clone(), line),
            };
            self.set(&path, Setting { value, origin });
        }
    }

    fn environment(&mut self, here: &Surroundings) {
        for key in KEYS {
            let Some(name) = key.env() else { continue };
            let Some(words) = here.var(&name) else {
                continue;
            };
            let origin = match here.filed.contains(&name) {
                true => Origin::EnvFile(name),
                false => Origin::Environment(name),
            };
            self.put(key.path, origin, key.kind.read_words(words));
        }
    }

    fn flags(&mut self, flags: &[Flag]) {
        for flag in flags {
            let path: Vec<&str> = flag.key.split('.').collect();
            let read = match key::find(&path) {
                Found::Key(key) => key.kind.read_words(&flag.words),
                Found::Table | Found::Unknown => {
                    let known: Vec<&str> = KEYS.iter().map(|key| key.path).collect();
                    Err(suggest::unknown("key", &flag.key, &known))
                }
            };
            self.put(&flag.key, Origin::Flag(flag.name.clone()), read);
        }
    }
}

/// Variables that were meant for a setting and set nothing. Others begin like
/// ours too, and are left alone.
fn notes(here: &Surroundings) -> Vec<String> {
    let names: Vec<(String, String)> = KEYS
        .iter()
        .filter_map(|key| Some((key.env()?, key.made_env()?)))
        .collect();
    let strange = here.env.keys().filter(|name| {
        name.starts_with("LONGHAUL_") && !names.iter().any(|(known, _)| known == *name)
    });
    let notes = strange.filter_map(|name| {
        let slips = |(known, made): &&(String, String)| {
            strsim::osa_distance(name, known).min(strsim::osa_distance(name, made))
        };
        let near = names.iter().min_by_key(slips)?;
        let (meant, _) = near;
        (slips(&near) <= SLIPS_MAX).then(|| format!("{name} sets nothing, did you mean {meant}?"))
    });
    notes.collect()
}
