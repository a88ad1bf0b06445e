//! What an Anthropic model is told when it is set up.
//!
//! Never: a default that a provider should decide, such as a temperature.

use longhaul_core::raw::RawJson;
use longhaul_core::usage::Tariff;

use crate::key::ApiKey;

/// How a key is shown to the server.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Login {
    /// As `x-api-key`.
    #[default]
    Key,
    /// As `authorization: Bearer`.
    Bearer,
}

/// A model and the account it is asked for.
#[derive(Debug, Clone)]
pub struct Settings {
    /// The provider, as failures name it.
    pub provider: String,
    /// The model as the provider calls it.
    pub model: String,
    /// None: a server that asks for none.
    pub key: Option<ApiKey>,
    /// How the key is shown.
    pub login: Login,
    /// More headers, such as `anthropic-beta`.
    pub headers: Vec<(String, String)>,
    /// Fields of the request that the user has set, as one object: sent as they are.
    pub fields: Option<RawJson>,
    /// Price, window and longest reply; its `fixed_tokens` are counted anew for
    /// each question.
    pub tariff: Tariff,
}

impl Settings {
    /// A model of Anthropic's own, of which nothing more is known.
    pub fn new(model: impl Into<String>, key: Option<ApiKey>) -> Self {
        Self {
            provider: "anthropic".to_owned(),
            model: model.into(),
            key,
            login: Login::default(),
            headers: Vec::new(),
            fields: None,
            tariff: Tariff::default(),
        }
    }
}

/// Settings that no request can be made with.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct BadSettings(pub(super) String);
