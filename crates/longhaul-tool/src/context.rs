//! Context providers, which describe the current state of the world to a run: a program or an HTTP
//! endpoint.
//!
//! Invariant: a response is JSON of limited size. The program runs without a shell and does not
//! inherit our environment. Requests go through the guarded client, and errors contain neither the
//! path nor the query of the URL.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use serde::Deserialize;

use longhaul_core::port::context::{ContextError, ContextProvider, ContextRequest, Perception};
use longhaul_core::port::outbound::{
    NetworkScope, OutboundError, OutboundHttpClient, OutboundRequest,
};
use longhaul_core::raw::RawJson;
use longhaul_core::time::{Clock, Millis};

use crate::command::{Command, CommandError};
use crate::outbound::hop::{parse_url, redacted_url};

/// Maximum length of a context provider's response in bytes.
const RESPONSE_BYTES_MAX: usize = 256 * 1024;
/// Maximum number of names in the `context` object of a response.
const CONTEXT_NAMES_MAX: usize = 64;
/// Maximum number of stderr bytes in an error message.
const STDERR_BYTES_MAX: usize = 500;

/// A context provider: a program that reads the request as JSON on stdin and writes its response to
/// stdout.
#[derive(Debug, Clone)]
pub struct CommandContextProvider {
    /// The program with its arguments, working directory and timeout.
    pub command: Command,
    /// Clock that measures the timeout.
    pub clock: Arc<dyn Clock>,
}

#[async_trait]
impl ContextProvider for CommandContextProvider {
    async fn fetch(&self, request: &ContextRequest) -> Result<Perception, ContextError> {
        let program = self.command.argv.first().map_or("", String::as_str);
        let describe = |reason: String| format!("the program `{program}` failed: {reason}");
        // Permanent errors are not retried.
        let permanent_error = |reason: String| ContextError::permanent(describe(reason));
        let request =
            serde_json::to_vec(request).map_err(|error| permanent_error(error.to_string()))?;
        let command = Command {
            stdin: request,
            keep_bytes: 2 * RESPONSE_BYTES_MAX,
            stdout_bytes_max: Some(RESPONSE_BYTES_MAX),
            ..self.command.clone()
        };
        let output = command.run(&*self.clock).await;
        let output = output.map_err(|error| match &error {
            CommandError::SpawnFailed(..) | CommandError::WaitFailed(_) => {
                ContextError::transient(describe(error.to_string()))
            }
            CommandError::Empty
            | CommandError::MissingDir(_)
            | CommandError::NotFound(_)
            | CommandError::NotExecutable(_) => permanent_error(error.to_string()),
        })?;
        // Checked before the exit status, which only says that the program was killed or its pipe
        // was closed.
        if output.stdout.total_bytes() > RESPONSE_BYTES_MAX as u64 {
            return Err(permanent_error(too_long_message()));
        }
        if !output.exit.is_success() {
            let stderr = output.stderr.tail_text(STDERR_BYTES_MAX);
            let exit = &output.exit;
            let reason = match stderr.is_empty() {
                true => format!("the process {exit} and printed nothing on stderr"),
                false => format!("the process {exit}: {stderr}"),
            };
            return Err(ContextError::transient(describe(reason)));
        }
        let answer =
            output.stdout.complete_output().ok_or_else(|| permanent_error(too_long_message()))?;
        parse_response(&answer).map_err(permanent_error)
    }
}

/// A context provider: an HTTP endpoint that gets the request as a JSON POST and responds with a
/// perception, which describes the current state of the world.
#[derive(Clone)]
pub struct HttpContextProvider {
    /// URL of the endpoint.
    pub url: String,
    /// HTTP client that only connects to allowed addresses.
    pub outbound: Arc<dyn OutboundHttpClient>,
    /// Timeout of a request to the endpoint.
    pub timeout: Millis,
    /// Whether the endpoint may be on a private network.
    pub reach: NetworkScope,
}

impl HttpContextProvider {
    fn display_url(&self) -> String {
        parse_url(&self.url).map_or_else(|_| "the URL".into(), |url| redacted_url(&url))
    }
}

impl fmt::Debug for HttpContextProvider {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HttpContextProvider")
            .field("url", &self.display_url())
            .field("timeout", &self.timeout)
            .field("reach", &self.reach)
            .finish_non_exhaustive()
    }
}

#[async_trait]
impl ContextProvider for HttpContextProvider {
    async fn fetch(&self, context_request: &ContextRequest) -> Result<Perception, ContextError> {
        let describe = |reason: String| format!("{}: {reason}", self.display_url());
        // Permanent errors are not retried.
        let permanent_error = |reason: String| ContextError::permanent(describe(reason));
        let context_request = serde_json::to_vec(context_request)
            .map_err(|error| permanent_error(error.to_string()))?;
        let header = |name: &str| (name.to_owned(), "application/json".to_owned());
        let request = OutboundRequest {
            method: "POST".into(),
            url: self.url.clone(),
            headers: vec![header("content-type"), header("accept")],
            body: context_request,
            timeout: self.timeout,
            bytes_max: RESPONSE_BYTES_MAX as u64,
            network_scope: self.reach,
        };
        let response = self.outbound.send(request).await.map_err(|error| match &error {
            OutboundError::TooLong { .. } => permanent_error(too_long_message()),
            OutboundError::Forbidden { .. } | OutboundError::UnexpectedEncoding { .. } => {
                ContextError::permanent(error.to_string())
            }
            OutboundError::Failed { .. } => ContextError::transient(error.to_string()),
        })?;
        if !(200..300).contains(&response.status) {
            let reason = format!("the endpoint answered {} instead of 200", response.status);
            return Err(ContextError::transient(describe(reason)));
        }
        parse_response(&response.body).map_err(permanent_error)
    }
}

/// A context provider's response with separate values for the model (`world`) and for tools
/// (`context`).
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ContextProviderResponse {
    world: RawJson,
    #[serde(default)]
    context: Option<RawJson>,
}

/// Parses a context provider's response: `{"world": ..., "context": {...}}`, or any other JSON as
/// the world.
fn parse_response(bytes: &[u8]) -> Result<Perception, String> {
    if bytes.len() > RESPONSE_BYTES_MAX {
        return Err(too_long_message());
    }
    let text = std::str::from_utf8(bytes);
    let text = text.map_err(|_| "the response is not UTF-8".to_owned())?.trim();
    if text.is_empty() {
        return Err("the response is empty; send at least `{}`".into());
    }
    let response = RawJson::parse(text)
        .map_err(|error| format!("the response is not valid JSON ({error})"))?;
    // Serde would accept a list as the fields in order, which is never intended.
    let parts =
        text.starts_with('{').then(|| serde_json::from_str::<ContextProviderResponse>(text));
    let Some(Ok(parts)) = parts else {
        return Ok(Perception { world: response, context: BTreeMap::new() });
    };
    let context = match parts.context {
        None => BTreeMap::new(),
        Some(context) => serde_json::from_str(context.as_str()).map_err(|_| {
            "`context` is not an object; it must map names to values for tools".to_owned()
        })?,
    };
    if context.len() > CONTEXT_NAMES_MAX {
        return Err(format!("`context` has more than {CONTEXT_NAMES_MAX} names"));
    }
    Ok(Perception { world: parts.world, context })
}

/// Returns the error message for a response that is too long.
fn too_long_message() -> String {
    format!(
        "the response is longer than {RESPONSE_BYTES_MAX} bytes; send only what the agent needs"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check_parsed_context_response(answer: &str, expected: Result<(&str, &str), &str>) {
        match (parse_response(answer.as_bytes()), expected) {
            (Ok(perception), Ok((world, context))) => {
                assert_eq!(perception.world.as_str(), world, "{answer}");
                assert_eq!(
                    RawJson::from_serialize(&perception.context).as_str(),
                    context,
                    "{answer}"
                );
            }
            (Err(error), Err(expected)) => assert!(error.contains(expected), "{answer}: {error}"),
            (perception, _) => panic!("{answer}: {perception:?}"),
        }
    }

    #[test]
    fn a_context_response_is_split_into_model_and_tool_values() {
        check_parsed_context_response(
            r#" {"world": {"a" : 1.10}} "#,
            Ok((r#"{"a" : 1.10}"#, "{}")),
        );
        check_parsed_context_response(
            r#"{"world":null,"context":{"recipient":"me"}}"#,
            Ok(("null", r#"{"recipient":"me"}"#)),
        );
        check_parsed_context_response(
            r#"{"context":{"a":1}}"#,
            Ok((r#"{"context":{"a":1}}"#, "{}")),
        );
        check_parsed_context_response(
            r#"{"world":1,"town":2}"#,
            Ok((r#"{"world":1,"town":2}"#, "{}")),
        );
        check_parsed_context_response("[1, 2]", Ok(("[1, 2]", "{}")));
        check_parsed_context_response("\"sunny\"", Ok(("\"sunny\"", "{}")));
        check_parsed_context_response(
            r#"{"world":1,"context":[2]}"#,
            Err("`context` is not an object"),
        );
        check_parsed_context_response(r#"{"world":1,"context":null}"#, Ok(("1", "{}")));
        check_parsed_context_response("", Err("is empty"));
        check_parsed_context_response(" \n", Err("is empty"));
        check_parsed_context_response("sunny", Err("not valid JSON"));
        check_parsed_context_response("{} {}", Err("not valid JSON"));
        check_parsed_context_response(&"1".repeat(RESPONSE_BYTES_MAX + 1), Err("longer than"));
        check_parsed_context_response(&"[".repeat(10_000), Err("not valid JSON"));
        assert!(parse_response(b"\"\xff\"").is_err());
        let many: BTreeMap<String, u32> = (0..65).map(|n| (n.to_string(), n)).collect();
        let many = serde_json::json!({ "world": 1, "context": many });
        check_parsed_context_response(&many.to_string(), Err("more than 64 names"));
    }
}
