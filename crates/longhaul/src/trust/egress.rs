//! Where a project would send what is yours: the key of a provider whose address
//! or key its own file names, the messages of your agents, and questions to
//! addresses that only your machine sees.
//!
//! Never: looks at a key. What a decision is bound to is the same whether one is
//! set or not, and whoever asks.

use std::path::Path;

use longhaul_core::net::is_loopback;
use longhaul_tool::message::DeliveryTarget;
use reqwest::Url;
use serde_json::Value as Json;

use crate::config::built_in_providers;
use crate::config::schema::DELIVER_KEY;
use crate::config::settings::Config;
use crate::config::value::Value;
use crate::trust::item::{TrustItem, TrustKind};

/// The setting that opens addresses.
pub const ALLOW_KEY: &str = "outbound.allow";

/// The one provider whose address a variable may say.
const OLLAMA: &str = "ollama";

/// What is said where a variable says it.
const FROM_OLLAMA_HOST: &str = "wherever OLLAMA_HOST says";

/// What has to be trusted before this provider is asked. `None` means that nothing goes where the
/// project's file says: neither a key of the user's nor conversations, except without a key to a
/// server on this machine.
pub fn provider_item(config: &Config, name: &str) -> Option<TrustItem> {
    let path = |key: &str| format!("providers.{name}.{key}");
    let is_theirs = |key: &str| is_set_by_project(config, &path(key));
    let (added, bound) = project_additions(config, name);
    if !is_theirs("base_url") && !is_theirs("key_env") && added.is_empty() {
        return None;
    }
    let known = built_in_providers::find(name);
    let set = config.text(&path("base_url"));
    let address = match set {
        None if name == OLLAMA => None,
        None => Some(known?.base_url),
        Some(set) => Some(set),
    };
    let keys = match config.settings.contains_key(&path("key_env")) {
        true => config.text_list(&path("key_env")),
        false => {
            let names = known.map_or(&[][..], |known| known.key_env);
            names.iter().map(|name| (*name).to_owned()).collect()
        }
    };
    let headers = path("headers");
    let yours: Vec<&str> = config
        .settings_below(&headers)
        .filter(|(_, header)| !header.origin.is_project())
        .map(|(name, _)| name)
        .collect();
    let is_known = |address: &str| built_in_providers::is_base_url(address);
    let is_elsewhere =
        address.is_some_and(|address| !is_loopback_url(address) && !is_known(address));
    let is_new = is_theirs("base_url") && is_elsewhere;
    if keys.is_empty() && yours.is_empty() && added.is_empty() && !is_new {
        return None;
    }
    let address = address.unwrap_or(FROM_OLLAMA_HOST);
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
    Some(TrustItem::new(TrustKind::Send, &name, title, &words).with_lines(shown))
}

/// The headers and fields that the project itself adds to every request of a provider: as they
/// are shown, and what a decision is bound to.
fn project_additions(config: &Config, provider: &str) -> (Vec<String>, Vec<String>) {
    let mut shown = Vec::new();
    let mut bound = Vec::new();
    for (kind, below) in [("header", "headers"), ("field", "fields")] {
        let below = format!("providers.{provider}.{below}");
        let theirs =
            config.settings_below(&below).filter(|(_, setting)| setting.origin.is_project());
        for (name, setting) in theirs {
            shown.push(format!("the {kind} `{name}`"));
            let value = match &setting.value {
                Value::Secret(value) => value.reveal().to_owned(),
                Value::Any(json) => json.to_string(),
                Value::Text(_)
                | Value::TextList(_)
                | Value::Boolean(_)
                | Value::Integer(_)
                | Value::Float(_)
                | Value::Duration(_) => setting.value.redacted_json().to_string(),
            };
            bound.push(format!("{name}={value}"));
        }
    }
    (shown, bound)
}

/// Where messages would go, where the project itself says that they leave it.
pub fn project_delivery_target(config: &Config) -> Option<DeliveryTarget> {
    let setting = config.settings.get(DELIVER_KEY)?;
    let Value::Any(Json::String(deliver)) = &setting.value else {
        return None;
    };
    if !is_set_by_project(config, DELIVER_KEY) {
        return None;
    }
    let deliver = deliver.parse().ok()?;
    match deliver {
        DeliveryTarget::Command(_) | DeliveryTarget::Webhook(_) => Some(deliver),
        DeliveryTarget::File(_) => None,
    }
}

/// What has to be trusted before a message goes this way.
pub fn delivery_item(root: &Path, deliver: &DeliveryTarget) -> Option<TrustItem> {
    match deliver {
        DeliveryTarget::Command(words) => Some(TrustItem::delivery(root, words)),
        DeliveryTarget::Webhook(url) => {
            // The path of such an address may be a secret.
            let name = format!("{deliver:?}");
            let title = format!("the address `{name}` that messages go to");
            let line = format!("posts every message of send_message to {name}");
            Some(TrustItem::new(TrustKind::Send, &name, title, &[url.as_str()]).with_lines([line]))
        }
        DeliveryTarget::File(_) => None,
    }
}

/// The addresses that the project itself would open.
pub fn outbound_item(config: &Config) -> Option<TrustItem> {
    let allow = config.text_list(ALLOW_KEY);
    if allow.is_empty() || !is_set_by_project(config, ALLOW_KEY) {
        return None;
    }
    let words: Vec<&str> = allow.iter().map(String::as_str).collect();
    let line = format!("opens {}", allow.join(", "));
    let title = format!("the list `{ALLOW_KEY}`");
    Some(TrustItem::new(TrustKind::Open, ALLOW_KEY, title, &words).with_lines([line]))
}

/// How the project itself would have the server reached.
pub fn server_item(config: &Config) -> Option<TrustItem> {
    let listen = config.text("server.listen").unwrap_or_default();
    let mut shown = Vec::new();
    // Another port on this machine opens nothing more.
    if is_set_by_project(config, "server.listen") && !is_loopback_url(&format!("http://{listen}")) {
        shown.push(format!("listens at {listen}, where other machines may reach it"));
    }
    shown.extend(server_access(config));
    if shown.is_empty() {
        return None;
    }
    let words: Vec<&str> = shown.iter().map(String::as_str).collect();
    let used_by = ["longhaul serve", "longhaul dev"].map(str::to_owned);
    let item =
        TrustItem::new(TrustKind::Open, "[server]", "the table `[server]`".to_owned(), &words);
    Some(item.with_users(used_by.to_vec()).with_lines(shown))
}

/// What the project itself would open at whatever address the server listens.
pub(crate) fn server_access(config: &Config) -> Vec<String> {
    let is_theirs = |key: &str| is_set_by_project(config, key);
    let hosts = config.text_list("server.hosts").join(", ");
    let mut shown = Vec::new();
    if is_theirs("server.hosts") && !hosts.is_empty() {
        shown.push(format!("answers requests for the hosts {hosts}"));
    }
    if is_theirs("server.open_loopback") && config.boolean("server.open_loopback") {
        let words = "lets every program on this machine submit and steer runs without a key";
        shown.push(words.to_owned());
    }
    shown
}

/// What has to be trusted before an address is asked about the world.
pub fn perception_item(url: &str) -> TrustItem {
    let title = format!("the perception address `{url}`");
    let line = format!("posts the input of every run to {url}");
    TrustItem::new(TrustKind::Send, url, title, &[url]).with_lines([line])
}

/// Whether the project's own file says this.
pub(crate) fn is_set_by_project(config: &Config, path: &str) -> bool {
    let setting = config.settings.get(path);
    setting.is_some_and(|setting| setting.origin.is_project())
}

/// Whether an address is this machine's. What can't be read is elsewhere.
fn is_loopback_url(address: &str) -> bool {
    let Ok(url) = Url::parse(address) else {
        return false;
    };
    url.host_str().is_some_and(is_loopback)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_loopback_urls_are_local() {
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
            assert_eq!(is_loopback_url(address), near, "{address}");
        }
    }
}
