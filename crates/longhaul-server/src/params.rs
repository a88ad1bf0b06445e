//! Path and query parameters. Unknown parameters are errors with a suggestion.

use std::ops::RangeInclusive;
use std::str::FromStr;

use axum::extract::{FromRequestParts, RawPathParams};
use axum::http::request::Parts;
use longhaul_core::id::{BatchId, GateId, IdError, RuleId, RunId, SteerId, ThreadKey};

use crate::app::App;
use crate::limits::{QUERY_BYTES_MAX, QUERY_PAIRS_MAX};
use crate::problem::Problem;
use longhaul_core::suggest::most_similar_name;

/// Extractor for the query parameters of a request, as name-value pairs.
#[derive(Debug)]
pub(crate) struct Query(Vec<(String, String)>);

impl FromRequestParts<App> for Query {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &App) -> Result<Self, Problem> {
        Self::parse_query_string(parts.uri.query().unwrap_or_default())
    }
}

impl Query {
    fn parse_query_string(text: &str) -> Result<Self, Problem> {
        let count = text.split('&').filter(|pair| !pair.is_empty()).count();
        if text.len() > QUERY_BYTES_MAX || count > QUERY_PAIRS_MAX {
            let message = format!(
                "a query has at most {QUERY_PAIRS_MAX} parameters and {QUERY_BYTES_MAX} bytes"
            );
            return Err(Problem::bad_request("query_too_long", message));
        }
        let pairs = form_urlencoded::parse(text.as_bytes()).into_owned();
        Ok(Self(pairs.collect()))
    }

    /// Returns an error if the query has parameters other than the `allowed` ones.
    pub(crate) fn allow_only_params(self, allowed: &[&str]) -> Result<Self, Problem> {
        let is_unknown = |name: &&String| !allowed.contains(&name.as_str());
        match self.0.iter().map(|(name, _)| name).find(is_unknown) {
            None => Ok(self),
            Some(unknown_name) => {
                let hint = match most_similar_name(unknown_name, allowed.iter().copied()) {
                    Some(closest_name) => format!("did you mean `{closest_name}`?"),
                    None => format!("the known parameters are: {}", allowed.join(", ")),
                };
                let display_name: String = unknown_name.chars().take(60).collect();
                Err(Problem::unprocessable(format!("the parameter `{display_name}` is unknown"))
                    .with_hint(hint))
            }
        }
    }

    /// Returns all values of a query parameter.
    pub(crate) fn param_values<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a str> {
        let matching = self.0.iter().filter(move |(param_name, _)| param_name == name);
        matching.map(|(_, value)| value.as_str())
    }

    /// Returns the value of a query parameter that may be given at most once. `None` means that it
    /// is not given. An empty value is an error, because an empty filter does not mean "all".
    pub(crate) fn param_value<'a>(&'a self, name: &'a str) -> Result<Option<&'a str>, Problem> {
        let mut values = self.param_values(name);
        match (values.next(), values.next()) {
            (_, Some(_)) => {
                Err(Problem::unprocessable(format!("the parameter `{name}` is given twice")))
            }
            (Some(""), None) => {
                let message = format!("the parameter `{name}` is empty");
                Err(Problem::unprocessable(message).with_hint("leave it out, or give a value"))
            }
            (found, None) => Ok(found),
        }
    }

    /// Parses the value of a query parameter. `None` means that the parameter is not given.
    pub(crate) fn parse_param<T: FromStr<Err: std::fmt::Display>>(
        &self,
        name: &str,
    ) -> Result<Option<T>, Problem> {
        let Some(text) = self.param_value(name)? else {
            return Ok(None);
        };
        let result = text.parse().map(Some);
        result.map_err(|error| {
            Problem::unprocessable(format!("the parameter `{name}` is invalid: {error}"))
        })
    }

    /// Returns the page size from the `limit` parameter, checked against its bounds.
    pub(crate) fn page_limit_param(
        &self,
        default_limit: usize,
        bounds: RangeInclusive<usize>,
    ) -> Result<usize, Problem> {
        let limit = self.parse_param("limit")?.unwrap_or(default_limit);
        if bounds.contains(&limit) {
            return Ok(limit);
        }
        let (min, max) = (bounds.start(), bounds.end());
        Err(Problem::unprocessable(format!("`limit` must be between {min} and {max}")))
    }

    /// Returns the value of a boolean query parameter, `false` by default.
    pub(crate) fn bool_param(&self, name: &str) -> Result<bool, Problem> {
        match self.param_value(name)? {
            None | Some("false") => Ok(false),
            Some("true") => Ok(true),
            Some(_) => Err(Problem::unprocessable(format!("`{name}` must be true or false"))),
        }
    }
}

/// Returns the value of a path parameter by its name.
async fn path_param(parts: &mut Parts, app: &App, name: &str) -> Result<String, Problem> {
    let params = RawPathParams::from_request_parts(parts, app).await;
    let params = params
        .map_err(|_| Problem::bad_request("invalid_path", "the decoded path is not valid UTF-8"))?;
    let value = params.iter().find(|(identity, _)| *identity == name);
    let value = value.map(|(_, value)| value.to_owned());
    value.ok_or_else(|| Problem::not_found("not_found", "there is no endpoint at this path"))
}

/// Extractor for a name in the path of a request, such as the name of an agent.
#[derive(Debug)]
pub(crate) struct NamePathParam(pub(crate) String);

impl FromRequestParts<App> for NamePathParam {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self, Problem> {
        path_param(parts, app, "name").await.map(Self)
    }
}

/// Extractor for the name of a thread in the path of a request.
#[derive(Debug)]
pub(crate) struct ThreadPath(pub(crate) ThreadKey);

impl FromRequestParts<App> for ThreadPath {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self, Problem> {
        let name = path_param(parts, app, "thread").await?;
        ThreadKey::new(name).map(Self).map_err(|error| {
            Problem::unprocessable(format!("the name of the thread is invalid: {error}"))
        })
    }
}

/// Extractor for the secret in the path of a link.
pub(crate) struct TokenPathParam(pub(crate) String);

impl FromRequestParts<App> for TokenPathParam {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self, Problem> {
        path_param(parts, app, "token").await.map(Self)
    }
}

macro_rules! id_path {
    ($name:ident, $id:ty, $param:literal, $code:literal) => {
        /// Extractor for an id in the path of a request.
        #[derive(Debug, Clone, Copy)]
        pub(crate) struct $name(pub(crate) $id);

        impl FromRequestParts<App> for $name {
            type Rejection = Problem;

            async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self, Problem> {
                let text = path_param(parts, app, $param).await?;
                let result: Result<$id, IdError> = text.parse();
                result.map(Self).map_err(|error| {
                    Problem::not_found($code, error.to_string())
                        .with_hint("give the full id; short ids work only on the command line")
                })
            }
        }
    };
}

id_path!(RunPath, RunId, "id", "run_not_found");
id_path!(BatchPath, BatchId, "id", "batch_not_found");
id_path!(GatePath, GateId, "id", "gate_not_found");
id_path!(RulePath, RuleId, "id", "rule_not_found");
id_path!(SteerPath, SteerId, "steer", "steer_not_found");

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_invalid_query_is_rejected() {
        let query = |text: &str| {
            Query::parse_query_string(text)
                .and_then(|query| query.allow_only_params(&["limit", "lane"]))
        };
        let rejection =
            |text: &str| query(text).map_err(|problem| (problem.detail, problem.hint)).map(|_| ());
        assert_eq!(rejection("limit=3&lane=a%20b"), Ok(()));
        assert_eq!(query("lane=a%20b").unwrap().param_value("lane"), Ok(Some("a b")));
        assert_eq!(
            rejection("limt=3"),
            Err(("the parameter `limt` is unknown".into(), "did you mean `limit`?".into()))
        );
        assert_eq!(query("limit=3").unwrap().param_value("lane"), Ok(None));
        assert!(query("lane=").unwrap().param_value("lane").is_err());
        let twice = query("limit=1&limit=2").unwrap();
        assert!(twice.page_limit_param(20, 1..=100).is_err());
        for (text, limit) in [
            ("", Some(20)),
            ("limit=0", None),
            ("limit=100", Some(100)),
            ("limit=-1", None),
            ("limit=x", None),
        ] {
            assert_eq!(query(text).unwrap().page_limit_param(20, 1..=100).ok(), limit, "{text}");
        }
        let many = "a=1&".repeat(QUERY_PAIRS_MAX + 1);
        assert_eq!(Query::parse_query_string(&many).unwrap_err().code, "query_too_long");
    }
}
