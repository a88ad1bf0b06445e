//! `longhaul mcp login`: logs in at a server over HTTP, in a browser, and keeps that
//! for every run of this user.
//!
//! Never: shows a token or a code, waits without an end, or asks a server that nobody
//! trusts.

use std::io::{BufRead as _, Read as _};
use std::process::{Command, Stdio};
use std::time::Duration;

use clap::Args;
use longhaul::assemble::{clients, supplies};
use longhaul::config::settings::Config;
use longhaul::mcp::file::McpFile;
use longhaul::mcp::server::Way;
use longhaul_mcp::{Began, Door, LoginError, Servers, Standing, Visit};
use serde_json::{Value, json};
use tokio::sync::mpsc;

use crate::error::CliError;
use crate::exit::Exit;
use crate::interrupts::Interrupts;
use crate::mcp::check::allowed;
use crate::mcp::report::project;
use crate::{here, runtime, say, teller};

/// So long a person has for the browser.
const PERSON_MAX: Duration = Duration::from_secs(5 * 60);

/// An address that is pasted is no longer than this.
const PASTED_MAX: u64 = 64 * 1024;

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
        let (config, file) = project()?;
        let port = self.port(&file)?;
        allowed(&config, &file)?;
        may(&config, &file, &self.name)?;
        let servers = clients::servers(&config, &file, &here::system_clock());
        runtime::driving()?.block_on(async {
            let mut interrupts = Interrupts::listen()?;
            tokio::select! {
                () = interrupts.next() => {
                    say::talk("Stopped; nothing was kept.");
                    Ok(Exit::Interrupted)
                }
                logged_in = self.log_in(&servers, port) => logged_in,
            }
        })
    }

    /// The port that the browser comes back to, where the file says one.
    fn port(&self, file: &McpFile) -> anyhow::Result<Option<u16>> {
        let found = file.find(&self.name);
        let server =
            found.map_err(|why| CliError::usage(why).hint("all servers", "longhaul mcp ls"))?;
        Ok(match &server.way {
            Some(Way::Http { oauth, .. }) => oauth.callback_port,
            Some(Way::Stdio { .. }) | None => None,
        })
    }

    async fn log_in(&self, servers: &Servers, port: Option<u16>) -> anyhow::Result<Exit> {
        let before = servers.standing(&self.name).map_err(failed)?;
        say::talk(&format!("{}: asking what it wants ...", self.name));
        let wants = wants(servers, &self.name, before.is_some()).await?;
        let scopes = self.scope.iter().flat_map(|scope| scope.split_whitespace());
        let scopes: Vec<String> = scopes.map(str::to_owned).collect();
        if !wants && before.is_none() && scopes.is_empty() {
            // Strangers may see what it has, and still not use it.
            let says_how = servers.publishes_login(&self.name).await;
            if !says_how.map_err(failed)? {
                self.tell("needs no login", None)?;
                return Ok(Exit::Done);
            }
        }
        let door = Door::open(port).await.map_err(|error| {
            let port = port.map_or_else(|| "any port".to_owned(), |port| format!("port {port}"));
            let words = format!("a browser can't come back to {port} of this machine: {error}");
            CliError::usage(words).hint("change or leave out", "`oauth.callbackPort` in .mcp.json")
        })?;
        let redirect = door.address();
        let began = servers.login(&self.name, &Visit { redirect, scopes }).await;
        let began = began.map_err(failed)?;
        self.show(&began);
        let Some(led_to) = led_to(&door, &began).await else {
            let words = format!(
                "nobody came back within {} minutes",
                PERSON_MAX.as_secs() / 60
            );
            let again = format!("longhaul mcp login {}", self.name);
            let failure = CliError::usage(words).hint("try it again", again);
            return Err(failure.exit(Exit::TimedOut).into());
        };
        let standing = began.finish(&led_to).await.map_err(failed)?;
        self.tell("logged in", Some(&standing))?;
        Ok(Exit::Done)
    }

    /// Shows what to open, and opens it where a person sits.
    fn show(&self, began: &Began) {
        let address = began.address();
        say::talk("Open this address in a browser on this machine, and agree there:");
        say::talk(&format!("\n  {address}\n"));
        say::talk(
            "Is the browser elsewhere? Then paste the address here that it ends at, though no page is shown there.",
        );
        if !self.no_browser && say::is_somebody_there() {
            open(address);
        }
    }

    fn tell(&self, word: &str, standing: Option<&Standing>) -> anyhow::Result<()> {
        if self.json {
            let told = json!({
                "server": self.name,
                "logged_in": standing.is_some(),
                "login": standing.map(shown),
            });
            return say::json(&told);
        }
        let how = standing.map(|standing| format!(", {}", said(standing)));
        say::words(&format!("{}: {word}{}", self.name, how.unwrap_or_default()))
    }
}

/// Whether a server may be asked and can be; the error says what to do.
fn may(config: &Config, file: &McpFile, name: &str) -> anyhow::Result<()> {
    let line = clients::line(config, file, &here::system_clock());
    let served = supplies::Served::new(config, file.clone(), line);
    Ok(served.may(name).map_err(CliError::usage)?)
}

/// Whether a server wants a login of a stranger. Where there was a login before, that
/// is known, and whatever is wrong with it must not be in the way of a new one.
async fn wants(servers: &Servers, name: &str, had: bool) -> anyhow::Result<bool> {
    match servers.wants_login(name).await {
        Ok(wants) => Ok(wants),
        Err(_) if had => Ok(true),
        Err(error) => Err(CliError::usage(error.to_string())
            .exit(Exit::Busy)
            .hint("see how it stands", "longhaul mcp ls")
            .into()),
    }
}

/// Where the browser was sent, as it says itself or as somebody pastes it; none:
/// nobody came in time.
async fn led_to(door: &Door, began: &Began) -> Option<String> {
    let mut pasted = pasted();
    let comes = async {
        // Once for all lines: whoever is being heard is heard to the end.
        let mut comes = std::pin::pin!(door.wait(began.state()));
        loop {
            tokio::select! {
                led_to = &mut comes => return led_to,
                Some(line) = pasted.recv() => {
                    if began.is_answered_by(&line) {
                        return line;
                    }
                    if !line.trim().is_empty() {
                        say::talk("That is not the address that this login ends at.");
                    }
                }
            }
        }
    };
    tokio::time::timeout(PERSON_MAX, comes).await.ok()
}

/// A login that came to nothing.
pub(crate) fn failed(error: LoginError) -> CliError {
    CliError::usage(error.to_string())
}

/// Lines that somebody pastes, as long as there is somebody.
fn pasted() -> mpsc::Receiver<String> {
    let (lines, read) = mpsc::channel(1);
    // It ends with the process: nothing else ends who waits for a terminal.
    std::thread::spawn(move || {
        loop {
            let mut line = String::new();
            let mut stdin = std::io::stdin().lock().take(PASTED_MAX);
            match stdin.read_line(&mut line) {
                Ok(1..) if lines.blocking_send(line).is_ok() => {}
                Ok(_) | Err(_) => return,
            }
        }
    });
    read
}

/// Opens an address, where there is a program for that. Who has none reads it.
fn open(address: &str) {
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
pub(crate) fn said(standing: &Standing) -> String {
    let scopes = match standing.scopes.as_slice() {
        [] => String::new(),
        scopes => format!("; scopes: {}", scopes.join(" ")),
    };
    let lasts = match (standing.over, standing.renews, standing.until) {
        (true, _, _) => "but that has ended".to_owned(),
        (false, true, _) => "renewed by itself".to_owned(),
        (false, false, Some(until)) => format!("until {}", teller::day(until)),
        (false, false, None) => "until it is taken back".to_owned(),
    };
    format!("{lasts}{scopes}")
}

/// A login for programs.
pub(crate) fn shown(standing: &Standing) -> Value {
    json!({
        "scopes": standing.scopes,
        "until": standing.until.map(|until| until.to_string()),
        "renews": standing.renews,
        "over": standing.over,
    })
}
