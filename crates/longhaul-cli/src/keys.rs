//! `longhaul keys`: manages API keys for the HTTP server.
//!
//! Invariant: the secret of a key is printed only once, when the key is created.

use clap::Subcommand;
use longhaul_api::key::{CreatedKey, KeyState, KeyView, NewKeyBody};
use longhaul_api::operations::{CREATE_KEY, CREATE_TICKET, LIST_KEYS, REVOKE_KEY};
use longhaul_core::access::Role;
use longhaul_core::id::ApiKeyName;
use longhaul_core::time::Millis;
use serde_json::json;

use crate::client::Client;
use crate::client::connect::{
    find_configured_or_local_server, with_client, with_client_if_any, with_client_or_new_store,
};
use crate::error::{fail, fill_hint};
use crate::event_printer::format_date_time;
use crate::format::{name_parser, parse_duration};
use crate::style::TextTone;
use crate::table::{self, JsonArgs, TableCell};
use crate::{output, runtime};

pub(crate) const EXAMPLES: &str = "Examples:
  longhaul keys new ci                                  may read, submit and steer
  longhaul keys new anna --role approver --expires 90d  may also answer gates
  export LONGHAUL_KEY=$(longhaul keys new ci)           stdout has only the secret
  longhaul keys ls --json
  longhaul keys revoke ci
  longhaul keys link                                    a one-time link to the web pages

Each role includes the previous ones: viewer < operator (submit, steer) < approver (answer) < admin (keys)";

/// The subcommands of `longhaul keys`.
#[derive(Debug, Subcommand)]
pub(crate) enum KeysCommand {
    /// Creates an API key and prints its secret once
    New {
        /// Name of the new key, as shown in journals
        name: ApiKeyName,
        /// Role of the new key, which decides what its owner may do
        #[arg(long, value_parser = name_parser::<Role>(Role::ALL.map(Role::as_str)), default_value = Role::Operator.as_str())]
        role: Role,
        /// Lifetime of the new key, such as 90d; unlimited if not given
        #[arg(long, value_name = "DURATION", value_parser = parse_positive_duration)]
        expires: Option<Millis>,
        /// Print the key with its secret as one JSON object
        #[arg(long)]
        json: bool,
    },
    /// Lists API keys, without their secrets
    Ls(JsonArgs),
    /// Revokes an API key and all tokens issued for it, at once
    Revoke {
        /// Name of the key to revoke
        name: ApiKeyName,
    },
    /// Prints a one-time link that opens the server's web pages in a browser
    Link,
}

fn parse_positive_duration(text: &str) -> Result<Millis, String> {
    let duration = parse_duration(text)?;
    let positive = (duration > Millis::ZERO).then_some(duration);
    positive.ok_or_else(|| "the lifetime must be greater than zero".to_owned())
}

impl KeysCommand {
    pub(crate) fn run(&self) -> anyhow::Result<()> {
        match self {
            Self::New { name, role, expires, json } => create_key(name, *role, *expires, *json),
            Self::Ls(output) => {
                let list = async |client: &Client| Ok(client.send(LIST_KEYS.at(())).await?.data);
                let keys = with_client_if_any(list)?.unwrap_or_default();
                let titles = ["NAME", "ROLE", "STATUS", "BY", "CREATED", "EXPIRES", "USED"];
                let note = "There are no keys yet.   Create one: longhaul keys new NAME";
                table::show_list(output.json, &keys, (&titles, note), key_row)
            }
            Self::Revoke { name } => {
                let request = REVOKE_KEY.at(name.clone());
                let revoked = with_client(async |client| client.send(request).await)?;
                output::print_text(&format!("The key `{}` is revoked.", revoked.name))
            }
            Self::Link => print_browser_link(),
        }
    }
}

fn create_key(
    name: &ApiKeyName,
    role: Role,
    expires: Option<Millis>,
    json: bool,
) -> anyhow::Result<()> {
    let expires_in_ms = expires.map(|expires| expires.0);
    let body = NewKeyBody { name: name.to_string(), role, expires_in_ms };
    let request = CREATE_KEY.at(()).body(&body);
    let created = with_client_or_new_store(async |client| client.send(request).await);
    let CreatedKey { secret, key } = fill_hint(created, "NAME", name)?;
    output::show(json, &json!({ "secret": secret, "key": key }), |_| {
        output::print_line(&secret)?;
        let expiry = match key.expires_at {
            Some(at) => format!("expires {}", format_date_time(at)),
            None => "does not expire".to_owned(),
        };
        let (name, role) = (&key.name, key.role.as_str());
        output::eprint_line(&format!(
            "The key `{name}` ({role}) {expiry}. Its secret is shown only once and is not stored.
  longhaul   export LONGHAUL_URL=http://HOST:PORT LONGHAUL_KEY=lh_...
  curl       curl -H \"Authorization: Bearer $LONGHAUL_KEY\" $LONGHAUL_URL/v1/runs"
        ));
        Ok(())
    })
}

fn key_row(key: &KeyView) -> Vec<TableCell> {
    let (status, tone) = match key.status {
        KeyState::Active => ("active", TextTone::Good),
        KeyState::Expired => ("expired", TextTone::Dim),
        KeyState::Revoked => ("revoked", TextTone::Dim),
    };
    let time = |at: Option<_>| at.map_or_else(|| "never".to_owned(), format_date_time);
    table::row(&[
        &key.name,
        &key.role.as_str(),
        &TableCell::toned(status, tone),
        &key.by,
        &format_date_time(key.created_at),
        &time(key.expires_at),
        &time(key.last_used_at),
    ])
}

/// Prints a one-time link that opens the server's web pages. Fails if there is no server.
fn print_browser_link() -> anyhow::Result<()> {
    let Some(server) = find_configured_or_local_server()? else {
        return fail(
            "no server is running here, and only a server has web pages",
            "start one",
            "longhaul serve",
        );
    };
    let link =
        runtime::block_on(Client::for_server(server.client, None).send(CREATE_TICKET.at(())))?;
    output::print_line(&link.url)?;
    output::eprint_line("Open the link in a browser; it works once, within 10 minutes.");
    Ok(())
}
