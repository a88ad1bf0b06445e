//! Where a project would send what is yours: the key of a provider whose address
//! or key its own file names, the messages of your agents, and questions to
//! addresses that only your machine sees.
//!
//! Never: looks at a key. What a decision is bound to is the same whether one is
//! set or not, and whoever asks.

use std::path::Path;

use longhaul_core::net::is_loopback;
use longhaul_tool::message::Deliver;
use reqwest::Url;
use serde_json::Value as Json;

use crate::config::key::DELIVER;
use crate::config::known;
use crate::config::settings::Config;
use crate::config::value::Value;
use crate::trust::item::{Item, Kind};

/// The setting that opens addresses.
pub const ALLOW: &str = "outbound.allow";

/// The one provider whose address a variable may say.
const OLLAMA: &str = "ollama";

/// What is said where a variable says it.
const BY_VARIABLE: &str = "wherever OLLAMA_HOST says";

/// What has to be trusted before this provider is asked. `None` means that nothing goes where the
/// project's file says: neither a key of the user's nor conversations, except without a key to a
/// server on this machine.
pub fn provider(config: &Config, name: &str) -> Option<Item> {
    let path = |key: &str| format!("providers.{name}.{key}");
    let is_theirs = |key: &str| is_the_project_s(config, &path(key));
    let (added, bound) = additions(config, name);
    if !is_theirs("base_url") && !is_theirs("key_env") && added.is_empty() {
        return None;
    }
    let known = known::find(name);
    let set = config.text(&path("base_url"));
    let address = match set {
        None if name == OLLAMA => None,
        None => Some(known?.base_url),
        Some(set) => Some(set),
    };
    let keys = match config.settings.contains_key(&path("key_env")) {
        true => config.texts(&path("key_env")),
        false => {
            let names = known.map_or(&[][..], |known| known.key_env);
            names.iter().map(|name| (*name).to_owned()).collect()
        }
    };
    let headers = path("headers");
    let yours: Vec<&str> = config
        .below(&headers)
        .filter(|(_, header)| !header.origin.is_project())
        .map(|(name, _)| name)
        .collect();
    let is_known = |address: &str| known::is_address(address);
    let is_elsewhere = address.is_some_and(|address| !is_near(address) && !is_known(address));
    let is_new = is_theirs("base_url") && is_elsewhere;
    if keys.is_empty() && yours.is_empty() && added.is_empty() && !is_new {
        return None;
    }
    let address = address.unwrap_or(BY_VARIABLE);
    let mut shown = Vec::new();
    if is_new {
        shown.push(format!("sends conversations to {address}"));
    }
    if !keys.is_empty() {
        shown.push(format!("sends {} to {address}", keys.join(" or ")));
    }
    if !yours.is_empty() {
        let names = yours.join(", ");
        shown.push(format!("sends your headers {names} to {address}"));
    }
    if !added.is_empty() {
        let added = added.join(", ");
        shown.push(format!("adds {added} to every request to {address}"));
    }
    let (keys, yours) = (keys.join(","), yours.join(","));
    let mut words = vec![name, address, &keys, &yours];
    words.extend(bound.iter().map(String::as_str));
    let name = format!("providers.{name}");
    let title = format!("the provider `{name}`");
    Some(Item::new(Kind::Send, &name, title, &words).with_lines(shown))
}

/// The headers and fields that the project itself adds to every request of a provider: as they
/// are shown, and what a decision is bound to.
fn additions(config: &Config, provider: &str) -> (Vec<String>, Vec<String>) {
    let mut shown = Vec::new();
    let mut bound = Vec::new();
    for (kind, below) in [("header", "headers"), ("field", "fields")] {
        let below = format!("providers.{provider}.{below}");
        let theirs = config
            .below(&below)
            .filter(|(_, setting)| setting.origin.is_project());
        for (name, setting) in theirs {
            shown.push(format!("the {kind} `{name}`"));
            let value = match &setting.value {
                Value::Hidden(value) => value.reveal().to_owned(),
                Value::Any(json) => json.to_string(),
                Value::Text(_)
                | Value::Texts(_)
                | Value::Flag(_)
                | Value::Whole(_)
                | Value::Real(_)
                | Value::Span(_) => setting.value.shown().to_string(),
            };
            bound.push(format!("{name}={value}"));
        }
    }
    (shown, bound)
}

/// Where messages would go, where the project itself says that they leave it.
pub fn deliver(config: &Config) -> Option<Deliver> {
    let setting = config.settings.get(DELIVER)?;
    let Value::Any(Json::String(deliver)) = &setting.value else {
        return None;
    };
    if !is_the_project_s(config, DELIVER) {
        return None;
    }
    let deliver = deliver.parse().ok()?;
    match deliver {
        Deliver::Command(_) | Deliver::Webhook(_) => Some(deliver),
        Deliver::File(_) => None,
    }
}

/// What has to be trusted before a message goes this way.
pub fn delivery(root: &Path, deliver: &Deliver) -> Option<Item> {
    match deliver {
        Deliver::Command(words) => Some(Item::delivery(root, words)),
        Deliver::Webhook(url) => {
            // The path of such an address may be a secret.
            let name = format!("{deliver:?}");
            let title = format!("the address `{name}` that messages go to");
            let line = format!("posts every message of send_message to {name}");
            Some(Item::new(Kind::Send, &name, title, &[url.as_str()]).with_lines([line]))
        }
        Deliver::File(_) => None,
    }
}

/// The addresses that the project itself would open.
pub fn outbound(config: &Config) -> Option<Item> {
    let allow = config.texts(ALLOW);
    if allow.is_empty() || !is_the_project_s(config, ALLOW) {
        return None;
    }
    let words: Vec<&str> = allow.iter().map(String::as_str).collect();
    let line = format!("opens {}", allow.join(", "));
    let title = format!("the list `{ALLOW}`");
    Some(Item::new(Kind::Open, ALLOW, title, &words).with_lines([line]))
}

/// How the project itself would have the server reached.
pub fn server(config: &Config) -> Option<Item> {
    let listen = config.text("server.listen").unwrap_or_default();
    let mut shown = Vec::new();
    // Another port on this machine opens nothing more.
    if is_the_project_s(config, "server.listen") && !is_near(&format!("http://{listen}")) {
        shown.push(format!(
            "listens at {listen}, where other machines may reach it"
        ));
    }
    shown.extend(server_access(config));
    if shown.is_empty() {
        return None;
    }
    let words: Vec<&str> = shown.iter().map(String::as_str).collect();
    let used_by = ["longhaul serve", "longhaul dev"].map(str::to_owned);
    let item = Item::new(
        Kind::Open,
        "[server]",
        "the table `[server]`".to_owned(),
        &words,
    );
    Some(item.with_users(used_by.to_vec()).with_lines(shown))
}

/// What the project itself would open at whatever address the server listens.
pub(crate) fn server_access(config: &Config) -> Vec<String> {
    let is_theirs = |key: &str| is_the_project_s(config, key);
    let hosts = config.texts("server.hosts").join(", ");
    let mut shown = Vec::new();
    if is_theirs("server.hosts") && !hosts.is_empty() {
        shown.push(format!("answers requests for the hosts {hosts}"));
    }
    if is_theirs("server.open_loopback") && config.flag("server.open_loopback") {
        let words = "lets every program on this machine submit and steer runs without a key";
        shown.push(words.to_owned());
    }
    shown
}

/// What has to be trusted before an address is asked about the world.
pub fn perception(url: &str) -> Item {
    let title = format!("the perception address `{url}`");
    let line = format!("posts the input of every run to {url}");
    Item::new(Kind::Send, url, title, &[url]).with_lines([line])
}

/// Whether the project's own file says this.
pub(crate) fn is_the_project_s(config: &Config, path: &str) -> bool {
    let setting = config.settings.get(path);
    setting.is_some_and(|setting| setting.origin.is_project())
}

/// Whether an address is this machine's. What can't be read is elsewhere.
fn is_near(address: &str) -> bool {
    let Ok(url) = Url::parse(address) else {
        return false;
    };
    url.host_str().is_some_and(is_loopback)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_this_machine_is_near() {
        for (address, near) in [
            ("http://127.0.0.1:8000/v1", true),
            ("http://127.9.9.9", true),
            ("http://127.1/", true),
            ("http://[::1]:1/v1", true),
            ("http://LOCALHOST:1/", true),
            ("https://api.example/v1", false),
            ("http://localhost.evil.example", false),
            ("http://127.0.0.1.evil.example", false),
            ("http://127.0.0.1@evil.example", false),
            ("http://evil.example\\@127.0.0.1/", false),
            ("http://evil.example#@127.0.0.1/", false),
            ("http://10.0.0.1", false),
            ("http://0.0.0.0", false),
            ("127.0.0.1", false),
        ] {
            assert_eq!(is_near(address), near, "{address}");
        }
    }
}
