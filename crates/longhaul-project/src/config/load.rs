//! Merges the layers of the configuration. From highest to lowest precedence: flags, environment,
//! project file, user file, defaults. All errors are collected, and unknown keys are errors.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use longhaul_core::suggest;

use crate::config::env::Env;
use crate::config::error::{ConfigError, SettingError};
use crate::config::process_env::{CONFIG_FILE_NAME, ProcessEnv};
use crate::config::schema::{
    self, SECRETS_KEY, SETTING_KEYS, SettingKey, SettingPathKind, TRUST_FOLDERS_KEY,
};
use crate::config::settings::Config;
use crate::config::value::{Setting, SettingOrigin, SettingValue};
use crate::config::value_kind::SettingValueKind;
use crate::config::{cross_checks, dotenv, path_checks};
use crate::project_file::{self, ProjectFileError};
use crate::spanned::{Node, ParseError, Position, escape_to_one_line, toml};
use crate::trust::TRUST_VAR;

/// A command-line flag that sets a setting.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SettingOverride {
    /// Name of the flag, such as `--store`.
    pub name: String,
    /// Path of the setting, such as `store.url`.
    pub setting_path: String,
    /// Value of the setting, as text.
    pub value: String,
}

/// Maximum edit distance at which an unknown variable is considered a misspelled setting.
const TYPO_DISTANCE_MAX: usize = 2;

/// Loads the configuration from files, environment variables and flags.
///
/// # Errors
/// Some settings are invalid. The error lists those of all files, variables and flags.
pub fn load(process_env: &ProcessEnv, flags: &[SettingOverride]) -> Result<Config, ConfigError> {
    let mut loader = ConfigLoader::default();
    loader.add_default_settings();
    let user_file = process_env.user_config_file();
    if let Some(path) = &user_file {
        loader.add_config_file(process_env, path, ConfigFileScope::User);
    }
    let project = process_env.project_root().map(Path::to_path_buf);
    let root = project.clone().unwrap_or_else(|| process_env.cwd.clone());
    if let Some(error) = other_owner_error(process_env, &root, &loader) {
        return Err(ConfigError { errors: vec![error] });
    }
    // If the user file is also the project file, it must not be loaded twice.
    let project_file = project.as_ref().map(|root| root.join(CONFIG_FILE_NAME));
    if let Some(path) = project_file.as_ref().filter(|path| Some(*path) != user_file.as_ref()) {
        loader.add_config_file(process_env, path, ConfigFileScope::Project);
    }
    loader.add_env_var_settings(process_env);
    loader.add_flag_settings(flags);
    let mut config = loader.into_config(process_env, root)?;
    let dotenv = dotenv::load(&config.root).unwrap_or_default();
    config.has_project = project.is_some();
    config.project_file = project_file.filter(|path| path.is_file());
    config.user_file = user_file;
    config.state_folder = process_env.state_folder();
    config.env = config.env.with_dotenv_secrets(dotenv.values);
    match path_checks::check_project_paths(&config) {
        faults if faults.is_empty() => Ok(config),
        faults => Err(ConfigError { errors: faults }),
    }
}

/// Loads the configuration of a program without a project, from defaults and environment variables.
/// No file is read.
///
/// # Errors
/// Some settings are invalid. The error lists those of all variables.
pub fn load_from_environment(process_env: &ProcessEnv) -> Result<Config, ConfigError> {
    let mut loader = ConfigLoader::default();
    loader.add_default_settings();
    loader.add_env_var_settings(process_env);
    loader.into_config(process_env, process_env.cwd.clone())
}

/// Returns an error if the project belongs to another user: its settings and agents would act with
/// the rights of the user who runs this command.
fn other_owner_error(env: &ProcessEnv, root: &Path, loader: &ConfigLoader) -> Option<SettingError> {
    let owner = env.uid_of_other_owner(root)?;
    let variable = |name: &str| env.var(name).filter(|_| !env.from_dotenv.contains(name));
    let setting = loader.settings.get(TRUST_FOLDERS_KEY).map(|setting| setting.value.clone());
    let folders_text = variable("LONGHAUL_TRUST_FOLDERS");
    let folders_value =
        folders_text.and_then(|text| SettingValueKind::TextList.parse_plain_text(text).ok());
    let settings = setting.into_iter().chain(folders_value);
    let mut folders = settings.flat_map(|value| value.to_text_list());
    if variable(TRUST_VAR) == Some("1") || folders.any(|folder| Path::new(&folder) == root) {
        return None;
    }
    let shown = match env.display_path(root) {
        shown if shown.as_os_str().is_empty() => PathBuf::from("."),
        shown => shown,
    };
    let root = escape_to_one_line(&root.display().to_string());
    Some(SettingError {
        location: shown.display().to_string(),
        message: format!(
            "this folder belongs to another user (uid {owner}), so it is not used. If you \
             trust that user, add `[trust] folders = [\"{root}\"]` to your user file (`longhaul \
             config path` shows where it is), or set LONGHAUL_TRUST_FOLDERS='{root}'. Otherwise use \
             a folder of your own"
        ),
    })
}

/// The settings that have a default, parsed once: a command loads its settings several times.
static DEFAULTS: LazyLock<Vec<(&str, Result<SettingValue, String>)>> = LazyLock::new(|| {
    let parse = |key: &SettingKey| {
        let value = toml::parse_toml_value(key.default?).map_err(|error| error.message);
        Some((key.path, value.and_then(|node| key.kind.parse_node(&node))))
    };
    SETTING_KEYS.iter().filter_map(parse).collect()
});

#[derive(Default)]
struct ConfigLoader {
    settings: BTreeMap<String, Setting>,
    errors: Vec<SettingError>,
}

impl ConfigLoader {
    fn add_default_settings(&mut self) {
        for (path, value) in DEFAULTS.iter() {
            self.add_setting_or_error(path, SettingOrigin::Default, value.clone());
        }
    }

    /// Checks the settings together, and returns the configuration of a program without a project.
    fn into_config(self, process_env: &ProcessEnv, root: PathBuf) -> Result<Config, ConfigError> {
        let errors = match self.errors.is_empty() {
            true => cross_checks::check_combinations(&self.settings),
            // Of invalid values they would report wrong errors.
            false => self.errors,
        };
        if !errors.is_empty() {
            return Err(ConfigError { errors });
        }
        Ok(Config {
            root,
            has_project: false,
            project_file: None,
            user_file: None,
            state_folder: None,
            settings: self.settings,
            env: Env::new(process_env),
            notes: misspelled_variable_notes(process_env),
        })
    }

    /// Adds the parsed value of a setting, or records the error.
    fn add_setting_or_error(
        &mut self,
        setting_path: &str,
        origin: SettingOrigin,
        parsed: Result<SettingValue, String>,
    ) {
        match parsed {
            Ok(value) => self.insert_setting(setting_path, Setting { value, origin }),
            Err(message) => self.errors.push(SettingError {
                location: cross_checks::setting_error_location(&origin),
                message,
            }),
        }
    }

    /// Sets the value of a setting, replacing that of a lower layer. The lists of secret names are
    /// merged instead, so that no layer can remove a name that another layer lists.
    fn insert_setting(&mut self, setting_path: &str, setting: Setting) {
        let setting = match self.settings.remove(setting_path) {
            Some(existing) if setting_path == SECRETS_KEY => existing.merge_text_lists(setting),
            Some(_) | None => setting,
        };
        self.settings.insert(setting_path.to_owned(), setting);
    }

    fn add_config_file(&mut self, process_env: &ProcessEnv, path: &Path, scope: ConfigFileScope) {
        let display_path = process_env.display_path(path);
        let Some(layer) = load_layer(path, &display_path, scope) else {
            return;
        };
        self.errors.extend(layer.errors);
        for (path, (value, line)) in layer.values {
            let origin = match scope {
                ConfigFileScope::User => SettingOrigin::UserFile(display_path.clone(), line),
                ConfigFileScope::Project => SettingOrigin::ProjectFile(display_path.clone(), line),
            };
            self.insert_setting(&path, Setting { value, origin });
        }
    }

    fn add_env_var_settings(&mut self, process_env: &ProcessEnv) {
        for key in SETTING_KEYS {
            let Some(name) = key.env_var_name() else { continue };
            let Some(text) = process_env.var(&name) else {
                continue;
            };
            let origin = match process_env.from_dotenv.contains(&name) {
                true => SettingOrigin::Dotenv(name),
                false => SettingOrigin::Environment(name),
            };
            self.add_setting_or_error(key.path, origin, key.kind.parse_plain_text(text));
        }
    }

    fn add_flag_settings(&mut self, flags: &[SettingOverride]) {
        for flag in flags {
            let path: Vec<&str> = flag.setting_path.split('.').collect();
            let value = match schema::lookup_setting_path(&path) {
                SettingPathKind::Key(key) => key.kind.parse_plain_text(&flag.value),
                SettingPathKind::Table | SettingPathKind::Unknown => {
                    let names: Vec<&str> = SETTING_KEYS.iter().map(|key| key.path).collect();
                    Err(suggest::unknown_name_message("key", &flag.setting_path, &names))
                }
            };
            self.add_setting_or_error(
                &flag.setting_path,
                SettingOrigin::Flag(flag.name.clone()),
                value,
            );
        }
    }
}

/// Returns notes about environment variables that look like misspelled settings. Other variables
/// with the prefix `LONGHAUL_` are ignored.
fn misspelled_variable_notes(process_env: &ProcessEnv) -> Vec<String> {
    let names: Vec<(String, String)> = SETTING_KEYS
        .iter()
        .filter_map(|key| Some((key.env_var_name()?, key.derived_env_var_name()?)))
        .collect();
    let unknown_variables = process_env.env.keys().filter(|name| {
        name.starts_with("LONGHAUL_") && !names.iter().any(|(variable, _)| variable == *name)
    });
    let notes = unknown_variables.filter_map(|env_name| {
        let distance = |(variable, derived): &&(String, String)| {
            strsim::osa_distance(env_name, variable).min(strsim::osa_distance(env_name, derived))
        };
        let closest_pair = names.iter().min_by_key(distance)?;
        let (suggestion, _) = closest_pair;
        (distance(&closest_pair) <= TYPO_DISTANCE_MAX)
            .then(|| format!("{env_name} has no effect, did you mean {suggestion}?"))
    });
    notes.collect()
}

/// Maximum size of a configuration file in bytes.
const FILE_BYTES_MAX: usize = 1 << 20;

/// Maximum number of reported errors per configuration file.
const ERRORS_MAX: usize = 100;

/// The settings and errors of one configuration file.
#[derive(Debug, Default)]
pub(crate) struct ConfigLayer {
    /// Path of the file as shown to people.
    file: String,
    /// Values by setting path, each with its line number in the file.
    pub(crate) values: BTreeMap<String, (SettingValue, usize)>,
    /// Errors in the configuration file.
    pub(crate) errors: Vec<SettingError>,
}

/// Whether the user or the project owns a configuration file.
#[derive(Debug, Clone, Copy)]
pub(crate) enum ConfigFileScope {
    /// The user's own file. Symbolic links are followed.
    User,
    /// A file of the project. Symbolic links that lead out of the project are rejected.
    Project,
}

/// Loads the configuration file at `path`, shown as `display_path` in messages. `None` means that
/// there is no file.
pub(crate) fn load_layer(path: &Path, shown: &Path, scope: ConfigFileScope) -> Option<ConfigLayer> {
    let text = read_config_file(path, scope).transpose()?;
    let mut layer = ConfigLayer { file: shown.display().to_string(), ..ConfigLayer::default() };
    match text.map(|text| toml::parse(&text)) {
        Ok(Ok(node)) => layer.collect_table_settings(&[], &node),
        Ok(Err(ParseError { position, message })) => layer.add_setting_error(position, message),
        Err(message) => {
            layer.errors.push(SettingError { location: layer.file.clone(), message });
        }
    }
    Some(layer)
}

fn read_config_file(path: &Path, scope: ConfigFileScope) -> Result<Option<String>, String> {
    let bytes = match (scope, path.parent(), path.file_name()) {
        (ConfigFileScope::Project, Some(root), Some(name)) => {
            project_file::read_file_in_project(root, Path::new(name), FILE_BYTES_MAX)
        }
        (ConfigFileScope::Project | ConfigFileScope::User, _, _) => {
            project_file::read_any_file(path, FILE_BYTES_MAX)
        }
    };
    let bytes = match bytes {
        Ok(bytes) => bytes,
        Err(ProjectFileError::Missing) => return Ok(None),
        Err(error) => return Err(error.to_string()),
    };
    let text = String::from_utf8(bytes).map_err(|_| "the file is not UTF-8".to_owned())?;
    Ok(Some(text))
}

impl ConfigLayer {
    fn add_setting_error(&mut self, position: Position, message: String) {
        self.errors.push(SettingError {
            location: format!("{}:{position}", self.file),
            message: escape_to_one_line(&message),
        });
    }

    fn collect_table_settings(&mut self, table_path: &[&str], node: &Node) {
        let Some(entries) = node.as_table() else {
            let siblings = schema::sibling_setting_paths(&[table_path, &["*"]].concat());
            let mut message =
                format!("`{}` must be a table, but is {}", table_path.join("."), node.type_name());
            if let Some(example) = siblings.first() {
                message.push_str(&format!(": write `{example} = ...`"));
            }
            return self.add_setting_error(node.position, message);
        };
        for entry in entries {
            if self.errors.len() >= ERRORS_MAX {
                return;
            }
            let table_path = [table_path, &[entry.key.as_str()]].concat();
            match schema::lookup_setting_path(&table_path) {
                SettingPathKind::Unknown => {
                    self.add_setting_error(entry.position, unknown_key_message(&table_path))
                }
                SettingPathKind::Table => self.collect_table_settings(&table_path, &entry.node),
                SettingPathKind::Key(key) => match key.kind.parse_node(&entry.node) {
                    Ok(value) => {
                        let setting = (value, entry.position.line);
                        self.values.insert(table_path.join("."), setting);
                    }
                    Err(message) => {
                        self.add_setting_error(
                            entry.node.position,
                            format!("`{}`: {message}", table_path.join(".")),
                        );
                    }
                },
            }
        }
    }
}

/// Returns the error message for an unknown key, with a suggestion. Only the last parts of the
/// paths are compared for the suggestion, since a common prefix would make all paths similar.
fn unknown_key_message(key_path: &[&str]) -> String {
    let full_key = key_path.join(".");
    let (name, parent) =
        full_key.rsplit_once('.').map_or((full_key.as_str(), ""), |pair| (pair.1, pair.0));
    let last_segment = |key_path: &str| key_path.rsplit('.').next().unwrap_or_default().to_owned();
    let siblings = schema::sibling_setting_paths(key_path);
    let names: Vec<String> = siblings.iter().map(|key_path| last_segment(key_path)).collect();
    let full_path = |name: &str| match parent {
        "" => name.to_owned(),
        _ => format!("{parent}.{name}"),
    };
    let suggestion =
        longhaul_core::suggest::most_similar_name(name, names.iter().map(String::as_str));
    let suggestion = suggestion.map(full_path);
    let key_with_same_name =
        || schema::SETTING_KEYS.iter().find(|key| last_segment(key.path) == name);
    match suggestion.or_else(|| key_with_same_name().map(|key| key.path.to_owned())) {
        Some(suggestion) => format!("unknown key `{full_key}`, did you mean `{suggestion}`?"),
        None => format!("unknown key `{full_key}`, expected one of `{}`", siblings.join("`, `")),
    }
}
