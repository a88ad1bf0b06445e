//! Settings of a model behind a provider API.
//!
//! Invariant: there are no defaults for what the provider should decide, such as the temperature.

use std::fmt;
use std::sync::Arc;

use longhaul_core::port::model::Model;
use longhaul_core::raw::RawJson;
use longhaul_core::redact::Redactor;
use longhaul_core::usage::ModelPricing;
use reqwest::header::{AUTHORIZATION, HeaderMap, HeaderName, HeaderValue};

use crate::image_source::ImageSource;
use crate::json_object::JsonObject;
use crate::key::ApiKey;

/// A model that was opened from settings, or what is wrong with them.
pub type OpenedModel = Result<Arc<dyn Model>, SettingsError>;

/// How the API key is sent with a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AuthScheme {
    /// The key is sent in the header `x-api-key`.
    ApiKeyHeader,
    /// The key is sent in the header `authorization`, as a bearer token.
    Bearer,
}

/// Settings of a model that is reached over a provider's API.
#[derive(Clone, Default)]
pub struct ModelSettings {
    /// Name of the provider, used in error messages.
    pub provider: String,
    /// Name of the model, as the provider calls it.
    pub model: String,
    /// API key. `None` means that the server requires no key.
    pub key: Option<ApiKey>,
    /// Additional request headers, such as `anthropic-beta`.
    pub headers: Vec<(String, String)>,
    /// Additional request fields, as one JSON object. They are sent unchanged.
    pub fields: Option<RawJson>,
    /// Price, context window and maximum reply length of the model. `fixed_tokens` is not set here,
    /// but computed for each request.
    pub pricing: ModelPricing,
    /// Source of the images in a conversation. `None` means that images are replaced by text.
    pub image_source: Option<Arc<dyn ImageSource>>,
}

impl fmt::Debug for ModelSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Headers and fields may contain keys.
        let (provider, model) = (&self.provider, &self.model);
        write!(f, "ModelSettings({provider}/{model})")
    }
}

impl ModelSettings {
    /// Creates settings for a model, with defaults for everything that is not a parameter.
    pub fn new(provider: impl Into<String>, model: impl Into<String>, key: Option<ApiKey>) -> Self {
        Self { provider: provider.into(), model: model.into(), key, ..Self::default() }
    }

    /// Returns the label that is stored with each reply: the name of the API, followed by the
    /// provider unless both have the same name. The provider is included because signatures and
    /// extra fields of one provider are not valid for another provider with the same API.
    pub(crate) fn api_label(&self, api_name: &str) -> String {
        match self.provider == api_name {
            true => api_name.to_owned(),
            false => format!("{api_name}:{}", self.provider),
        }
    }

    /// Returns the headers of every request, including the fixed headers of the API.
    pub(crate) fn request_headers(
        &self,
        api_headers: &[(&'static str, &'static str)],
        auth_scheme: AuthScheme,
    ) -> Result<HeaderMap, SettingsError> {
        let fixed_headers = [("content-type", "application/json"), ("accept", "text/event-stream")];
        let key = self.key.as_ref().map(|key| (auth_scheme, key));
        build_request_headers(&[&fixed_headers, api_headers].concat(), &self.headers, key)
    }

    /// Returns an error if the user has set one of the reserved request fields.
    pub(crate) fn reject_reserved(&self, names: &[&str]) -> Result<(), SettingsError> {
        let Some(fields_json) = &self.fields else {
            return Ok(());
        };
        let fields = JsonObject::parse(fields_json.as_str());
        let fields = fields.ok_or_else(|| {
            SettingsError("the extra request fields are not an object".to_owned())
        })?;
        match names.iter().find(|name| fields.get(name).is_some()) {
            Some(name) => Err(SettingsError(format!("the request field `{name}` is reserved"))),
            None => Ok(()),
        }
    }
}

/// Returns the headers of a request: the fixed headers, then the headers set by the user, which may
/// replace fixed headers, then the API key. All but the fixed headers are marked as sensitive, so
/// that debug output hides them.
pub(crate) fn build_request_headers(
    fixed_headers: &[(&'static str, &'static str)],
    user_headers: &[(String, String)],
    key: Option<(AuthScheme, &ApiKey)>,
) -> Result<HeaderMap, SettingsError> {
    let mut headers = HeaderMap::new();
    for (name, value) in fixed_headers {
        headers.insert(*name, HeaderValue::from_static(value));
    }
    for (name, value) in user_headers {
        let invalid = || SettingsError(format!("the header `{name}` has an invalid name or value"));
        let header_name = HeaderName::from_bytes(name.as_bytes()).map_err(|_| invalid())?;
        let mut value = HeaderValue::from_str(value).map_err(|_| invalid())?;
        value.set_sensitive(true);
        headers.insert(header_name, value);
    }
    if let Some((auth_scheme, key)) = key {
        let (name, value) = match auth_scheme {
            AuthScheme::ApiKeyHeader => {
                (HeaderName::from_static("x-api-key"), key.reveal_key_text().to_owned())
            }
            AuthScheme::Bearer => (AUTHORIZATION, format!("Bearer {}", key.reveal_key_text())),
        };
        let mut value = HeaderValue::from_str(&value)
            .map_err(|_| SettingsError("the API key contains invalid characters".to_owned()))?;
        value.set_sensitive(true);
        headers.insert(name, value);
    }
    Ok(headers)
}

/// Error for model settings from which no request can be built.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct SettingsError(pub(crate) String);

/// Text that replaces the API key in redacted texts.
const KEY_PLACEHOLDER: &str = "[key]";

/// Text that replaces the value of a header in redacted texts.
const HEADER_PLACEHOLDER: &str = "[header]";

/// Creates a redactor for the API key and for the values of the headers that the user has set,
/// which may contain other keys.
pub(crate) fn credential_redactor(key: Option<&ApiKey>, headers: &[(String, String)]) -> Redactor {
    let key = key.map(|key| (KEY_PLACEHOLDER.to_owned(), key.reveal_key_text()));
    let values = headers.iter().flat_map(|(_, value)| {
        // In `Bearer KEY` the key alone is a secret too.
        let credentials = value.trim().split_once(' ').map(|(_, rest)| rest);
        [Some(value.as_str()), credentials]
    });
    let values = values.flatten().map(|value| (HEADER_PLACEHOLDER.to_owned(), value));
    Redactor::with_placeholders(key.into_iter().chain(values))
}

#[cfg(test)]
mod tests {
    use super::*;
    use base64::Engine as _;
    use base64::engine::general_purpose::{STANDARD_NO_PAD, URL_SAFE_NO_PAD};
    use longhaul_core::port::redact::Redact as _;

    const SECRET: &str = "sk-a/b+c=very \"secret\"";

    fn test_redactor() -> Redactor {
        let headers = [
            ("authorization".to_owned(), "Bearer by-hand-1".to_owned()),
            ("x-short".to_owned(), "blue".to_owned()),
        ];
        credential_redactor(Some(&ApiKey::new(SECRET)), &headers)
    }

    #[test]
    fn a_secret_is_found_in_every_encoding() {
        let base64 = STANDARD_NO_PAD.encode(SECRET);
        for (text, redacted) in [
            (SECRET, "[key]"),
            (r#"sk-a/b+c=very \"secret\""#, "[key]"),
            (r#"sk-a\/b+c=very \"secret\""#, "[key]"),
            ("sk-a%2Fb%2Bc%3Dvery%20%22secret%22", "[key]"),
            ("sk-a%2fb%2bc%3dvery%20%22secret%22", "[key]"),
            ("%73%6b-a/b+&#99;=very &quot;secret&#x22;", "[key]"),
            (&base64, "[key]"),
            ("Bearer by-hand-1 by-hand-1", "[header] [header]"),
            ("blue", "blue"),
        ] {
            let text = format!("<{text}>");
            assert_eq!(test_redactor().contains_secret(&text), redacted != "blue");
            assert_eq!(test_redactor().redact(&text), format!("<{redacted}>"));
        }
    }

    #[test]
    fn a_secret_is_found_inside_of_base64() {
        for before in ["", "a", "ab", "abc", "user:"] {
            for after in ["", "\n", "::"] {
                let text = format!("{before}{SECRET}{after}");
                for engine in [&STANDARD_NO_PAD, &URL_SAFE_NO_PAD] {
                    let hidden = test_redactor().redact(&engine.encode(&text)).into_owned();
                    assert!(hidden.contains("[key]"), "{text}: {hidden}");
                    assert!(hidden.len() < 20, "{text}: {hidden}");
                }
            }
        }
    }
}
