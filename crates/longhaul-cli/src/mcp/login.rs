//! `longhaul mcp login`: logs in to an HTTP MCP server in a browser and stores the login for all
//! runs of this user. `longhaul mcp logout` deletes it.
//!
//! Invariants: tokens and codes are never shown, untrusted servers are never contacted, and waiting
//! for the login has a timeout.

use std::io::{BufRead as _, Read as _};
use std::process::{Command, Stdio};
use std::time::Duration;

use clap::Args;
use longhaul_mcp::{
    CallbackServer, LoginError, LoginRequest, LoginStatus, McpServers, PendingLogin,
};
use longhaul_project::assemble::mcp_servers;
use longhaul_project::assemble::mcp_tools::{self, resolve_enabled_servers};
use longhaul_project::config::settings::Config;
use longhaul_project::mcp::file::McpFile;
use longhaul_project::mcp::server::Transport;
use serde_json::{Value, json};
use tokio::sync::mpsc;

use crate::error::{CliError, fail};
use crate::exit::Exit;
use crate::mcp::check::require_mcp_file_trust;
use crate::mcp::report::{find_server, load_config_and_mcp_file};
use crate::runtime::InterruptListener;
use crate::{environment, event_printer, output, runtime};

/// Timeout for the person to log in with the browser.
const LOGIN_TIMEOUT: Duration = Duration::from_secs(5 * 60);

/// Maximum length of a redirect URL that the user pastes, in bytes.
const PASTED_BYTES_MAX: u64 = 64 * 1024;

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
        let port = self.callback_port(&file)?;
        require_mcp_file_trust(&config, &file)?;
        check_server_usable(&config, &file, &self.name)?;
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

    /// Returns the port for the login's callback, if `.mcp.json` sets one.
    fn callback_port(&self, file: &McpFile) -> anyhow::Result<Option<u16>> {
        let server = find_server(file, &self.name)?;
        Ok(match &server.transport {
            Some(Transport::Http { oauth, .. }) => oauth.callback_port,
            Some(Transport::Stdio { .. }) | None => None,
        })
    }

    async fn log_in(&self, servers: &McpServers, port: Option<u16>) -> anyhow::Result<Exit> {
        let old_login = servers.login_status(&self.name).map_err(login_error)?;
        output::eprint_line(&format!(
            "{}: checking whether the server needs a login ...",
            self.name
        ));
        let is_login_needed = needs_login(servers, &self.name, old_login.is_some()).await?;
        let scopes = self.scope.iter().flat_map(|scope| scope.split_whitespace());
        let scopes: Vec<String> = scopes.map(str::to_owned).collect();
        if !is_login_needed && old_login.is_none() && scopes.is_empty() {
            // It may list its tools without a login and still need one to call them.
            let is_advertised = servers.advertises_login(&self.name).await;
            if !is_advertised.map_err(login_error)? {
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
        let login = servers.begin_login(&self.name, &request).await.map_err(login_error)?;
        self.print_login_url(&login);
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

    /// Prints the login URL, and opens it in a browser if there is a terminal.
    fn print_login_url(&self, login: &PendingLogin) {
        let url = login.authorization_url();
        output::eprint_line("Open this URL in a browser on this machine and agree there:");
        output::eprint_line(&format!("\n  {url}\n"));
        output::eprint_line(
            "If the browser is on another machine: paste the URL here that it is redirected to, even if no page is shown there.",
        );
        if !self.no_browser && output::is_interactive() {
            open_browser(url);
        }
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

/// Fails if the MCP server is disabled or not trusted, or if its settings are incomplete. The error
/// says what to do.
fn check_server_usable(config: &Config, file: &McpFile, server_name: &str) -> anyhow::Result<()> {
    let client = mcp_servers::create_mcp_client(config, file, &environment::system_clock());
    let tools = mcp_tools::McpTools::new(config, file.clone(), client);
    Ok(tools.check_server_usable(server_name).map_err(CliError::usage_error)?)
}

/// Returns whether the server needs a login. Also true if the check fails and there was a login
/// before, so that a broken login does not prevent a new one.
async fn needs_login(
    servers: &McpServers,
    server_name: &str,
    had_login: bool,
) -> anyhow::Result<bool> {
    match servers.requires_login(server_name).await {
        Ok(is_required) => Ok(is_required),
        Err(_) if had_login => Ok(true),
        Err(error) => Err(CliError::usage_error(error.to_string())
            .with_exit_code(Exit::Busy)
            .with_hint("see its status", "longhaul mcp ls")
            .into()),
    }
}

/// Returns the URL that the browser was redirected to after the login, from the callback or pasted
/// by the user. `None` means that the timeout has passed.
async fn wait_for_redirect(server: &CallbackServer, login: &PendingLogin) -> Option<String> {
    let mut pasted_lines = read_pasted_lines();
    let redirect = async {
        // One future for the whole loop, so that a redirect in progress is not dropped when a line
        // is pasted.
        let mut callback = std::pin::pin!(server.wait_for_callback(login.oauth_state()));
        loop {
            tokio::select! {
                redirect_url = &mut callback => return redirect_url,
                Some(line) = pasted_lines.recv() => {
                    if login.matches_callback(&line) {
                        return line;
                    }
                    if !line.trim().is_empty() {
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

/// Reads the lines that the user pastes to stdin, in a separate thread.
fn read_pasted_lines() -> mpsc::Receiver<String> {
    let (sender, receiver) = mpsc::channel(1);
    // The thread ends with the process: a blocking read can't be cancelled.
    std::thread::spawn(move || {
        loop {
            let mut line = String::new();
            let mut stdin = std::io::stdin().lock().take(PASTED_BYTES_MAX);
            match stdin.read_line(&mut line) {
                Ok(1..) if sender.blocking_send(line).is_ok() => {}
                Ok(_) | Err(_) => return,
            }
        }
    });
    receiver
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

/// Arguments of `longhaul mcp logout`, which deletes the login on this machine. The server is not
/// contacted.
#[derive(Debug, Args)]
pub(crate) struct LogoutCommand {
    /// Name of the server in .mcp.json
    #[arg(value_name = "SERVER")]
    name: String,
    /// Print the outcome as one JSON object
    #[arg(long)]
    json: bool,
}

impl LogoutCommand {
    pub(crate) fn run(&self) -> anyhow::Result<Exit> {
        let (config, file) = load_config_and_mcp_file()?;
        let name = &self.name;
        find_server(&file, name)?;
        let message = match resolve_enabled_servers(&config, &file).get(name) {
            Some(Ok(_)) => None,
            Some(Err(reason)) => {
                Some(format!("the address of the server `{name}` is unknown: {reason}"))
            }
            None => Some(format!("the server `{name}` is disabled")),
        };
        if let Some(message) = message {
            return fail(message, "all servers", "longhaul mcp ls");
        }
        let servers = mcp_servers::create_mcp_servers(&config, &file, &environment::system_clock());
        let was_logged_in =
            runtime::block_on(async { Ok(servers.logout(name).await.map_err(login_error)?) })?;
        let data = json!({ "server": name, "removed": was_logged_in });
        output::show_text(self.json, &data, |_| match was_logged_in {
            false => format!("{name}: there was no login"),
            true => format!(
                "{name}: the login is deleted on this machine; to end it at the server too, \
                 remove Longhaul's access there"
            ),
        })?;
        Ok(Exit::Done)
    }
}
