//! What a model behind a wire is told when it is set up.
//!
//! Never: a default that a provider should decide, such as a temperature.

use std::fmt;
use std::sync::Arc;

use longhaul_core::raw::RawJson;
use longhaul_core::usage::ModelPricing;
use reqwest::header::{AUTHORIZATION, HeaderMap, HeaderName, HeaderValue};

use crate::image_source::ImageSource;
use crate::json_object::JsonObject;
use crate::key::ApiKey;

/// How a key is shown to the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AuthScheme {
    /// As `x-api-key`.
    ApiKeyHeader,
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
    pub auth_scheme: Option<AuthScheme>,
    /// More headers, such as `anthropic-beta`.
    pub headers: Vec<(String, String)>,
    /// Fields of the request that the user has set, as one object: sent as they are.
    pub fields: Option<RawJson>,
    /// Price, window and longest reply; its `fixed_tokens` are counted anew for
    /// each question.
    pub pricing: ModelPricing,
    /// Where the pictures of a conversation come from. Without, the model is told
    /// in words that there was one.
    pub image_source: Option<Arc<dyn ImageSource>>,
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
            auth_scheme: None,
            headers: Vec::new(),
            fields: None,
            pricing: ModelPricing::default(),
            image_source: None,
        }
    }

    /// Whose blocks a reply over this wire is made of: what one provider sealed or
    /// added is nothing to another that speaks the same.
    pub(crate) fn api_name(&self, wire: &str) -> String {
        match self.provider == wire {
            true => wire.to_owned(),
            false => format!("{wire}:{}", self.provider),
        }
    }

    /// The headers of every request, behind those that the wire itself sends.
    pub(crate) fn headers(
        &self,
        wire: &[(&'static str, &'static str)],
        usual: AuthScheme,
    ) -> Result<HeaderMap, SettingsError> {
        let ours = [("content-type", "application/json"), ("accept", "text/event-stream")];
        let login = self.auth_scheme.unwrap_or(usual);
        let key = self.key.as_ref().map(|key| (login, key));
        headers(&[&ours, wire].concat(), &self.headers, key)
    }

    /// Refuses fields of a request that are not the user's to set.
    pub(crate) fn check_fields(&self, ours: &[&str]) -> Result<(), SettingsError> {
        let Some(set) = &self.fields else {
            return Ok(());
        };
        let fields = JsonObject::parse(set.as_str());
        let fields = fields
            .ok_or_else(|| SettingsError("the request's own fields are no object".to_owned()))?;
        match ours.iter().find(|name| fields.get(name).is_some()) {
            Some(name) => {
                Err(SettingsError(format!("the field `{name}` of a request can't be set")))
            }
            None => Ok(()),
        }
    }
}

/// The headers of a request: ours, over them those that the user set, and last the
/// key. None but ours is shown to whoever prints them.
pub(crate) fn headers(
    ours: &[(&'static str, &'static str)],
    set: &[(String, String)],
    key: Option<(AuthScheme, &ApiKey)>,
) -> Result<HeaderMap, SettingsError> {
    let mut headers = HeaderMap::new();
    for (name, value) in ours {
        headers.insert(*name, HeaderValue::from_static(value));
    }
    for (name, value) in set {
        let bad = || SettingsError(format!("the header `{name}` can't be sent"));
        let known = HeaderName::from_bytes(name.as_bytes()).map_err(|_| bad())?;
        let mut value = HeaderValue::from_str(value).map_err(|_| bad())?;
        value.set_sensitive(true);
        headers.insert(known, value);
    }
    if let Some((login, key)) = key {
        let (name, value) = match login {
            AuthScheme::ApiKeyHeader => {
                (HeaderName::from_static("x-api-key"), key.reveal().to_owned())
            }
            AuthScheme::Bearer => (AUTHORIZATION, format!("Bearer {}", key.reveal())),
        };
        let mut value = HeaderValue::from_str(&value)
            .map_err(|_| SettingsError("the key has letters that no key has".to_owned()))?;
        value.set_sensitive(true);
        headers.insert(name, value);
    }
    Ok(headers)
}

/// Settings that no request can be made with.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct SettingsError(pub(crate) String);
