//! `longhaul mcp ls`: every server of `.mcp.json`, and how it stands.
//!
//! Never: starts one.

use std::collections::BTreeMap;

use clap::Args;
use longhaul::assemble::clients;
use longhaul::assemble::supplies::{Ready, ready};
use longhaul::config::settings::Config;
use longhaul::mcp::file::McpFile;
use longhaul::mcp::server::{Server, Way};
use longhaul::trust::decisions::{Decisions, Status};
use longhaul::trust::item::Item;
use longhaul_mcp::LoginError;
use serde_json::{Value, json};

use crate::exit::Exit;
use crate::mcp::login::{self, said};
use crate::mcp::report::{nothing, project, tell};
use crate::paint::Tone;
use crate::table::{self, Cell};
use crate::{here, say};

/// So much of a command is shown in a row.
const WAY_MAX: usize = 80;

#[derive(Debug, Args)]
pub(crate) struct Ls {
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

/// Where a server stands.
struct Standing {
    word: &'static str,
    said: String,
    tone: Tone,
}

/// The logins of the servers that have one; the error says why that is not known.
type Logins = BTreeMap<String, Result<longhaul_mcp::Standing, String>>;

impl Ls {
    pub(crate) fn run(&self) -> anyhow::Result<Exit> {
        let (config, file) = project()?;
        let ready = ready(&config, &file);
        let verdict = Item::mcp(&file).map(|item| Decisions::new(&config).status(&item));
        let logins = logins(&config, &file);
        let is_broken = !file.problems.is_empty();
        let exit = if is_broken { Exit::Usage } else { Exit::Done };
        if self.json {
            say::json(&shown(&file, &ready, (verdict.as_ref(), &logins)))?;
            return Ok(exit);
        }
        if file.servers.is_empty() {
            nothing(&file);
        } else {
            let head = ["SERVER", "BY", "COMMAND OR ADDRESS", "STATUS"];
            let rows = file.servers.iter().map(|server| {
                let standing = standing(server, &ready, verdict.as_ref());
                row(server, &standing, logins.get(&server.name))
            });
            table::print(&head, rows)?;
        }
        tell(&file);
        Ok(exit)
    }
}

fn logins(config: &Config, file: &McpFile) -> Logins {
    let servers = clients::servers(config, file, &here::system_clock());
    let found = servers.names().into_iter().filter_map(|name| {
        let login = match servers.standing(&name) {
            Ok(login) => Ok(login?),
            Err(LoginError::Book(why)) => Err(why.to_string()),
            // There is none to be had.
            Err(LoginError::None { .. } | LoginError::Server(_) | LoginError::Failed { .. }) => {
                return None;
            }
        };
        Some((name, login))
    });
    found.collect()
}

fn standing(server: &Server, ready: &Ready, verdict: Option<&Status>) -> Standing {
    let told = |word, said: &str, tone| Standing {
        word,
        said: said.to_owned(),
        tone,
    };
    if !server.problems.is_empty() {
        return told("broken", "broken, see below", Tone::Bad);
    }
    if server.disabled {
        return told("disabled", "disabled", Tone::Faint);
    }
    if let Some(Err(why)) = ready.get(&server.name) {
        return told("incomplete", why, Tone::Bad);
    }
    match verdict {
        Some(Status::Trusted) => told("trusted", "trusted", Tone::Good),
        Some(Status::Unasked) => told("trusted", "trusted by LONGHAUL_TRUST=1", Tone::Good),
        Some(Status::Changed(_)) => told(
            "changed",
            "changed since it was trusted: longhaul trust",
            Tone::You,
        ),
        Some(Status::Unknown(why)) => told("not_trusted", why, Tone::Bad),
        Some(Status::New) | None => {
            told("not_trusted", "not trusted yet: longhaul trust", Tone::You)
        }
    }
}

fn row(
    server: &Server,
    standing: &Standing,
    login: Option<&Result<longhaul_mcp::Standing, String>>,
) -> Vec<Cell> {
    let login = match login {
        Some(Ok(login)) if login.over => {
            format!(", its login has ended: longhaul mcp login {}", server.name)
        }
        Some(Ok(login)) => format!(", logged in, {}", said(login)),
        Some(Err(why)) => format!(", its login can't be read: {why}"),
        None => String::new(),
    };
    let (by, way) = match &server.way {
        Some(way) => (way.transport(), way.said()),
        None => ("", String::new()),
    };
    vec![
        Cell::new(&server.name),
        Cell::new(by),
        Cell::new(way).at_most(WAY_MAX),
        Cell::new(format!("{}{login}", standing.said)).tone(standing.tone),
    ]
}

fn shown(file: &McpFile, ready: &Ready, (verdict, logins): (Option<&Status>, &Logins)) -> Value {
    let remarks = |remarks: &[longhaul::mcp::server::Remark]| {
        let said = remarks.iter().map(ToString::to_string);
        said.collect::<Vec<_>>()
    };
    let servers = file.servers.iter().map(|server| {
        let standing = standing(server, ready, verdict);
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
            "login": login.map(login::shown),
            "status": standing.word,
            "way": server.way.as_ref().map(way),
            "per_run": server.per_run,
            "timeout_ms": server.timeout.0,
            "problems": problems,
        })
    });
    json!({
        "file": file.is_there().then_some(&file.path),
        "trust": verdict.map(Status::as_str),
        "servers": servers.collect::<Value>(),
        "problems": remarks(&file.problems),
        "notes": remarks(&file.notes),
    })
}

fn way(way: &Way) -> Value {
    let names: Vec<&str> = way.names().collect();
    match way {
        Way::Stdio {
            command, args, cwd, ..
        } => json!({
            "transport": way.transport(),
            "command": command,
            "args": args,
            "cwd": cwd,
            "env": names,
            "reads": way.variables(),
        }),
        Way::Http { .. } => json!({
            "transport": way.transport(),
            "url": way.said(),
            "headers": names,
            "reads": way.variables(),
        }),
    }
}
