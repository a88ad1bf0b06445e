//! Puts the layers on each other: flag over environment over project file over
//! user file over default.
//!
//! Never: stops at the first fault.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use longhaul_core::suggest;

use crate::config::cross_checks;
use crate::config::dotenv;
use crate::config::env::Env;
use crate::config::error::{ConfigError, ErrorLocation, SettingError};
use crate::config::layer::{self, FileOwner};
use crate::config::path_checks;
use crate::config::process_env::{CONFIG_FILE_NAME, ProcessEnv};
use crate::config::schema::{self, PathLookup, SECRETS_KEY, SETTING_KEYS, TRUST_FOLDERS_KEY};
use crate::config::settings::Config;
use crate::config::value::{Origin, Setting, Value};
use crate::config::value_kind::ValueKind;
use crate::spanned::{escape_line, toml};
use crate::trust::TRUST_VAR;

/// A setting that a flag of the command line makes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Flag {
    /// The flag, such as `--store`.
    pub name: String,
    /// The path of the key that it sets.
    pub key: String,
    /// What was written behind it.
    pub value: String,
}

/// So many slips of the fingers make another variable of one of ours.
const TYPO_DISTANCE_MAX: usize = 2;

/// Loads everything that is said here.
///
/// # Errors
/// Every fault of every file, variable and flag.
pub fn load(here: &ProcessEnv, flags: &[Flag]) -> Result<Config, ConfigError> {
    let mut pile = Loader::default();
    pile.add_defaults();
    let user_file = here.user_file();
    if let Some(path) = &user_file {
        pile.add_file(here, path, FileOwner::User);
    }
    let project = here.project_root().map(Path::to_path_buf);
    let root = project.clone().unwrap_or_else(|| here.cwd.clone());
    if let Some(fault) = foreign_owner_error(here, &root, &pile) {
        return Err(ConfigError { errors: vec![fault] });
    }
    // A home that is a project must not be read twice under two names.
    let project_file = project.as_ref().map(|root| root.join(CONFIG_FILE_NAME));
    if let Some(path) = project_file.as_ref().filter(|path| Some(*path) != user_file.as_ref()) {
        pile.add_file(here, path, FileOwner::Project);
    }
    pile.add_environment(here);
    pile.add_flags(flags);
    // What is wrong in itself would only look incomplete.
    if pile.errors.is_empty() {
        pile.errors = cross_checks::check(&pile.settings);
    }
    if !pile.errors.is_empty() {
        return Err(ConfigError { errors: pile.errors });
    }
    let config = Config {
        in_project: project.is_some(),
        project_file: project_file.filter(|path| path.is_file()),
        user_file,
        state_folder: here.state_folder(),
        settings: pile.settings,
        env: Env::new(here).with_dotenv_secrets(dotenv::load(&root).unwrap_or_default().values),
        notes: unused_variable_notes(here),
        root,
    };
    match path_checks::check(&config) {
        faults if faults.is_empty() => Ok(config),
        faults => Err(ConfigError { errors: faults }),
    }
}

/// Loads what holds for a program without a project: the defaults and the environment. No file
/// is read.
///
/// # Errors
/// Every fault of every variable.
pub fn load_environment(here: &ProcessEnv) -> Result<Config, ConfigError> {
    let mut pile = Loader::default();
    pile.add_defaults();
    pile.add_environment(here);
    if pile.errors.is_empty() {
        pile.errors = cross_checks::check(&pile.settings);
    }
    match pile.errors {
        faults if faults.is_empty() => Ok(Config {
            root: here.cwd.clone(),
            in_project: false,
            project_file: None,
            user_file: None,
            state_folder: None,
            settings: pile.settings,
            env: Env::new(here),
            notes: unused_variable_notes(here),
        }),
        faults => Err(ConfigError { errors: faults }),
    }
}

/// The fault of a project that belongs to another user: its settings and agents would act as the
/// user who runs this command.
fn foreign_owner_error(here: &ProcessEnv, root: &Path, pile: &Loader) -> Option<SettingError> {
    let owner = here.foreign_owner(root)?;
    let variable = |name: &str| here.var(name).filter(|_| !here.from_dotenv.contains(name));
    let named = pile.settings.get(TRUST_FOLDERS_KEY);
    let mut folders = named.map(|setting| setting.value.texts()).unwrap_or_default();
    let listed = variable("LONGHAUL_TRUST_FOLDERS");
    folders.extend(
        listed
            .and_then(|words| ValueKind::TextList.parse_text(words).ok())
            .into_iter()
            .flat_map(|value| value.texts()),
    );
    if variable(TRUST_VAR) == Some("1") || folders.iter().any(|folder| Path::new(folder) == root) {
        return None;
    }
    let said = match here.display_path(root) {
        said if said.as_os_str().is_empty() => PathBuf::from("."),
        said => said,
    };
    let root = escape_line(&root.display().to_string());
    Some(SettingError {
        location: ErrorLocation::File(said, None),
        message: format!(
            "this folder belongs to another user (uid {owner}), so nothing of it is used. If you \
             trust that user, add `[trust] folders = [\"{root}\"]` to your own file (`longhaul \
             config path` says where that is), or set LONGHAUL_TRUST_FOLDERS='{root}'. Else work in \
             a folder of your own"
        ),
    })
}

#[derive(Default)]
struct Loader {
    settings: BTreeMap<String, Setting>,
    errors: Vec<SettingError>,
}

impl Loader {
    fn add_defaults(&mut self) {
        for key in SETTING_KEYS {
            let Some(text) = key.default else { continue };
            let read = toml::parse_value(text).map_err(|fault| fault.message);
            let read = read.and_then(|node| key.kind.parse(&node));
            self.add_parsed(key.path, Origin::Default, read);
        }
    }

    /// Sets what was read, or notes why it can't be.
    fn add_parsed(&mut self, path: &str, origin: Origin, read: Result<Value, String>) {
        match read {
            Ok(value) => self.set(path, Setting { value, origin }),
            Err(message) => self
                .errors
                .push(SettingError { location: cross_checks::error_location(&origin), message }),
        }
    }

    /// Puts a setting over the one that is there. Names of secrets only grow more:
    /// nobody can take out what another wants hidden.
    fn set(&mut self, path: &str, setting: Setting) {
        let setting = match self.settings.remove(path) {
            Some(before) if path == SECRETS_KEY => before.merge(setting),
            Some(_) | None => setting,
        };
        self.settings.insert(path.to_owned(), setting);
    }

    fn add_file(&mut self, here: &ProcessEnv, path: &Path, owner: FileOwner) {
        let said = here.display_path(path);
        let Some(layer) = layer::load(path, &said, owner) else {
            return;
        };
        self.errors.extend(layer.errors);
        for (path, (value, line)) in layer.values {
            let origin = match owner {
                FileOwner::User => Origin::UserFile(said.clone(), line),
                FileOwner::Project => Origin::ProjectFile(said.clone(), line),
            };
            self.set(&path, Setting { value, origin });
        }
    }

    fn add_environment(&mut self, here: &ProcessEnv) {
        for key in SETTING_KEYS {
            let Some(name) = key.env_name() else { continue };
            let Some(words) = here.var(&name) else {
                continue;
            };
            let origin = match here.from_dotenv.contains(&name) {
                true => Origin::Dotenv(name),
                false => Origin::Environment(name),
            };
            self.add_parsed(key.path, origin, key.kind.parse_text(words));
        }
    }

    fn add_flags(&mut self, flags: &[Flag]) {
        for flag in flags {
            let path: Vec<&str> = flag.key.split('.').collect();
            let read = match schema::lookup(&path) {
                PathLookup::Key(key) => key.kind.parse_text(&flag.value),
                PathLookup::Table | PathLookup::Unknown => {
                    let known: Vec<&str> = SETTING_KEYS.iter().map(|key| key.path).collect();
                    Err(suggest::unknown_message("key", &flag.key, &known))
                }
            };
            self.add_parsed(&flag.key, Origin::Flag(flag.name.clone()), read);
        }
    }
}

/// Variables that were meant for a setting and set nothing. Others begin like
/// ours too, and are left alone.
fn unused_variable_notes(here: &ProcessEnv) -> Vec<String> {
    let names: Vec<(String, String)> = SETTING_KEYS
        .iter()
        .filter_map(|key| Some((key.env_name()?, key.derived_env_name()?)))
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
        (slips(&near) <= TYPO_DISTANCE_MAX)
            .then(|| format!("{name} sets nothing, did you mean {meant}?"))
    });
    notes.collect()
}
