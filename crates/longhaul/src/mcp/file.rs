//! The file `.mcp.json` of a project: found, bounded, read and hashed in one go.
//!
//! Never: in the way of anybody who asks for no server. What is wrong with it is
//! told to those who do.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use longhaul_core::raw::Hash;
use longhaul_core::suggest::closest;

use crate::config::dotenv;
use crate::config::env::Env;
use crate::config::settings::Config;
use crate::mcp::name::FILE_NAME;
use crate::mcp::parser;
use crate::mcp::server::{Remark, ServerConfig, Transport};
use crate::project_file::{self, ProjectFileError};

/// More than this is no list of servers.
const BYTES_MAX: usize = 1 << 20;

/// What is said of every server in a build without the feature `mcp`.
pub const NO_CLIENT: &str =
    "this build has no MCP client: enable the feature `mcp` of the crate `longhaul`";

/// The file, as it stood when it was read.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct McpFile {
    /// Where it is or would be.
    pub path: PathBuf,
    /// The hash of its bytes; none: it is not there, or can't be read.
    pub hash: Option<Hash>,
    /// Its servers, in its order.
    pub servers: Vec<ServerConfig>,
    /// What the project's `.env` sets of the variables that they read: it comes with
    /// the project as this file does, and is decided about with it.
    pub dotenv_values: Env,
    /// Why none of them can be used.
    pub problems: Vec<Remark>,
    /// What should be known though nothing is wrong.
    pub notes: Vec<Remark>,
}

impl McpFile {
    /// The file of this project.
    pub fn load(config: &Config) -> Self {
        Self::load_from(&config.root.join(FILE_NAME))
    }

    /// The file at this place.
    pub fn load_from(path: &Path) -> Self {
        let file = Self { path: path.to_owned(), ..Self::default() };
        let broken = |message: String| {
            let place = None;
            vec![Remark { position: place, message }]
        };
        let bytes = match read_bytes(path) {
            Ok(Some(bytes)) => bytes,
            Ok(None) => return file,
            Err(message) => {
                let problems = broken(message);
                return Self { problems, ..file };
            }
        };
        let hash = Some(Hash::digest(&bytes));
        let Ok(text) = String::from_utf8(bytes) else {
            let problems = broken("is not written in UTF-8".to_owned());
            return Self { hash, problems, ..file };
        };
        let read = parser::parse(&text);
        Self {
            hash,
            dotenv_values: dotenv_values(path, &read.servers),
            servers: read.servers,
            problems: read.problems,
            notes: read.notes,
            ..file
        }
    }

    /// Whether there is something, be it sound or not.
    pub fn exists(&self) -> bool {
        self.hash.is_some() || !self.problems.is_empty()
    }

    /// Why no server can be used, whatever the file names, in words that go on a sentence.
    pub fn unusable(&self) -> Option<String> {
        if !cfg!(feature = "mcp") {
            return Some(NO_CLIENT.to_owned());
        }
        let problem = self.problems.first()?;
        Some(format!("{problem}: mend it, and look with `longhaul mcp ls`"))
    }

    /// Why there is no server at all, in words that go on a sentence; none: there is one.
    pub fn no_servers_reason(&self) -> Option<String> {
        if let Some(why) = self.unusable() {
            return Some(why);
        }
        if !self.servers.is_empty() {
            return None;
        }
        Some(match self.exists() {
            true => format!("`{FILE_NAME}` names none: add it there"),
            false => format!(
                "there is no `{FILE_NAME}`: write it into the project's folder, and look with \
                 `longhaul mcp ls`"
            ),
        })
    }

    /// The server of this name.
    ///
    /// # Errors
    /// There is none, or the file is broken, in a sentence that says what to mend.
    pub fn find(&self, name: &str) -> Result<&ServerConfig, String> {
        if let Some(why) = self.unusable() {
            return Err(format!("{why}."));
        }
        let found = self.servers.iter().find(|server| server.name == name);
        found.ok_or_else(|| {
            if !self.exists() {
                return format!(
                    "There is no `{FILE_NAME}` in {}, so there is no server `{name}`. \
                     Write it there, and look with `longhaul mcp ls`.",
                    self.path.parent().unwrap_or(&self.path).display()
                );
            }
            let known = self.servers.iter().map(|server| server.name.as_str());
            let meant = match closest(name, known.clone()) {
                Some(near) => format!("Did you mean `{near}`?"),
                None => format!("There are: {}.", known.collect::<Vec<_>>().join(", ")),
            };
            format!("`{FILE_NAME}` names no server `{name}`. {meant} `longhaul mcp ls` shows them.")
        })
    }
}

fn read_bytes(path: &Path) -> Result<Option<Vec<u8>>, String> {
    let root = path.parent().unwrap_or(path);
    match project_file::read(root, Path::new(FILE_NAME), BYTES_MAX) {
        Ok(bytes) => Ok(Some(bytes)),
        Err(ProjectFileError::Missing) => Ok(None),
        Err(ProjectFileError::TooLong(most)) => Err(format!("is too long: {most} bytes at most")),
        Err(unread) => Err(unread.to_string()),
    }
}

/// What the `.env` beside the file says of the variables that servers are filled
/// in with. One that can't be read fills in nothing.
fn dotenv_values(path: &Path, servers: &[ServerConfig]) -> Env {
    let root = path.parent().unwrap_or(path);
    let mut values = dotenv::load(root).unwrap_or_default().values;
    let used = servers.iter().filter(|server| !server.disabled);
    let ways = used.filter_map(|server| server.transport.as_ref());
    let names: BTreeSet<&str> = ways.flat_map(Transport::variables).collect();
    values.retain(|name, _| names.contains(name.as_str()));
    Env::from_vars(values)
}
