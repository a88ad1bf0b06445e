//! What a model behind a wire is told when it is set up.
//!
//! Never: a default that a provider should decide, such as a temperature.

use std::fmt;
use std::sync::Arc;

use longhaul_core::raw::RawJson;
use longhaul_core::usage::Tariff;
use reqwest::header::{AUTHORIZATION, HeaderMap, HeaderName, HeaderValue};

use crate::fields::Fields;
use crate::key::ApiKey;
use crate::pictures::Pictures;

/// How a key is shown to the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Login {
    /// As `x-api-key`.
    Key,
    /// As `authorization: Bearer`.
    Bearer,
}

/// A model and the account it is asked for.
#[derive(Clone)]
pub struct Settings {
    /// The provider, as failures name it.
    pub provider: String,
    /// The model as the provider calls it.
    pub model: String,
    /// None: a server that asks for none.
    pub key: Option<ApiKey>,
    /// How the key is shown; none: as this wire usually does.
    pub login: Option<Login>,
    /// More headers, such as `anthropic-beta`.
    pub headers: Vec<(String, String)>,
    /// Fields of the request that the user has set, as one object: sent as they are.
    pub fields: Option<RawJson>,
    /// Price, window and longest reply; its `fixed_tokens` are counted anew for
    /// each question.
    pub tariff: Tariff,
    /// Where the pictures of a conversation come from. Without, the model is told
    /// in words that there was one.
    pub pictures: Option<Arc<dyn Pictures>>,
}

impl fmt::Debug for Settings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Headers and fields may hold keys.
        let (provider, model) = (&self.provider, &self.model);
        write!(f, "Settings({provider}/{model})")
    }
}

impl Settings {
    /// A model of which nothing more is known.
    pub fn new(provider: impl Into<String>, model: impl Into<String>, key: Option<ApiKey>) -> Self {
        Self {
            provider: provider.into(),
            model: model.into(),
            key,
            login: None,
            headers: Vec::new(),
            fields: None,
            tariff: Tariff::default(),
            pictures: None,
        }
    }

    /// Whose blocks a reply over this wire is made of: what one provider sealed or
    /// added is nothing to another that speaks the same.
    pub(crate) fn dialect(&self, wire: &str) -> String {
        match self.provider == wire {
            true => wire.to_owned(),
            false => format!("{wire}:{}", self.provider),
        }
    }

    /// The headers of every request, behind those that the wire itself sends.
    pub(crate) fn headers(
        &self,
        wire: &[(&'static str, &'static str)],
        usual: Login,
    ) -> Result<HeaderMap, BadSettings> {
        let ours = [
            ("content-type", "application/json"),
            ("accept", "text/event-stream"),
        ];
        let login = self.login.unwrap_or(usual);
        let key = self.key.as_ref().map(|key| (login, key));
        headers(&[&ours, wire].concat(), &self.headers, key)
    }

    /// Refuses fields of a request that are not the user's to set.
    pub(crate) fn check_fields(&self, ours: &[&str]) -> Result<(), BadSettings> {
        let Some(set) = &self.fields else {
            return Ok(());
        };
        let fields = Fields::read(set.as_str());
        let fields = fields
            .ok_or_else(|| BadSettings("the request's own fields are no object".to_owned()))?;
        match ours.iter().find(|name| fields.get(name).is_some()) {
            Some(name) => Err(BadSettings(format!(
                "the field `{name}` of a request can't be set"
            ))),
            None => Ok(()),
        }
    }
}

/// The headers of a request: ours, over them those that the user set, and last the
/// key. None but ours is shown to whoever prints them.
pub(crate) fn headers(
    ours: &[(&'static str, &'static str)],
    set: &[(String, String)],
    key: Option<(Login, &ApiKey)>,
) -> Result<HeaderMap, BadSettings> {
    let mut headers = HeaderMap::new();
    for (name, value) in ours {
        headers.insert(*name, HeaderValue::from_static(value));
    }
    for (name, value) in set {
        let bad = || BadSettings(format!("the header `{name}` can't be sent"));
        let known = HeaderName::from_bytes(name.as_bytes()).map_err(|_| bad())?;
        let mut value = HeaderValue::from_str(value).map_err(|_| bad())?;
        value.set_sensitive(true);
        headers.insert(known, value);
    }
    if let Some((login, key)) = key {
        let (name, value) = match login {
            Login::Key => (
                HeaderName::from_static("x-api-key"),
                key.reveal().to_owned(),
            ),
            Login::Bearer => (AUTHORIZATION, format!("Bearer {}", key.reveal())),
        };
        let mut value = HeaderValue::from_str(&value)
            .map_err(|_| BadSettings("the key has letters that no key has".to_owned()))?;
        value.set_sensitive(true);
        headers.insert(name, value);
    }
    Ok(headers)
}

/// Settings that no request can be made with.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct BadSettings(pub(crate) String);
