//! Fetches the list of models from a server. This is the cheapest request that shows whether the
//! base URL and the API key are valid.
//!
//! Invariant: the response size is limited, and the API key never appears in a message.

use std::fmt;

use longhaul_core::failure::{Failure, FailureClass};
use longhaul_core::port::redact::Redact as _;
use longhaul_core::time::Timestamp;
use serde_json::Value;

use crate::error_mapping::ErrorMapper;
use crate::http::HttpClient;
use crate::key::ApiKey;
use crate::providers::built_in::ApiFormat;
use crate::settings::{self, AuthScheme};

/// Maximum size of the response in bytes. The longest known model list, that of OpenRouter, has
/// about one megabyte.
const BYTES_MAX: usize = 4 * 1024 * 1024;

/// Maximum number of models in the list.
const MODELS_MAX: usize = 10_000;

/// Maximum length of a model name in bytes. Longer names are ignored.
const NAME_BYTES_MAX: usize = 200;

/// Parameters of a request for a server's list of models.
#[derive(Clone, Copy)]
pub struct ModelListRequest<'a> {
    /// Name of the provider, used in error messages.
    pub provider: &'a str,
    /// API of the server. The API of Anthropic lists its models at `v1/models` and gets the key as
    /// `x-api-key`, all others list them at `models` and get the key as a bearer token.
    pub api: ApiFormat,
    /// API key for the server. `None` means that the server requires no key.
    pub key: Option<&'a ApiKey>,
    /// Additional headers to send with the request.
    pub headers: &'a [(String, String)],
    /// Current time, used to interpret `retry-after` headers.
    pub now: Timestamp,
}

impl fmt::Debug for ModelListRequest<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Headers may contain keys.
        write!(f, "ModelListRequest({} as {:?})", self.provider, self.api)
    }
}

/// Fetches the model list and returns the names of the models, in the server's order.
pub async fn fetch_model_names(
    http: &HttpClient,
    request: &ModelListRequest<'_>,
) -> Result<Vec<String>, Failure> {
    let secrets = settings::credential_redactor(request.key, request.headers);
    let mapper = ErrorMapper { provider: request.provider, secrets: &secrets, now: request.now };
    let accept = ("accept", "application/json");
    let (mut url, fixed_headers, auth_scheme) = match request.api {
        ApiFormat::Anthropic => (
            http.endpoint_url("v1", "models"),
            &[accept, ("anthropic-version", "2023-06-01")][..],
            AuthScheme::ApiKeyHeader,
        ),
        ApiFormat::Responses | ApiFormat::Chat => {
            (http.endpoint_url("", "models"), &[accept][..], AuthScheme::Bearer)
        }
    };
    url.set_query((request.api == ApiFormat::Anthropic).then_some("limit=1000"));
    let key = request.key.map(|key| (auth_scheme, key));
    let headers = settings::build_request_headers(fixed_headers, request.headers, key)
        .map_err(|error| Failure::new(FailureClass::InvalidRequest, error.to_string()))?;
    let response = http.get(&url, &headers).await;
    let mut response = response.map_err(|error| mapper.http_error(&error, None))?;
    let (status, headers) = (response.status(), response.headers().clone());
    if !(200..300).contains(&status) {
        let body = response.read_error_body().await;
        return Err(mapper.error_status(status, &headers, &body));
    }
    let body = response.with_max_body_bytes(BYTES_MAX).read_body_unless_stream().await;
    let body = body.map_err(|error| mapper.http_error(&error, Some(&headers)))?;
    let body = body.unwrap_or_default();
    let names = parse_model_names(&body);
    let names = names.ok_or_else(|| mapper.not_a_reply(&headers, "not a model list", &body))?;
    let names = names.iter().map(|name| secrets.redact(name).into_owned());
    Ok(names.collect())
}

/// Parses the model names in a response body. `None` means that the body is not a model list.
fn parse_model_names(body: &[u8]) -> Option<Vec<String>> {
    let value: Value = serde_json::from_slice(body).ok()?;
    let models_field = value.get("data").or_else(|| value.get("models"));
    if models_field.is_some_and(Value::is_null) {
        return Some(Vec::new());
    }
    let list = models_field.unwrap_or(&value).as_array()?;
    let name = |one: &Value| {
        let name = one.get("id").or_else(|| one.get("name")).unwrap_or(one);
        let name = name.as_str()?;
        let has_valid_length = !name.is_empty() && name.len() <= NAME_BYTES_MAX;
        (has_valid_length && !name.chars().any(char::is_control)).then(|| name.to_owned())
    };
    Some(list.iter().filter_map(name).take(MODELS_MAX).collect())
}
