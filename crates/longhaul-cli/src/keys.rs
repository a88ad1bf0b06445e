//! `longhaul keys`: manages API keys for the HTTP server.
//!
//! Invariant: the secret of a key is printed only once, when the key is created.

use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::{Args, Subcommand};
use longhaul_api::key::{CreatedKey, KeyState, KeyView, NewKeyBody};
use longhaul_api::operations::{CREATE_KEY, CREATE_TICKET, LIST_KEYS, REVOKE_KEY};
use longhaul_core::access::Role;
use longhaul_core::id::ApiKeyName;
use longhaul_core::time::Millis;
use serde_json::json;

use crate::client::connect::{
    connect_or_create_store, connect_run_client, find_configured_or_local_server,
    try_connect_run_client,
};
use crate::error::{CliError, HintResultExt as _};
use crate::event_printer::format_date_time;
use crate::format::parse_duration;
use crate::style::TextTone;
use crate::table::{self, TableCell};
use crate::{output, runtime};

const EXAMPLES: &str = "Examples:
  longhaul keys new ci                                  may read, submit and steer
  longhaul keys new anna --role approver --expires 90d  may also answer gates
  export LONGHAUL_KEY=$(longhaul keys new ci)           stdout has only the secret
  longhaul keys ls --json
  longhaul keys revoke ci
  longhaul keys link                                    a one-time link to the web pages

Each role includes the previous ones: viewer < operator (submit, steer) < approver (answer) < admin (keys)";

/// Arguments of `longhaul keys`.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct KeysCommand {
    #[command(subcommand)]
    command: KeysSubcommand,
}

#[derive(Debug, Subcommand)]
enum KeysSubcommand {
    /// Creates an API key and prints its secret once
    #[command(after_help = EXAMPLES)]
    New(NewKeyCommand),
    /// Lists API keys, without their secrets
    #[command(after_help = EXAMPLES)]
    Ls(ListKeysCommand),
    /// Revokes an API key and all tokens issued for it, at once
    #[command(after_help = EXAMPLES)]
    Revoke(RevokeKeyCommand),
    /// Prints a one-time link that opens the server's web pages in a browser
    #[command(after_help = EXAMPLES)]
    Link,
}

#[derive(Debug, Args)]
struct NewKeyCommand {
    /// Name of the new key, as shown in journals
    name: ApiKeyName,
    /// Role of the new key, which decides what its owner may do
    #[arg(long, value_parser = role_parser(), default_value = Role::Operator.as_str())]
    role: Role,
    /// Lifetime of the new key, such as 90d; unlimited if not given
    #[arg(long, value_name = "DURATION", value_parser = parse_positive_duration)]
    expires: Option<Millis>,
    /// Print the key with its secret as one JSON object
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Args)]
struct ListKeysCommand {
    /// Print the keys as one JSON object
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Args)]
struct RevokeKeyCommand {
    /// Name of the key to revoke
    name: ApiKeyName,
}

fn parse_positive_duration(text: &str) -> Result<Millis, String> {
    let duration = parse_duration(text)?;
    let positive = (duration > Millis::ZERO).then_some(duration);
    positive.ok_or_else(|| "the lifetime must be greater than zero".to_owned())
}

fn role_parser() -> impl TypedValueParser<Value = Role> {
    PossibleValuesParser::new(Role::ALL.map(Role::as_str))
        .try_map(|text| Role::from_name(&text).ok_or("no such role"))
}

impl KeysCommand {
    pub(crate) fn run(&self) -> anyhow::Result<()> {
        match &self.command {
            KeysSubcommand::New(new) => new.create_and_print_key(),
            KeysSubcommand::Ls(ls) => ls.print_key_list(),
            KeysSubcommand::Revoke(revoke) => revoke.revoke_key(),
            KeysSubcommand::Link => print_browser_link(),
        }
    }
}

impl NewKeyCommand {
    fn create_and_print_key(&self) -> anyhow::Result<()> {
        let name = self.name.to_string();
        let expires_in_ms = self.expires.map(|expires| expires.0);
        let request = CREATE_KEY.at(()).body(&NewKeyBody { name, role: self.role, expires_in_ms });
        let client = connect_or_create_store(find_configured_or_local_server()?)?;
        let created = runtime::build_single_thread_tokio()?.block_on(client.send(request));
        let CreatedKey { secret, key } = created.fill_hint_placeholder("NAME", &self.name)?;
        if self.json {
            return output::print_json(&json!({ "secret": secret, "key": key }));
        }
        output::print_line(&secret)?;
        let expiry = match key.expires_at {
            Some(at) => format!("expires {}", format_date_time(at)),
            None => "does not expire".to_owned(),
        };
        let (name, role) = (&key.name, key.role.as_str());
        output::eprint_line(&format!(
            "The key `{name}` ({role}) {expiry}. Its secret is shown only once and is not stored."
        ));
        output::eprint_line(
            "  longhaul   export LONGHAUL_URL=http://HOST:PORT LONGHAUL_KEY=lh_...",
        );
        output::eprint_line(
            "  curl       curl -H \"Authorization: Bearer $LONGHAUL_KEY\" $LONGHAUL_URL/v1/runs",
        );
        Ok(())
    }
}

impl ListKeysCommand {
    fn print_key_list(&self) -> anyhow::Result<()> {
        let keys = match try_connect_run_client()? {
            Some(client) => {
                runtime::build_single_thread_tokio()?.block_on(client.send(LIST_KEYS.at(())))?.data
            }
            None => Vec::new(),
        };
        if self.json {
            return output::print_json_list(&keys);
        }
        if keys.is_empty() {
            output::eprint_line("There are no keys yet.   Create one: longhaul keys new NAME");
            return Ok(());
        }
        let titles = ["NAME", "ROLE", "STATUS", "BY", "CREATED", "EXPIRES", "USED"];
        let rows = keys.iter().map(key_row);
        table::print_table(&titles, rows)
    }
}

fn key_row(key: &KeyView) -> Vec<TableCell> {
    let (status, tone) = match key.status {
        KeyState::Active => ("active", TextTone::Good),
        KeyState::Expired => ("expired", TextTone::Dim),
        KeyState::Revoked => ("revoked", TextTone::Dim),
    };
    let time =
        |at: Option<_>| TableCell::new(at.map_or_else(|| "never".to_owned(), format_date_time));
    vec![
        TableCell::new(&key.name),
        TableCell::new(key.role.as_str()),
        TableCell::new(status).with_tone(tone),
        TableCell::new(&key.by),
        TableCell::new(format_date_time(key.created_at)),
        time(key.expires_at),
        time(key.last_used_at),
    ]
}

impl RevokeKeyCommand {
    fn revoke_key(&self) -> anyhow::Result<()> {
        let client = connect_run_client()?;
        let revoke = client.send(REVOKE_KEY.at(self.name.clone()));
        let revoked = runtime::build_single_thread_tokio()?.block_on(revoke)?;
        output::print_text(&format!("The key `{}` is revoked.", revoked.name))
    }
}

/// Prints a one-time link that opens the server's web pages. Fails if there is no server.
fn print_browser_link() -> anyhow::Result<()> {
    let Some(server) = find_configured_or_local_server()? else {
        return Err(CliError::usage_error(
            "no server is running here, and only a server has web pages",
        )
        .with_hint("start one", "longhaul serve")
        .into());
    };
    let link =
        runtime::build_single_thread_tokio()?.block_on(server.client.send(CREATE_TICKET.at(())));
    output::print_line(&link?.url)?;
    output::eprint_line("Open the link in a browser; it works once, within 10 minutes.");
    Ok(())
}
