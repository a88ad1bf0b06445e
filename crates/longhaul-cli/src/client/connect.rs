//! Finds the client for a command: the server that is named, the one that says it
//! serves this store, or the store itself.
//!
//! Never: another server than the one that was named, a key for anybody but the
//! server it belongs to, or a store made only to find it empty.

use std::path::Path;

use longhaul::assemble::store_file;
use longhaul::config::settings::Config;
use longhaul::config::surroundings::Surroundings;
use longhaul::{local_key, marker};
use longhaul_api::client::{Client, Url, is_alive};
use longhaul_core::net;
use longhaul_engine::secret::Secret;

use crate::client::RunClient;
use crate::error::{self, CliError};
use crate::exit::Exit;
use crate::here::{quiet_config, surroundings};
use crate::me::me;
use crate::{open, runtime, say};

/// The variable that names a server.
const URL: &str = "LONGHAUL_URL";

/// The variable that holds a key.
const KEY: &str = "LONGHAUL_KEY";

/// A server that was found.
#[derive(Debug)]
pub(crate) struct Server {
    /// How it is asked.
    pub(crate) client: Client,
    /// Somebody named it, so that its agents need not be those of this folder.
    pub(crate) is_named: bool,
}

/// The client to say a word or to look; there must be something to look at.
pub(crate) fn look() -> anyhow::Result<RunClient> {
    look_at(server()?)
}

/// The same, where it was looked for a server before.
pub(crate) fn look_at(server: Option<Server>) -> anyhow::Result<RunClient> {
    at_if_there(server)?.ok_or_else(|| open::nothing_here().into())
}

/// The same; none when there is neither a server nor a store.
pub(crate) fn look_if_there() -> anyhow::Result<Option<RunClient>> {
    at_if_there(server()?)
}

fn at_if_there(server: Option<Server>) -> anyhow::Result<Option<RunClient>> {
    if let Some(server) = server {
        return Ok(Some(RunClient::Remote(server.client)));
    }
    let house = open::look_if_there()?;
    Ok(house.map(|house| RunClient::local(&house.longhaul)))
}

/// The client to hand something over; a store is made if need be.
pub(crate) fn beside(server: Option<Server>) -> anyhow::Result<RunClient> {
    match server {
        Some(server) => Ok(RunClient::Remote(server.client)),
        None => Ok(RunClient::local(&open::beside()?.longhaul)),
    }
}

/// The server to ask, if there is one.
pub(crate) fn server() -> anyhow::Result<Option<Server>> {
    let here = surroundings()?;
    match here.var(URL) {
        Some(said) => named(&here, said).map(Some),
        None => marked(&here),
    }
}

/// The server that somebody named.
fn named(here: &Surroundings, said: &str) -> anyhow::Result<Server> {
    let Some(url) = address(said) else {
        let words = format!("{URL}={said} is no address of a server");
        return Err(CliError::usage(words)
            .hint(
                "write it so",
                format!("{URL}=http://127.0.0.1:4180 longhaul ls"),
            )
            .hint("or ask the store here", format!("{URL}= longhaul ls"))
            .into());
    };
    // A folder whose settings are wrong has no key to give.
    let config = quiet_config(here).ok();
    let key = key(here, &url, config.as_ref())?;
    if key.is_some() && url.scheme() == "http" && !is_loopback(&url) {
        let host = url.host_str().unwrap_or_default();
        say::talk(&format!(
            "warning: the key goes to {host} without TLS, so whoever is in between can read it; https:// keeps it"
        ));
    }
    Ok(Server {
        client: client(url, key.as_ref())?,
        is_named: true,
    })
}

fn client(url: Url, key: Option<&Secret>) -> anyhow::Result<Client> {
    Ok(Client::new(url, key.map(Secret::reveal), Some(&me()))?)
}

/// The server that drives this folder's store, if one does and answers.
fn marked(here: &Surroundings) -> anyhow::Result<Option<Server>> {
    // What is wrong with the settings or the store is said where it is opened.
    let Ok(config) = quiet_config(here) else {
        return Ok(None);
    };
    let Ok(file) = store_file(&config) else {
        return Ok(None);
    };
    let Some(url) = serving(&file) else {
        return Ok(None);
    };
    if !runtime::small()?.block_on(is_alive(&url)) {
        return Ok(None);
    }
    let key = key(here, &url, Some(&config))?;
    Ok(Some(Server {
        client: client(url, key.as_ref())?,
        is_named: false,
    }))
}

/// Where the server is that drives this store, by its marker. A server that died
/// could not take its marker away, and by now a stranger may listen there: what
/// counts is who holds the store's lock, and that they are the one of the marker.
fn serving(file: &Path) -> Option<Url> {
    let marker = marker::read(file)?;
    let driver = longhaul_store::driver(file).ok()??;
    let (pid, at) = (
        format!("pid {},", marker.pid),
        format!(" at {}", marker.url),
    );
    let same = driver.starts_with(&pid) && driver.ends_with(&at);
    same.then(|| address(&marker.url))?
}

/// The address of a server, if it is one.
fn address(said: &str) -> Option<Url> {
    let url: Url = said.trim().parse().ok()?;
    let speaks = matches!(url.scheme(), "http" | "https") && url.has_host();
    let plain = url.username().is_empty() && url.password().is_none();
    let bare = url.query().is_none() && url.fragment().is_none();
    (speaks && plain && bare).then_some(url)
}

/// The key that is set, or that of this machine, which never leaves it.
fn key(here: &Surroundings, url: &Url, config: Option<&Config>) -> anyhow::Result<Option<Secret>> {
    if let Some(said) = here.var(KEY) {
        return Ok(Some(Secret::shown(said.trim())));
    }
    let Some(config) = config.filter(|_| is_loopback(url)) else {
        return Ok(None);
    };
    // On a shared machine anybody may listen at a port: the key is for the server
    // that drives this folder's store, and for nobody else.
    let own = store_file(config).ok().and_then(|file| serving(&file));
    if own.and_then(|own| own.port_or_known_default()) != url.port_or_known_default() {
        return Ok(None);
    }
    let at = local_key::path(config);
    let key = local_key::read(&at);
    key.map_err(|error| error::local_key(&error, &at).exit(Exit::NotAllowed).into())
}

fn is_loopback(url: &Url) -> bool {
    url.host_str().is_some_and(net::is_loopback)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_plain_address_is_one() {
        for (said, url) in [
            ("http://127.0.0.1:4700", Some("http://127.0.0.1:4700/")),
            (" https://a.example/x ", Some("https://a.example/x")),
            ("http://me:secret@a.example", None),
            ("http://a.example/?x", None),
            ("ftp://a.example", None),
            ("127.0.0.1:4700", None),
            ("localhost:4700", None),
            ("", None),
        ] {
            let read = address(said).map(|url| url.to_string());
            assert_eq!(read.as_deref(), url, "{said}");
        }
    }

    #[test]
    fn the_machines_own_key_stays_on_the_machine() {
        for (url, stays) in [
            ("http://127.0.0.1:1", true),
            ("http://127.9.9.9", true),
            ("http://[::1]:1", true),
            ("http://localhost:1", true),
            ("http://10.0.0.1", false),
            ("http://localhost.example", false),
            ("http://[2001:db8::1]", false),
            ("https://a.example", false),
        ] {
            assert_eq!(is_loopback(&url.parse().unwrap()), stays, "{url}");
        }
    }
}
