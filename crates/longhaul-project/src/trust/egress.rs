//! Destinations to which a project would send the user's data: API keys and conversations to a
//! provider whose URL or key the project sets, messages of agents, and requests to hosts that are
//! reachable only from this machine.
//!
//! Values of API keys are not read: a trust decision is the same whether a key is set or not.

use std::path::Path;

use longhaul_core::net::is_loopback;
use longhaul_tool::message::DeliveryTarget;
use reqwest::Url;

use crate::config::inbox_folders::INBOX_FOLDER;
use crate::config::schema::DELIVER_KEY;
use crate::config::settings::Config;
use crate::config::value::SettingValue;
use crate::trust::item::{TrustItem, TrustKind};
use longhaul_model::providers::built_in;

/// Path of the setting with the outbound allowlist (hosts that agents may reach).
pub const ALLOW_KEY: &str = "outbound.allow";

/// Name of the only provider whose URL may come from an environment variable.
const OLLAMA: &str = "ollama";

/// Text that is shown instead of the URL if `OLLAMA_HOST` sets the URL.
const FROM_OLLAMA_HOST: &str = "the address in OLLAMA_HOST";

/// Returns the trust item that a person must approve before this provider is used. `None` means
/// that no trust is needed: the project does not change where keys and conversations are sent, or
/// they stay on this machine and no key is sent.
pub fn provider_trust_item(config: &Config, name: &str) -> Option<TrustItem> {
    let setting_path = |key: &str| format!("providers.{name}.{key}");
    let is_project_setting = |key: &str| is_set_by_project(config, &setting_path(key));
    let (additions, digest_texts) = project_additions(config, name);
    if !is_project_setting("base_url") && !is_project_setting("key_env") && additions.is_empty() {
        return None;
    }
    let built_in = built_in::find_built_in_provider(name);
    let base_url = config.text(&setting_path("base_url"));
    let address = match base_url {
        None if name == OLLAMA => None,
        None => Some(built_in?.base_url),
        Some(base_url) => Some(base_url),
    };
    let key_variables = match config.settings.contains_key(&setting_path("key_env")) {
        true => config.text_list(&setting_path("key_env")),
        false => {
            let names = built_in.map_or(&[][..], |built_in| built_in.key_env);
            names.iter().map(|name| (*name).to_owned()).collect()
        }
    };
    let headers = setting_path("headers");
    let user_values: Vec<&str> = config
        .settings_below(&headers)
        .filter(|(_, header)| !header.origin.is_from_project_file())
        .map(|(name, _)| name)
        .collect();
    let is_known = |address: &str| built_in::is_built_in_base_url(address);
    let is_unknown_remote =
        address.is_some_and(|address| !is_loopback_url(address) && !is_known(address));
    let is_new = is_project_setting("base_url") && is_unknown_remote;
    if key_variables.is_empty() && user_values.is_empty() && additions.is_empty() && !is_new {
        return None;
    }
    let address = address.unwrap_or(FROM_OLLAMA_HOST);
    let mut lines = Vec::new();
    if is_new {
        lines.push(format!("sends conversations to {address}"));
    }
    if !key_variables.is_empty() {
        lines.push(format!("sends {} to {address}", key_variables.join(" or ")));
    }
    if !user_values.is_empty() {
        let names = user_values.join(", ");
        lines.push(format!("sends your headers {names} to {address}"));
    }
    if !additions.is_empty() {
        let additions = additions.join(", ");
        lines.push(format!("adds {additions} to every request to {address}"));
    }
    let (key_variables, user_values) = (key_variables.join(","), user_values.join(","));
    let mut digest_parts = vec![name, address, &key_variables, &user_values];
    digest_parts.extend(digest_texts.iter().map(String::as_str));
    let name = format!("providers.{name}");
    let title = format!("the provider `{name}`");
    Some(TrustItem::new(TrustKind::Send, &name, title, &digest_parts).with_description_lines(lines))
}

/// Returns the headers and fields that the project adds to every request of a provider, as two
/// lists: names to show to a person, and `name=value` texts that the trust digest covers.
fn project_additions(config: &Config, provider: &str) -> (Vec<String>, Vec<String>) {
    let mut lines = Vec::new();
    let mut digest_parts = Vec::new();
    for (header_or_field, table) in [("header", "headers"), ("field", "fields")] {
        let table = format!("providers.{provider}.{table}");
        let additions = config
            .settings_below(&table)
            .filter(|(_, setting)| setting.origin.is_from_project_file());
        for (name, setting) in additions {
            lines.push(format!("the {header_or_field} `{name}`"));
            let value = match &setting.value {
                SettingValue::Secret(value) => value.reveal().to_owned(),
                SettingValue::Json(json) => json.to_string(),
                SettingValue::Duration(_) => setting.value.redacted_json().to_string(),
            };
            digest_parts.push(format!("{name}={value}"));
        }
    }
    (lines, digest_parts)
}

/// Returns the delivery target of messages if the project itself sets it and it is not a file.
pub fn project_delivery_target(config: &Config) -> Option<DeliveryTarget> {
    let setting = config.settings.get(DELIVER_KEY)?;
    let deliver = setting.value.as_str().filter(|_| setting.origin.is_from_project_file())?;
    let deliver = deliver.parse().ok()?;
    match deliver {
        DeliveryTarget::Command(_) | DeliveryTarget::Webhook(_) => Some(deliver),
        DeliveryTarget::File(_) => None,
    }
}

/// Returns the trust item that a person must approve before messages are delivered to this target.
/// `None` means that no trust is needed.
pub fn delivery_trust_item(root: &Path, target: &DeliveryTarget) -> Option<TrustItem> {
    match target {
        DeliveryTarget::Command(args) => Some(TrustItem::for_delivery_command(root, args)),
        DeliveryTarget::Webhook(url) => {
            // The path of a webhook URL may be a secret.
            let name = format!("{target:?}");
            let title = format!("the address `{name}` that receives messages");
            let line = format!("posts every message of the tool send_message to {name}");
            Some(
                TrustItem::new(TrustKind::Send, &name, title, &[url.as_str()])
                    .with_description_lines([line]),
            )
        }
        DeliveryTarget::File(_) => None,
    }
}

/// Returns the trust item for the hosts that the project adds to the outbound allowlist. `None`
/// means that the project adds no hosts.
pub fn outbound_trust_item(config: &Config) -> Option<TrustItem> {
    let allow = config.text_list(ALLOW_KEY);
    if allow.is_empty() || !is_set_by_project(config, ALLOW_KEY) {
        return None;
    }
    let digest_parts: Vec<&str> = allow.iter().map(String::as_str).collect();
    let line = format!("allows requests to {}", allow.join(", "));
    let title = format!("the list `{ALLOW_KEY}`");
    Some(
        TrustItem::new(TrustKind::Open, ALLOW_KEY, title, &digest_parts)
            .with_description_lines([line]),
    )
}

/// Returns the trust item for the project's server settings that allow more access than the
/// defaults. `None` means that there are no such settings.
pub fn server_trust_item(config: &Config) -> Option<TrustItem> {
    let listen = config.text("server.listen").unwrap_or_default();
    let mut lines = Vec::new();
    // Another port on this machine gives no additional access.
    if is_set_by_project(config, "server.listen") && !is_loopback_url(&format!("http://{listen}")) {
        lines.push(format!("listens on {listen}, which other machines may reach"));
    }
    lines.extend(project_server_access(config));
    if lines.is_empty() {
        return None;
    }
    let digest_parts: Vec<&str> = lines.iter().map(String::as_str).collect();
    let used_by = ["longhaul serve", "longhaul dev"].map(str::to_owned);
    let item = TrustItem::new(
        TrustKind::Open,
        "[server]",
        "the table `[server]`".to_owned(),
        &digest_parts,
    );
    Some(item.with_used_by(used_by.to_vec()).with_description_lines(lines))
}

/// Returns lines that describe the access to the server that the project's settings allow in
/// addition to the defaults, whatever the listen address is.
pub fn project_server_access(config: &Config) -> Vec<String> {
    let is_project_setting = |key: &str| is_set_by_project(config, key);
    let hosts = config.text_list("server.hosts").join(", ");
    let mut lines = Vec::new();
    if is_project_setting("server.hosts") && !hosts.is_empty() {
        lines.push(format!("answers requests for the hosts {hosts}"));
    }
    if is_project_setting("server.open_loopback") && config.boolean("server.open_loopback") {
        let line = "lets every program on this machine submit and steer runs without a key";
        lines.push(line.to_owned());
    }
    lines
}

/// Returns the trust item that a person must approve before a folder inbox of a project is served:
/// each file in it starts a run, without any command of the user.
pub fn folder_inbox_trust_item(name: &str, agent: &str) -> TrustItem {
    let path = format!("{INBOX_FOLDER}/{name}");
    let title = format!("the folder inbox `{path}`");
    let line = format!("runs the agent `{agent}` on every file in {path}");
    let used_by = ["longhaul worker", "longhaul serve", "longhaul dev"].map(str::to_owned);
    TrustItem::new(TrustKind::Open, &path, title, &[name, agent])
        .with_used_by(used_by.to_vec())
        .with_description_lines([line])
}

/// Returns the trust item that a person must approve before requests are sent to a perception URL,
/// which returns data about the outside world.
pub fn perception_url_trust_item(url: &str) -> TrustItem {
    let title = format!("the perception address `{url}`");
    let line = format!("posts the input of every run to {url}");
    TrustItem::new(TrustKind::Send, url, title, &[url]).with_description_lines([line])
}

/// Whether a file of the project sets this setting.
pub(crate) fn is_set_by_project(config: &Config, setting_path: &str) -> bool {
    let setting = config.settings.get(setting_path);
    setting.is_some_and(|setting| setting.origin.is_from_project_file())
}

/// Whether the host of a URL is this machine. An invalid URL gives `false`.
fn is_loopback_url(url_text: &str) -> bool {
    let Ok(url) = Url::parse(url_text) else {
        return false;
    };
    url.host_str().is_some_and(is_loopback)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_loopback_urls_are_local() {
        for (address, is_local) in [
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
            assert_eq!(is_loopback_url(address), is_local, "{address}");
        }
    }
}
