//! The file `.mcp.json` of a project: found, bounded, read and hashed in one go.
//!
//! Never: in the way of anybody who asks for no server. What is wrong with it is
//! told to those who do.

use std::fs;
use std::io::Read as _;
use std::path::{Path, PathBuf};

use longhaul_core::raw::Hash;
use longhaul_engine::like::nearest;

use crate::config::settings::Config;
use crate::mcp::name::FILE_NAME;
use crate::mcp::read;
use crate::mcp::server::{Remark, Server};

/// More than this is no list of servers.
const BYTES_MAX: u64 = 1 << 20;

/// The file, as it stood when it was read.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct McpFile {
    /// Where it is or would be.
    pub path: PathBuf,
    /// The hash of its bytes; none: it is not there, or can't be read.
    pub hash: Option<Hash>,
    /// Its servers, in its order.
    pub servers: Vec<Server>,
    /// Why none of them can be used.
    pub problems: Vec<Remark>,
    /// What should be known though nothing is wrong.
    pub notes: Vec<Remark>,
}

impl McpFile {
    /// The file of this project.
    pub fn of(config: &Config) -> Self {
        Self::at(&config.root.join(FILE_NAME))
    }

    /// The file at this place.
    pub fn at(path: &Path) -> Self {
        let file = Self {
            path: path.to_owned(),
            ..Self::default()
        };
        let broken = |message: String| {
            let place = None;
            vec![Remark { place, message }]
        };
        let bytes = match bytes(path) {
            Ok(Some(bytes)) => bytes,
            Ok(None) => return file,
            Err(message) => {
                let problems = broken(message);
                return Self { problems, ..file };
            }
        };
        let hash = Some(Hash::of(&bytes));
        let Ok(text) = String::from_utf8(bytes) else {
            let problems = broken("is not written in UTF-8".to_owned());
            return Self {
                hash,
                problems,
                ..file
            };
        };
        let read = read::read(&text);
        Self {
            hash,
            servers: read.servers,
            problems: read.problems,
            notes: read.notes,
            ..file
        }
    }

    /// Whether there is something, be it sound or not.
    pub fn is_there(&self) -> bool {
        self.hash.is_some() || !self.problems.is_empty()
    }

    /// Why there is no server at all, in words that go on a sentence; none: there is one.
    pub fn lack(&self) -> Option<String> {
        if let Some(problem) = self.problems.first() {
            return Some(format!(
                "{problem}: mend it, and look with `longhaul mcp ls`"
            ));
        }
        if !self.servers.is_empty() {
            return None;
        }
        Some(match self.is_there() {
            true => format!("`{FILE_NAME}` names none: add it there"),
            false => format!(
                "there is no `{FILE_NAME}`: write it into the project's folder, and look with \
                 `longhaul mcp ls`"
            ),
        })
    }

    /// The server of this name. The error is a sentence that says what to mend.
    pub fn find(&self, name: &str) -> Result<&Server, String> {
        if let Some(problem) = self.problems.first() {
            return Err(format!(
                "{problem}. Mend it, and look with `longhaul mcp ls`."
            ));
        }
        let found = self.servers.iter().find(|server| server.name == name);
        found.ok_or_else(|| {
            if !self.is_there() {
                return format!(
                    "There is no `{FILE_NAME}` in {}, so there is no server `{name}`. \
                     Write it there, and look with `longhaul mcp ls`.",
                    self.path.parent().unwrap_or(&self.path).display()
                );
            }
            let known = self.servers.iter().map(|server| server.name.as_str());
            let meant = match nearest(name, known.clone()) {
                Some(near) => format!("Did you mean `{near}`?"),
                None => format!("There are: {}.", known.collect::<Vec<_>>().join(", ")),
            };
            format!("`{FILE_NAME}` names no server `{name}`. {meant} `longhaul mcp ls` shows them.")
        })
    }
}

fn bytes(path: &Path) -> Result<Option<Vec<u8>>, String> {
    let said = |error: std::io::Error| format!("can't be read: {error}");
    match fs::metadata(path) {
        // A pipe of that name would be waited for without end.
        Ok(found) if !found.is_file() => return Err("is no file".to_owned()),
        Ok(_) => {}
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(said(error)),
    }
    let mut bytes = Vec::new();
    let file = fs::File::open(path).map_err(said)?;
    let most = BYTES_MAX + 1;
    file.take(most).read_to_end(&mut bytes).map_err(said)?;
    match bytes.len() as u64 > BYTES_MAX {
        true => Err(format!("is too long: {BYTES_MAX} bytes at most")),
        false => Ok(Some(bytes)),
    }
}
