//! The model providers that are built in and need only an API key. The table has the names of key
//! variables, not the keys.

/// Names of the API formats, as settings write them.
pub const API_NAMES: &[&str] = &["anthropic", "responses", "chat"];

/// Name of the provider of scripted models, which play fixed responses. It has no server and no
/// settings.
pub const SCRIPTED_PROVIDER: &str = "scripted";

/// Name of the provider that replays cassettes (recorded responses). It has no server and no
/// settings.
pub const CASSETTE_PROVIDER: &str = "cassette";

/// Alias of the model that is used if no model is named.
pub const DEFAULT_ALIAS: &str = "default";

/// Alias of the model for runs that an `idle_tick` event (the agent has nothing else to do) starts.
/// It exists even if the settings do not define it.
pub const IDLE_ALIAS: &str = "idle";

/// API format of a model provider.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ApiFormat {
    /// Anthropic's Messages API.
    Anthropic,
    /// OpenAI's Responses API.
    Responses,
    /// OpenAI's Chat Completions API, which many other providers support.
    Chat,
}

impl ApiFormat {
    /// Parses the name of an API format. `None` means that the name is unknown.
    pub fn from_name(api_format_name: &str) -> Option<Self> {
        let all = [Self::Anthropic, Self::Responses, Self::Chat];
        all.into_iter().find(|api| api.as_str() == api_format_name)
    }

    /// Returns the name of the API format.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Anthropic => "anthropic",
            Self::Responses => "responses",
            Self::Chat => "chat",
        }
    }
}

/// A model provider that needs only an API key.
#[derive(Debug, Clone, Copy)]
pub struct BuiltInProvider {
    /// Name of the provider, as written before the `/` of a model name.
    pub name: &'static str,
    /// API format of the provider's server.
    pub api: ApiFormat,
    /// Base URL, as the provider's own SDK expects it.
    pub base_url: &'static str,
    /// Environment variables that may contain the API key; the first one that is set is used. An
    /// empty list means that no key is needed.
    pub key_env: &'static [&'static str],
}

/// All built-in providers. If no model is named, the first provider whose key is set is used.
pub const BUILT_IN_PROVIDERS: &[BuiltInProvider] = &[
    BuiltInProvider {
        name: "anthropic",
        api: ApiFormat::Anthropic,
        base_url: "https://api.anthropic.com",
        key_env: &["ANTHROPIC_API_KEY"],
    },
    BuiltInProvider {
        name: "openai",
        api: ApiFormat::Responses,
        base_url: "https://api.openai.com/v1",
        key_env: &["OPENAI_API_KEY"],
    },
    BuiltInProvider {
        name: "moonshot",
        api: ApiFormat::Chat,
        base_url: "https://api.moonshot.ai/v1",
        key_env: &["MOONSHOT_API_KEY", "KIMI_API_KEY"],
    },
    BuiltInProvider {
        name: "openrouter",
        api: ApiFormat::Chat,
        base_url: "https://openrouter.ai/api/v1",
        key_env: &["OPENROUTER_API_KEY"],
    },
    BuiltInProvider {
        name: "ollama",
        api: ApiFormat::Chat,
        base_url: "http://127.0.0.1:11434/v1",
        key_env: &[],
    },
];

/// Whether this URL is the base URL of a built-in provider.
pub fn is_built_in_base_url(url: &str) -> bool {
    let trimmed = url.trim_end_matches('/');
    BUILT_IN_PROVIDERS.iter().any(|provider| provider.base_url == trimmed)
}

pub fn find_built_in_provider(name: &str) -> Option<&'static BuiltInProvider> {
    BUILT_IN_PROVIDERS.iter().find(|provider| provider.name == name)
}
