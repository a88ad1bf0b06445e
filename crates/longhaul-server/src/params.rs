//! Path and query parameters. Unknown parameters are errors with a suggestion.

use std::fmt;
use std::str::FromStr;

use axum::extract::{FromRequestParts as _, RawPathParams};
use axum::http::request::Parts;
use longhaul_api::path::PathParams;
use longhaul_core::suggest::most_similar_name;
use longhaul_engine::secret::Secret;
use serde::de::value::{MapDeserializer, SeqDeserializer, StrDeserializer};
use serde::de::{self, DeserializeOwned, Deserializer, IntoDeserializer, Visitor};
use serde::forward_to_deserialize_any;

use crate::app::App;
use crate::limits::{QUERY_BYTES_MAX, QUERY_PAIRS_MAX};
use crate::problem::Problem;

/// Parses the query of a request. A parameter that is not a field of `T` is an error if `T` denies
/// unknown fields.
pub(crate) fn parse_query<T: DeserializeOwned>(text: &str) -> Result<T, Problem> {
    let count = text.split('&').filter(|pair| !pair.is_empty()).count();
    if text.len() > QUERY_BYTES_MAX || count > QUERY_PAIRS_MAX {
        let message =
            format!("a query has at most {QUERY_PAIRS_MAX} parameters and {QUERY_BYTES_MAX} bytes");
        return Err(Problem::bad_request("query_too_long", message));
    }
    let mut params: Vec<Param> = Vec::new();
    for (name, value) in form_urlencoded::parse(text.as_bytes()).into_owned() {
        match params.iter_mut().find(|param| param.name == name) {
            Some(param) => param.values.push(value),
            None => params.push(Param { name, values: vec![value] }),
        }
    }
    let params = params.into_iter().map(|param| (param.name.clone(), param));
    T::deserialize(MapDeserializer::new(params)).map_err(|error: QueryError| *error.problem)
}

/// A query parameter with all its values.
#[derive(Debug, Clone)]
struct Param {
    name: String,
    values: Vec<String>,
}

#[derive(Debug)]
struct QueryError {
    problem: Box<Problem>,
    /// Whether the message names the parameter.
    has_name: bool,
}

impl fmt::Display for QueryError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.problem.detail)
    }
}

impl std::error::Error for QueryError {}

impl From<Problem> for QueryError {
    fn from(problem: Problem) -> Self {
        Self { problem: Box::new(problem), has_name: true }
    }
}

impl de::Error for QueryError {
    fn custom<T: fmt::Display>(message: T) -> Self {
        let problem = Box::new(Problem::unprocessable(message.to_string()));
        Self { problem, has_name: false }
    }

    fn unknown_field(field: &str, expected: &'static [&'static str]) -> Self {
        let hint = match most_similar_name(field, expected.iter().copied()) {
            Some(closest_name) => format!("did you mean `{closest_name}`?"),
            None => format!("the known parameters are: {}", expected.join(", ")),
        };
        let display_name: String = field.chars().take(60).collect();
        Problem::unprocessable(format!("the parameter `{display_name}` is unknown"))
            .with_hint(hint)
            .into()
    }
}

impl QueryError {
    /// Adds the name of the parameter to the message of a type that can't be parsed.
    fn in_param(self, name: &str) -> Self {
        if self.has_name { self } else { invalid_param(name, self) }
    }
}

fn invalid_param(name: &str, reason: impl fmt::Display) -> QueryError {
    Problem::unprocessable(format!("the parameter `{name}` is invalid: {reason}")).into()
}

impl Param {
    /// Returns the value of a parameter that may be given at most once. An empty value is an error,
    /// because an empty filter does not mean "all".
    fn value(&self) -> Result<&str, QueryError> {
        let name = &self.name;
        match self.values.as_slice() {
            [value] if !value.is_empty() => Ok(value),
            [_, _, ..] => Err(Problem::unprocessable(format!(
                "the parameter `{name}` is given more than once"
            ))
            .into()),
            [] | [_] => Err(Problem::unprocessable(format!("the parameter `{name}` is empty"))
                .with_hint("leave it out, or give a value")
                .into()),
        }
    }

    fn parse<T: FromStr<Err: fmt::Display>>(&self) -> Result<T, QueryError> {
        self.value()?.parse().map_err(|error| invalid_param(&self.name, error))
    }
}

impl IntoDeserializer<'_, QueryError> for Param {
    type Deserializer = Self;

    fn into_deserializer(self) -> Self {
        self
    }
}

impl<'de> Deserializer<'de> for Param {
    type Error = QueryError;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, QueryError> {
        let result = visitor.visit_str(self.value()?);
        result.map_err(|error: QueryError| error.in_param(&self.name))
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, QueryError> {
        let name = self.name.clone();
        visitor.visit_some(self).map_err(|error: QueryError| error.in_param(&name))
    }

    /// Reads a list from repeated parameters and from values with commas.
    fn deserialize_seq<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, QueryError> {
        let items = self.values.iter().flat_map(|value| value.split(','));
        let items = items.map(|item| Self { name: self.name.clone(), values: vec![item.into()] });
        visitor.visit_seq(SeqDeserializer::new(items))
    }

    fn deserialize_bool<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, QueryError> {
        match self.value()? {
            "true" => visitor.visit_bool(true),
            "false" => visitor.visit_bool(false),
            _ => {
                let message = format!("`{}` must be true or false", self.name);
                Err(Problem::unprocessable(message).into())
            }
        }
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        visitor: V,
    ) -> Result<V::Value, QueryError> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_u32<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, QueryError> {
        visitor.visit_u32(self.parse()?)
    }

    fn deserialize_u64<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, QueryError> {
        visitor.visit_u64(self.parse()?)
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, QueryError> {
        let value: StrDeserializer<'_, QueryError> = self.value()?.into_deserializer();
        visitor.visit_enum(value).map_err(|_| {
            let message = format!("`{}` must be one of {}", self.name, variants.join(", "));
            Problem::unprocessable(message).into()
        })
    }

    /// Ignores the value of a parameter that the type does not have.
    fn deserialize_ignored_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, QueryError> {
        visitor.visit_unit()
    }

    forward_to_deserialize_any! {
        i8 i16 i32 i64 i128 u8 u16 u128 f32 f64 char str string bytes byte_buf unit
        unit_struct tuple tuple_struct map struct identifier
    }
}

/// Returns the page size that a request asks for, checked against its bounds.
pub(crate) fn page_limit(limit: Option<usize>, usual: usize, max: usize) -> Result<usize, Problem> {
    match limit.unwrap_or(usual) {
        limit if (1..=max).contains(&limit) => Ok(limit),
        _ => Err(Problem::unprocessable(format!("`limit` must be between 1 and {max}"))),
    }
}

/// Parses the path parameters of an operation.
pub(crate) async fn parse_path<P: PathParams>(parts: &mut Parts, app: &App) -> Result<P, Problem> {
    let texts = path_texts(parts, app).await?;
    let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
    P::parse(&texts).map_err(|invalid| match invalid.not_found {
        Some(code) => Problem::not_found(code, invalid.reason)
            .with_hint("give the full id; short ids work only on the command line"),
        None => {
            let (noun, reason) = (invalid.noun, invalid.reason);
            Problem::unprocessable(format!("the name of the {noun} is invalid: {reason}"))
        }
    })
}

/// Returns the decoded path parameters in their order. A path without parameters has none.
async fn path_texts(parts: &mut Parts, app: &App) -> Result<Vec<String>, Problem> {
    use axum::extract::rejection::RawPathParamsRejection;
    match RawPathParams::from_request_parts(parts, app).await {
        Ok(params) => Ok(params.iter().map(|(_, text)| text.to_owned()).collect()),
        Err(RawPathParamsRejection::MissingPathParams(_)) => Ok(Vec::new()),
        Err(_) => Err(Problem::bad_request("invalid_path", "the decoded path is not valid UTF-8")),
    }
}

/// Returns the secret in the path of a link.
pub(crate) async fn link_secret(parts: &mut Parts, app: &App) -> Result<Secret, Problem> {
    let token = path_texts(parts, app).await?.into_iter().next();
    let not_found = || Problem::not_found("not_found", "there is no endpoint at this path");
    token.map(Secret::from_text).ok_or_else(not_found)
}

#[cfg(test)]
mod tests {
    use longhaul_api::query::RunsQuery;

    use super::*;

    #[test]
    fn an_invalid_query_is_rejected() {
        let query = |text: &str| parse_query::<RunsQuery>(text);
        let rejection = |text: &str| {
            let problem = query(text).unwrap_err();
            (problem.detail, problem.hint)
        };
        let parsed = query("limit=3&lane=a%20b&status=failed,paused&status=running").unwrap();
        assert_eq!((parsed.limit, parsed.lane.unwrap().as_str()), (Some(3), "a b"));
        assert_eq!(parsed.status.len(), 3);
        assert_eq!(
            rejection("limt=3"),
            ("the parameter `limt` is unknown".into(), "did you mean `limit`?".into())
        );
        for (text, detail) in [
            ("lane=", "the parameter `lane` is empty"),
            ("limit=1&limit=2", "the parameter `limit` is given more than once"),
            ("brief=yes", "`brief` must be true or false"),
            ("limit=-1", "the parameter `limit` is invalid: invalid digit found in string"),
            (
                "status=done",
                "`status` must be one of pending, running, waiting, blocked, paused, completed, \
                 failed, cancelled",
            ),
        ] {
            assert_eq!(rejection(text).0, detail, "{text}");
        }
        assert!(rejection("root=7").0.starts_with("the parameter `root` is invalid: `7`"));
        let many = "a=1&".repeat(QUERY_PAIRS_MAX + 1);
        assert_eq!(query(&many).unwrap_err().code, "query_too_long");
    }

    #[test]
    fn a_page_limit_is_checked() {
        for (limit, expected) in
            [(None, Some(20)), (Some(0), None), (Some(100), Some(100)), (Some(101), None)]
        {
            assert_eq!(page_limit(limit, 20, 100).ok(), expected, "{limit:?}");
        }
    }
}
