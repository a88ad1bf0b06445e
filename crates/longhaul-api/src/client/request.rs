//! A request to an operation before it is sent: method, path, query, body and retry policy.

use std::marker::PhantomData;
use std::time::Duration;

use reqwest::{Method, Url};
use serde::Serialize;
use serde_json::Value;

use crate::operation::{self, Operation};
use crate::path::{PathParams, PathValue};

/// A request to an operation with this query, body and answer.
#[must_use = "a request has no effect until it is sent"]
pub struct Request<Q, B, A> {
    pub(super) parts: RequestParts,
    types: PhantomData<fn(Q, B) -> A>,
}

impl<Q, B, A> std::fmt::Debug for Request<Q, B, A> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // The query and the body may be confidential.
        f.debug_tuple("Request").field(&self.parts.path).finish()
    }
}

/// A request to the API that can be sent more than once.
#[derive(Debug, Clone)]
pub(super) struct RequestParts {
    pub(super) method: Method,
    path: Vec<String>,
    query: Vec<(String, String)>,
    /// Resources in the path of the request.
    resources: Vec<PathValue>,
    /// Body of the request as JSON.
    pub(super) body: Option<String>,
    /// Idempotency key of the request: the server executes requests with the same key only once.
    pub(super) idempotency_key: Option<String>,
    /// Whether the request gets a random idempotency key if it has none.
    pub(super) once: bool,
    /// Whether the request is retried when the server is busy or can't be reached.
    pub(super) retries: bool,
    /// Time that the server may take in addition to the usual time.
    pub(super) extra_time: Duration,
}

impl<P: PathParams, Q, B, A> Operation<P, Q, B, A> {
    /// Returns a request to this operation on the resource with these path parameters.
    pub fn at(&self, path: P) -> Request<Q, B, A> {
        let resources = path.values();
        let mut values = resources.iter();
        let segments = self.path.split('/').skip(1).map(|segment| match segment.starts_with('{') {
            true => values.next().map(|value| value.text.clone()).unwrap_or_default(),
            false => segment.to_owned(),
        });
        let path = segments.collect();
        let parts = RequestParts {
            method: match self.method {
                operation::Method::Get => Method::GET,
                operation::Method::Post => Method::POST,
                operation::Method::Patch => Method::PATCH,
                operation::Method::Delete => Method::DELETE,
            },
            path,
            query: Vec::new(),
            resources,
            body: None,
            idempotency_key: None,
            once: self.once,
            retries: true,
            extra_time: Duration::ZERO,
        };
        Request { parts, types: PhantomData }
    }
}

impl<Q, B, A> Request<Q, B, A> {
    /// Sets the idempotency key of the request. `None` means that it has none.
    pub fn idempotency_key(mut self, key: Option<String>) -> Self {
        self.parts.idempotency_key = key;
        self
    }

    /// Disables retries of the request.
    pub fn without_retries(mut self) -> Self {
        self.parts.retries = false;
        self
    }

    /// Lets the server take this time in addition to the usual time.
    pub const fn with_extra_time(mut self, time: Duration) -> Self {
        self.parts.extra_time = time;
        self
    }

    /// Returns the resources in the path of the request.
    pub fn resources(&self) -> &[PathValue] {
        &self.parts.resources
    }
}

impl<Q: Serialize, B, A> Request<Q, B, A> {
    pub fn query(mut self, query: &Q) -> Self {
        self.parts.query = query_pairs(query);
        self
    }
}

impl<Q, B: Serialize, A> Request<Q, B, A> {
    pub fn body(mut self, body: &B) -> Self {
        // Our bodies have only string keys, so serialization can't fail.
        self.parts.body = Some(serde_json::to_string(body).unwrap_or_default());
        self
    }
}

/// Returns the query parameters of a query type as names and texts. A list gives one parameter per
/// item, and a missing value or `false` gives none.
fn query_pairs(query: &impl Serialize) -> Vec<(String, String)> {
    let Ok(Value::Object(fields)) = serde_json::to_value(query) else {
        return Vec::new();
    };
    let values = fields.into_iter().flat_map(|(name, value)| match value {
        Value::Array(items) => items.into_iter().map(|item| (name.clone(), item)).collect(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Object(_) => {
            vec![(name, value)]
        }
    });
    let texts = values.filter_map(|(name, value)| match value {
        Value::Null | Value::Bool(false) => None,
        Value::String(text) => Some((name, text)),
        Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_) => {
            Some((name, value.to_string()))
        }
    });
    texts.collect()
}

impl RequestParts {
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
    use longhaul_core::id::{AgentName, LaneKey};
    use longhaul_core::status::Status;

    use super::*;
    use crate::operations::{LIST_RUNS, PAUSE_LANE};
    use crate::query::RunsQuery;

    #[test]
    fn a_path_is_appended_to_the_base_url_and_a_name_is_one_segment() {
        for (base, url) in [
            ("http://a:1", "http://a:1/v1/lanes/a%2Fb%3F/pause"),
            ("http://a:1/", "http://a:1/v1/lanes/a%2Fb%3F/pause"),
            ("https://a/deep/", "https://a/deep/v1/lanes/a%2Fb%3F/pause"),
        ] {
            let base: Url = base.parse().unwrap();
            let request = PAUSE_LANE.at(LaneKey::new("a/b?").unwrap());
            assert_eq!(request.parts.url(&base).as_str(), url);
        }
    }

    #[test]
    fn a_query_has_one_parameter_per_value() {
        let query = RunsQuery {
            status: vec![Status::Failed, Status::Paused],
            agent: Some(AgentName::new("1&2").unwrap()),
            limit: Some(7),
            ..RunsQuery::default()
        };
        let url = LIST_RUNS.at(()).query(&query).parts.url(&"http://a".parse().unwrap());
        assert_eq!(url.query(), Some("status=failed&status=paused&agent=1%262&limit=7"));
    }
}
