//! The model providers of a project: the built-in providers and those of its settings.
//!
//! Invariant: API keys are never shown. Messages name only the variable that contains a key.

use std::time::Duration;

use longhaul_core::suggest::most_similar_name;
use longhaul_core::time::Millis;
use longhaul_model::http::HttpLimits;
use longhaul_model::key::ApiKey;
use serde_json::{Map, Value as Json};

use crate::assemble::ollama_host;
use crate::config::built_in_providers::{self, ApiFormat, BUILT_IN_PROVIDERS, SCRIPTED_PROVIDER};
use crate::config::env::Env;
use crate::config::settings::Config;
use crate::config::value::{SecretText, SettingValue};

/// A model provider: its URL, API format, key variables and request settings.
#[derive(Debug, Clone)]
pub struct Provider {
    /// Name of the provider, as written before the `/` of a model name.
    pub name: String,
    /// API format of the provider's server.
    pub api: ApiFormat,
    /// Base URL, as the provider's own SDK expects it.
    pub base_url: String,
    /// Environment variables that may contain the API key. An empty list means that no key is
    /// needed.
    pub key_env: Vec<String>,
    /// JSON fields that are added to every request to the provider.
    pub fields: Map<String, Json>,
    /// Names of the provider's deviations from the standard API format.
    pub quirks: Vec<String>,
    /// Timeouts and size limits of requests to the provider.
    pub limits: HttpLimits,
    /// Whether the user or the project configured a setting of this provider.
    pub is_configured: bool,
    headers: Vec<(String, SecretText)>,
}

impl Provider {
    /// Returns the API key and the name of the variable that contains it. `None` means that no
    /// variable is set.
    pub fn variable_and_api_key(&self, env: &Env) -> Option<(&str, ApiKey)> {
        let mut keys = self.key_env.iter().filter_map(|name| {
            let value = env.var(name)?;
            Some((name.as_str(), ApiKey::new(value)))
        });
        keys.next()
    }

    pub fn needs_api_key(&self) -> bool {
        !self.key_env.is_empty()
    }

    /// Returns the names of the variables that may contain the API key, as one text for messages.
    pub fn joined_api_key_variable_names(&self) -> String {
        self.key_env.join(" or ")
    }

    /// Returns the HTTP headers, with their secret values, that are added to every request to the
    /// provider.
    pub fn unredacted_headers(&self) -> Vec<(String, String)> {
        let pairs = self.headers.iter();
        pairs.map(|(name, value)| (name.clone(), value.reveal().to_owned())).collect()
    }

    fn from_config(provider_name: &str, config: &Config) -> Option<Self> {
        let setting_path = |key: &str| format!("providers.{provider_name}.{key}");
        let built_in = built_in_providers::find_built_in_provider(provider_name);
        let api = config.text(&setting_path("api")).and_then(ApiFormat::from_name);
        let host = (provider_name == "ollama").then(|| config.env.var(ollama_host::HOST_VAR));
        let host = host.flatten().and_then(ollama_host::ollama_base_url);
        let base_url = config.text(&setting_path("base_url")).map(str::to_owned);
        let key_env = match config.settings.contains_key(&setting_path("key_env")) {
            true => config.text_list(&setting_path("key_env")),
            false => {
                let names = built_in.map_or(&[][..], |built_in| built_in.key_env);
                names.iter().map(|name| (*name).to_owned()).collect()
            }
        };
        let defaults = HttpLimits::default();
        let duration_or = |key: &str, default: Duration| {
            let configured = config.duration(&setting_path(key));
            configured.map_or(default, |Millis(millis)| Duration::from_millis(millis))
        };
        let settings_prefix = format!("providers.{provider_name}");
        Some(Self {
            name: provider_name.to_owned(),
            api: api.or(built_in.map(|built_in| built_in.api))?,
            is_configured: host.is_some()
                || config.settings_below(&settings_prefix).next().is_some(),
            base_url: base_url.or(host).or(built_in.map(|built_in| built_in.base_url.to_owned()))?,
            key_env,
            headers: configured_request_headers(config, &setting_path("headers")),
            fields: configured_request_fields(config, &setting_path("fields")),
            quirks: config.text_list(&setting_path("quirks")),
            limits: HttpLimits {
                connect: duration_or("connect_timeout", defaults.connect),
                first_byte: duration_or("first_byte_timeout", defaults.first_byte),
                idle: duration_or("idle_timeout", defaults.idle),
                ..defaults
            },
        })
    }
}

fn configured_request_headers(config: &Config, setting_path: &str) -> Vec<(String, SecretText)> {
    let all = config.settings_below(setting_path).filter_map(|(name, setting)| {
        let SettingValue::Secret(value) = &setting.value else {
            return None;
        };
        Some((name.to_owned(), value.clone()))
    });
    all.collect()
}

fn configured_request_fields(config: &Config, setting_path: &str) -> Map<String, Json> {
    let all = config.settings_below(setting_path).filter_map(|(name, setting)| {
        let SettingValue::Any(value) = &setting.value else {
            return None;
        };
        Some((name.to_owned(), value.clone()))
    });
    all.collect()
}

/// All model providers: the built-in ones first, then those of the settings.
#[derive(Debug, Clone)]
pub struct Providers(Vec<Provider>);

impl Providers {
    /// Creates the providers of a project from its settings.
    pub fn from_config(config: &Config) -> Self {
        let mut names: Vec<&str> =
            BUILT_IN_PROVIDERS.iter().map(|built_in| built_in.name).collect();
        for (path, _) in config.settings_below("providers") {
            let name = path.split('.').next().unwrap_or_default();
            if !names.contains(&name) {
                names.push(name);
            }
        }
        let all = names.into_iter();
        Self(all.filter_map(|name| Provider::from_config(name, config)).collect())
    }

    /// Returns all providers that have a server, so not `scripted` and `cassette`.
    pub fn as_slice(&self) -> &[Provider] {
        &self.0
    }

    /// Returns the provider with this name.
    ///
    /// # Errors
    /// The name is unknown. The message has a suggestion and explains how to define a provider.
    pub fn find_provider(&self, name: &str) -> Result<&Provider, String> {
        let found = self.0.iter().find(|provider| provider.name == name);
        found.ok_or_else(|| self.unknown_provider_message(name))
    }

    /// Returns a message with a suggestion if there is no provider with this name.
    pub fn missing_provider_message(&self, name: &str) -> Option<String> {
        if self.0.iter().any(|provider| provider.name == name) {
            return None;
        }
        let names = self.0.iter().map(|provider| provider.name.as_str());
        let suggestion = most_similar_name(name, names.chain([SCRIPTED_PROVIDER]));
        let suggestion =
            suggestion.map_or(String::new(), |suggestion| format!(" Did you mean `{suggestion}`?"));
        Some(format!("There is no provider `{name}`.{suggestion}"))
    }

    fn unknown_provider_message(&self, name: &str) -> String {
        let message = self.missing_provider_message(name).unwrap_or_default();
        let is_name_char = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
        let table_name = match !name.is_empty() && name.chars().all(is_name_char) {
            true => name,
            false => "NAME",
        };
        let variable = table_name.to_uppercase().replace('-', "_");
        format!(
            "{message} To define it, add to longhaul.toml:\n  \
             [providers.{table_name}]\n  api = \"chat\"\n  base_url = \"https://HOST/v1\"\n  \
             key_env = \"{variable}_API_KEY\""
        )
    }
}
