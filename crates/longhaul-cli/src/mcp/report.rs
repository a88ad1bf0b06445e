//! Reads `.mcp.json` for every command about it, and says on stderr what is wrong with the file as
//! a whole.

use longhaul::config::settings::Config;
use longhaul::mcp::file::McpFile;
use longhaul::mcp::name::FILE_NAME;

use crate::{here, say};

/// The settings of this folder with the project's `.env`, and its `.mcp.json`.
pub(crate) fn project() -> anyhow::Result<(Config, McpFile)> {
    let here = here::with_env_file_if_sound(here::surroundings()?);
    let config = here::config(&here)?;
    let file = McpFile::of(&config);
    Ok((config, file))
}

/// Says what is wrong with the file, and what else should be known of it.
pub(crate) fn tell(file: &McpFile) {
    for problem in &file.problems {
        say::talk(&format!("error: {problem}"));
    }
    for problem in file.servers.iter().flat_map(|server| &server.problems) {
        say::talk(&format!("error: {problem}"));
    }
    for note in &file.notes {
        say::talk(&format!("note: {note}"));
    }
}

/// There is nothing to list.
pub(crate) fn nothing(file: &McpFile) {
    let folder = file.path.parent().unwrap_or(&file.path).display();
    match file.is_there() {
        false => say::talk(&format!("There is no {FILE_NAME} in {folder}.")),
        true if file.problems.is_empty() => say::talk(&format!("{FILE_NAME} names no server.")),
        true => {}
    }
}
