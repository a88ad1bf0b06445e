//! What a provider says when it says no, in whichever of the known shapes.
//!
//! Never: fails. What can't be read is quoted.

use serde_json::Value;

const EMPTY_BODY: &str = "it says nothing more";

/// What was said.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct ErrorBody {
    /// The kind of error, such as `overloaded_error`.
    pub(super) kind: Option<String>,
    /// A finer kind, such as `insufficient_quota`.
    pub(super) code: Option<String>,
    /// The status, where it is said once more.
    pub(super) status: Option<u16>,
    /// The words for people.
    pub(super) message: String,
}

impl ErrorBody {
    /// Reads the body of an answer.
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

    /// The finest name of the error.
    pub(super) fn name(&self) -> Option<&str> {
        self.code.as_deref().or(self.kind.as_deref())
    }

    fn from_text(words: &str) -> Self {
        Self { message: words.to_owned(), ..Self::default() }
    }

    fn from_json(value: &Value) -> Self {
        let error = value.get("error").unwrap_or(value);
        let named = |name: &str| {
            let found = error.get(name).or_else(|| value.get(name))?;
            match found {
                Value::String(text) if !text.is_empty() => Some(text.clone()),
                Value::Number(number) => Some(number.to_string()),
                Value::String(_)
                | Value::Null
                | Value::Bool(_)
                | Value::Array(_)
                | Value::Object(_) => None,
            }
        };
        let words = error.as_str().map(str::to_owned);
        let words = words.or_else(|| named("message")).or_else(|| named("detail"));
        let words = words.unwrap_or_else(|| value.to_string());
        let status = named("code").and_then(|code| code.parse().ok());
        Self {
            kind: named("type").filter(|kind| is_error_name(kind) && kind != "error"),
            // A number is the status once more.
            code: named("code").filter(|code| is_error_name(code)),
            status: status.filter(|status| (400..600).contains(status)),
            message: match upstream_error(error) {
                Some(raw) => format!("{words}: {raw}"),
                None => words,
            },
        }
    }

    /// The page of a proxy or a gateway: its title says what there is to say.
    fn from_html(text: &str) -> Self {
        let lower = text.to_ascii_lowercase();
        let title = lower.find("<title").and_then(|open| {
            let from = open + lower[open..].find('>')? + 1;
            let to = from + lower[from..].find("</title")?;
            Some(text[from..to].trim())
        });
        match title.filter(|title| !title.is_empty()) {
            Some(title) => Self::from_text(&format!("a web page that says `{title}`")),
            None => Self::from_text("a web page without a title"),
        }
    }
}

/// What a gateway was told by the provider behind it, as it came.
fn upstream_error(error: &Value) -> Option<String> {
    let raw = error.get("metadata")?.get("raw")?;
    let raw = raw.as_str().map_or_else(|| raw.to_string(), |raw| raw.trim().to_owned());
    (!raw.is_empty() && raw != "null").then_some(raw)
}

fn is_error_name(text: &str) -> bool {
    text.parse::<f64>().is_err()
}
