//! `longhaul mcp ls`: lists the MCP servers of `.mcp.json` with their status, without starting
//! them.

use std::collections::BTreeMap;

use longhaul_project::assemble::mcp_servers;
use longhaul_project::assemble::mcp_tools::{ResolvedMcpServers, resolve_enabled_servers};
use longhaul_project::config::settings::Config;
use longhaul_project::mcp::file::McpFile;
use longhaul_project::mcp::server::{McpFileRemark, McpServerConfig, Transport};
use longhaul_project::trust::decisions::{TrustDecisions, TrustStatus};
use longhaul_project::trust::item::TrustItem;
use serde_json::{Value, json};

use crate::exit::Exit;
use crate::mcp::login::{self, describe_login};
use crate::mcp::report::{
    load_config_and_mcp_file, print_problems_and_notes, print_why_no_servers,
};
use crate::style::TextTone;
use crate::table::{self, JsonArgs, TableCell};
use crate::{environment, output, sanitize};

/// Maximum number of characters of a server's command or URL in the list.
const TARGET_CHARS_MAX: usize = 80;

/// Status of an MCP server in JSON, such as `trusted` or `disabled`, and as it is printed.
type McpServerStatus = (&'static str, TableCell);

/// Stored logins by server name. An error says why a login can't be read.
type LoginStatuses = BTreeMap<String, Result<longhaul_mcp::LoginStatus, String>>;

pub(super) fn run(output: &JsonArgs) -> anyhow::Result<Exit> {
    let (config, file) = load_config_and_mcp_file()?;
    let resolved = resolve_enabled_servers(&config, &file);
    let trust = TrustItem::for_mcp_servers(&file)
        .map(|item| TrustDecisions::new(&config).trust_status(&item));
    let logins = load_login_statuses(&config, &file);
    let list = server_list_to_json(&file, &resolved, (trust.as_ref(), &logins));
    output::show(output.json, &list, |_| {
        if file.servers.is_empty() {
            print_why_no_servers(&file);
        } else {
            let titles = ["SERVER", "BY", "COMMAND OR ADDRESS", "STATUS"];
            let rows = file.servers.iter().map(|server| {
                let (_, status) = mcp_server_status(server, &resolved, trust.as_ref());
                mcp_server_row(server, status, logins.get(&server.name))
            });
            table::print_table(&titles, rows)?;
        }
        print_problems_and_notes(&file);
        Ok(())
    })?;
    Ok(if file.problems.is_empty() { Exit::Done } else { Exit::Usage })
}

fn load_login_statuses(config: &Config, file: &McpFile) -> LoginStatuses {
    let servers = mcp_servers::create_mcp_servers(config, file, &environment::system_clock());
    let logins = servers.server_names().into_iter().filter_map(|name| {
        let status = servers.login(&name).ok()?.status();
        Some((name, status.map_err(|error| error.to_string()).transpose()?))
    });
    logins.collect()
}

fn mcp_server_status(
    server: &McpServerConfig,
    resolved: &ResolvedMcpServers,
    trust: Option<&TrustStatus>,
) -> McpServerStatus {
    let status = |name, text: &str, tone| (name, TableCell::toned(text, tone));
    if !server.problems.is_empty() {
        return status("broken", "broken, see below", TextTone::Bad);
    }
    if server.disabled {
        return status("disabled", "disabled", TextTone::Dim);
    }
    if let Some(Err(reason)) = resolved.get(&server.name) {
        return status("incomplete", reason, TextTone::Bad);
    }
    match trust {
        Some(TrustStatus::Trusted) => status("trusted", "trusted", TextTone::Good),
        Some(TrustStatus::TrustedByVariable) => {
            status("trusted", "trusted by LONGHAUL_TRUST=1", TextTone::Good)
        }
        Some(TrustStatus::Changed(_)) => {
            status("changed", "changed since it was trusted: longhaul trust", TextTone::NeedsPerson)
        }
        Some(TrustStatus::Unknown(reason)) => status("not_trusted", reason, TextTone::Bad),
        Some(TrustStatus::Undecided) | None => {
            status("not_trusted", "not trusted yet: longhaul trust", TextTone::NeedsPerson)
        }
    }
}

fn mcp_server_row(
    server: &McpServerConfig,
    mut status: TableCell,
    login: Option<&Result<longhaul_mcp::LoginStatus, String>>,
) -> Vec<TableCell> {
    let login = match login {
        Some(Ok(login)) if login.is_expired => {
            format!(", the login has expired; log in again: longhaul mcp login {}", server.name)
        }
        Some(Ok(login)) => format!(", logged in, {}", describe_login(login)),
        Some(Err(reason)) => format!(", the login can't be read: {reason}"),
        None => String::new(),
    };
    let (transport_name, target) = match &server.transport {
        Some(target) => (target.name(), target.describe_transport()),
        None => ("", String::new()),
    };
    let target = TableCell::new(target).with_max_chars(TARGET_CHARS_MAX);
    status.text.push_str(&sanitize::sanitize_line(&login));
    table::row(&[&server.name, &transport_name, &target, &status])
}

fn server_list_to_json(
    file: &McpFile,
    resolved: &ResolvedMcpServers,
    (trust, logins): (Option<&TrustStatus>, &LoginStatuses),
) -> Value {
    let remark_texts =
        |remarks: &[McpFileRemark]| remarks.iter().map(ToString::to_string).collect::<Vec<_>>();
    let servers = file.servers.iter().map(|server| {
        let (status, _) = mcp_server_status(server, resolved, trust);
        let mut problems = remark_texts(&server.problems);
        if let (true, Some(Err(reason))) = (problems.is_empty(), resolved.get(&server.name)) {
            problems.push(reason.clone());
        }
        let login = logins.get(&server.name);
        if let Some(Err(reason)) = login {
            problems.push(reason.clone());
        }
        let login = login.and_then(|login| login.as_ref().ok());
        json!({
            "name": server.name, "login": login.map(login::login_json), "status": status,
            "transport": server.transport.as_ref().map(transport_json), "per_run": server.per_run,
            "timeout_ms": server.timeout.0, "problems": problems,
        })
    });
    json!({
        "file": file.exists().then_some(&file.path), "trust": trust.map(TrustStatus::as_str),
        "servers": servers.collect::<Value>(), "problems": remark_texts(&file.problems),
        "notes": remark_texts(&file.notes),
    })
}

fn transport_json(transport: &Transport) -> Value {
    let names: Vec<&str> = transport.env_or_header_names().collect();
    let (kind, reads) = (transport.name(), transport.all_referenced_variables());
    match transport {
        Transport::Stdio { command, args, cwd, .. } => json!({
            "kind": kind, "command": command, "args": args, "cwd": cwd, "env": names, "reads": reads,
        }),
        Transport::Http { .. } => json!({
            "kind": kind, "url": transport.describe_transport(), "headers": names, "reads": reads,
        }),
    }
}
