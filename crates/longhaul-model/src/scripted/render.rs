//! Renders the templates of a script with values from the conversation.
//!
//! Invariant: only text of the script is compiled as a template. Text from models and people is
//! used only as a value, and templates can't include other templates.

use std::fmt::Write as _;
use std::sync::Arc;

use longhaul_core::message::{Message, Part};
use longhaul_core::port::model::ModelRequest;
use longhaul_core::template::{TemplateLimits, check_template_is_bounded, render_within_limits};
use minijinja::syntax::SyntaxConfig;
use minijinja::value::{Serde, ValueKind};
use minijinja::{Environment, Error, ErrorKind};
use serde_json::Value;

/// Limits for rendering one template: enough steps for a page of text, few enough to take no
/// noticeable time, and a recursion depth that fits on a thread's stack.
const LIMITS: TemplateLimits =
    TemplateLimits { fuel: 50_000, budget: 16 * 1024 * 1024, recursion: 50 };

/// Maximum number of characters shown of a template in an error message.
const EXCERPT_CHARS_MAX: usize = 80;

/// Names of the variables that a template may use.
const NAMES: &[&str] = &["input", "last_result"];

/// Compiles and renders the templates of scripts.
#[derive(Debug)]
pub(crate) struct TemplateRenderer(Environment<'static>);

impl TemplateRenderer {
    pub(crate) fn new() -> Self {
        let mut environment = Environment::new();
        // By default minijinja drops the last line break of a template.
        if let Ok(syntax) = SyntaxConfig::builder().keep_trailing_newline(true).build() {
            environment.set_syntax(syntax);
        }
        Self(environment)
    }

    /// Checks that a template compiles and uses only known variables. Returns the error, or `None`
    /// if the template is valid.
    pub(crate) fn find_template_error(&self, template_source: &str) -> Option<String> {
        let bounds_check = check_template_is_bounded(template_source, self.0.syntax());
        let template = match bounds_check.and_then(|()| self.0.template_from_str(template_source)) {
            Ok(template) => template,
            Err(error) => {
                return Some(format!("invalid template: {}", template_error_text(&error)));
            }
        };
        let is_known = |name: &String| {
            NAMES.contains(&name.as_str()) || self.0.globals().any(|(global, _)| global == name)
        };
        let mut unknown: Vec<String> = template.undeclared_variables(false).into_iter().collect();
        unknown.retain(|name| !is_known(name));
        unknown.sort_unstable();
        let name = unknown.first()?;
        Some(format!("the variable `{name}` is unknown; available: `{}`", NAMES.join("` and `")))
    }

    pub(crate) fn render_text(&self, source: &str, values: &Values<'_>) -> Result<String, String> {
        if !contains_template(source) {
            return Ok(source.to_owned());
        }
        let used = values.to_template_context(source);
        let syntax = self.0.syntax().clone();
        let text = render_within_limits(source, used, syntax, (&LIMITS, format_template_value));
        text.map_err(|error| {
            let (problem, missing) =
                (template_error_text(&error), values.missing_variables_hint(source));
            let excerpt: String = source.chars().take(EXCERPT_CHARS_MAX).collect();
            format!("{problem} in `{excerpt}`{missing}")
        })
    }

    /// Renders the templates in all strings of a JSON value. Object keys are not rendered.
    pub(crate) fn render_json(&self, source: &Value, values: &Values<'_>) -> Result<Value, String> {
        Ok(match source {
            Value::Null | Value::Bool(_) | Value::Number(_) => source.clone(),
            Value::String(text) => Value::String(self.render_text(text, values)?),
            Value::Array(items) => {
                let items = items.iter().map(|item| self.render_json(item, values));
                Value::Array(items.collect::<Result<_, _>>()?)
            }
            Value::Object(fields) => {
                let fill = |(key, field): (&String, &Value)| {
                    Ok((key.clone(), self.render_json(field, values)?))
                };
                Value::Object(fields.iter().map(fill).collect::<Result<_, String>>()?)
            }
        })
    }
}

/// Whether a text contains template syntax.
pub(crate) fn contains_template(text: &str) -> bool {
    ["{{", "{%", "{#"].iter().any(|mark| text.contains(mark))
}

/// Returns all strings of a JSON value that contain templates.
pub(crate) fn find_template_strings(value: &Value) -> Vec<&str> {
    match value {
        Value::Null | Value::Bool(_) | Value::Number(_) => Vec::new(),
        Value::String(text) => {
            Some(text.as_str()).filter(|text| contains_template(text)).into_iter().collect()
        }
        Value::Array(items) => items.iter().flat_map(find_template_strings).collect(),
        Value::Object(fields) => fields.values().flat_map(find_template_strings).collect(),
    }
}

/// Source of the variables for templates. A variable is computed only if a template uses it,
/// because finding the input means searching the whole conversation.
#[derive(Debug)]
pub(crate) struct Values<'a>(pub(crate) &'a ModelRequest);

impl Values<'_> {
    fn run_input_value(&self) -> Option<Value> {
        let messages = &self.0.messages;
        let user_text = |message: &Arc<Message>| match &**message {
            Message::User(parts) => Some(joined_part_texts(parts)),
            Message::Assistant(_) | Message::Results(_) => None,
        };
        let first = messages[first_message_index(self.0)..].iter().find_map(user_text);
        let first = first.or_else(|| messages.iter().find_map(user_text));
        first.map(parse_json_or_string)
    }

    fn last_tool_result(&self) -> Option<String> {
        let newest = self.0.messages.iter().rev();
        let mut newest = newest.filter_map(|message| match &**message {
            Message::Results(results) => {
                results.last().map(|result| joined_part_texts(&result.content))
            }
            Message::User(_) | Message::Assistant(_) => None,
        });
        newest.next()
    }

    /// Returns the values of the variables that a template mentions.
    fn to_template_context(&self, source: &str) -> minijinja::Value {
        let mentions = |name: &str| source.contains(name);
        let input = mentions("input").then(|| self.run_input_value()).flatten();
        let result = mentions("last_result").then(|| self.last_tool_result()).flatten();
        minijinja::context! {
            input => input.map_or(minijinja::Value::UNDEFINED, |input| Serde(&input).into()),
            last_result => result.map_or(minijinja::Value::UNDEFINED, minijinja::Value::from),
        }
    }

    fn missing_variables_hint(&self, template_source: &str) -> String {
        let mut text = String::new();
        let missing_flags = [self.run_input_value().is_none(), self.last_tool_result().is_none()];
        for (name, is_missing) in NAMES.iter().zip(missing_flags) {
            if is_missing && template_source.contains(name) {
                // Writing to a string can't fail.
                let _ = write!(text, ", the conversation has no `{name}` yet");
            }
        }
        text
    }
}

/// Returns the index of the run's first message, after any earlier conversation of the thread: each
/// completed turn of the run is one assistant message. Returns 0 if there are fewer assistant
/// messages than turns.
fn first_message_index(request: &ModelRequest) -> usize {
    let replies = request.messages.iter().enumerate();
    let replies = replies.filter(|(_, message)| matches!(&***message, Message::Assistant(_)));
    let completed_turns = usize::try_from(request.turn.saturating_sub(1)).unwrap_or(usize::MAX);
    let previous_reply = replies.rev().nth(completed_turns);
    previous_reply.map_or(0, |(at, _)| at + 1)
}

/// Parses a text as JSON, or returns it as a string. A number that JSON would format differently,
/// such as `1.50` or `1e3`, stays a string.
fn parse_json_or_string(text: String) -> Value {
    let is_canonical = |value: &Value| {
        let canonical = value.to_string();
        !value.is_number() || canonical == text.trim()
    };
    let value = serde_json::from_str(&text).ok().filter(is_canonical);
    value.unwrap_or(Value::String(text))
}

fn joined_part_texts(parts: &[Part]) -> String {
    parts.iter().filter_map(Part::text).collect()
}

/// Formats a template value: strings unchanged, everything else as JSON instead of minijinja's own
/// format.
fn format_template_value(value: &minijinja::Value) -> Result<String, Error> {
    match value.as_str() {
        Some(text) => Ok(text.to_owned()),
        // Only an `if` without an `else` gets here. Any other undefined value has already failed.
        None if value.kind() == ValueKind::Undefined => Ok(String::new()),
        None => serde_json::to_string(value).map_err(|error| {
            let message = "a value that is not valid JSON";
            Error::new(ErrorKind::BadSerialization, message).with_source(error)
        }),
    }
}

fn template_error_text(error: &Error) -> String {
    match error.detail() {
        Some(detail) => format!("{}: {detail}", error.kind()),
        None => error.kind().to_string(),
    }
}
