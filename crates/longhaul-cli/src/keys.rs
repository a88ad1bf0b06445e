//! `longhaul keys`: who may come in over HTTP, and as what.
//!
//! Never: a secret twice. It is printed once, when its key is made.

use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::{Args, Subcommand};
use longhaul_api::key::{KeyState, KeyView};
use longhaul_core::access::Role;
use longhaul_core::id::KeyName;
use longhaul_core::time::Millis;
use longhaul_engine::handle::CreateKey;
use serde_json::json;

use crate::caller_name::caller_name;
use crate::client::connect::{connect, connect_or_create, find_server, try_connect};
use crate::error::CliError;
use crate::event_printer::date_time;
use crate::format::parse_duration;
use crate::style::Tone;
use crate::table::{self, Cell};
use crate::{output, runtime};

const EXAMPLES: &str = "Examples:
  longhaul keys new ci                                  may look, submit and steer
  longhaul keys new anna --role approver --expires 90d  may also answer at gates
  export LONGHAUL_KEY=$(longhaul keys new ci)           the secret is all there is on stdout
  longhaul keys ls --json
  longhaul keys revoke ci
  longhaul keys link                                    opens the pages in a browser, once

Roles contain each other: viewer < operator (submit, steer) < approver (answer) < admin (keys)";

/// Keys for HTTP.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Keys {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Makes a key, and prints its secret this once
    #[command(after_help = EXAMPLES)]
    New(New),
    /// Lists keys, without their secrets
    #[command(after_help = EXAMPLES)]
    Ls(Ls),
    /// Ends a key and everything that it gave out, at once
    #[command(after_help = EXAMPLES)]
    Revoke(Revoke),
    /// Prints a link that opens the server's pages in a browser, once
    #[command(after_help = EXAMPLES)]
    Link,
}

#[derive(Debug, Args)]
struct New {
    /// What it is called, as journals show it
    name: KeyName,
    /// What it opens
    #[arg(long, value_parser = role_parser(), default_value = Role::Operator.as_str())]
    role: Role,
    /// It ends by itself after this span, such as 90d; never unless it is said
    #[arg(long, value_name = "SPAN", value_parser = parse_positive_duration)]
    expires: Option<Millis>,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Args)]
struct Ls {
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Args)]
struct Revoke {
    /// The key
    name: KeyName,
}

fn parse_positive_duration(text: &str) -> Result<Millis, String> {
    let found = parse_duration(text)?;
    let positive = (found > Millis::ZERO).then_some(found);
    positive.ok_or_else(|| "a key that ends at once opens nothing".to_owned())
}

fn role_parser() -> impl TypedValueParser<Value = Role> {
    PossibleValuesParser::new(Role::ALL.map(Role::as_str))
        .try_map(|said| Role::parse(&said).ok_or("no such role"))
}

impl Keys {
    pub(crate) fn run(&self) -> anyhow::Result<()> {
        match &self.command {
            Command::New(new) => new.run(),
            Command::Ls(ls) => ls.run(),
            Command::Revoke(revoke) => revoke.run(),
            Command::Link => print_link(),
        }
    }
}

impl New {
    fn run(&self) -> anyhow::Result<()> {
        let ask = CreateKey {
            name: self.name.clone(),
            role: self.role,
            ttl: self.expires,
            by: caller_name(),
        };
        let client = connect_or_create(find_server()?)?;
        let made = runtime::current_thread()?.block_on(client.create_key(ask))?;
        let (secret, key) = (made.secret.reveal(), &made.key);
        if self.json {
            return output::stdout_json(&json!({ "secret": secret, "key": key }));
        }
        output::stdout_line(secret)?;
        let ends = match key.expires_at {
            Some(at) => format!("ends {}", date_time(at)),
            None => "ends when it is revoked".to_owned(),
        };
        let (name, role) = (&key.name, key.role.as_str());
        output::stderr_line(&format!(
            "The key `{name}` ({role}) {ends}. Its secret is shown this once and kept nowhere."
        ));
        output::stderr_line(
            "  longhaul   export LONGHAUL_URL=http://HOST:PORT LONGHAUL_KEY=lh_...",
        );
        output::stderr_line(
            "  curl       curl -H \"Authorization: Bearer $LONGHAUL_KEY\" $LONGHAUL_URL/v1/runs",
        );
        Ok(())
    }
}

impl Ls {
    fn run(&self) -> anyhow::Result<()> {
        let keys = match try_connect()? {
            Some(client) => runtime::current_thread()?.block_on(client.list_keys())?,
            None => Vec::new(),
        };
        if self.json {
            return output::json_list(&keys);
        }
        if keys.is_empty() {
            output::stderr_line("There are no keys yet.   Make one: longhaul keys new NAME");
            return Ok(());
        }
        let head = ["NAME", "ROLE", "STATUS", "BY", "CREATED", "EXPIRES", "USED"];
        let rows = keys.iter().map(row);
        table::print(&head, rows)
    }
}

fn row(key: &KeyView) -> Vec<Cell> {
    let (status, tone) = match key.status {
        KeyState::Active => ("active", Tone::Good),
        KeyState::Expired => ("expired", Tone::Dim),
        KeyState::Revoked => ("revoked", Tone::Dim),
    };
    let time = |at: Option<_>| Cell::new(at.map_or_else(|| "never".to_owned(), date_time));
    vec![
        Cell::new(&key.name),
        Cell::new(key.role.as_str()),
        Cell::new(status).tone(tone),
        Cell::new(&key.by),
        Cell::new(date_time(key.created_at)),
        time(key.expires_at),
        time(key.last_used_at),
    ]
}

impl Revoke {
    fn run(&self) -> anyhow::Result<()> {
        let client = connect()?;
        let revoked = runtime::current_thread()?.block_on(client.revoke_key(&self.name))?;
        output::stdout_text(&format!("The key `{}` opens nothing any more.", revoked.name))
    }
}

/// Only a server has pages, so only a server has links to them.
fn print_link() -> anyhow::Result<()> {
    let Some(server) = find_server()? else {
        return Err(CliError::usage("no server runs here, and only a server has pages to open")
            .hint("start one", "longhaul serve")
            .into());
    };
    let link = runtime::current_thread()?.block_on(server.client.ticket());
    output::stdout_line(&link?.url)?;
    output::stderr_line("Open it in a browser: it works once, within 10 minutes.");
    Ok(())
}
