//! One request, before it is sent: what, where, and whether it may be sent twice.
//!
//! Never: who asks; the wire adds that.

use reqwest::{Method, Url};
use serde::Serialize;

/// A request.
#[derive(Debug, Clone)]
pub(crate) struct Ask {
    pub(crate) method: Method,
    path: Vec<String>,
    query: Vec<(&'static str, String)>,
    /// What is sent, as JSON.
    pub(crate) body: Option<String>,
    /// The server does it once, however often it comes under this key.
    pub(crate) once: Option<String>,
    /// Whether it is asked again when a server is busy.
    pub(crate) patient: bool,
}

impl Ask {
    fn new(method: Method, path: &[&str]) -> Self {
        Self {
            method,
            path: path.iter().map(|part| (*part).to_owned()).collect(),
            query: Vec::new(),
            body: None,
            once: None,
            patient: true,
        }
    }

    /// A look.
    pub(crate) fn get(path: &[&str]) -> Self {
        Self::new(Method::GET, path)
    }

    /// A word.
    pub(crate) fn post(path: &[&str], body: &impl Serialize) -> Self {
        Self {
            // What is sent is ours and has names for keys, so it is always JSON.
            body: Some(serde_json::to_string(body).unwrap_or_default()),
            ..Self::new(Method::POST, path)
        }
    }

    /// An end.
    pub(crate) fn delete(path: &[&str]) -> Self {
        Self::new(Method::DELETE, path)
    }

    /// The same with a condition.
    #[must_use]
    pub(crate) fn with(mut self, name: &'static str, value: impl ToString) -> Self {
        self.query.push((name, value.to_string()));
        self
    }

    /// The same with a condition, if there is one.
    #[must_use]
    pub(crate) fn with_some(self, name: &'static str, value: Option<impl ToString>) -> Self {
        match value {
            Some(value) => self.with(name, value),
            None => self,
        }
    }

    /// The same, done once however often it is sent.
    #[must_use]
    pub(crate) fn once(self, key: String) -> Self {
        Self {
            once: Some(key),
            ..self
        }
    }

    /// The same, asked a single time.
    #[must_use]
    pub(crate) fn impatient(self) -> Self {
        Self {
            patient: false,
            ..self
        }
    }

    /// Whether it does no harm to send it twice.
    pub(crate) fn may_repeat(&self) -> bool {
        self.method == Method::GET || self.once.is_some()
    }

    /// Where it goes, below a server's own address.
    pub(crate) fn url(&self, base: &Url) -> Url {
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
    fn a_path_is_below_the_address_and_a_name_stays_one_part() {
        for (base, url) in [
            ("http://a:1", "http://a:1/v1/keys/a%2Fb%3F?x=1%262"),
            ("http://a:1/", "http://a:1/v1/keys/a%2Fb%3F?x=1%262"),
            ("https://a/deep/", "https://a/deep/v1/keys/a%2Fb%3F?x=1%262"),
        ] {
            let base: Url = base.parse().unwrap();
            let ask = Ask::get(&["v1", "keys", "a/b?"]).with("x", "1&2");
            assert_eq!(ask.url(&base).as_str(), url);
        }
    }
}
