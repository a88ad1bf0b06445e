//! The trust item for the MCP servers of `.mcp.json`, with the values that the project's `.env`
//! sets for them.
//!
//! Invariant: a trust decision covers every value of `.env` that the servers use. A value that is
//! used in a command is shown, unless its variable has the name of a secret; other values may be
//! secrets and are not shown.

use longhaul_core::redact::is_secret_name;

use crate::config::env::Env;
use crate::mcp::expand::{expand_set_variables, referenced_variable_names};
use crate::mcp::file::McpFile;
use crate::mcp::name::FILE_NAME;
use crate::mcp::server::{McpServerConfig, Transport, format_argv, url_origin};
use crate::trust::item::{
    CommandFileCollector, TrustItem, TrustKind, digest_texts, strip_variable_references,
    truncate_line,
};

/// Maximum total size in bytes of the server settings after variables of `.env` were expanded.
const EXPANDED_BYTES_MAX: usize = 256 << 10;

impl TrustItem {
    /// Creates the item for the MCP servers of a project. `None` means that there is no
    /// `.mcp.json`.
    pub fn for_mcp_servers(file: &McpFile) -> Option<Self> {
        let hash = file.hash?;
        let lines =
            file.servers.iter().flat_map(|server| describe_server(server, &file.dotenv_values));
        let title = format!("`{FILE_NAME}`");
        let dotenv = file.dotenv_values.iter();
        let dotenv = dotenv.flat_map(|(name, value)| [name.as_bytes(), value.as_bytes()]);
        Some(Self {
            settings_digest: digest_texts([&hash.bytes()[..]].into_iter().chain(dotenv)),
            files: files_run_by_servers(file, &file.servers).and_then(|files| files.file_digests()),
            ..Self::new(TrustKind::Run, FILE_NAME, title, &[""; 0]).with_description_lines(lines)
        })
    }
}

/// Finds the project files that are run when these MCP servers of the file are started. The error
/// is the reason why they can't be determined.
pub(crate) fn files_run_by_servers<'a>(
    file: &McpFile,
    servers: impl IntoIterator<Item = &'a McpServerConfig>,
) -> Result<CommandFileCollector, String> {
    let root = file.path.parent().unwrap_or(&file.path);
    let mut files = CommandFileCollector::new(root);
    let mut bytes_left = EXPANDED_BYTES_MAX;
    // Expands variables that the project's `.env` sets.
    let mut fill = |text: &String| {
        let expanded =
            expand_set_variables(text, &file.dotenv_values).map_err(|error| error.to_string())?;
        if expanded != *text {
            let rest = bytes_left.checked_sub(expanded.len());
            bytes_left = rest.ok_or_else(|| {
                format!("the values of `.env` expand to more than {EXPANDED_BYTES_MAX} bytes")
            })?;
        }
        Ok::<_, String>(expanded)
    };
    for server in servers.into_iter().filter(|server| !server.disabled) {
        let Some(Transport::Stdio { command, args, env, cwd }) = &server.transport else {
            continue;
        };
        let argv: Vec<String> = [command].into_iter().chain(args).cloned().collect();
        let values: Vec<String> = env.values().cloned().collect();
        let mut folders = vec![root.to_owned()];
        for cwd in cwd.iter().cloned().chain(cwd.as_ref().map(&mut fill).transpose()?) {
            let stripped = strip_variable_references(&cwd);
            folders.push(root.join(stripped.trim_start_matches('/')));
            folders.push(root.join(cwd));
        }
        folders.sort_unstable();
        folders.dedup();
        let filled_argv = argv.iter().map(&mut fill).collect::<Result<Vec<_>, _>>()?;
        let filled_values = values.iter().map(&mut fill).collect::<Result<Vec<_>, _>>()?;
        for folder in &folders {
            for (argv, values) in [(&argv, &values), (&filled_argv, &filled_values)] {
                files.add_command_files(folder, argv);
                values.iter().for_each(|value| files.add_files_in_argument(folder, value));
            }
        }
    }
    Ok(files)
}

/// Returns the lines that describe how an MCP server is started and which values it receives.
fn describe_server(server: &McpServerConfig, dotenv: &Env) -> Vec<String> {
    let Some(transport) = &server.transport else {
        return Vec::new();
    };
    let disabled_note = if server.disabled { " (disabled)" } else { "" };
    let mut lines = vec![format!(
        "{}{disabled_note}: {}",
        server.name,
        truncate_line(&transport.describe_transport())
    )];
    if let Transport::Stdio { cwd: Some(cwd), .. } = transport {
        lines.push(format!("  started in: {}", format_argv([cwd])));
    }
    let (label, command_texts, url) = match transport {
        Transport::Stdio { command, args, cwd, .. } => {
            let texts: Vec<&String> = [command].into_iter().chain(args).chain(cwd).collect();
            ("variables", texts, None)
        }
        Transport::Http { url, .. } => ("headers", Vec::new(), Some(url)),
    };
    let variables = transport.all_referenced_variables();
    // The variables that determine the server's command and its working directory are shown.
    let is_shown = |name: &str| {
        let mut names = command_texts.iter().flat_map(|text| referenced_variable_names(text));
        names.any(|other| other == name) && !is_secret_name(name)
    };
    let variables: Vec<&str> = variables.iter().map(String::as_str).collect();
    let dotenv_values = variables.iter().filter_map(|name| Some((*name, dotenv.var(name)?)));
    let (shown, hidden): (Vec<_>, Vec<_>) = dotenv_values.partition(|(name, _)| is_shown(name));
    for (label, names) in [
        (label, transport.env_or_header_names().collect::<Vec<_>>()),
        ("reads from your environment", variables.clone()),
        (
            "set by .env of this project, and not shown here (read it in .env first)",
            hidden.into_iter().map(|(name, _)| name).collect(),
        ),
    ] {
        if !names.is_empty() {
            lines.push(format!("  {label}: {}", names.join(", ")));
        }
    }
    for (name, value) in shown {
        let value = format_argv([&value.to_owned()]);
        lines.push(format!("  set by .env of this project: {name}={value}"));
    }
    // Scheme and host of a URL are not secret.
    if let Some(url) = url
        && referenced_variable_names(url).any(|name| dotenv.var(name).is_some())
        && let Ok(expanded_url) = expand_set_variables(url, dotenv)
    {
        let origin = format_argv([&url_origin(&expanded_url)]);
        lines.push(format!("  URL of the server after expansion: {origin}"));
    }
    lines
}
