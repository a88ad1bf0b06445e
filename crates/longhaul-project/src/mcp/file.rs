//! Loads the file `.mcp.json` of a project: reads it with a size limit, parses it, and computes its
//! hash.
//!
//! Problems of the file are stored, not returned as errors: they affect only callers that need a
//! server.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use longhaul_core::raw::Hash;
use longhaul_core::suggest::most_similar_name;

use crate::config::dotenv;
use crate::config::env::Env;
use crate::config::settings::Config;
use crate::mcp::name::FILE_NAME;
use crate::mcp::parser::{self, ParsedMcpFile};
use crate::mcp::server::{McpFileRemark, McpServerConfig, Transport};
use crate::project_file::{self, ProjectFileError};

/// Maximum size of `.mcp.json` in bytes.
const BYTES_MAX: usize = 1 << 20;

/// Error message for every MCP server in a build without the feature `mcp`.
pub const NO_CLIENT: &str =
    "this build has no MCP client: enable the feature `mcp` of the crate `longhaul`";

/// The content of `.mcp.json` at the time it was read.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct McpFile {
    /// Path of `.mcp.json`. The file may not exist.
    pub path: PathBuf,
    /// Hash of the file's bytes. `None` means that the file does not exist or can't be read.
    pub hash: Option<Hash>,
    /// MCP servers, in the order of the file.
    pub servers: Vec<McpServerConfig>,
    /// Values of the project's `.env` for the variables that the servers use. They come with the
    /// project like this file, so a trust decision covers both.
    pub dotenv_values: Env,
    /// Problems because of which none of the servers can be used.
    pub problems: Vec<McpFileRemark>,
    /// Remarks about the file that are not errors.
    pub notes: Vec<McpFileRemark>,
}

impl McpFile {
    /// Loads the `.mcp.json` of a project.
    pub fn load(config: &Config) -> Self {
        Self::load_from_path(&config.root.join(FILE_NAME))
    }

    /// Loads the `.mcp.json` at this path.
    pub fn load_from_path(path: &Path) -> Self {
        let mut file = Self { path: path.to_owned(), ..Self::default() };
        let root = path.parent().unwrap_or(path);
        let bytes = project_file::read_file_in_project(root, Path::new(FILE_NAME), BYTES_MAX);
        let text = match bytes {
            Ok(bytes) => {
                file.hash = Some(Hash::digest(&bytes));
                String::from_utf8(bytes).map_err(|_| "the file is not UTF-8".to_owned())
            }
            Err(ProjectFileError::Missing) => return file,
            Err(error) => Err(error.to_string()),
        };
        match text {
            Ok(text) => {
                let ParsedMcpFile { servers, problems, notes } = parser::parse_mcp_file(&text);
                let dotenv_values = referenced_dotenv_values(path, &servers);
                Self { dotenv_values, servers, problems, notes, ..file }
            }
            Err(message) => {
                file.problems.push(McpFileRemark { position: None, message });
                file
            }
        }
    }

    /// Returns the names of the servers whose definition is invalid, each with the reason.
    pub fn broken_servers(&self) -> Vec<(&str, String)> {
        let reason = |server: &McpServerConfig| Some(server.problems.first()?.to_string());
        let servers = self.servers.iter();
        servers.filter_map(|server| Some((server.name.as_str(), reason(server)?))).collect()
    }

    /// Whether `.mcp.json` exists, valid or not.
    pub fn exists(&self) -> bool {
        self.hash.is_some() || !self.problems.is_empty()
    }

    /// Returns the reason why no server of the file can be used, as the end of a sentence. `None`
    /// means that the file is valid and this build supports MCP.
    pub fn unusable_reason(&self) -> Option<String> {
        if !cfg!(feature = "mcp") {
            return Some(NO_CLIENT.to_owned());
        }
        let problem = self.problems.first()?;
        Some(format!("{problem}: fix the file, and run `longhaul mcp ls`"))
    }

    /// Returns the reason why there is no MCP server to use, as the end of a sentence. `None` means
    /// that there is at least one.
    pub fn no_servers_reason(&self) -> Option<String> {
        if let Some(reason) = self.unusable_reason() {
            return Some(reason);
        }
        if !self.servers.is_empty() {
            return None;
        }
        Some(match self.exists() {
            true => format!("`{FILE_NAME}` lists no server: add the server there"),
            false => format!(
                "there is no `{FILE_NAME}`: create it in the project's folder, and run \
                 `longhaul mcp ls`"
            ),
        })
    }

    /// Returns the MCP server with this name.
    ///
    /// # Errors
    /// There is no such server, or the file is invalid. The message says what to fix.
    pub fn find_server(&self, name: &str) -> Result<&McpServerConfig, String> {
        if let Some(reason) = self.unusable_reason() {
            return Err(format!("{reason}."));
        }
        let found = self.servers.iter().find(|server| server.name == name);
        found.ok_or_else(|| {
            if !self.exists() {
                return format!(
                    "There is no `{FILE_NAME}` in {}, so there is no server `{name}`. \
                     Create it there, and run `longhaul mcp ls`.",
                    self.path.parent().unwrap_or(&self.path).display()
                );
            }
            let names = self.servers.iter().map(|server| server.name.as_str());
            let hint = match most_similar_name(name, names.clone()) {
                Some(suggestion) => format!("Did you mean `{suggestion}`?"),
                None => format!("The servers are: {}.", names.collect::<Vec<_>>().join(", ")),
            };
            format!(
                "`{FILE_NAME}` has no server `{name}`. {hint} `longhaul mcp ls` shows all servers."
            )
        })
    }
}

/// Returns the values of the `.env` next to the file for the variables that the servers use. An
/// unreadable `.env` has no values.
fn referenced_dotenv_values(path: &Path, servers: &[McpServerConfig]) -> Env {
    let root = path.parent().unwrap_or(path);
    let mut values = dotenv::load(root).unwrap_or_default().values;
    let enabled = servers.iter().filter(|server| !server.disabled);
    let transports = enabled.filter_map(|server| server.transport.as_ref());
    let names: BTreeSet<String> =
        transports.flat_map(Transport::all_referenced_variables).collect();
    values.retain(|name, _| names.contains(name));
    Env::from_vars(values)
}
