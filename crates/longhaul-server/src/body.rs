//! A request's body as JSON: bounded in size, time and depth, and read whole.
//!
//! Never: a field that is ignored. A name that nobody knows is an error with a
//! suggestion.

use axum::extract::{FromRequest, Request};
use axum::http::header::{CONTENT_LENGTH, CONTENT_TYPE};
use axum::http::{HeaderMap, StatusCode};
use http_body_util::{BodyExt as _, LengthLimitError, Limited};
use longhaul_core::raw::{JsonError, check_readable};
use serde::de::DeserializeOwned;

use crate::app::App;
use crate::limits::{BODY_BYTES_MAX, BODY_TIMEOUT, DEPTH_MAX};
use crate::problem::Problem;
use longhaul_core::suggest::closest;

/// A body that must be there.
#[derive(Debug)]
pub(crate) struct Json<T>(pub(crate) T);

impl<T: DeserializeOwned> FromRequest<App> for Json<T> {
    type Rejection = Problem;

    async fn from_request(request: Request, app: &App) -> Result<Self, Problem> {
        check_content_type(request.headers())?;
        let bytes = read_body(request, app).await?;
        parse(&bytes).map(Self)
    }
}

/// A body that may be left out.
#[derive(Debug)]
pub(crate) struct OptionalJson<T>(pub(crate) T);

impl<T: DeserializeOwned + Default> FromRequest<App> for OptionalJson<T> {
    type Rejection = Problem;

    async fn from_request(request: Request, app: &App) -> Result<Self, Problem> {
        let typed = request.headers().contains_key(CONTENT_TYPE);
        if typed {
            check_content_type(request.headers())?;
        }
        let bytes = read_body(request, app).await?;
        match (bytes.is_empty(), typed) {
            (true, _) => Ok(Self(T::default())),
            (false, true) => parse(&bytes).map(Self),
            (false, false) => Err(unsupported_media_type()),
        }
    }
}

fn check_content_type(headers: &HeaderMap) -> Result<(), Problem> {
    let said = headers.get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok());
    let kind = said.unwrap_or_default().split(';').next();
    let kind = kind.unwrap_or_default().trim().to_ascii_lowercase();
    match kind == "application/json" {
        true => Ok(()),
        false => Err(unsupported_media_type()),
    }
}

fn unsupported_media_type() -> Problem {
    let words = "a body is sent as JSON, and this one is not said to be";
    Problem::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "unsupported_media_type", words)
        .hint("send `Content-Type: application/json`")
}

/// All bytes of a body, within bounds.
pub(crate) async fn read_body(request: Request, app: &App) -> Result<Vec<u8>, Problem> {
    let said = request.headers().get(CONTENT_LENGTH);
    let said = said.and_then(|said| said.to_str().ok()?.parse::<usize>().ok());
    if said.is_some_and(|bytes| bytes > BODY_BYTES_MAX) {
        return Err(too_large());
    }
    let clock = &app.longhaul().services().clock;
    let body = Limited::new(request.into_body(), BODY_BYTES_MAX);
    let come = tokio::select! {
        biased;
        come = body.collect() => come,
        () = clock.sleep(BODY_TIMEOUT.into()) => {
            let words = "the body did not come in time";
            return Err(Problem::new(StatusCode::REQUEST_TIMEOUT, "slow_body", words));
        }
    };
    match come {
        Ok(body) => Ok(body.to_bytes().into()),
        Err(error) if error.is::<LengthLimitError>() => Err(too_large()),
        Err(_) => {
            Err(Problem::bad_request("bad_body", "the body broke off, or its framing is wrong"))
        }
    }
}

fn too_large() -> Problem {
    let words = format!("a body has at most {BODY_BYTES_MAX} bytes");
    Problem::new(StatusCode::PAYLOAD_TOO_LARGE, "too_large", words)
        .hint("send less, or a link to where the rest can be read")
}

fn parse<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, Problem> {
    let text = std::str::from_utf8(bytes)
        .map_err(|_| Problem::bad_request("bad_json", "the body is no valid UTF-8"))?;
    if nesting_depth(text) > DEPTH_MAX {
        let words = format!("the body is nested deeper than {DEPTH_MAX}");
        return Err(Problem::bad_request("too_deep", words));
    }
    check_readable(text).map_err(|bad| syntax_problem(text, &bad))?;
    let mut reader = serde_json::Deserializer::from_str(text);
    serde_path_to_error::deserialize(&mut reader).map_err(|error| {
        let path = error.path().to_string();
        type_problem(&path, error.inner())
    })
}

/// What is wrong with a text that can't be read as a value. It may be JSON all the same:
/// the reader calls a number that it can't hold a fault of syntax.
fn syntax_problem(text: &str, error: &JsonError) -> Problem {
    let well_formed = serde_json::from_str::<serde::de::IgnoredAny>(text);
    match (well_formed, error) {
        (Err(bad), _) => Problem::bad_request("bad_json", format!("the body is no JSON: {bad}")),
        (Ok(_), JsonError::Number) => Problem::bad_request("bad_number", error.to_string()),
        (Ok(_), JsonError::Syntax(bad)) => type_problem(".", bad),
    }
}

/// What is wrong with JSON that is not what is asked for.
fn type_problem(path: &str, error: &serde_json::Error) -> Problem {
    let said = error.to_string();
    let problem = match path {
        "." => Problem::invalid(said.clone()),
        path => Problem::invalid(format!("`{path}`: {said}")),
    };
    match suggestion(&said) {
        Some(hint) => problem.hint(hint),
        None => problem.hint("GET /openapi.json says what it takes"),
    }
}

/// For a field that nobody knows, the one that may have been meant.
fn suggestion(said: &str) -> Option<String> {
    let rest =
        said.strip_prefix("unknown field `").or_else(|| said.strip_prefix("unknown variant `"))?;
    let (odd, rest) = rest.split_once('`')?;
    let known = rest.split('`').skip(1).step_by(2);
    let near = closest(odd, known)?;
    Some(format!("did you mean `{near}`?"))
}

/// How deep the brackets of a text go, those in strings left out.
fn nesting_depth(text: &str) -> usize {
    let (mut now, mut most) = (0_usize, 0_usize);
    let (mut quoted, mut escaped) = (false, false);
    for byte in text.bytes() {
        match (quoted, escaped, byte) {
            (true, true, _) => escaped = false,
            (true, false, b'\\') => escaped = true,
            (true, false, b'"') => quoted = false,
            (true, false, _) => {}
            (false, _, b'"') => quoted = true,
            (false, _, b'{' | b'[') => {
                now += 1;
                most = most.max(now);
            }
            (false, _, b'}' | b']') => now = now.saturating_sub(1),
            (false, _, _) => {}
        }
    }
    most
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, PartialEq, serde::Deserialize)]
    #[serde(deny_unknown_fields)]
    struct SampleBody {
        agent: String,
        #[serde(default)]
        turns: Option<u32>,
        #[serde(default)]
        history: Vec<longhaul_core::message::Message>,
    }

    #[test]
    fn an_invalid_body_is_rejected_with_a_message() {
        let read =
            |text: &[u8]| parse::<SampleBody>(text).map_err(|no| (no.code, no.detail, no.hint));
        assert_eq!(read(br#"{"agent": "a", "turns": 3}"#).map(|sheet| sheet.agent), Ok("a".into()));
        for (text, code, words, hint) in [
            (&b"{"[..], "bad_json", "is no JSON", ""),
            (b"\xff\xfe", "bad_json", "UTF-8", ""),
            (br#"{"agent": "a"} x"#, "bad_json", "trailing", ""),
            (br#"{"agnt": "a"}"#, "invalid", "unknown field `agnt`", "did you mean `agent`?"),
            (br#"{"agent": 3}"#, "invalid", "`agent`: invalid type", "openapi"),
            (br#"{"agent": "a", "turns": -1}"#, "invalid", "`turns`", "openapi"),
            (b"[]", "invalid", "invalid", "openapi"),
            (br#"{"agent": 1e999}"#, "invalid", "number out of range", ""),
            (br#"{"agent": "\ud834"}"#, "invalid", "hex escape", ""),
            (br#"{"agent": "a", "history": [3]}"#, "invalid", "`history[0]`", "openapi"),
            (br#"{"agent": "a", "history": [{}]}"#, "invalid", "`history[0]`", "openapi"),
        ] {
            let no = read(text).unwrap_err();
            assert_eq!(no.0, code, "{text:?}");
            assert!(no.1.contains(words), "{no:?}");
            assert!(no.2.contains(hint), "{no:?}");
        }
        let long = format!(r#"{{"agent": "a", "turns": {}}}"#, "9".repeat(5_000));
        let no = read(long.as_bytes()).unwrap_err();
        assert_eq!(no.0, "bad_number");
        assert!(no.1.contains("more than 1000 characters"), "{no:?}");
        let broken = long.replace('}', "");
        assert_eq!(read(broken.as_bytes()).unwrap_err().0, "bad_json");
        let deep = format!("{}{}", "[".repeat(65), "]".repeat(65));
        assert_eq!(read(deep.as_bytes()).unwrap_err().0, "too_deep");
    }

    #[test]
    fn brackets_in_strings_do_not_count_as_depth() {
        for (text, deep) in [
            ("3", 0),
            ("[]", 1),
            (r#"{"a": [1, {"b": 2}]}"#, 3),
            (r#""[[[[""#, 0),
            (r#"["\"[[", "]"]"#, 1),
        ] {
            assert_eq!(nesting_depth(text), deep, "{text}");
        }
    }
}
