//! Reads `.mcp.json` for the `mcp` commands, and prints problems and notes about the file to
//! stderr.

use longhaul_project::config::settings::Config;
use longhaul_project::mcp::file::McpFile;
use longhaul_project::mcp::name::FILE_NAME;
use longhaul_project::mcp::server::McpServerConfig;

use crate::error::fail;
use crate::{environment, output};

/// Loads the settings of this folder, including the project's `.env`, and its `.mcp.json`.
pub(crate) fn load_config_and_mcp_file() -> anyhow::Result<(Config, McpFile)> {
    let process_env =
        environment::add_dotenv_variables_if_valid(environment::current_process_env()?);
    let config = environment::load_config(&process_env)?;
    let file = McpFile::load(&config);
    Ok((config, file))
}

/// Prints the problems and notes about `.mcp.json` to stderr.
pub(crate) fn print_problems_and_notes(file: &McpFile) {
    let server_problems = file.servers.iter().flat_map(|server| &server.problems);
    for problem in file.problems.iter().chain(server_problems) {
        output::eprint_line(&format!("error: {problem}"));
    }
    for note in &file.notes {
        output::eprint_line(&format!("note: {note}"));
    }
}

/// Prints why there are no MCP servers to list.
pub(crate) fn print_why_no_servers(file: &McpFile) {
    let folder = file.path.parent().unwrap_or(&file.path).display();
    match file.exists() {
        false => output::eprint_line(&format!("There is no {FILE_NAME} in {folder}.")),
        true if file.problems.is_empty() => {
            output::eprint_line(&format!("{FILE_NAME} names no server."))
        }
        true => {}
    }
}

/// Returns the server with this name. The error says how to list all servers.
pub(crate) fn find_server<'a>(
    file: &'a McpFile,
    name: &str,
) -> anyhow::Result<&'a McpServerConfig> {
    file.find_server(name).or_else(|reason| fail(reason, "all servers", "longhaul mcp ls"))
}
