//! Reads one file into settings by path.
//!
//! Never: lets an unknown key pass.

use std::collections::BTreeMap;
use std::path::Path;

use crate::config::error::{ErrorLocation, SettingError};
use crate::config::schema::{self, PathLookup};
use crate::config::value::Value;
use crate::project_file::{self, ProjectFileError};
use crate::spanned::{Node, ParseError, Position, escape_line, toml};

/// The longest file that is read.
const FILE_BYTES_MAX: usize = 1 << 20;

/// Maximum number of faults that are told of one file.
const ERRORS_MAX: usize = 100;

/// What one file says.
#[derive(Debug, Default)]
pub(crate) struct Layer {
    /// Values by path, with their lines.
    pub(crate) values: BTreeMap<String, (Value, usize)>,
    /// What is wrong.
    pub(crate) errors: Vec<SettingError>,
}

/// Whose a file is.
#[derive(Debug, Clone, Copy)]
pub(crate) enum FileOwner {
    /// The user's own: links are followed.
    User,
    /// The project's: links that lead out of its folder are refused.
    Project,
}

/// Reads the file at `path`, called `said` in messages. `None` if there is no file.
pub(crate) fn load(path: &Path, said: &Path, owner: FileOwner) -> Option<Layer> {
    let fault = |place, message| SettingError {
        location: ErrorLocation::File(said.to_path_buf(), place),
        message,
    };
    let mut layer = Layer::default();
    let text = match read_text(path, owner) {
        Ok(Some(text)) => text,
        Ok(None) => return None,
        Err(message) => {
            layer.errors.push(fault(None, message));
            return Some(layer);
        }
    };
    match toml::parse(&text) {
        Ok(node) => {
            let mut walk = LayerParser { layer: &mut layer, display_path: said };
            walk.visit(&[], &node);
        }
        Err(ParseError { position: place, message }) => {
            layer.errors.push(fault(Some(place), message))
        }
    }
    Some(layer)
}

fn read_text(path: &Path, owner: FileOwner) -> Result<Option<String>, String> {
    let bytes = match (owner, path.parent(), path.file_name()) {
        (FileOwner::Project, Some(root), Some(name)) => {
            project_file::read(root, Path::new(name), FILE_BYTES_MAX)
        }
        (FileOwner::Project | FileOwner::User, _, _) => {
            project_file::read_user_file(path, FILE_BYTES_MAX)
        }
    };
    let bytes = match bytes {
        Ok(bytes) => bytes,
        Err(ProjectFileError::Missing) => return Ok(None),
        Err(unread) => return Err(unread.to_string()),
    };
    let text = String::from_utf8(bytes).map_err(|_| "is not UTF-8".to_owned())?;
    Ok(Some(text))
}

struct LayerParser<'a> {
    layer: &'a mut Layer,
    display_path: &'a Path,
}

impl LayerParser<'_> {
    fn error(&mut self, place: Position, message: String) {
        self.layer.errors.push(SettingError {
            location: ErrorLocation::File(self.display_path.to_path_buf(), Some(place)),
            message: escape_line(&message),
        });
    }

    fn visit(&mut self, path: &[&str], node: &Node) {
        let Some(entries) = node.table() else {
            let known = schema::siblings(&[path, &["*"]].concat());
            let mut message = format!("`{}` is a table, not {}", path.join("."), node.type_name());
            if let Some(one) = known.first() {
                message.push_str(&format!(": write `{one} = ...`"));
            }
            return self.error(node.position, message);
        };
        for entry in entries {
            if self.layer.errors.len() >= ERRORS_MAX {
                return;
            }
            let path = [path, &[entry.key.as_str()]].concat();
            match schema::lookup(&path) {
                PathLookup::Unknown => self.error(entry.position, unknown_key_message(&path)),
                PathLookup::Table => self.visit(&path, &entry.node),
                PathLookup::Key(key) => match key.kind.parse(&entry.node) {
                    Ok(value) => {
                        let setting = (value, entry.position.line);
                        self.layer.values.insert(path.join("."), setting);
                    }
                    Err(message) => {
                        self.error(entry.node.position, format!("`{}`: {message}", path.join(".")));
                    }
                },
            }
        }
    }
}

/// Names are compared without what stands before them: `worker.` is like
/// itself, whatever comes after it.
fn unknown_key_message(path: &[&str]) -> String {
    let said = path.join(".");
    let (name, before) = said.rsplit_once('.').map_or((said.as_str(), ""), |cut| (cut.1, cut.0));
    let last = |path: &str| path.rsplit('.').next().unwrap_or_default().to_owned();
    let known = schema::siblings(path);
    let names: Vec<String> = known.iter().map(|path| last(path)).collect();
    let whole = |name: &str| match before {
        "" => name.to_owned(),
        _ => format!("{before}.{name}"),
    };
    let near = longhaul_core::suggest::closest(name, names.iter().map(String::as_str));
    let near = near.map(whole);
    let elsewhere = || schema::SETTING_KEYS.iter().find(|key| last(key.path) == name);
    match near.or_else(|| elsewhere().map(|key| key.path.to_owned())) {
        Some(near) => format!("unknown key `{said}`, did you mean `{near}`?"),
        None => format!("unknown key `{said}`, there are `{}`", known.join("`, `")),
    }
}
