//! What stands in a path or behind its question mark.
//!
//! Never: a part that is ignored. A name that nobody knows is an error with a
//! suggestion.

use std::ops::RangeInclusive;
use std::str::FromStr;

use axum::extract::{FromRequestParts, RawPathParams};
use axum::http::request::Parts;
use longhaul_core::id::{GateId, IdError, RunId, SteerId};

use crate::app::App;
use crate::limits::{QUERY_BYTES_MAX, QUERY_PAIRS_MAX};
use crate::problem::Problem;
use longhaul_core::suggest::closest;

/// The pairs behind the question mark.
#[derive(Debug)]
pub(crate) struct Query(Vec<(String, String)>);

impl FromRequestParts<App> for Query {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &App) -> Result<Self, Problem> {
        Self::parse(parts.uri.query().unwrap_or_default())
    }
}

impl Query {
    fn parse(text: &str) -> Result<Self, Problem> {
        let count = text.split('&').filter(|pair| !pair.is_empty()).count();
        if text.len() > QUERY_BYTES_MAX || count > QUERY_PAIRS_MAX {
            let words =
                format!("a query has at most {QUERY_PAIRS_MAX} parts and {QUERY_BYTES_MAX} bytes");
            return Err(Problem::bad_request("query_too_long", words));
        }
        let pairs = form_urlencoded::parse(text.as_bytes()).into_owned();
        Ok(Self(pairs.collect()))
    }

    /// Only these names may be there.
    pub(crate) fn allow_only(self, known: &[&str]) -> Result<Self, Problem> {
        let odd = |name: &&String| !known.contains(&name.as_str());
        match self.0.iter().map(|(name, _)| name).find(odd) {
            None => Ok(self),
            Some(odd) => {
                let hint = match closest(odd, known.iter().copied()) {
                    Some(near) => format!("did you mean `{near}`?"),
                    None => format!("there are: {}", known.join(", ")),
                };
                let shown: String = odd.chars().take(60).collect();
                Err(Problem::invalid(format!("there is no parameter `{shown}` here")).hint(hint))
            }
        }
    }

    /// All values of a name.
    pub(crate) fn values<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a str> {
        let fits = self.0.iter().filter(move |(known, _)| known == name);
        fits.map(|(_, value)| value.as_str())
    }

    /// The value of a name that stands there once at most. A filter that is empty
    /// was meant to hold something, so it does not mean everything.
    pub(crate) fn value<'a>(&'a self, name: &'a str) -> Result<Option<&'a str>, Problem> {
        let mut values = self.values(name);
        match (values.next(), values.next()) {
            (_, Some(_)) => Err(Problem::invalid(format!("`{name}` stands there twice"))),
            (Some(""), None) => {
                let words = format!("`{name}` is empty");
                Err(Problem::invalid(words).hint("leave it out, or say what is meant"))
            }
            (found, None) => Ok(found),
        }
    }

    /// A value that is read by its type.
    pub(crate) fn parse_value<T: FromStr<Err: std::fmt::Display>>(
        &self,
        name: &str,
    ) -> Result<Option<T>, Problem> {
        let Some(said) = self.value(name)? else {
            return Ok(None);
        };
        let read = said.parse().map(Some);
        read.map_err(|bad| Problem::invalid(format!("`{name}`: {bad}")))
    }

    /// How many, within bounds.
    pub(crate) fn limit(
        &self,
        unless_said: usize,
        bounds: RangeInclusive<usize>,
    ) -> Result<usize, Problem> {
        let limit = self.parse_value("limit")?.unwrap_or(unless_said);
        if bounds.contains(&limit) {
            return Ok(limit);
        }
        let (least, most) = (bounds.start(), bounds.end());
        Err(Problem::invalid(format!("`limit` is {least} to {most}")))
    }

    /// A yes or no.
    pub(crate) fn flag(&self, name: &str) -> Result<bool, Problem> {
        match self.value(name)? {
            None | Some("false") => Ok(false),
            Some("true") => Ok(true),
            Some(_) => Err(Problem::invalid(format!("`{name}` is true or false"))),
        }
    }
}

/// The parts of a path, by name.
async fn path_param(parts: &mut Parts, app: &App, name: &str) -> Result<String, Problem> {
    let found = RawPathParams::from_request_parts(parts, app).await;
    let found = found.map_err(|_| {
        Problem::bad_request("bad_path", "the path is no valid text once it is decoded")
    })?;
    let value = found.iter().find(|(known, _)| *known == name);
    let value = value.map(|(_, value)| value.to_owned());
    value.ok_or_else(|| Problem::not_found("not_found", "there is nothing at this path"))
}

/// A name in a path, such as an agent's.
#[derive(Debug)]
pub(crate) struct NamePath(pub(crate) String);

impl FromRequestParts<App> for NamePath {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self, Problem> {
        path_param(parts, app, "name").await.map(Self)
    }
}

/// The secret in a link's path.
pub(crate) struct TokenPath(pub(crate) String);

impl FromRequestParts<App> for TokenPath {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self, Problem> {
        path_param(parts, app, "token").await.map(Self)
    }
}

macro_rules! id_path {
    ($name:ident, $id:ty, $param:literal, $code:literal) => {
        /// An id in a path.
        #[derive(Debug, Clone, Copy)]
        pub(crate) struct $name(pub(crate) $id);

        impl FromRequestParts<App> for $name {
            type Rejection = Problem;

            async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self, Problem> {
                let said = path_param(parts, app, $param).await?;
                let read: Result<$id, IdError> = said.parse();
                read.map(Self).map_err(|bad| {
                    Problem::not_found($code, bad.to_string())
                        .hint("give the whole id; short forms are for the command line")
                })
            }
        }
    };
}

id_path!(RunPath, RunId, "id", "no_run");
id_path!(GatePath, GateId, "id", "no_gate");
id_path!(SteerPath, SteerId, "steer", "no_steer");

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_invalid_query_is_rejected() {
        let query =
            |text: &str| Query::parse(text).and_then(|query| query.allow_only(&["limit", "lane"]));
        let said = |text: &str| query(text).map_err(|no| (no.detail, no.hint)).map(|_| ());
        assert_eq!(said("limit=3&lane=a%20b"), Ok(()));
        assert_eq!(query("lane=a%20b").unwrap().value("lane"), Ok(Some("a b")));
        assert_eq!(
            said("limt=3"),
            Err(("there is no parameter `limt` here".into(), "did you mean `limit`?".into()))
        );
        assert_eq!(query("limit=3").unwrap().value("lane"), Ok(None));
        assert!(query("lane=").unwrap().value("lane").is_err());
        let twice = query("limit=1&limit=2").unwrap();
        assert!(twice.limit(20, 1..=100).is_err());
        for (text, limit) in [
            ("", Some(20)),
            ("limit=0", None),
            ("limit=100", Some(100)),
            ("limit=-1", None),
            ("limit=x", None),
        ] {
            assert_eq!(query(text).unwrap().limit(20, 1..=100).ok(), limit, "{text}");
        }
        let many = "a=1&".repeat(QUERY_PAIRS_MAX + 1);
        assert_eq!(Query::parse(&many).unwrap_err().code, "query_too_long");
    }
}
