//! `longhaul mcp ls`: every server of `.mcp.json`, and how it stands.
//!
//! Never: starts one.

use std::collections::BTreeMap;

use clap::Args;
use longhaul::assemble::mcp_servers;
use longhaul::assemble::mcp_tools::{ResolvedServers, resolve_servers};
use longhaul::config::settings::Config;
use longhaul::mcp::file::McpFile;
use longhaul::mcp::server::{ServerConfig, Transport};
use longhaul::trust::decisions::{Decisions, TrustStatus};
use longhaul::trust::item::TrustItem;
use longhaul_mcp::LoginError;
use serde_json::{Value, json};

use crate::exit::Exit;
use crate::mcp::login::{self, describe_login};
use crate::mcp::report::{load_project, print_no_servers, print_remarks};
use crate::style::Tone;
use crate::table::{self, Cell};
use crate::{environment, output};

/// So much of a command is shown in a row.
const TARGET_CHARS_MAX: usize = 80;

#[derive(Debug, Args)]
pub(crate) struct Ls {
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

/// Where a server stands.
struct ServerStatus {
    name: &'static str,
    text: String,
    tone: Tone,
}

/// The logins of the servers that have one; the error says why that is not known.
type LoginStatuses = BTreeMap<String, Result<longhaul_mcp::LoginStatus, String>>;

impl Ls {
    pub(crate) fn run(&self) -> anyhow::Result<Exit> {
        let (config, file) = load_project()?;
        let ready = resolve_servers(&config, &file);
        let verdict = TrustItem::mcp(&file).map(|item| Decisions::new(&config).status(&item));
        let logins = login_statuses(&config, &file);
        let is_broken = !file.problems.is_empty();
        let exit = if is_broken { Exit::Usage } else { Exit::Done };
        if self.json {
            output::stdout_json(&to_json(&file, &ready, (verdict.as_ref(), &logins)))?;
            return Ok(exit);
        }
        if file.servers.is_empty() {
            print_no_servers(&file);
        } else {
            let head = ["SERVER", "BY", "COMMAND OR ADDRESS", "STATUS"];
            let rows = file.servers.iter().map(|server| {
                let standing = server_status(server, &ready, verdict.as_ref());
                row(server, &standing, logins.get(&server.name))
            });
            table::print(&head, rows)?;
        }
        print_remarks(&file);
        Ok(exit)
    }
}

fn login_statuses(config: &Config, file: &McpFile) -> LoginStatuses {
    let servers = mcp_servers::servers(config, file, &environment::system_clock());
    let found = servers.names().into_iter().filter_map(|name| {
        let login = match servers.login_status(&name) {
            Ok(login) => Ok(login?),
            Err(LoginError::CredentialFile(why)) => Err(why.to_string()),
            // There is none to be had.
            Err(
                LoginError::Unsupported { .. } | LoginError::Server(_) | LoginError::Failed { .. },
            ) => {
                return None;
            }
        };
        Some((name, login))
    });
    found.collect()
}

fn server_status(
    server: &ServerConfig,
    ready: &ResolvedServers,
    verdict: Option<&TrustStatus>,
) -> ServerStatus {
    let told = |word, said: &str, tone| ServerStatus { name: word, text: said.to_owned(), tone };
    if !server.problems.is_empty() {
        return told("broken", "broken, see below", Tone::Bad);
    }
    if server.disabled {
        return told("disabled", "disabled", Tone::Dim);
    }
    if let Some(Err(why)) = ready.get(&server.name) {
        return told("incomplete", why, Tone::Bad);
    }
    match verdict {
        Some(TrustStatus::Trusted) => told("trusted", "trusted", Tone::Good),
        Some(TrustStatus::TrustedByVariable) => {
            told("trusted", "trusted by LONGHAUL_TRUST=1", Tone::Good)
        }
        Some(TrustStatus::Changed(_)) => {
            told("changed", "changed since it was trusted: longhaul trust", Tone::NeedsPerson)
        }
        Some(TrustStatus::Unknown(why)) => told("not_trusted", why, Tone::Bad),
        Some(TrustStatus::Undecided) | None => {
            told("not_trusted", "not trusted yet: longhaul trust", Tone::NeedsPerson)
        }
    }
}

fn row(
    server: &ServerConfig,
    standing: &ServerStatus,
    login: Option<&Result<longhaul_mcp::LoginStatus, String>>,
) -> Vec<Cell> {
    let login = match login {
        Some(Ok(login)) if login.is_expired => {
            format!(", its login has ended: longhaul mcp login {}", server.name)
        }
        Some(Ok(login)) => format!(", logged in, {}", describe_login(login)),
        Some(Err(why)) => format!(", its login can't be read: {why}"),
        None => String::new(),
    };
    let (by, way) = match &server.transport {
        Some(way) => (way.name(), way.describe()),
        None => ("", String::new()),
    };
    vec![
        Cell::new(&server.name),
        Cell::new(by),
        Cell::new(way).truncated(TARGET_CHARS_MAX),
        Cell::new(format!("{}{login}", standing.text)).tone(standing.tone),
    ]
}

fn to_json(
    file: &McpFile,
    ready: &ResolvedServers,
    (verdict, logins): (Option<&TrustStatus>, &LoginStatuses),
) -> Value {
    let remarks = |remarks: &[longhaul::mcp::server::Remark]| {
        let said = remarks.iter().map(ToString::to_string);
        said.collect::<Vec<_>>()
    };
    let servers = file.servers.iter().map(|server| {
        let standing = server_status(server, ready, verdict);
        let mut problems = remarks(&server.problems);
        if let (true, Some(Err(why))) = (problems.is_empty(), ready.get(&server.name)) {
            problems.push(why.clone());
        }
        let login = logins.get(&server.name);
        if let Some(Err(why)) = login {
            problems.push(why.clone());
        }
        let login = login.and_then(|login| login.as_ref().ok());
        json!({
            "name": server.name,
            "login": login.map(login::login_json),
            "status": standing.name,
            "transport": server.transport.as_ref().map(transport_json),
            "per_run": server.per_run,
            "timeout_ms": server.timeout.0,
            "problems": problems,
        })
    });
    json!({
        "file": file.exists().then_some(&file.path),
        "trust": verdict.map(TrustStatus::as_str),
        "servers": servers.collect::<Value>(),
        "problems": remarks(&file.problems),
        "notes": remarks(&file.notes),
    })
}

fn transport_json(way: &Transport) -> Value {
    let names: Vec<&str> = way.names().collect();
    match way {
        Transport::Stdio { command, args, cwd, .. } => json!({
            "kind": way.name(),
            "command": command,
            "args": args,
            "cwd": cwd,
            "env": names,
            "reads": way.variables(),
        }),
        Transport::Http { .. } => json!({
            "kind": way.name(),
            "url": way.describe(),
            "headers": names,
            "reads": way.variables(),
        }),
    }
}
