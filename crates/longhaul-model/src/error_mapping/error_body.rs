//! Parses the error body of a provider in any of the known formats.
//!
//! Invariant: parsing never fails; text in an unknown format becomes the message.

use serde_json::Value;

const EMPTY_BODY: &str = "no further details";

/// An error that a provider returned as a response body, parsed.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct ErrorBody {
    /// Error type that the provider reports, such as `overloaded_error`.
    pub(super) kind: Option<String>,
    /// Error code that the provider reports, such as `insufficient_quota`. More specific than the
    /// type.
    pub(super) code: Option<String>,
    /// HTTP status that the body contains. `None` if the body contains no status.
    pub(super) status: Option<u16>,
    /// Error message for people.
    pub(super) message: String,
}

impl ErrorBody {
    /// Parses the body of an error response.
    pub(super) fn parse(body: &str) -> Self {
        let text = body.trim();
        if text.is_empty() {
            return Self::from_text(EMPTY_BODY);
        }
        match serde_json::from_str::<Value>(text) {
            Ok(Value::Array(all)) => {
                all.first().map_or_else(|| Self::from_text(EMPTY_BODY), Self::from_json)
            }
            Ok(value) => Self::from_json(&value),
            Err(_) if text.starts_with('<') => Self::from_html(text),
            Err(_) => Self::from_text(text),
        }
    }

    /// Returns the most specific name of the error, the error code or else the error type, in
    /// parentheses.
    pub(super) fn name_suffix(&self) -> String {
        let name = self.code.as_deref().or(self.kind.as_deref());
        name.map_or(String::new(), |name| format!(" ({name})"))
    }

    fn from_text(message: &str) -> Self {
        Self { message: message.to_owned(), ..Self::default() }
    }

    fn from_json(value: &Value) -> Self {
        let error = value.get("error").unwrap_or(value);
        let text_field = |name: &str| {
            let found = error.get(name).or_else(|| value.get(name))?;
            let number = || found.as_number().map(ToString::to_string);
            let text = found.as_str().map(str::to_owned).or_else(number);
            text.filter(|text| !text.is_empty())
        };
        let message = error.as_str().map(str::to_owned);
        let message = message.or_else(|| text_field("message")).or_else(|| text_field("detail"));
        let message = message.unwrap_or_else(|| value.to_string());
        let status = text_field("code").and_then(|code| code.parse().ok());
        Self {
            kind: text_field("type").filter(|kind| is_error_name(kind) && kind != "error"),
            // A number repeats the HTTP status.
            code: text_field("code").filter(|code| is_error_name(code)),
            status: status.filter(|status| (400..600).contains(status)),
            message: match upstream_error_text(error) {
                Some(upstream_error) => format!("{message}: {upstream_error}"),
                None => message,
            },
        }
    }

    /// Parses the HTML page of a proxy or gateway. The title of the page becomes the message.
    fn from_html(text: &str) -> Self {
        let lower = text.to_ascii_lowercase();
        let title = lower.find("<title").and_then(|open| {
            let from = open + lower[open..].find('>')? + 1;
            let to = from + lower[from..].find("</title")?;
            Some(text[from..to].trim())
        });
        match title.filter(|title| !title.is_empty()) {
            Some(title) => Self::from_text(&format!("an HTML page titled `{title}`")),
            None => Self::from_text("an HTML page without a title"),
        }
    }
}

/// Returns the error of the provider behind a gateway as text, unchanged. `None` if the gateway
/// does not report one.
fn upstream_error_text(error: &Value) -> Option<String> {
    let raw = error.get("metadata")?.get("raw")?;
    let raw = raw.as_str().map_or_else(|| raw.to_string(), |raw| raw.trim().to_owned());
    (!raw.is_empty() && raw != "null").then_some(raw)
}

fn is_error_name(text: &str) -> bool {
    text.parse::<f64>().is_err()
}
