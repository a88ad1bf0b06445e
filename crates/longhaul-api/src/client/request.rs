//! One request before it is sent: method, path, query, body, and whether it may be sent twice.

use reqwest::{Method, Url};
use serde::Serialize;

/// A request.
#[derive(Debug, Clone)]
pub(super) struct Request {
    pub(super) method: Method,
    path: Vec<String>,
    query: Vec<(&'static str, String)>,
    /// What is sent, as JSON.
    pub(super) body: Option<String>,
    /// The server does it once, however often the request comes under this key.
    pub(super) idempotency_key: Option<String>,
    /// Whether the request is sent again when a server is busy.
    pub(super) retries: bool,
}

impl Request {
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

    /// A GET.
    pub(super) fn get(path: &[&str]) -> Self {
        Self::new(Method::GET, path)
    }

    /// A POST with this body.
    pub(super) fn post(path: &[&str], body: &impl Serialize) -> Self {
        Self {
            // What is sent is ours and has names for keys, so it is always JSON.
            body: Some(serde_json::to_string(body).unwrap_or_default()),
            ..Self::new(Method::POST, path)
        }
    }

    /// A DELETE.
    pub(super) fn delete(path: &[&str]) -> Self {
        Self::new(Method::DELETE, path)
    }

    /// The same request with a query parameter.
    #[must_use]
    pub(super) fn query(mut self, name: &'static str, value: impl ToString) -> Self {
        self.query.push((name, value.to_string()));
        self
    }

    /// The same request with a query parameter, if there is one.
    #[must_use]
    pub(super) fn query_opt(self, name: &'static str, value: Option<impl ToString>) -> Self {
        match value {
            Some(value) => self.query(name, value),
            None => self,
        }
    }

    /// The same request, done once however often it is sent.
    #[must_use]
    pub(super) fn idempotent(self, key: String) -> Self {
        Self { idempotency_key: Some(key), ..self }
    }

    /// The same request, sent a single time.
    #[must_use]
    pub(super) fn without_retries(self) -> Self {
        Self { retries: false, ..self }
    }

    /// Whether the request does no harm when it is sent twice.
    pub(super) fn may_repeat(&self) -> bool {
        self.method == Method::GET || self.idempotency_key.is_some()
    }

    /// The address of the request, below a server's own.
    pub(super) fn url(&self, base: &Url) -> Url {
        let mut url = base.clone();
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
            let request = Request::get(&["v1", "keys", "a/b?"]).query("x", "1&2");
            assert_eq!(request.url(&base).as_str(), url);
        }
    }
}
