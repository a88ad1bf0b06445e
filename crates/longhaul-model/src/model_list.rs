//! Asks a server which models it has: the cheapest question that shows whether an
//! address is right and a key is taken.
//!
//! Never: costs anything, reads without an end, or shows the key in what it says.

use std::fmt;

use longhaul_core::failure::{Failure, FailureClass};
use longhaul_core::port::redact::Redact as _;
use longhaul_core::time::Timestamp;
use reqwest::header::HeaderMap;
use serde_json::Value;

use crate::error_mapping::ErrorMapper;
use crate::http::Http;
use crate::key::ApiKey;
use crate::secrets;
use crate::settings::{self, AuthScheme, SettingsError};

/// The longest list that is read. OpenRouter's is the longest there is, with a
/// megabyte of descriptions.
const BYTES_MAX: usize = 4 * 1024 * 1024;

/// So many names are kept.
const MODELS_MAX: usize = 10_000;

/// The longest name that is one.
const NAME_BYTES_MAX: usize = 200;

/// How a server wants to be asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ListApi {
    /// As Anthropic's own: `v1/models`, with the key as `x-api-key`.
    Anthropic,
    /// As OpenAI's and all that are like it: `models`, with a bearer's key.
    OpenAi,
}

/// Who asks, and when.
#[derive(Clone, Copy)]
pub struct ListRequest<'a> {
    /// The provider, as failures name it.
    pub provider: &'a str,
    /// How it wants to be asked.
    pub api: ListApi,
    /// The key, if it needs one.
    pub key: Option<&'a ApiKey>,
    /// More headers.
    pub headers: &'a [(String, String)],
    /// The time, for what a server says of waiting.
    pub now: Timestamp,
}

impl fmt::Debug for ListRequest<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Headers may hold keys.
        write!(f, "ListRequest({} as {:?})", self.provider, self.api)
    }
}

/// The names of a server's models, in its order.
pub async fn fetch(http: &Http, asker: &ListRequest<'_>) -> Result<Vec<String>, Failure> {
    let secrets = secrets::redactor(asker.key, asker.headers);
    let blame = ErrorMapper { provider: asker.provider, secrets: &secrets, now: asker.now };
    let url = match asker.api {
        ListApi::Anthropic => {
            let mut url = http.endpoint_url("v1", "models");
            url.set_query(Some("limit=1000"));
            url
        }
        ListApi::OpenAi => http.child_url("models"),
    };
    let headers = headers(asker)
        .map_err(|bad| Failure::new(FailureClass::InvalidRequest, bad.to_string()))?;
    let sent = http.get(&url, &headers).await;
    let mut answer = sent.map_err(|trouble| blame.transport_error(&trouble, None))?;
    let (status, headers) = (answer.status(), answer.headers().clone());
    if !(200..300).contains(&status) {
        let body = answer.read_error_body().await;
        return Err(blame.http_status(status, &headers, &body));
    }
    let body = answer.with_max_bytes(BYTES_MAX).read_all().await;
    let body = body.map_err(|trouble| blame.transport_error(&trouble, Some(&headers)))?;
    let body = body.unwrap_or_default();
    let found = parse_names(&body);
    let found =
        found.ok_or_else(|| blame.unexpected_body(&headers, "it is no list of models", &body))?;
    let found = found.iter().map(|name| secrets.redact(name).into_owned());
    Ok(found.collect())
}

/// The names in a list; none: it is none.
fn parse_names(body: &[u8]) -> Option<Vec<String>> {
    let value: Value = serde_json::from_slice(body).ok()?;
    let inside = value.get("data").or_else(|| value.get("models"));
    if inside.is_some_and(Value::is_null) {
        return Some(Vec::new());
    }
    let list = inside.unwrap_or(&value).as_array()?;
    let name = |one: &Value| {
        let name = one.get("id").or_else(|| one.get("name")).unwrap_or(one);
        let name = name.as_str()?;
        let plain = !name.is_empty() && name.len() <= NAME_BYTES_MAX;
        (plain && !name.chars().any(char::is_control)).then(|| name.to_owned())
    };
    Some(list.iter().filter_map(name).take(MODELS_MAX).collect())
}

fn headers(asker: &ListRequest<'_>) -> Result<HeaderMap, SettingsError> {
    let accept = ("accept", "application/json");
    let (ours, login) = match asker.api {
        ListApi::Anthropic => {
            (&[accept, ("anthropic-version", "2023-06-01")][..], AuthScheme::ApiKeyHeader)
        }
        ListApi::OpenAi => (&[accept][..], AuthScheme::Bearer),
    };
    settings::headers(ours, asker.headers, asker.key.map(|key| (login, key)))
}
