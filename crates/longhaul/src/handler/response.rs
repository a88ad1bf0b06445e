//! The response of a handler: text, data, confidence and artifacts.

use longhaul_core::raw::RawJson;
use longhaul_core::status::RunOutput;
use serde::{Serialize, Serializer};

use crate::handler::request::HandlerError;

/// Response of a handler with all fields of a run's output. A handler may also return any other value
/// that can be serialized.
///
/// ```
/// use longhaul::{Response, Runtime};
///
/// let builder = Runtime::builder().handler("summarize", |request, _| async move {
///     let path: String = request.input()?;
///     Ok(Response::text("Three pages about birds.")
///         .data(["heron", "wren"])
///         .confidence(0.8)
///         .artifact(serde_json::json!({ "path": path })))
/// });
/// ```
#[derive(Debug, Clone, Default, PartialEq)]
#[must_use = "a response has an effect only if the handler returns it"]
pub struct Response {
    output: RunOutput,
    error: Option<String>,
}

impl Response {
    /// Creates a response with this text and no structured result.
    pub fn text(response_text: impl Into<String>) -> Self {
        let output = RunOutput { text: response_text.into(), ..RunOutput::default() };
        Self { output, error: None }
    }

    /// Sets the structured result.
    pub fn data(mut self, data: impl Serialize) -> Self {
        self.output.data = self.serialize_response_field("the data", &data);
        self
    }

    /// Sets the confidence in the result, from 0 to 1. It is rounded to percent.
    pub fn confidence(mut self, confidence: f64) -> Self {
        match (0.0..=1.0).contains(&confidence) {
            true => self.output.confidence = Some((confidence * 100.0).round() as u8),
            false => {
                let message = format!("the confidence is {confidence}, but must be from 0 to 1");
                self.error.get_or_insert(message);
            }
        }
        self
    }

    /// Adds an artifact, such as a reference to a file that the handler wrote.
    pub fn artifact(mut self, artifact: impl Serialize) -> Self {
        let artifact = self.serialize_response_field("an artifact", &artifact);
        self.output.artifacts.extend(artifact);
        self
    }

    /// Serializes a part of the response. `None` means that an error was recorded.
    fn serialize_response_field(
        &mut self,
        part_name: &str,
        value: &impl Serialize,
    ) -> Option<RawJson> {
        match serde_json::to_string(value).and_then(RawJson::parse) {
            Ok(json) => Some(json),
            Err(error) => {
                self.error.get_or_insert(format!("{part_name} can't be stored: {error}"));
                None
            }
        }
    }

    /// Returns the output of the run, or the first error of a builder method.
    pub(crate) fn run_output(&self) -> Result<&RunOutput, HandlerError> {
        match &self.error {
            Some(reason) => {
                Err(HandlerError::permanent(format!("the response is invalid: {reason}")))
            }
            None => Ok(&self.output),
        }
    }
}

impl Serialize for Response {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.output.serialize(serializer)
    }
}
