//! Reads one file into settings by path.
//!
//! Never: lets an unknown key pass.

use std::collections::BTreeMap;
use std::path::Path;

use crate::config::fault::{Fault, Spot};
use crate::config::key::{self, Found};
use crate::config::value::Value;
use crate::inside::{self, Unread};
use crate::written::{Malformed, Node, Place, plain_line, toml};

/// The longest file that is read.
const FILE_BYTES_MAX: usize = 1 << 20;

/// Maximum number of faults that are told of one file.
const FAULTS_MAX: usize = 100;

/// What one file says.
#[derive(Debug, Default)]
pub(crate) struct Layer {
    /// Values by path, with their lines.
    pub(crate) values: BTreeMap<String, (Value, usize)>,
    /// What is wrong.
    pub(crate) faults: Vec<Fault>,
}

/// Whose a file is.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Owner {
    /// The user's own: links are followed.
    User,
    /// The project's: links that lead out of its folder are refused.
    Project,
}

/// Reads the file at `path`, called `said` in messages. `None` if there is no file.
pub(crate) fn read(path: &Path, said: &Path, owner: Owner) -> Option<Layer> {
    let fault = |place, message| Fault {
        spot: Spot::File(said.to_path_buf(), place),
        message,
    };
    let mut layer = Layer::default();
    let text = match text(path, owner) {
        Ok(Some(text)) => text,
        Ok(None) => return None,
        Err(message) => {
            layer.faults.push(fault(None, message));
            return Some(layer);
        }
    };
    match toml::read(&text) {
        Ok(node) => {
            let mut walk = Walk {
                layer: &mut layer,
                said,
            };
            walk.node(&[], &node);
        }
        Err(Malformed { place, message }) => layer.faults.push(fault(Some(place), message)),
    }
    Some(layer)
}

fn text(path: &Path, owner: Owner) -> Result<Option<String>, String> {
    let bytes = match (owner, path.parent(), path.file_name()) {
        (Owner::Project, Some(root), Some(name)) => {
            inside::read(root, Path::new(name), FILE_BYTES_MAX)
        }
        (Owner::Project | Owner::User, _, _) => inside::plain(path, FILE_BYTES_MAX),
    };
    let bytes = match bytes {
        Ok(bytes) => bytes,
        Err(Unread::Missing) => return Ok(None),
        Err(unread) => return Err(unread.to_string()),
    };
    let text = String::from_utf8(bytes).map_err(|_| "is not UTF-8".to_owned())?;
    Ok(Some(text))
}

struct Walk<'a> {
    layer: &'a mut Layer,
    said: &'a Path,
}

impl Walk<'_> {
    fn fault(&mut self, place: Place, message: String) {
        self.layer.faults.push(Fault {
            spot: Spot::File(self.said.to_path_buf(), Some(place)),
            message: plain_line(&message),
        });
    }

    fn node(&mut self, path: &[&str], node: &Node) {
        let Some(entries) = node.table() else {
            let known = key::siblings(&[path, &["*"]].concat());
            let mut message = format!("`{}` is a table, not {}", path.join("."), node.what());
            if let Some(one) = known.first() {
                message.push_str(&format!(": write `{one} = ...`"));
            }
            return self.fault(node.place, message);
        };
        for entry in entries {
            if self.layer.faults.len() >= FAULTS_MAX {
                return;
            }
            let path = [path, &[entry.key.as_str()]].concat();
            match key::find(&path) {
                Found::Unknown => self.fault(entry.place, unknown(&path)),
                Found::Table => self.node(&path, &entry.node),
                Found::Key(key) => match key.kind.read(&entry.node) {
                    Ok(value) => {
                        let setting = (value, entry.place.line);
                        self.layer.values.insert(path.join("."), setting);
                    }
                    Err(message) => {
                        self.fault(entry.node.place, format!("`{}`: {message}", path.join(".")));
                    }
                },
            }
        }
    }
}

/// Names are compared without what stands before them: `worker.` is like
/// itself, whatever comes after it.
fn unknown(path: &[&str]) -> String {
    let said = path.join(".");
    let (name, before) = said
        .rsplit_once('.')
        .map_or((said.as_str(), ""), |cut| (cut.1, cut.0));
    let last = |path: &str| path.rsplit('.').next().unwrap_or_default().to_owned();
    let known = key::siblings(path);
    let names: Vec<String> = known.iter().map(|path| last(path)).collect();
    let whole = |name: &str| match before {
        "" => name.to_owned(),
        _ => format!("{before}.{name}"),
    };
    let near = longhaul_core::suggest::nearest(name, names.iter().map(String::as_str));
    let near = near.map(whole);
    let elsewhere = || key::KEYS.iter().find(|key| last(key.path) == name);
    match near.or_else(|| elsewhere().map(|key| key.path.to_owned())) {
        Some(near) => format!("unknown key `{said}`, did you mean `{near}`?"),
        None => format!("unknown key `{said}`, there are `{}`", known.join("`, `")),
    }
}
