//! `longhaul mcp login`: logs in to an HTTP MCP server in a browser and stores the login for all
//! runs of this user. `longhaul mcp logout` deletes it.
//!
//! Invariants: tokens and codes are never shown, untrusted servers are never contacted, and waiting
//! for the login has a timeout.

use std::process::{Command, Stdio};
use std::time::Duration;

use clap::Args;
use longhaul_mcp::{
    CallbackServer, LoginError, LoginRequest, LoginStatus, McpServers, PendingLogin,
};
use longhaul_project::assemble::mcp_servers;
use longhaul_project::assemble::mcp_tools::{self, resolve_enabled_servers};
use longhaul_project::mcp::server::Transport;
use serde_json::{Value, json};

use crate::error::{CliError, fail};
use crate::exit::Exit;
use crate::mcp::check::require_mcp_file_trust;
use crate::mcp::report::{find_server, load_config_and_mcp_file};
use crate::runtime::InterruptListener;
use crate::{environment, event_printer, output, runtime};

/// Timeout for the person to log in with the browser.
const LOGIN_TIMEOUT: Duration = Duration::from_secs(5 * 60);

#[derive(Debug, Args)]
pub(crate) struct LoginCommand {
    /// Name of the server in .mcp.json
    #[arg(value_name = "SERVER")]
    name: String,
    /// Also request this OAuth scope; several may be separated by spaces
    #[arg(long, value_name = "SCOPE")]
    scope: Vec<String>,
    /// Only print the login URL, without opening a browser
    #[arg(long)]
    no_browser: bool,
    /// Print the login, without its tokens, as one JSON object
    #[arg(long)]
    json: bool,
}

impl LoginCommand {
    pub(crate) fn run(&self) -> anyhow::Result<Exit> {
        let (config, file) = load_config_and_mcp_file()?;
        let port = match &find_server(&file, &self.name)?.transport {
            Some(Transport::Http { oauth, .. }) => oauth.callback_port,
            Some(Transport::Stdio { .. }) | None => None,
        };
        require_mcp_file_trust(&config, &file)?;
        let client = mcp_servers::new_client(&config, &file, &environment::system_clock());
        let tools = mcp_tools::McpTools::new(&config, file.clone(), client);
        tools.check_server_usable(&self.name).map_err(CliError::usage_error)?;
        let servers = mcp_servers::create_mcp_servers(&config, &file, &environment::system_clock());
        runtime::build_multi_thread_tokio()?.block_on(async {
            let mut interrupts = InterruptListener::listen()?;
            tokio::select! {
                () = interrupts.next_signal() => {
                    output::eprint_line("Stopped; nothing was stored.");
                    Ok(Exit::Interrupted)
                }
                logged_in = self.log_in(&servers, port) => logged_in,
            }
        })
    }

    async fn log_in(&self, servers: &McpServers, port: Option<u16>) -> anyhow::Result<Exit> {
        let server_login = servers.login(&self.name).map_err(login_error)?;
        let old_login = server_login.status().map_err(login_error)?;
        output::eprint_line(&format!(
            "{}: checking whether the server needs a login ...",
            self.name
        ));
        // If the check fails, a broken login must not prevent a new one.
        let is_login_needed = match servers.requires_login(&self.name).await {
            Ok(is_required) => is_required,
            Err(_) if old_login.is_some() => true,
            Err(error) => {
                return Err(CliError::usage_error(error.to_string())
                    .with_exit_code(Exit::Busy)
                    .with_hint("see its status", "longhaul mcp ls")
                    .into());
            }
        };
        let scopes = self.scope.iter().flat_map(|scope| scope.split_whitespace());
        let scopes: Vec<String> = scopes.map(str::to_owned).collect();
        if !is_login_needed && old_login.is_none() && scopes.is_empty() {
            // It may list its tools without a login and still need one to call them.
            if !server_login.is_advertised().await.map_err(login_error)? {
                self.print_login_outcome("needs no login", None)?;
                return Ok(Exit::Done);
            }
        }
        let server = CallbackServer::bind(port).await.or_else(|error| {
            let port = port.map_or_else(|| "any port".to_owned(), |port| format!("port {port}"));
            let message =
                format!("the login callback can't listen on {port} of this machine: {error}");
            fail(message, "change or remove", "`oauth.callbackPort` in .mcp.json")
        })?;
        let request = LoginRequest { redirect_uri: server.redirect_uri(), scopes };
        let login = server_login.start(&request).await.map_err(login_error)?;
        let url = login.authorization_url();
        output::eprint_line("Open this URL in a browser on this machine and agree there:");
        output::eprint_line(&format!("\n  {url}\n"));
        output::eprint_line(
            "If the browser is on another machine: paste the URL here that it is redirected to, even if no page is shown there.",
        );
        if !self.no_browser && output::is_interactive() {
            open_browser(url);
        }
        let Some(redirect_url) = wait_for_redirect(&server, &login).await else {
            let message = format!(
                "the login was not completed within {} minutes",
                LOGIN_TIMEOUT.as_secs() / 60
            );
            let login_command = format!("longhaul mcp login {}", self.name);
            return Err(CliError::usage_error(message)
                .with_hint("try again", login_command)
                .with_exit_code(Exit::TimedOut)
                .into());
        };
        let status = login.finish_login(&redirect_url).await.map_err(login_error)?;
        self.print_login_outcome("logged in", Some(&status))?;
        Ok(Exit::Done)
    }

    fn print_login_outcome(
        &self,
        outcome: &str,
        status: Option<&LoginStatus>,
    ) -> anyhow::Result<()> {
        let data = json!({
            "server": self.name, "logged_in": status.is_some(), "login": status.map(login_json),
        });
        output::show_text(self.json, &data, |_| {
            let details = status.map(|status| format!(", {}", describe_login(status)));
            format!("{}: {outcome}{}", self.name, details.unwrap_or_default())
        })
    }
}

/// Returns the URL that the browser was redirected to after the login, from the callback or pasted
/// by the user. `None` means that the timeout has passed.
async fn wait_for_redirect(server: &CallbackServer, login: &PendingLogin) -> Option<String> {
    let mut pasted_lines = output::spawn_stdin_reader();
    let redirect = async {
        // One future for the whole loop, so that a redirect in progress is not dropped when a line
        // is pasted.
        let mut callback = std::pin::pin!(server.wait_for_callback(login.oauth_state()));
        loop {
            tokio::select! {
                redirect_url = &mut callback => return redirect_url,
                Some(line) = pasted_lines.recv() => {
                    if login.matches_callback(&line.text) {
                        return line.text;
                    }
                    if !line.text.trim().is_empty() {
                        output::eprint_line("That is not the redirect URL of this login.");
                    }
                }
            }
        }
    };
    tokio::time::timeout(LOGIN_TIMEOUT, redirect).await.ok()
}

/// Converts the error of a failed login.
fn login_error(error: LoginError) -> CliError {
    CliError::usage_error(error.to_string())
}

/// Opens a URL in the browser. Errors are ignored, because the URL is printed as well.
fn open_browser(url: &str) {
    let program = if cfg!(target_os = "macos") { "open" } else { "xdg-open" };
    let mut command = Command::new(program);
    let command = command.arg(url).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    drop(command.spawn());
}

/// Describes a stored login: when it expires, and its scopes.
pub(crate) fn describe_login(status: &LoginStatus) -> String {
    let scopes = match status.scopes.as_slice() {
        [] => String::new(),
        scopes => format!("; scopes: {}", scopes.join(" ")),
    };
    let validity = match (status.is_expired, status.is_renewable, status.expires_at) {
        (true, _, _) => "but it has expired".to_owned(),
        (false, true, _) => "refreshed automatically".to_owned(),
        (false, false, Some(until)) => format!("until {}", event_printer::format_date_time(until)),
        (false, false, None) => "until it is revoked".to_owned(),
    };
    format!("{validity}{scopes}")
}

/// Returns a stored login as JSON, without its tokens.
pub(crate) fn login_json(status: &LoginStatus) -> Value {
    json!({
        "scopes": status.scopes,
        "until": status.expires_at.map(|until| until.to_string()),
        "refreshes": status.is_renewable,
        "expired": status.is_expired,
    })
}

/// Deletes the login on this machine. The server is not contacted.
pub(super) fn log_out(name: &str, json: bool) -> anyhow::Result<Exit> {
    let (config, file) = load_config_and_mcp_file()?;
    find_server(&file, name)?;
    let reason = match resolve_enabled_servers(&config, &file).get(name) {
        Some(Ok(_)) => None,
        Some(Err(reason)) => {
            Some(format!("the address of the server `{name}` is unknown: {reason}"))
        }
        None => Some(format!("the server `{name}` is disabled")),
    };
    if let Some(reason) = reason {
        return fail(reason, "all servers", "longhaul mcp ls");
    }
    let servers = mcp_servers::create_mcp_servers(&config, &file, &environment::system_clock());
    let login = servers.login(name).map_err(login_error)?;
    let was_logged_in =
        runtime::block_on(async { Ok(login.log_out().await.map_err(login_error)?) })?;
    let data = json!({ "server": name, "removed": was_logged_in });
    output::show_text(json, &data, |_| match was_logged_in {
        false => format!("{name}: there was no login"),
        true => format!(
            "{name}: the login is deleted on this machine; to end it at the server too, \
             remove Longhaul's access there"
        ),
    })?;
    Ok(Exit::Done)
}
