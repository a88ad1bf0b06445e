//! Finds the client for a command: the server that is named, the one that says it
//! serves this store, or the store itself.
//!
//! Never: another server than the one that was named, a key for anybody but the
//! server it belongs to, or a store made only to find it empty.

use std::path::Path;

use longhaul::assemble::store_file;
use longhaul::config::process_env::ProcessEnv;
use longhaul::config::settings::Config;
use longhaul::{local_key, server_marker};
use longhaul_api::client::{Client, Url, is_alive};
use longhaul_core::net;
use longhaul_engine::secret::Secret;

use crate::caller_name::caller_name;
use crate::client::RunClient;
use crate::environment::{load_config_quietly, process_env};
use crate::error::{self, CliError};
use crate::exit::Exit;
use crate::{output, runtime, store_access};

/// The variable that names a server.
const URL_VAR: &str = "LONGHAUL_URL";

/// The variable that holds a key.
const KEY_VAR: &str = "LONGHAUL_KEY";

/// A server that was found.
#[derive(Debug)]
pub(crate) struct ServerConnection {
    /// How it is asked.
    pub(crate) client: Client,
    /// Somebody named it, so that its agents need not be those of this folder.
    pub(crate) is_named: bool,
}

/// The client to say a word or to look; there must be something to look at.
pub(crate) fn connect() -> anyhow::Result<RunClient> {
    connect_to(find_server()?)
}

/// The same, where it was looked for a server before.
pub(crate) fn connect_to(server: Option<ServerConnection>) -> anyhow::Result<RunClient> {
    try_connect_to(server)?.ok_or_else(|| store_access::no_runs_error().into())
}

/// The same; none when there is neither a server nor a store.
pub(crate) fn try_connect() -> anyhow::Result<Option<RunClient>> {
    try_connect_to(find_server()?)
}

fn try_connect_to(server: Option<ServerConnection>) -> anyhow::Result<Option<RunClient>> {
    if let Some(server) = server {
        return Ok(Some(RunClient::Remote(server.client)));
    }
    let house = store_access::observe_if_exists()?;
    Ok(house.map(|house| RunClient::local(&house.longhaul)))
}

/// The client to hand something over; a store is made if need be.
pub(crate) fn connect_or_create(server: Option<ServerConnection>) -> anyhow::Result<RunClient> {
    match server {
        Some(server) => Ok(RunClient::Remote(server.client)),
        None => Ok(RunClient::local(&store_access::observe_or_create()?.longhaul)),
    }
}

/// The server to ask, if there is one.
pub(crate) fn find_server() -> anyhow::Result<Option<ServerConnection>> {
    let here = process_env()?;
    match here.var(URL_VAR) {
        Some(said) => named_server(&here, said).map(Some),
        None => marked_server(&here),
    }
}

/// The server that somebody named.
fn named_server(here: &ProcessEnv, said: &str) -> anyhow::Result<ServerConnection> {
    let Some(url) = parse_url(said) else {
        let words = format!("{URL_VAR}={said} is no address of a server");
        return Err(CliError::usage(words)
            .hint("write it so", format!("{URL_VAR}=http://127.0.0.1:4180 longhaul ls"))
            .hint("or ask the store here", format!("{URL_VAR}= longhaul ls"))
            .into());
    };
    // A folder whose settings are wrong has no key to give.
    let config = load_config_quietly(here).ok();
    let key = api_key(here, &url, config.as_ref())?;
    if key.is_some() && url.scheme() == "http" && !is_loopback(&url) {
        let host = url.host_str().unwrap_or_default();
        output::stderr_line(&format!(
            "warning: the key goes to {host} without TLS, so whoever is in between can read it; https:// keeps it"
        ));
    }
    Ok(ServerConnection { client: build_client(url, key.as_ref())?, is_named: true })
}

fn build_client(url: Url, key: Option<&Secret>) -> anyhow::Result<Client> {
    Ok(Client::new(url, key.map(Secret::reveal), Some(&caller_name()))?)
}

/// The server that drives this folder's store, if one does and answers.
fn marked_server(here: &ProcessEnv) -> anyhow::Result<Option<ServerConnection>> {
    // What is wrong with the settings or the store is said where it is opened.
    let Ok(config) = load_config_quietly(here) else {
        return Ok(None);
    };
    let Ok(file) = store_file(&config) else {
        return Ok(None);
    };
    let Some(url) = serving_url(&file) else {
        return Ok(None);
    };
    if !runtime::current_thread()?.block_on(is_alive(&url)) {
        return Ok(None);
    }
    let key = api_key(here, &url, Some(&config))?;
    Ok(Some(ServerConnection { client: build_client(url, key.as_ref())?, is_named: false }))
}

/// Where the server is that drives this store, by its marker. A server that died
/// could not take its marker away, and by now a stranger may listen there: what
/// counts is who holds the store's lock, and that they are the one of the marker.
fn serving_url(file: &Path) -> Option<Url> {
    let marker = server_marker::load(file)?;
    let driver = longhaul_store::current_driver(file).ok()??;
    let (pid, at) = (format!("pid {},", marker.pid), format!(" at {}", marker.url));
    let same = driver.starts_with(&pid) && driver.ends_with(&at);
    same.then(|| parse_url(&marker.url))?
}

/// The address of a server, if it is one.
fn parse_url(said: &str) -> Option<Url> {
    let url: Url = said.trim().parse().ok()?;
    let speaks = matches!(url.scheme(), "http" | "https") && url.has_host();
    let plain = url.username().is_empty() && url.password().is_none();
    let bare = url.query().is_none() && url.fragment().is_none();
    (speaks && plain && bare).then_some(url)
}

/// The key that is set, or that of this machine, which never leaves it.
fn api_key(
    here: &ProcessEnv,
    url: &Url,
    config: Option<&Config>,
) -> anyhow::Result<Option<Secret>> {
    if let Some(said) = here.var(KEY_VAR) {
        return Ok(Some(Secret::from_text(said.trim())));
    }
    let Some(config) = config.filter(|_| is_loopback(url)) else {
        return Ok(None);
    };
    // On a shared machine anybody may listen at a port: the key is for the server
    // that drives this folder's store, and for nobody else.
    let own = store_file(config).ok().and_then(|file| serving_url(&file));
    if own.and_then(|own| own.port_or_known_default()) != url.port_or_known_default() {
        return Ok(None);
    }
    let at = local_key::path(config);
    let key = local_key::load(&at);
    key.map_err(|error| error::from_local_key_error(&error, &at).with_exit(Exit::NotAllowed).into())
}

fn is_loopback(url: &Url) -> bool {
    url.host_str().is_some_and(net::is_loopback)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_plain_http_url_is_accepted() {
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
            let read = parse_url(said).map(|url| url.to_string());
            assert_eq!(read.as_deref(), url, "{said}");
        }
    }

    #[test]
    fn the_local_key_is_sent_to_loopback_only() {
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
