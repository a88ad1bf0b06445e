//! `longhaul keys`: who may come in over HTTP, and as what.
//!
//! Never: a secret twice. It is printed once, when its key is made.

use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::{Args, Subcommand};
use longhaul_api::key::{KeyState, KeyView};
use longhaul_core::access::Role;
use longhaul_core::id::KeyName;
use longhaul_core::time::Millis;
use longhaul_engine::handle::KeyAsk;
use serde_json::json;

use crate::client::connect::{beside, look, look_if_there, server};
use crate::error::CliError;
use crate::figure::span;
use crate::me::me;
use crate::paint::Tone;
use crate::table::{self, Cell};
use crate::teller::day;
use crate::{runtime, say};

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
    #[arg(long, value_parser = roles(), default_value = Role::Operator.as_str())]
    role: Role,
    /// It ends by itself after this span, such as 90d; never unless it is said
    #[arg(long, value_name = "SPAN", value_parser = positive_span)]
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

fn positive_span(text: &str) -> Result<Millis, String> {
    let found = span(text)?;
    let positive = (found > Millis::ZERO).then_some(found);
    positive.ok_or_else(|| "a key that ends at once opens nothing".to_owned())
}

fn roles() -> impl TypedValueParser<Value = Role> {
    PossibleValuesParser::new(Role::ALL.map(Role::as_str))
        .try_map(|said| Role::read(&said).ok_or("no such role"))
}

impl Keys {
    pub(crate) fn run(&self) -> anyhow::Result<()> {
        match &self.command {
            Command::New(new) => new.run(),
            Command::Ls(ls) => ls.run(),
            Command::Revoke(revoke) => revoke.run(),
            Command::Link => link(),
        }
    }
}

impl New {
    fn run(&self) -> anyhow::Result<()> {
        let ask = KeyAsk {
            name: self.name.clone(),
            role: self.role,
            span: self.expires,
            by: me(),
        };
        let client = beside(server()?)?;
        let made = runtime::small()?.block_on(client.make_key(ask))?;
        let (secret, key) = (made.secret.reveal(), &made.key);
        if self.json {
            return say::json(&json!({ "secret": secret, "key": key }));
        }
        say::data(secret)?;
        let ends = match key.expires_at {
            Some(at) => format!("ends {}", day(at)),
            None => "ends when it is revoked".to_owned(),
        };
        let (name, role) = (&key.name, key.role.as_str());
        say::talk(&format!(
            "The key `{name}` ({role}) {ends}. Its secret is shown this once and kept nowhere."
        ));
        say::talk("  longhaul   export LONGHAUL_URL=http://HOST:PORT LONGHAUL_KEY=lh_...");
        say::talk(
            "  curl       curl -H \"Authorization: Bearer $LONGHAUL_KEY\" $LONGHAUL_URL/v1/runs",
        );
        Ok(())
    }
}

impl Ls {
    fn run(&self) -> anyhow::Result<()> {
        let keys = match look_if_there()? {
            Some(client) => runtime::small()?.block_on(client.keys())?,
            None => Vec::new(),
        };
        if self.json {
            return say::json_list(&keys);
        }
        if keys.is_empty() {
            say::talk("There are no keys yet.   Make one: longhaul keys new NAME");
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
        KeyState::Expired => ("expired", Tone::Faint),
        KeyState::Revoked => ("revoked", Tone::Faint),
    };
    let time = |at: Option<_>| Cell::new(at.map_or_else(|| "never".to_owned(), day));
    vec![
        Cell::new(&key.name),
        Cell::new(key.role.as_str()),
        Cell::new(status).tone(tone),
        Cell::new(&key.by),
        Cell::new(day(key.created_at)),
        time(key.expires_at),
        time(key.used_at),
    ]
}

impl Revoke {
    fn run(&self) -> anyhow::Result<()> {
        let client = look()?;
        let revoked = runtime::small()?.block_on(client.revoke_key(&self.name))?;
        say::words(&format!(
            "The key `{}` opens nothing any more.",
            revoked.name
        ))
    }
}

/// Only a server has pages, so only a server has links to them.
fn link() -> anyhow::Result<()> {
    let Some(server) = server()? else {
        return Err(
            CliError::usage("no server runs here, and only a server has pages to open")
                .hint("start one", "longhaul serve")
                .into(),
        );
    };
    let link = runtime::small()?.block_on(server.client.ticket());
    say::data(&link?.url)?;
    say::talk("Open it in a browser: it works once, within 10 minutes.");
    Ok(())
}
