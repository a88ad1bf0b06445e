//! Model providers: their addresses, API formats and keys, the choice of a model, and the opening of
//! models.
//!
//! Invariant: API keys are never shown. Messages name only the variable that contains a key.

pub mod built_in;
pub mod model_choice;
mod ollama;
mod ollama_host;
pub mod open;

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use longhaul_core::suggest::most_similar_name;
use longhaul_core::time::Millis;
use serde_json::{Map, Value as Json};

use crate::http::HttpLimits;
use crate::key::ApiKey;
use crate::providers::built_in::{ApiFormat, BUILT_IN_PROVIDERS, SCRIPTED_PROVIDER};

/// Settings of a provider. They override those of the built-in provider with the same name.
#[derive(Debug, Clone, Default)]
pub struct ProviderSettings {
    /// API format of the provider's server.
    pub api: Option<ApiFormat>,
    /// Base URL, as the provider's own SDK expects it.
    pub base_url: Option<String>,
    /// Environment variables that may contain the API key.
    pub key_env: Option<Vec<String>>,
    /// HTTP headers that are added to every request.
    pub headers: RequestHeaders,
    /// JSON fields that are added to every request.
    pub fields: Map<String, Json>,
    /// Names of the provider's deviations from the standard API format.
    pub quirks: Vec<String>,
    /// Timeout for connecting.
    pub connect_timeout: Option<Millis>,
    /// Timeout for the first byte of a response.
    pub first_byte_timeout: Option<Millis>,
    /// Timeout between two parts of a response.
    pub idle_timeout: Option<Millis>,
}

/// HTTP headers, whose values may be secrets.
#[derive(Clone, Default)]
pub struct RequestHeaders(pub Vec<(String, String)>);

impl fmt::Debug for RequestHeaders {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("RequestHeaders(hidden)")
    }
}

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
    /// Timeouts and size limits of requests to the provider.
    pub limits: HttpLimits,
    /// Whether the user or the project configured a setting of this provider.
    pub is_configured: bool,
    /// What is configured for this provider.
    pub settings: ProviderSettings,
    variable_and_key: Option<(String, ApiKey)>,
}

impl Provider {
    /// Returns the API key and the name of the variable that contains it. `None` means that no
    /// variable is set.
    pub fn variable_and_api_key(&self) -> Option<(&str, &ApiKey)> {
        self.variable_and_key.as_ref().map(|(variable, key)| (variable.as_str(), key))
    }

    /// Whether requests to the provider need an API key.
    pub fn needs_api_key(&self) -> bool {
        !self.key_env.is_empty()
    }

    /// Returns the names of the variables that may contain the API key, as one text for messages.
    pub fn joined_api_key_variable_names(&self) -> String {
        self.key_env.join(" or ")
    }

    /// Returns the HTTP headers, with their secret values, that are added to every request to the
    /// provider.
    pub fn unredacted_headers(&self) -> &[(String, String)] {
        &self.settings.headers.0
    }

    fn new(
        name: &str,
        settings: Option<&ProviderSettings>,
        var: &impl Fn(&str) -> Option<String>,
    ) -> Option<Self> {
        let built_in = built_in::find_built_in_provider(name);
        let is_configured = settings.is_some();
        let settings = settings.cloned().unwrap_or_default();
        let host = (name == "ollama").then(|| var(ollama_host::HOST_VAR)).flatten();
        let host = host.and_then(|host| ollama_host::ollama_base_url(&host));
        let key_env = settings.key_env.clone().unwrap_or_else(|| {
            let names = built_in.map_or(&[][..], |built_in| built_in.key_env);
            names.iter().map(|name| (*name).to_owned()).collect()
        });
        let defaults = HttpLimits::default();
        let duration_or = |configured: Option<Millis>, default: Duration| {
            configured.map_or(default, |Millis(millis)| Duration::from_millis(millis))
        };
        Some(Self {
            name: name.to_owned(),
            api: settings.api.or(built_in.map(|built_in| built_in.api))?,
            is_configured: is_configured || host.is_some(),
            base_url: { settings.base_url.clone() }
                .or(host)
                .or(built_in.map(|built_in| built_in.base_url.to_owned()))?,
            variable_and_key: key_env
                .iter()
                .find_map(|name| Some((name.clone(), ApiKey::new(&var(name)?)))),
            key_env,
            limits: HttpLimits {
                connect: duration_or(settings.connect_timeout, defaults.connect),
                first_byte: duration_or(settings.first_byte_timeout, defaults.first_byte),
                idle: duration_or(settings.idle_timeout, defaults.idle),
                ..defaults
            },
            settings,
        })
    }
}

/// All model providers: the built-in ones first, then those of the settings.
#[derive(Debug, Clone)]
pub struct Providers(Vec<Provider>);

impl Providers {
    /// Creates the providers. `settings` has the configured providers by name; `var` returns the
    /// value of an environment variable.
    pub fn new(
        settings: &BTreeMap<String, ProviderSettings>,
        var: impl Fn(&str) -> Option<String>,
    ) -> Self {
        let built_in = BUILT_IN_PROVIDERS.iter().map(|built_in| built_in.name);
        let custom = settings.keys().map(String::as_str);
        let custom = custom.filter(|name| built_in::find_built_in_provider(name).is_none());
        let all = built_in.chain(custom);
        Self(all.filter_map(|name| Provider::new(name, settings.get(name), &var)).collect())
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
