//! The providers of models that need no configuration but a key.
//!
//! Never: a key itself, only the names of variables that may hold one.

/// The wire formats, as they are written.
pub(crate) const API_NAMES: &[&str] = &["anthropic", "responses", "chat"];

/// The provider that plays scripts. It has no server, and nothing of it can be set.
pub const SCRIPTED_PROVIDER: &str = "scripted";

/// The provider that replays cassettes. It has no server either.
pub const CASSETTE_PROVIDER: &str = "cassette";

/// The short name of the model that is used where none is named.
pub const DEFAULT_ALIAS: &str = "default";

/// The short name of the model for when nothing happens. It is there already.
pub const IDLE_ALIAS: &str = "idle";

/// A wire format.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Api {
    /// Anthropic's Messages.
    Anthropic,
    /// OpenAI's Responses.
    Responses,
    /// OpenAI's Chat Completions, which many others speak too.
    Chat,
}

impl Api {
    /// Reads one as it is written in a file.
    pub fn parse(word: &str) -> Option<Self> {
        match word {
            "anthropic" => Some(Self::Anthropic),
            "responses" => Some(Self::Responses),
            "chat" => Some(Self::Chat),
            _ => None,
        }
    }

    /// As it is written in a file.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Anthropic => "anthropic",
            Self::Responses => "responses",
            Self::Chat => "chat",
        }
    }
}

/// A provider that is known by its name.
#[derive(Debug, Clone, Copy)]
pub struct BuiltInProvider {
    /// Its name.
    pub name: &'static str,
    /// Which wire format it speaks.
    pub api: Api,
    /// Its address, as its own SDK takes it.
    pub base_url: &'static str,
    /// The variables that may hold its key, the first that is set wins; none: it
    /// needs none.
    pub key_env: &'static [&'static str],
}

/// All of them. In this order one with a key is looked for where no model is named.
pub const BUILT_IN_PROVIDERS: &[BuiltInProvider] = &[
    BuiltInProvider {
        name: "anthropic",
        api: Api::Anthropic,
        base_url: "https://api.anthropic.com",
        key_env: &["ANTHROPIC_API_KEY"],
    },
    BuiltInProvider {
        name: "openai",
        api: Api::Responses,
        base_url: "https://api.openai.com/v1",
        key_env: &["OPENAI_API_KEY"],
    },
    BuiltInProvider {
        name: "moonshot",
        api: Api::Chat,
        base_url: "https://api.moonshot.ai/v1",
        key_env: &["MOONSHOT_API_KEY", "KIMI_API_KEY"],
    },
    BuiltInProvider {
        name: "openrouter",
        api: Api::Chat,
        base_url: "https://openrouter.ai/api/v1",
        key_env: &["OPENROUTER_API_KEY"],
    },
    BuiltInProvider {
        name: "ollama",
        api: Api::Chat,
        base_url: "http://127.0.0.1:11434/v1",
        key_env: &[],
    },
];

/// Whether this is the address of a known provider.
pub fn is_base_url(address: &str) -> bool {
    let bare = address.trim_end_matches('/');
    BUILT_IN_PROVIDERS.iter().any(|known| known.base_url == bare)
}

/// The known provider of this name.
pub fn find(name: &str) -> Option<&'static BuiltInProvider> {
    BUILT_IN_PROVIDERS.iter().find(|known| known.name == name)
}
