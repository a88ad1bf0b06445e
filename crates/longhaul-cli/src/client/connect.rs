//! Finds the client for a command: the server named in `LONGHAUL_URL`, else the server that drives
//! this folder's store, else the store itself.
//!
//! Invariants: a server named in `LONGHAUL_URL` is never replaced by another one, a key is sent
//! only to the server it belongs to, and no store is created only to be read.

use std::path::{Path, PathBuf};

use longhaul::project::open_runtime;
use longhaul_api::client::{self, Url, is_server_alive};
use longhaul_core::net;
use longhaul_core::time::{Clock as _, Millis};
use longhaul_engine::clock::SystemClock;
use longhaul_engine::secret::Secret;
use longhaul_project::assemble::sqlite_store_path;
use longhaul_project::config::process_env::ProcessEnv;
use longhaul_project::config::settings::Config;
use longhaul_project::{local_key, server_marker};
use longhaul_store::OpenMode;

use crate::client::Client;
use crate::environment::{caller_name, current_process_env, load_config, load_config_quietly};
use crate::error::{self, CliError};
use crate::exit::Exit;
use crate::{output, runtime, store_access};

/// Environment variable that holds the URL of the server to use.
const URL_VAR: &str = "LONGHAUL_URL";

/// Environment variable that holds the API key for the server.
const KEY_VAR: &str = "LONGHAUL_KEY";

/// Time that a stopped server gets to start again before a command stops waiting for it.
const SERVER_RESTART_TIME: Millis = Millis::from_secs(5);

/// Interval between checks whether a server still drives the store.
const SERVER_CHECK_INTERVAL: Millis = Millis::from_secs(1);

/// A connection to a server, and how the server was found.
#[derive(Debug)]
pub(crate) struct ServerConnection {
    /// HTTP client for the API of the server.
    pub(crate) client: client::Client,
    /// The store of this folder, which the server drives. `None` means that `LONGHAUL_URL` names the
    /// server, which may have other agents than this folder.
    pub(crate) store_file: Option<PathBuf>,
}

/// Calls `act` with a client of the server or of the existing store. Fails if there is neither.
pub(crate) fn with_client<T>(
    act: impl AsyncFnOnce(&Client) -> anyhow::Result<T>,
) -> anyhow::Result<T> {
    runtime::block_on(act(&connect_or_open_store(find_configured_or_local_server()?)?))
}

/// Calls `act` with a client of the server or of the store, which is created if necessary.
pub(crate) fn with_client_or_new_store<T>(
    act: impl AsyncFnOnce(&Client) -> anyhow::Result<T>,
) -> anyhow::Result<T> {
    runtime::block_on(act(&connect_or_create_store(find_configured_or_local_server()?)?))
}

/// Calls `act` with a client of the server or of the existing store. `None` means that there is
/// neither.
pub(crate) fn with_client_if_any<T>(
    act: impl AsyncFnOnce(&Client) -> anyhow::Result<T>,
) -> anyhow::Result<Option<T>> {
    let client = try_connect_or_open_store(find_configured_or_local_server()?)?;
    client.map(|client| runtime::block_on(act(&client))).transpose()
}

/// Connects to `server` or, if it is `None`, opens the existing store. Fails if there is neither.
pub(crate) fn connect_or_open_store(server: Option<ServerConnection>) -> anyhow::Result<Client> {
    try_connect_or_open_store(server)?.ok_or_else(|| store_access::no_runs_error().into())
}

/// Connects to `server` or, if it is `None`, opens the existing store, if there is one.
fn try_connect_or_open_store(server: Option<ServerConnection>) -> anyhow::Result<Option<Client>> {
    if let Some(server) = server {
        return Ok(Some(Client::for_server(server.client, server.store_file)));
    }
    let runtime = store_access::open_existing_store_as_observer()?;
    runtime.map(|runtime| Client::for_store(&runtime)).transpose()
}

/// Connects to `server` or, if it is `None`, opens the store and creates it if necessary.
pub(crate) fn connect_or_create_store(server: Option<ServerConnection>) -> anyhow::Result<Client> {
    match server {
        Some(server) => Ok(Client::for_server(server.client, server.store_file)),
        None => {
            let config = load_config(&current_process_env()?)?;
            let options = store_access::store_open_options(OpenMode::Outsider);
            Client::for_store(&open_runtime(config, options)?)
        }
    }
}

/// Finds the server named in `LONGHAUL_URL`, or else the one that drives this folder's store.
/// `None` means that there is neither.
pub(crate) fn find_configured_or_local_server() -> anyhow::Result<Option<ServerConnection>> {
    let process_env = current_process_env()?;
    match process_env.var(URL_VAR) {
        Some(url) => connect_to_configured_server(&process_env, url).map(Some),
        None => find_local_server(&process_env),
    }
}

/// Returns the connection to the server whose URL is in `LONGHAUL_URL`.
fn connect_to_configured_server(
    process_env: &ProcessEnv,
    value: &str,
) -> anyhow::Result<ServerConnection> {
    let Some(url) = parse_server_url(value) else {
        let message = format!("{URL_VAR}={value} is not a valid server URL");
        return Err(CliError::usage_error(message)
            .with_hint("for example", format!("{URL_VAR}=http://127.0.0.1:4180 longhaul ls"))
            .with_hint("or use the store of this folder", format!("{URL_VAR}= longhaul ls"))
            .into());
    };
    // An invalid configuration only means that there is no local key.
    let config = load_config_quietly(process_env).ok();
    let key = select_api_key(process_env, &url, config.as_ref())?;
    if key.is_some() && url.scheme() == "http" && !is_loopback(&url) {
        let host = url.host_str().unwrap_or_default();
        output::eprint_line(&format!(
            "warning: the key is sent to {host} without TLS and can be read on the way; use https://"
        ));
    }
    Ok(ServerConnection { client: build_api_client(url, key.as_ref())?, store_file: None })
}

fn build_api_client(url: Url, key: Option<&Secret>) -> anyhow::Result<client::Client> {
    Ok(client::Client::new(url, key.map(Secret::reveal), Some(&caller_name()))?)
}

/// Returns the connection to the server that drives this folder's store, if such a server responds.
fn find_local_server(process_env: &ProcessEnv) -> anyhow::Result<Option<ServerConnection>> {
    // Errors in the settings or the store are reported when the store is opened.
    let config = load_config_quietly(process_env).ok();
    let store_file = config.as_ref().and_then(|config| sqlite_store_path(config).ok());
    let Some(store_file) = store_file else { return Ok(None) };
    let Some(url) = local_server_url(&store_file) else { return Ok(None) };
    if !runtime::block_on(async { Ok(is_server_alive(&url).await) })? {
        return Ok(None);
    }
    let key = select_api_key(process_env, &url, config.as_ref())?;
    let client = build_api_client(url, key.as_ref())?;
    Ok(Some(ServerConnection { client, store_file: Some(store_file) }))
}

/// Waits until the server that drives this store has been gone, or at another address, for
/// `SERVER_RESTART_TIME`. Without a store it waits forever: that server may return at any time.
pub(crate) async fn wait_until_server_is_gone(store_file: Option<&Path>) {
    let Some(store_file) = store_file else {
        return std::future::pending().await;
    };
    let first_url = local_server_url(store_file);
    let mut gone_since = None;
    loop {
        let now = SystemClock.monotonic_time();
        gone_since = match first_url.is_some() && local_server_url(store_file) == first_url {
            true => None,
            false => gone_since.or(Some(now)),
        };
        if gone_since.is_some_and(|since| now.minus(since) >= SERVER_RESTART_TIME) {
            return;
        }
        SystemClock.sleep(SERVER_CHECK_INTERVAL).await;
    }
}

/// Returns the URL of the server that drives this store, from the server's marker file. A crashed
/// server leaves that file behind, and another program may use the port by now. The result is
/// therefore `None` unless the process that the file names holds the store's lock.
fn local_server_url(store_file: &Path) -> Option<Url> {
    let marker = server_marker::load_running_server_record(store_file)?;
    let driver = longhaul_store::driver_process_description(store_file).ok()??;
    let (pid_prefix, url_suffix) = (format!("pid {},", marker.pid), format!(" at {}", marker.url));
    let is_same_process = driver.starts_with(&pid_prefix) && driver.ends_with(&url_suffix);
    is_same_process.then(|| parse_server_url(&marker.url))?
}

/// Parses a server URL: http or https, without credentials, query or fragment. `None` means that
/// the text is no such URL.
fn parse_server_url(text: &str) -> Option<Url> {
    let url: Url = text.trim().parse().ok()?;
    let is_http = matches!(url.scheme(), "http" | "https") && url.has_host();
    let has_no_credentials = url.username().is_empty() && url.password().is_none();
    let has_no_query = url.query().is_none() && url.fragment().is_none();
    (is_http && has_no_credentials && has_no_query).then_some(url)
}

/// Returns the API key in `LONGHAUL_KEY`, or else this machine's local key, which is sent only to a
/// loopback address.
fn select_api_key(
    process_env: &ProcessEnv,
    url: &Url,
    config: Option<&Config>,
) -> anyhow::Result<Option<Secret>> {
    if let Some(value) = process_env.var(KEY_VAR) {
        return Ok(Some(Secret::from_text(value.trim())));
    }
    let Some(config) = config.filter(|_| is_loopback(url)) else {
        return Ok(None);
    };
    // On a shared machine any user may listen on a port. The local key is sent only to the server
    // that drives this folder's store.
    let local_url = sqlite_store_path(config).ok().and_then(|file| local_server_url(&file));
    if local_url.and_then(|local_url| local_url.port_or_known_default())
        != url.port_or_known_default()
    {
        return Ok(None);
    }
    let key_path = local_key::local_key_path(config);
    let key = local_key::load_local_key(&key_path);
    key.map_err(|error| {
        error::from_local_key_error(&error, &key_path).with_exit_code(Exit::NotAllowed).into()
    })
}

fn is_loopback(url: &Url) -> bool {
    url.host_str().is_some_and(net::is_loopback)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_plain_http_url_is_accepted() {
        for (input, url) in [
            ("http://127.0.0.1:4700", Some("http://127.0.0.1:4700/")),
            (" https://a.example/x ", Some("https://a.example/x")),
            ("http://me:secret@a.example", None),
            ("http://a.example/?x", None),
            ("ftp://a.example", None),
            ("127.0.0.1:4700", None),
            ("localhost:4700", None),
            ("", None),
        ] {
            let parsed = parse_server_url(input).map(|url| url.to_string());
            assert_eq!(parsed.as_deref(), url, "{input}");
        }
    }

    #[test]
    fn the_local_key_is_sent_to_loopback_only() {
        for (url, expected) in [
            ("http://127.0.0.1:1", true),
            ("http://127.9.9.9", true),
            ("http://[::1]:1", true),
            ("http://localhost:1", true),
            ("http://10.0.0.1", false),
            ("http://localhost.example", false),
            ("http://[2001:db8::1]", false),
            ("https://a.example", false),
        ] {
            assert_eq!(is_loopback(&url.parse().unwrap()), expected, "{url}");
        }
    }
}
