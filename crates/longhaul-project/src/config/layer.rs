//! Parses one configuration file into settings by path. Unknown keys are errors.

use std::collections::BTreeMap;
use std::path::Path;

use crate::config::error::{ErrorLocation, SettingError};
use crate::config::schema::{self, SettingPathKind};
use crate::config::value::SettingValue;
use crate::project_file::{self, ProjectFileError};
use crate::spanned::{Node, ParseError, Position, escape_to_one_line, toml};

/// Maximum size of a configuration file in bytes.
const FILE_BYTES_MAX: usize = 1 << 20;

/// Maximum number of reported errors per configuration file.
const ERRORS_MAX: usize = 100;

/// The settings and errors of one configuration file.
#[derive(Debug, Default)]
pub(crate) struct ConfigLayer {
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
pub(crate) fn load_config_layer(
    path: &Path,
    display_path: &Path,
    scope: ConfigFileScope,
) -> Option<ConfigLayer> {
    let setting_error = |position, message| SettingError {
        location: ErrorLocation::File(display_path.to_path_buf(), position),
        message,
    };
    let mut layer = ConfigLayer::default();
    let text = match read_config_file(path, scope) {
        Ok(Some(text)) => text,
        Ok(None) => return None,
        Err(message) => {
            layer.errors.push(setting_error(None, message));
            return Some(layer);
        }
    };
    match toml::parse(&text) {
        Ok(node) => {
            let mut parser = ConfigLayerParser { layer: &mut layer, display_path };
            parser.collect_table_settings(&[], &node);
        }
        Err(ParseError { position, message }) => {
            layer.errors.push(setting_error(Some(position), message))
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
            project_file::read_file_following_symlinks(path, FILE_BYTES_MAX)
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

struct ConfigLayerParser<'a> {
    layer: &'a mut ConfigLayer,
    display_path: &'a Path,
}

impl ConfigLayerParser<'_> {
    fn add_setting_error(&mut self, position: Position, message: String) {
        self.layer.errors.push(SettingError {
            location: ErrorLocation::File(self.display_path.to_path_buf(), Some(position)),
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
            if self.layer.errors.len() >= ERRORS_MAX {
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
                        self.layer.values.insert(table_path.join("."), setting);
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
