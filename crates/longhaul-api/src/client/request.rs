//! A request to the API before it is sent: method, path, query, body and retry policy.

use reqwest::{Method, Url};
use serde::Serialize;

/// A request to the API that can be sent more than once.
#[derive(Debug, Clone)]
pub(super) struct ApiRequest {
    pub(super) method: Method,
    path: Vec<String>,
    query: Vec<(&'static str, String)>,
    /// Body of the request as JSON.
    pub(super) body: Option<String>,
    /// Idempotency key of the request: the server executes requests with the same key only once.
    pub(super) idempotency_key: Option<String>,
    /// Whether the request is retried when the server is busy or can't be reached.
    pub(super) retries: bool,
}

impl ApiRequest {
    fn new(method: Method, path: &[&str]) -> Self {
        Self {
            method,
            path: path.iter().map(|part| (*part).to_owned()).collect(),
            query: Vec::new(),
            body: None,
            idempotency_key: None,
            retries: true,
        }
    }

    pub(super) fn get(path: &[&str]) -> Self {
        Self::new(Method::GET, path)
    }

    /// Creates a POST request for this path with a JSON body.
    pub(super) fn post(path: &[&str], body: &impl Serialize) -> Self {
        Self {
            // Our bodies have only string keys, so serialization can't fail.
            body: Some(serde_json::to_string(body).unwrap_or_default()),
            ..Self::new(Method::POST, path)
        }
    }

    /// Creates a PATCH request for this path with a JSON body.
    pub(super) fn patch(path: &[&str], body: &impl Serialize) -> Self {
        Self { method: Method::PATCH, ..Self::post(path, body) }
    }

    pub(super) fn delete(path: &[&str]) -> Self {
        Self::new(Method::DELETE, path)
    }

    /// Adds a query parameter to the request.
    #[must_use]
    pub(super) fn with_query_param(mut self, name: &'static str, value: impl ToString) -> Self {
        self.query.push((name, value.to_string()));
        self
    }

    /// Adds a query parameter to the request if it has a value.
    #[must_use]
    pub(super) fn with_optional_query_param(
        self,
        name: &'static str,
        value: Option<impl ToString>,
    ) -> Self {
        match value {
            Some(value) => self.with_query_param(name, value),
            None => self,
        }
    }

    #[must_use]
    pub(super) fn with_idempotency_key(self, key: String) -> Self {
        Self { idempotency_key: Some(key), ..self }
    }

    /// Disables retries of the request.
    #[must_use]
    pub(super) fn without_retries(self) -> Self {
        Self { retries: false, ..self }
    }

    /// Returns whether the request is safe to send more than once.
    pub(super) fn is_safe_to_retry(&self) -> bool {
        self.method == Method::GET || self.idempotency_key.is_some()
    }

    /// Returns the full URL of the request on the server with this base URL.
    pub(super) fn url(&self, base_url: &Url) -> Url {
        let mut url = base_url.clone();
        if let Ok(mut path) = url.path_segments_mut() {
            path.pop_if_empty().extend(&self.path);
        }
        if !self.query.is_empty() {
            url.query_pairs_mut().extend_pairs(&self.query);
        }
        url
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_appended_to_the_base_url_and_a_name_is_one_segment() {
        for (base, url) in [
            ("http://a:1", "http://a:1/v1/keys/a%2Fb%3F?x=1%262"),
            ("http://a:1/", "http://a:1/v1/keys/a%2Fb%3F?x=1%262"),
            ("https://a/deep/", "https://a/deep/v1/keys/a%2Fb%3F?x=1%262"),
        ] {
            let base: Url = base.parse().unwrap();
            let request = ApiRequest::get(&["v1", "keys", "a/b?"]).with_query_param("x", "1&2");
            assert_eq!(request.url(&base).as_str(), url);
        }
    }
}
