//! `longhaul mcp login`: logs in at a server over HTTP, in a browser, and keeps that
//! for every run of this user.
//!
//! Never: shows a token or a code, waits without an end, or asks a server that nobody
//! trusts.

use std::io::{BufRead as _, Read as _};
use std::process::{Command, Stdio};
use std::time::Duration;

use clap::Args;
use longhaul::assemble::{mcp_servers, mcp_tools};
use longhaul::config::settings::Config;
use longhaul::mcp::file::McpFile;
use longhaul::mcp::server::Transport;
use longhaul_mcp::{CallbackServer, LoginError, LoginRequest, LoginStatus, PendingLogin, Servers};
use serde_json::{Value, json};
use tokio::sync::mpsc;

use crate::error::CliError;
use crate::exit::Exit;
use crate::interrupts::Interrupts;
use crate::mcp::check::check_trust;
use crate::mcp::report::load_project;
use crate::{environment, event_printer, output, runtime};

/// So long a person has for the browser.
const LOGIN_TIMEOUT: Duration = Duration::from_secs(5 * 60);

/// An address that is pasted is no longer than this.
const PASTED_BYTES_MAX: u64 = 64 * 1024;

#[derive(Debug, Args)]
pub(crate) struct Login {
    /// Which server of .mcp.json
    #[arg(value_name = "SERVER")]
    name: String,
    /// Ask for this scope too; several may stand in one, with spaces between them
    #[arg(long, value_name = "SCOPE")]
    scope: Vec<String>,
    /// Only print the address to open
    #[arg(long)]
    no_browser: bool,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

impl Login {
    pub(crate) fn run(&self) -> anyhow::Result<Exit> {
        let (config, file) = load_project()?;
        let port = self.callback_port(&file)?;
        check_trust(&config, &file)?;
        check_usable(&config, &file, &self.name)?;
        let servers = mcp_servers::servers(&config, &file, &environment::system_clock());
        runtime::multi_thread()?.block_on(async {
            let mut interrupts = Interrupts::listen()?;
            tokio::select! {
                () = interrupts.next() => {
                    output::stderr_line("Stopped; nothing was kept.");
                    Ok(Exit::Interrupted)
                }
                logged_in = self.log_in(&servers, port) => logged_in,
            }
        })
    }

    /// The port that the browser comes back to, where the file says one.
    fn callback_port(&self, file: &McpFile) -> anyhow::Result<Option<u16>> {
        let found = file.find(&self.name);
        let server =
            found.map_err(|why| CliError::usage(why).hint("all servers", "longhaul mcp ls"))?;
        Ok(match &server.transport {
            Some(Transport::Http { oauth, .. }) => oauth.callback_port,
            Some(Transport::Stdio { .. }) | None => None,
        })
    }

    async fn log_in(&self, servers: &Servers, port: Option<u16>) -> anyhow::Result<Exit> {
        let before = servers.login_status(&self.name).map_err(login_error)?;
        output::stderr_line(&format!("{}: asking what it wants ...", self.name));
        let wants = wants_login(servers, &self.name, before.is_some()).await?;
        let scopes = self.scope.iter().flat_map(|scope| scope.split_whitespace());
        let scopes: Vec<String> = scopes.map(str::to_owned).collect();
        if !wants && before.is_none() && scopes.is_empty() {
            // Strangers may see what it has, and still not use it.
            let says_how = servers.advertises_login(&self.name).await;
            if !says_how.map_err(login_error)? {
                self.print_outcome("needs no login", None)?;
                return Ok(Exit::Done);
            }
        }
        let door = CallbackServer::bind(port).await.map_err(|error| {
            let port = port.map_or_else(|| "any port".to_owned(), |port| format!("port {port}"));
            let words = format!("a browser can't come back to {port} of this machine: {error}");
            CliError::usage(words).hint("change or leave out", "`oauth.callbackPort` in .mcp.json")
        })?;
        let redirect = door.redirect_uri();
        let began =
            servers.login(&self.name, &LoginRequest { redirect_uri: redirect, scopes }).await;
        let began = began.map_err(login_error)?;
        self.print_address(&began);
        let Some(led_to) = wait_for_redirect(&door, &began).await else {
            let words = format!("nobody came back within {} minutes", LOGIN_TIMEOUT.as_secs() / 60);
            let again = format!("longhaul mcp login {}", self.name);
            let failure = CliError::usage(words).hint("try it again", again);
            return Err(failure.with_exit(Exit::TimedOut).into());
        };
        let standing = began.finish(&led_to).await.map_err(login_error)?;
        self.print_outcome("logged in", Some(&standing))?;
        Ok(Exit::Done)
    }

    /// Shows what to open, and opens it where a person sits.
    fn print_address(&self, began: &PendingLogin) {
        let address = began.authorization_url();
        output::stderr_line("Open this address in a browser on this machine, and agree there:");
        output::stderr_line(&format!("\n  {address}\n"));
        output::stderr_line(
            "Is the browser elsewhere? Then paste the address here that it ends at, though no page is shown there.",
        );
        if !self.no_browser && output::is_interactive() {
            open_browser(address);
        }
    }

    fn print_outcome(&self, word: &str, standing: Option<&LoginStatus>) -> anyhow::Result<()> {
        if self.json {
            let told = json!({
                "server": self.name,
                "logged_in": standing.is_some(),
                "login": standing.map(login_json),
            });
            return output::stdout_json(&told);
        }
        let how = standing.map(|standing| format!(", {}", describe_login(standing)));
        output::stdout_text(&format!("{}: {word}{}", self.name, how.unwrap_or_default()))
    }
}

/// Whether a server may be asked and can be; the error says what to do.
fn check_usable(config: &Config, file: &McpFile, name: &str) -> anyhow::Result<()> {
    let line = mcp_servers::client(config, file, &environment::system_clock());
    let served = mcp_tools::McpTools::new(config, file.clone(), line);
    Ok(served.check_usable(name).map_err(CliError::usage)?)
}

/// Whether a server wants a login of a stranger. Where there was a login before, that
/// is known, and whatever is wrong with it must not be in the way of a new one.
async fn wants_login(servers: &Servers, name: &str, had: bool) -> anyhow::Result<bool> {
    match servers.requires_login(name).await {
        Ok(wants) => Ok(wants),
        Err(_) if had => Ok(true),
        Err(error) => Err(CliError::usage(error.to_string())
            .with_exit(Exit::Busy)
            .hint("see how it stands", "longhaul mcp ls")
            .into()),
    }
}

/// Where the browser was sent, as it says itself or as somebody pastes it; none:
/// nobody came in time.
async fn wait_for_redirect(door: &CallbackServer, began: &PendingLogin) -> Option<String> {
    let mut pasted = read_pasted_lines();
    let comes = async {
        // Once for all lines: whoever is being heard is heard to the end.
        let mut comes = std::pin::pin!(door.wait_for_callback(began.state()));
        loop {
            tokio::select! {
                led_to = &mut comes => return led_to,
                Some(line) = pasted.recv() => {
                    if began.matches_callback(&line) {
                        return line;
                    }
                    if !line.trim().is_empty() {
                        output::stderr_line("That is not the address that this login ends at.");
                    }
                }
            }
        }
    };
    tokio::time::timeout(LOGIN_TIMEOUT, comes).await.ok()
}

/// A login that came to nothing.
pub(crate) fn login_error(error: LoginError) -> CliError {
    CliError::usage(error.to_string())
}

/// Lines that somebody pastes, as long as there is somebody.
fn read_pasted_lines() -> mpsc::Receiver<String> {
    let (lines, read) = mpsc::channel(1);
    // It ends with the process: nothing else ends who waits for a terminal.
    std::thread::spawn(move || {
        loop {
            let mut line = String::new();
            let mut stdin = std::io::stdin().lock().take(PASTED_BYTES_MAX);
            match stdin.read_line(&mut line) {
                Ok(1..) if lines.blocking_send(line).is_ok() => {}
                Ok(_) | Err(_) => return,
            }
        }
    });
    read
}

/// Opens an address, where there is a program for that. Who has none reads it.
fn open_browser(address: &str) {
    let program = match cfg!(target_os = "macos") {
        true => "open",
        false => "xdg-open",
    };
    let started = Command::new(program)
        .arg(address)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn();
    drop(started);
}

/// A login in a few words.
pub(crate) fn describe_login(standing: &LoginStatus) -> String {
    let scopes = match standing.scopes.as_slice() {
        [] => String::new(),
        scopes => format!("; scopes: {}", scopes.join(" ")),
    };
    let lasts = match (standing.is_expired, standing.is_renewable, standing.expires_at) {
        (true, _, _) => "but that has ended".to_owned(),
        (false, true, _) => "renewed by itself".to_owned(),
        (false, false, Some(until)) => format!("until {}", event_printer::date_time(until)),
        (false, false, None) => "until it is taken back".to_owned(),
    };
    format!("{lasts}{scopes}")
}

/// A login for programs.
pub(crate) fn login_json(standing: &LoginStatus) -> Value {
    json!({
        "scopes": standing.scopes,
        "until": standing.expires_at.map(|until| until.to_string()),
        "refreshes": standing.is_renewable,
        "expired": standing.is_expired,
    })
}
