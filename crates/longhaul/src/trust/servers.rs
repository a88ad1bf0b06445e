//! The servers of `.mcp.json` as one item, with what the project's `.env` fills in for them.
//!
//! Invariant: every value of `.env` counts into the decision. What it fills in for a command is
//! shown, unless the variable is named like a secret; other values may be secrets and are not.

use longhaul_core::raw::Hash;
use longhaul_core::redact::is_secret_name;

use crate::config::env::Env;
use crate::mcp::expand::{expand_known, variables};
use crate::mcp::file::McpFile;
use crate::mcp::name::FILE_NAME;
use crate::mcp::server::{ServerConfig, Transport, format_argv, url_origin};
use crate::trust::files::{ProjectFiles, strip_variables};
use crate::trust::item::{TrustItem, TrustKind, digest, truncate_line};

/// Maximum number of bytes that `.env` may fill in for all servers together.
const EXPANDED_BYTES_MAX: usize = 256 << 10;

impl TrustItem {
    /// The servers of a project as they stand on disk now; `None` means that it names none.
    pub fn mcp(file: &McpFile) -> Option<Self> {
        let hash = file.hash?;
        let lines =
            file.servers.iter().flat_map(|server| server_lines(server, &file.dotenv_values));
        let title = format!("`{FILE_NAME}`");
        Some(Self {
            settings: settings_digest(hash, &file.dotenv_values),
            files: server_files(file).and_then(|files| files.digests()),
            ..Self::new(TrustKind::Run, FILE_NAME, title, &[]).with_lines(lines)
        })
    }
}

fn settings_digest(hash: Hash, filed: &Env) -> Hash {
    let filled = filed.iter();
    let filled = filled.flat_map(|(name, value)| [name.as_bytes(), value.as_bytes()]);
    digest([&hash.bytes()[..]].into_iter().chain(filled))
}

/// The files that the project brings itself for its servers to be started. The error says why they
/// can't be found.
fn server_files(file: &McpFile) -> Result<ProjectFiles, String> {
    let root = file.path.parent().unwrap_or(&file.path);
    let mut files = ProjectFiles::new(root);
    let mut left = EXPANDED_BYTES_MAX;
    // As the project's own `.env` fills it in.
    let mut fill = |text: &String| {
        let filled = expand_known(text, &file.dotenv_values).map_err(|why| why.to_string())?;
        if filled != *text {
            let rest = left.checked_sub(filled.len());
            left = rest
                .ok_or_else(|| format!("`.env` fills in more than {EXPANDED_BYTES_MAX} bytes"))?;
        }
        Ok::<_, String>(filled)
    };
    for server in file.servers.iter().filter(|server| !server.disabled) {
        let Some(Transport::Stdio { command, args, env, cwd }) = &server.transport else {
            continue;
        };
        let words: Vec<String> = [command].into_iter().chain(args).cloned().collect();
        let values: Vec<String> = env.values().cloned().collect();
        let mut folders = vec![root.to_owned()];
        for cwd in cwd.iter().cloned().chain(cwd.as_ref().map(&mut fill).transpose()?) {
            let bare = strip_variables(&cwd);
            folders.push(root.join(bare.trim_start_matches('/')));
            folders.push(root.join(cwd));
        }
        folders.sort_unstable();
        folders.dedup();
        let filled_words = words.iter().map(&mut fill).collect::<Result<Vec<_>, _>>()?;
        let filled_values = values.iter().map(&mut fill).collect::<Result<Vec<_>, _>>()?;
        for folder in &folders {
            for (words, values) in [(&words, &values), (&filled_words, &filled_values)] {
                files.add_command(folder, words);
                values.iter().for_each(|value| files.add_word(folder, value));
            }
        }
    }
    Ok(files)
}

/// What would be started for a server, and what it is handed.
fn server_lines(server: &ServerConfig, filed: &Env) -> Vec<String> {
    let Some(way) = &server.transport else {
        return Vec::new();
    };
    let off = if server.disabled { " (disabled)" } else { "" };
    let mut lines = vec![format!("{}{off}: {}", server.name, truncate_line(&way.describe()))];
    if let Transport::Stdio { cwd: Some(cwd), .. } = way {
        lines.push(format!("  started in: {}", format_argv([cwd])));
    }
    let what = match way {
        Transport::Http { .. } => "headers",
        Transport::Stdio { .. } => "variables",
    };
    let read = way.variables();
    let run = command_variables(way);
    let is_shown = |name: &str| run.contains(&name) && !is_secret_name(name);
    let set = read.iter().copied();
    let set = set.filter_map(|name| Some((name, filed.var(name)?)));
    let (open, hidden): (Vec<_>, Vec<_>) = set.partition(|(name, _)| is_shown(name));
    for (what, names) in [
        (what, way.names().collect::<Vec<_>>()),
        ("reads of your environment", read.clone()),
        (
            "set by .env of this project, and not shown here (read it in .env first)",
            hidden.into_iter().map(|(name, _)| name).collect(),
        ),
    ] {
        if !names.is_empty() {
            lines.push(format!("  {what}: {}", names.join(", ")));
        }
    }
    for (name, value) in open {
        let value = format_argv([&value.to_owned()]);
        lines.push(format!("  set by .env of this project: {name}={value}"));
    }
    lines.extend(expanded_origin_line(way, filed));
    lines
}

/// The variables that say what is run, and where.
fn command_variables(way: &Transport) -> Vec<&str> {
    let Transport::Stdio { command, args, cwd, .. } = way else {
        return Vec::new();
    };
    let texts = [command].into_iter().chain(args).chain(cwd);
    texts.flat_map(|text| variables(text)).collect()
}

/// Where an address leads that `.env` fills in: who is asked is no secret.
fn expanded_origin_line(way: &Transport, filed: &Env) -> Option<String> {
    let Transport::Http { url, .. } = way else {
        return None;
    };
    variables(url).find_map(|name| filed.var(name))?;
    let filled = expand_known(url, filed).ok()?;
    Some(format!("  its address is then at: {}", format_argv([&url_origin(&filled)])))
}
