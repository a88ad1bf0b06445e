//! Finds all actions of a project that need trust, and creates their trust items: commands,
//! destinations of the user's data (providers, messages, requests) and access to the server.
//! Settings that the user made outside the project are not included.
//!
//! Values of API keys are not read: a trust decision is the same whether a key is set or not.

use std::collections::BTreeSet;
use std::path::Path;

use longhaul_core::net::is_loopback;
use longhaul_core::policy::effect_facts::ANY_HOST;
use longhaul_engine::agent::Agent;
use longhaul_engine::agent::check::SHELL_TOOL;
use longhaul_engine::agent::config::{IsolationLevel, PerceptionSource, SandboxConfig, Skill};
use longhaul_model::providers::built_in;
use longhaul_tool::message::DeliveryTarget;
use reqwest::Url;

use crate::agents::loaded_agents::{AgentSource, LoadedAgent, LoadedAgents};
use crate::config::inbox_folders::{INBOX_FOLDER, inbox_folders};
use crate::config::schema::DELIVER_KEY;
use crate::config::settings::Config;
use crate::config::value::SettingValue;
use crate::mcp::file::McpFile;
use crate::mcp::name::split_mcp_server_and_tool;
use crate::trust::item::{TrustItem, TrustKind};

/// Name of the tool that sends messages to a file, a program or a URL.
pub const SEND_MESSAGE_TOOL: &str = "send_message";

/// Name of the tool that fetches URLs.
const HTTP_FETCH_TOOL: &str = "http_fetch";

/// Returns all items of a project that need trust, each with the agents that use it.
pub fn discover(config: &Config, file: &McpFile, loaded: &LoadedAgents) -> Vec<TrustItem> {
    let mut items: Vec<TrustItem> = Vec::new();
    let with_users = |item: TrustItem, is_user: &dyn Fn(&Agent) -> bool| {
        let users = loaded.agents.iter().filter(|one| is_user(&one.agent));
        item.with_used_by(users.map(|one| one.agent.name.to_string()))
    };
    items.extend(TrustItem::for_mcp_servers(file).map(|item| {
        with_users(item, &|agent| {
            agent.tools.iter().any(|tool| split_mcp_server_and_tool(tool).is_some())
        })
    }));
    for source in loaded.agents.iter().filter_map(|one| perception_source(&one.agent)) {
        let item = match source {
            PerceptionSource::Command(args) => {
                TrustItem::for_perception_command(&config.root, args)
            }
            PerceptionSource::Url(url) => perception_url_trust_item(url),
            // The program registers it, so it needs no trust.
            PerceptionSource::Named(_) => continue,
        };
        if !items.iter().any(|existing| existing.title == item.title) {
            items.push(with_users(item, &|agent| perception_source(agent) == Some(source)));
        }
    }
    let has_tool = |agent: &Agent, name: &str| agent.tools.iter().any(|tool| tool == name);
    let deliver = project_delivery_target(config);
    let deliver = deliver.and_then(|deliver| delivery_trust_item(&config.root, &deliver));
    items.extend(deliver.map(|item| with_users(item, &|agent| has_tool(agent, SEND_MESSAGE_TOOL))));
    let names = config.settings_below("providers");
    let names: BTreeSet<&str> = names.filter_map(|(path, _)| path.split('.').next()).collect();
    for name in names {
        let item = provider_trust_item(config, name);
        let is_user = |agent: &Agent| uses_provider(config, agent, name);
        items.extend(item.map(|item| with_users(item, &is_user)));
    }
    items.extend(server_trust_item(config));
    items.extend(inbox_folders(config).iter().filter_map(|folder| {
        Some(folder_inbox_trust_item(folder.name.as_str(), folder.agent.as_deref()?))
    }));
    let sends_requests = |agent: &Agent| {
        has_tool(agent, HTTP_FETCH_TOOL)
            || has_tool(agent, SEND_MESSAGE_TOOL)
            || matches!(perception_source(agent), Some(PerceptionSource::Url(_)))
    };
    items.extend(outbound_trust_item(config).map(|item| with_users(item, &sends_requests)));
    let own_agents = loaded.agents.iter().filter(|one| one.source != AgentSource::BuiltIn);
    for LoadedAgent { agent, path, .. } in own_agents {
        if has_tool(agent, SHELL_TOOL) && needs_trust_for_shell(agent) {
            let mut item = shell_trust_item(agent);
            item.lines.push(format!("  defined in {}", path.display()));
            items.push(item);
        }
    }
    items
}

fn perception_source(agent: &Agent) -> Option<&PerceptionSource> {
    agent.perception.as_ref().map(|perception| &perception.source)
}

/// Whether an agent uses a model of this provider, or names no model and may get one by default.
fn uses_provider(config: &Config, agent: &Agent, provider: &str) -> bool {
    let models = config.model_aliases();
    let is_of_provider = |name: &String| {
        let alias_target = |name: &String| models.aliases.get(name).cloned();
        let target = alias_target(name).unwrap_or_else(|| name.clone());
        let target = alias_target(&target).unwrap_or(target);
        target.split_once('/').is_some_and(|(name_provider, _)| name_provider == provider)
    };
    let uses_default_model = || models.default.as_ref().is_none_or(is_of_provider);
    let mut model_names = agent.models.iter().chain(&agent.idle_models);
    model_names.any(is_of_provider) || (agent.models.is_empty() && uses_default_model())
}

/// Whether a person must approve the agent before it runs a shell command: the command has access to
/// this machine or to a network.
pub fn needs_trust_for_shell(agent: &Agent) -> bool {
    agent.sandbox.as_ref().is_none_or(|sandbox| {
        sandbox.isolation != IsolationLevel::Sandboxed || !sandbox.network.is_empty()
    })
}

/// Returns the trust item that a person must approve before this agent runs a shell command. It
/// covers the content of the agent's own file, without `AGENTS.md`; of each skill it covers only
/// the name.
pub fn shell_trust_item(agent: &Agent) -> TrustItem {
    let skills = agent
        .skills
        .iter()
        .map(|skill| Skill { name: skill.name.clone(), description: String::new() });
    let agent_without_rules =
        Agent { project_rules: String::new(), skills: skills.collect(), ..agent.clone() };
    let agent = agent.name.to_string();
    let name = format!("{SHELL_TOOL}:{agent}");
    let title = format!("the tool `{SHELL_TOOL}` of agent `{agent}`");
    let line = match agent_without_rules.sandbox_config().map(SandboxConfig::reachable_hosts) {
        None => format!("agent {agent} may run commands on this machine unsandboxed"),
        Some(hosts) if hosts == [ANY_HOST] => {
            format!("agent {agent} may run commands in a sandbox that reaches every host")
        }
        Some(hosts) => format!(
            "agent {agent} may run commands in a sandbox that reaches: {}",
            hosts.join(", ")
        ),
    };
    let digest = agent_without_rules.definition_hash().to_string();
    TrustItem::new(TrustKind::Shell, &name, title, &[digest])
        .with_description_lines([line])
        .with_used_by([agent])
}

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
        DeliveryTarget::Command(args) => Some(TrustItem::of_command(root, args, |name| {
            format!("the command `{name}` that receives messages")
        })),
        DeliveryTarget::Webhook(url) => {
            // The path of a webhook URL may be a secret.
            let name = format!("{target:?}");
            let title = format!("the address `{name}` that receives messages");
            let line = format!("posts every message of the tool send_message to {name}");
            let item = TrustItem::new(TrustKind::Send, &name, title, &[url.as_str()]);
            Some(item.with_description_lines([line]))
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
    let line = format!("allows requests to {}", allow.join(", "));
    let title = format!("the list `{ALLOW_KEY}`");
    let item = TrustItem::new(TrustKind::Open, ALLOW_KEY, title, &allow);
    Some(item.with_description_lines([line]))
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
    let title = "the table `[server]`".to_owned();
    let item = TrustItem::new(TrustKind::Open, "[server]", title, &lines);
    Some(item.with_used_by(["longhaul serve", "longhaul dev"]).with_description_lines(lines))
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
    TrustItem::new(TrustKind::Open, &path, title, &[name, agent])
        .with_used_by(["longhaul worker", "longhaul serve", "longhaul dev"])
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
