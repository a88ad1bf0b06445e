//! Reads `.mcp.json` for every command about it, and says on stderr what is wrong with the file as
//! a whole.

use longhaul::config::settings::Config;
use longhaul::mcp::file::McpFile;
use longhaul::mcp::name::FILE_NAME;

use crate::{environment, output};

/// The settings of this folder with the project's `.env`, and its `.mcp.json`.
pub(crate) fn load_project() -> anyhow::Result<(Config, McpFile)> {
    let here = environment::with_dotenv_if_valid(environment::process_env()?);
    let config = environment::load_config(&here)?;
    let file = McpFile::load(&config);
    Ok((config, file))
}

/// Says what is wrong with the file, and what else should be known of it.
pub(crate) fn print_remarks(file: &McpFile) {
    for problem in &file.problems {
        output::stderr_line(&format!("error: {problem}"));
    }
    for problem in file.servers.iter().flat_map(|server| &server.problems) {
        output::stderr_line(&format!("error: {problem}"));
    }
    for note in &file.notes {
        output::stderr_line(&format!("note: {note}"));
    }
}

/// There is nothing to list.
pub(crate) fn print_no_servers(file: &McpFile) {
    let folder = file.path.parent().unwrap_or(&file.path).display();
    match file.exists() {
        false => output::stderr_line(&format!("There is no {FILE_NAME} in {folder}.")),
        true if file.problems.is_empty() => {
            output::stderr_line(&format!("{FILE_NAME} names no server."))
        }
        true => {}
    }
}
