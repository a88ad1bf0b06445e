//! JSON request bodies with limits on size, time and nesting depth. Unknown fields are errors
//! with a suggestion.

use axum::extract::Request;
use axum::http::header::{CONTENT_LENGTH, CONTENT_TYPE};
use axum::http::{HeaderMap, StatusCode};
use http_body_util::{BodyExt as _, LengthLimitError, Limited};
use longhaul_api::operation::BodyKind;
use longhaul_core::raw::{JsonError, check_json_parses};
use serde::de::DeserializeOwned;

use crate::app::App;
use crate::limits::{BODY_BYTES_MAX, BODY_TIMEOUT, JSON_DEPTH_MAX};
use crate::problem::Problem;
use longhaul_core::suggest::most_similar_name;

const BODY_HINT: &str = "GET /openapi.json describes the expected body";

/// Reads and parses the JSON body of a request. A missing optional body is an empty JSON object.
pub(crate) async fn parse_request_body<T: DeserializeOwned>(
    request: Request,
    app: &App,
    kind: BodyKind,
) -> Result<T, Problem> {
    if kind == BodyKind::None {
        return parse_json("null");
    }
    let has_content_type = request.headers().contains_key(CONTENT_TYPE);
    if has_content_type || kind == BodyKind::Required {
        check_content_type(request.headers())?;
    }
    let bytes = read_body(request, app).await?;
    match (kind, bytes.is_empty(), has_content_type) {
        (BodyKind::Optional, true, _) => parse_json("{}"),
        (BodyKind::Optional, false, false) => Err(unsupported_media_type()),
        _ => parse_body(&bytes),
    }
}

fn check_content_type(headers: &HeaderMap) -> Result<(), Problem> {
    let content_type = headers.get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok());
    let kind = content_type.unwrap_or_default().split(';').next();
    let kind = kind.unwrap_or_default().trim().to_ascii_lowercase();
    match kind == "application/json" {
        true => Ok(()),
        false => Err(unsupported_media_type()),
    }
}

fn unsupported_media_type() -> Problem {
    let message = "the body must be JSON, and the Content-Type header does not say so";
    Problem::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "unsupported_media_type", message)
        .with_hint("send `Content-Type: application/json`")
}

/// Reads the whole request body, up to a maximum size and time. A request of this process has no
/// maximum size: the command that sends it has limits of its own.
pub(crate) async fn read_body(request: Request, app: &App) -> Result<Vec<u8>, Problem> {
    let content_length = request.headers().get(CONTENT_LENGTH);
    let content_length = content_length
        .and_then(|content_length| content_length.to_str().ok()?.parse::<usize>().ok());
    let bytes_max = if app.state.in_process { usize::MAX } else { BODY_BYTES_MAX };
    if content_length.is_some_and(|bytes| bytes > bytes_max) {
        return Err(body_too_large());
    }
    let clock = &app.longhaul().services().clock;
    let body = Limited::new(request.into_body(), bytes_max);
    let result = tokio::select! {
        biased;
        result = body.collect() => result,
        () = clock.sleep(BODY_TIMEOUT.into()) => {
            let message = "receiving the body timed out";
            return Err(Problem::new(StatusCode::REQUEST_TIMEOUT, "body_timeout", message));
        }
    };
    match result {
        Ok(body) => Ok(body.to_bytes().into()),
        Err(error) if error.is::<LengthLimitError>() => Err(body_too_large()),
        Err(_) => Err(Problem::bad_request(
            "invalid_body",
            "the body is incomplete, or its framing is invalid",
        )),
    }
}

fn body_too_large() -> Problem {
    let message = format!("the request body is larger than {BODY_BYTES_MAX} bytes");
    Problem::new(StatusCode::PAYLOAD_TOO_LARGE, "too_large", message)
        .with_hint("send less, or a link to the rest")
}

fn parse_body<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, Problem> {
    let text = std::str::from_utf8(bytes)
        .map_err(|_| Problem::bad_request("invalid_json", "the body is not valid UTF-8"))?;
    if json_nesting_depth(text) > JSON_DEPTH_MAX {
        let message = format!("the body is nested deeper than {JSON_DEPTH_MAX} levels");
        return Err(Problem::bad_request("too_deep", message));
    }
    check_json_parses(text).map_err(|error| body_syntax_problem(text, &error))?;
    // Serde reads a struct from an array too, with the fields in the order of their declaration.
    if text.trim_start().starts_with('[') {
        return Err(Problem::unprocessable("the body is an array, and must be a JSON object")
            .with_hint(BODY_HINT));
    }
    parse_json(text)
}

/// Parses the JSON of a request body. An error names the field.
fn parse_json<T: DeserializeOwned>(text: &str) -> Result<T, Problem> {
    let mut reader = serde_json::Deserializer::from_str(text);
    serde_path_to_error::deserialize(&mut reader)
        .map_err(|error| body_type_problem(&error.path().to_string(), error.inner()))
}

/// Returns the error response for a body that can't be parsed. The text may still be valid JSON:
/// the parser reports a number that it can't represent as a syntax error.
fn body_syntax_problem(text: &str, error: &JsonError) -> Problem {
    let well_formed = serde_json::from_str::<serde::de::IgnoredAny>(text);
    match (well_formed, error) {
        (Err(parse_error), _) => Problem::bad_request(
            "invalid_json",
            format!("the body is not valid JSON: {parse_error}"),
        ),
        (Ok(_), JsonError::Number) => Problem::bad_request("invalid_number", error.to_string()),
        (Ok(_), JsonError::Syntax(syntax_error)) => {
            Problem::unprocessable(syntax_error.to_string()).with_hint(BODY_HINT)
        }
    }
}

/// Returns the error response for a body that is valid JSON but does not match the expected type.
fn body_type_problem(json_path: &str, error: &serde_json::Error) -> Problem {
    let error_text = error.to_string();
    let error_text = replace_rust_type_names(without_position(&error_text));
    let detail = match json_path {
        "." => error_text.clone(),
        json_path => format!("the field `{json_path}` is invalid: {error_text}"),
    };
    let problem = Problem::unprocessable(detail);
    match suggest_name_for_parse_error(&error_text) {
        Some(hint) => problem.with_hint(hint),
        None => problem.with_hint(BODY_HINT),
    }
}

/// Returns the text of an error without the position at its end. The path says where the error is;
/// the position may be that in the text of a nested value, which the caller does not know.
fn without_position(mut error_text: &str) -> &str {
    let is_position = |end: &str| end.chars().all(|c| c.is_ascii_digit() || " column".contains(c));
    while let Some((text, end)) = error_text.rsplit_once(" at line ")
        && is_position(end)
    {
        error_text = text;
    }
    error_text
}

/// Replaces the names of Rust types in the text of a parse error by the names of JSON types.
fn replace_rust_type_names(error_text: &str) -> String {
    if error_text.starts_with("data did not match any variant of untagged enum") {
        return "the value has none of the expected forms".to_owned();
    }
    let Some((problem, expected)) = error_text.rsplit_once(", expected ") else {
        return error_text.to_owned();
    };
    let problem = problem
        .replace("invalid type: map", "invalid type: object")
        .replace("invalid type: sequence", "invalid type: array");
    let parts: Vec<&str> = expected.split(' ').collect();
    let expected = match parts[..] {
        ["struct", ..] | ["a", "map"] | ["internally" | "adjacently", "tagged", ..] => "an object",
        ["a", "sequence"] | ["tuple", ..] => "an array",
        ["u8" | "u16" | "u32" | "u64" | "u128" | "usize"] => "a whole number, 0 or more",
        ["i8" | "i16" | "i32" | "i64" | "i128" | "isize"] => "a whole number",
        ["f32" | "f64"] => "a number",
        ["enum", ..] | ["variant", "identifier"] => "a string",
        ["string", "or", "map"] => "a string or an object",
        _ => expected,
    };
    format!("{problem}, expected {expected}")
}

/// Suggests the closest known name for an unknown field or variant in a parse error. `None` means
/// that the error is another one, or that no known name is similar.
fn suggest_name_for_parse_error(error_text: &str) -> Option<String> {
    let rest = error_text
        .strip_prefix("unknown field `")
        .or_else(|| error_text.strip_prefix("unknown variant `"))?;
    let (unknown_name, rest) = rest.split_once('`')?;
    let known_names = rest.split('`').skip(1).step_by(2);
    let closest_name = most_similar_name(unknown_name, known_names)?;
    Some(format!("did you mean `{closest_name}`?"))
}

/// Returns the maximum nesting depth of a JSON text, ignoring brackets inside strings.
fn json_nesting_depth(text: &str) -> usize {
    let (mut depth, mut max_depth) = (0_usize, 0_usize);
    let (mut quoted, mut escaped) = (false, false);
    for byte in text.bytes() {
        match (quoted, escaped, byte) {
            (true, true, _) => escaped = false,
            (true, false, b'\\') => escaped = true,
            (true, false, b'"') => quoted = false,
            (true, false, _) => {}
            (false, _, b'"') => quoted = true,
            (false, _, b'{' | b'[') => {
                depth += 1;
                max_depth = max_depth.max(depth);
            }
            (false, _, b'}' | b']') => depth = depth.saturating_sub(1),
            (false, _, _) => {}
        }
    }
    max_depth
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
        let parse = |text: &[u8]| {
            parse_body::<SampleBody>(text)
                .map_err(|problem| (problem.code, problem.detail, problem.hint))
        };
        assert_eq!(parse(br#"{"agent": "a", "turns": 3}"#).map(|body| body.agent), Ok("a".into()));
        for (text, code, detail, hint) in [
            (&b"{"[..], "invalid_json", "is not valid JSON", ""),
            (b"\xff\xfe", "invalid_json", "UTF-8", ""),
            (br#"{"agent": "a"} x"#, "invalid_json", "trailing", ""),
            (br#"{"agnt": "a"}"#, "invalid", "unknown field `agnt`", "did you mean `agent`?"),
            (br#"{"agent": 3}"#, "invalid", "`agent` is invalid: invalid type", "openapi"),
            (br#"{"agent": "a", "turns": -1}"#, "invalid", "`turns`", "openapi"),
            (br#" ["a"]"#, "invalid", "must be a JSON object", "openapi"),
            (br#"{"agent": 1e999}"#, "invalid", "number out of range", ""),
            (br#"{"agent": "\ud834"}"#, "invalid", "hex escape", ""),
            (br#"{"agent": "a", "history": [3]}"#, "invalid", "`history[0]`", "openapi"),
            (br#"{"agent": "a", "history": [{}]}"#, "invalid", "`history[0]`", "openapi"),
        ] {
            let problem = parse(text).unwrap_err();
            assert_eq!(problem.0, code, "{text:?}");
            assert!(problem.1.contains(detail), "{problem:?}");
            assert!(problem.2.contains(hint), "{problem:?}");
        }
        let long = format!(r#"{{"agent": "a", "turns": {}}}"#, "9".repeat(5_000));
        let problem = parse(long.as_bytes()).unwrap_err();
        assert_eq!(problem.0, "invalid_number");
        assert!(problem.1.contains("more than 1000 characters"), "{problem:?}");
        let invalid = long.replace('}', "");
        assert_eq!(parse(invalid.as_bytes()).unwrap_err().0, "invalid_json");
        let unknown = format!(r#"{{"agent": "a", "{}": 1}}"#, "x".repeat(1 << 20));
        let problem = parse_body::<longhaul_api::task::Task>(unknown.as_bytes()).unwrap_err();
        assert!(problem.to_api_problem("").detail.len() < 10_000);
        let nested = format!("{}{}", "[".repeat(65), "]".repeat(65));
        assert_eq!(parse(nested.as_bytes()).unwrap_err().0, "too_deep");
    }

    #[test]
    fn the_message_about_a_field_names_no_position() {
        let problem = |fields: &str| {
            let text = format!(r#"{{"agent": "a", "input": 1, {fields}}}"#);
            let parsed = parse_body::<longhaul_api::task::Task>(text.as_bytes());
            parsed.unwrap_err().detail
        };
        for (fields, expected) in [
            (r#""budget": {"usd": "many"}"#, "the field `budget"),
            (r#""budget": {"usd": -1}"#, "the field `budget` is invalid: `budget.usd` must be"),
            (r#""budget": {"dollars": 1}"#, "unknown field `dollars`"),
            (r#""lane": """#, "the field `lane` is invalid"),
            (r#""thread": 3"#, "the field `thread` is invalid"),
            (r#""chain": {"steps": [{"agent": 3}]}"#, "expected a string"),
            (r#""agnt": "a""#, "unknown field `agnt`"),
        ] {
            let detail = problem(fields);
            assert!(detail.contains(expected), "{detail}");
            assert!(!detail.contains(" at line ") && !detail.contains("column"), "{detail}");
        }
    }

    #[test]
    fn brackets_in_strings_do_not_count_as_depth() {
        for (text, expected) in [
            ("3", 0),
            ("[]", 1),
            (r#"{"a": [1, {"b": 2}]}"#, 3),
            (r#""[[[[""#, 0),
            (r#"["\"[[", "]"]"#, 1),
        ] {
            assert_eq!(json_nesting_depth(text), expected, "{text}");
        }
    }
}
