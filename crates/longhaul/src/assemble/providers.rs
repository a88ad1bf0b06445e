//! The providers of models that this project can use: those that are known, and
//! those of its own.
//!
//! Never: shows a key. What is said of one is the name of the variable it is in.

use std::time::Duration;

use longhaul_core::suggest::closest;
use longhaul_core::time::Millis;
use longhaul_model::http::Limits;
use longhaul_model::key::ApiKey;
use serde_json::{Map, Value as Json};

use crate::assemble::ollama_host;
use crate::config::built_in_providers::{self, Api, BUILT_IN_PROVIDERS, SCRIPTED_PROVIDER};
use crate::config::env::Env;
use crate::config::settings::Config;
use crate::config::value::{SecretText, Value};

/// A provider, and how it is asked.
#[derive(Debug, Clone)]
pub struct Provider {
    /// Its name, as it stands before the `/` of a model.
    pub name: String,
    /// Which wire format it speaks.
    pub api: Api,
    /// Its address, as its own SDK takes it.
    pub base_url: String,
    /// The variables that may hold its key; none: it needs none.
    pub key_env: Vec<String>,
    /// Fields that go with every request.
    pub fields: Map<String, Json>,
    /// Where it differs from others of its format.
    pub quirks: Vec<String>,
    /// How long is waited and how much is read.
    pub limits: Limits,
    /// Whether anything of it was set by somebody.
    pub is_configured: bool,
    headers: Vec<(String, SecretText)>,
}

impl Provider {
    /// Its key, with the variable that holds it.
    pub fn key(&self, env: &Env) -> Option<(&str, ApiKey)> {
        let mut set = self.key_env.iter().filter_map(|name| {
            let value = env.var(name)?;
            Some((name.as_str(), ApiKey::new(value)))
        });
        set.next()
    }

    /// Whether it answers nobody without a key.
    pub fn needs_key(&self) -> bool {
        !self.key_env.is_empty()
    }

    /// The variables that may hold its key, as a person is told of them.
    pub fn key_variables(&self) -> String {
        self.key_env.join(" or ")
    }

    /// Headers that go with every request.
    pub fn headers(&self) -> Vec<(String, String)> {
        let pairs = self.headers.iter();
        pairs.map(|(name, value)| (name.clone(), value.reveal().to_owned())).collect()
    }

    fn from_config(name: &str, config: &Config) -> Option<Self> {
        let path = |key: &str| format!("providers.{name}.{key}");
        let known = built_in_providers::find(name);
        let api = config.text(&path("api")).and_then(Api::parse);
        let host = (name == "ollama").then(|| config.env.var(ollama_host::HOST_VAR));
        let host = host.flatten().and_then(ollama_host::base_url);
        let base_url = config.text(&path("base_url")).map(str::to_owned);
        let key_env = match config.settings.contains_key(&path("key_env")) {
            true => config.text_list(&path("key_env")),
            false => {
                let names = known.map_or(&[][..], |known| known.key_env);
                names.iter().map(|name| (*name).to_owned()).collect()
            }
        };
        let standard = Limits::default();
        let span = |key: &str, standard: Duration| {
            let span = config.duration(&path(key));
            span.map_or(standard, |Millis(millis)| Duration::from_millis(millis))
        };
        let prefix = format!("providers.{name}");
        Some(Self {
            name: name.to_owned(),
            api: api.or(known.map(|known| known.api))?,
            is_configured: host.is_some() || config.settings_below(&prefix).next().is_some(),
            base_url: base_url.or(host).or(known.map(|known| known.base_url.to_owned()))?,
            key_env,
            headers: configured_headers(config, &path("headers")),
            fields: configured_fields(config, &path("fields")),
            quirks: config.text_list(&path("quirks")),
            limits: Limits {
                connect: span("connect_timeout", standard.connect),
                first_byte: span("first_byte_timeout", standard.first_byte),
                idle: span("idle_timeout", standard.idle),
                ..standard
            },
        })
    }
}

fn configured_headers(config: &Config, path: &str) -> Vec<(String, SecretText)> {
    let all = config.settings_below(path).filter_map(|(name, setting)| {
        let Value::Secret(value) = &setting.value else {
            return None;
        };
        Some((name.to_owned(), value.clone()))
    });
    all.collect()
}

fn configured_fields(config: &Config, path: &str) -> Map<String, Json> {
    let all = config.settings_below(path).filter_map(|(name, setting)| {
        let Value::Any(value) = &setting.value else {
            return None;
        };
        Some((name.to_owned(), value.clone()))
    });
    all.collect()
}

/// All providers: the known ones in their order, then those of the project's own.
#[derive(Debug, Clone)]
pub struct Providers(Vec<Provider>);

impl Providers {
    /// The providers that this project can use.
    pub fn from_config(config: &Config) -> Self {
        let mut names: Vec<&str> = BUILT_IN_PROVIDERS.iter().map(|known| known.name).collect();
        for (path, _) in config.settings_below("providers") {
            let name = path.split('.').next().unwrap_or_default();
            if !names.contains(&name) {
                names.push(name);
            }
        }
        let all = names.into_iter();
        Self(all.filter_map(|name| Provider::from_config(name, config)).collect())
    }

    /// All of them but the scripted one, which has no server.
    pub fn all(&self) -> &[Provider] {
        &self.0
    }

    /// The one of this name.
    ///
    /// # Errors
    /// There is none: which may have been meant, and how another one is made known.
    pub fn find(&self, name: &str) -> Result<&Provider, String> {
        let found = self.0.iter().find(|provider| provider.name == name);
        found.ok_or_else(|| self.unknown_provider_message(name))
    }

    fn unknown_provider_message(&self, name: &str) -> String {
        let names = self.0.iter().map(|provider| provider.name.as_str());
        let meant = closest(name, names.chain([SCRIPTED_PROVIDER]));
        let meant = meant.map_or(String::new(), |meant| format!(" Did you mean `{meant}`?"));
        let plain = |letter: char| letter.is_ascii_alphanumeric() || letter == '-' || letter == '_';
        let own = match !name.is_empty() && name.chars().all(plain) {
            true => name,
            false => "NAME",
        };
        let variable = own.to_uppercase().replace('-', "_");
        format!(
            "There is no provider `{name}`.{meant} Another one is four lines of longhaul.toml:\n  \
             [providers.{own}]\n  api = \"chat\"\n  base_url = \"https://HOST/v1\"\n  \
             key_env = \"{variable}_API_KEY\""
        )
    }
}
