//! Fills the templates of a script from the conversation.
//!
//! Never: takes what a model or a person said as a template. Their words are
//! values; only the script's own text is compiled, and it can load no other.

use std::fmt::Write as _;
use std::sync::Arc;

use longhaul_core::message::{Message, Part};
use longhaul_core::port::model::ModelRequest;
use longhaul_core::template::{TemplateLimits, check, render};
use minijinja::syntax::SyntaxConfig;
use minijinja::value::{Serde, ValueKind};
use minijinja::{Environment, Error, ErrorKind};
use serde_json::Value;

/// Bounds of one template: more steps than a page of text needs, less than a person
/// notices, and calls within each other well within a thread's stack.
const LIMITS: TemplateLimits =
    TemplateLimits { fuel: 50_000, budget: 16 * 1024 * 1024, recursion: 50 };

/// So many characters of a template stand in a message about it.
const EXCERPT_CHARS_MAX: usize = 80;

/// The names that a template may speak of.
const NAMES: &[&str] = &["input", "last_result"];

/// Compiles and fills templates.
#[derive(Debug)]
pub(crate) struct Renderer(Environment<'static>);

impl Renderer {
    pub(crate) fn new() -> Self {
        let mut environment = Environment::new();
        // The engine would drop the last line end, which the author wrote.
        if let Ok(syntax) = SyntaxConfig::builder().keep_trailing_newline(true).build() {
            environment.set_syntax(syntax);
        }
        Self(environment)
    }

    /// What is wrong with this text as a template, before anybody plays it.
    pub(crate) fn check(&self, source: &str) -> Option<String> {
        let checked = check(source, self.0.syntax());
        let template = match checked.and_then(|()| self.0.template_from_str(source)) {
            Ok(template) => template,
            Err(error) => return Some(format!("broken template: {}", error_text(&error))),
        };
        let known = |name: &String| {
            NAMES.contains(&name.as_str()) || self.0.globals().any(|(global, _)| global == name)
        };
        let mut unknown: Vec<String> = template.undeclared_variables(false).into_iter().collect();
        unknown.retain(|name| !known(name));
        unknown.sort_unstable();
        let name = unknown.first()?;
        Some(format!(
            "a template speaks of `{name}`, but there is only `{}`",
            NAMES.join("` and `")
        ))
    }

    /// The text with its templates filled, or why that can't be done.
    pub(crate) fn render_text(
        &self,
        source: &str,
        values: &TemplateValues<'_>,
    ) -> Result<String, String> {
        if !is_template(source) {
            return Ok(source.to_owned());
        }
        let syntax = self.0.syntax().clone();
        match render(source, values.context(source), syntax, (&LIMITS, as_text)) {
            Ok(text) => Ok(text),
            Err(error) => {
                let missing = values.missing(source);
                Err(format!("{} in `{}`{missing}", error_text(&error), excerpt(source)))
            }
        }
    }

    /// The value with the templates in its strings filled. A key is never one.
    pub(crate) fn render_value(
        &self,
        source: &Value,
        values: &TemplateValues<'_>,
    ) -> Result<Value, String> {
        Ok(match source {
            Value::Null | Value::Bool(_) | Value::Number(_) => source.clone(),
            Value::String(text) => Value::String(self.render_text(text, values)?),
            Value::Array(items) => {
                let items = items.iter().map(|item| self.render_value(item, values));
                Value::Array(items.collect::<Result<_, _>>()?)
            }
            Value::Object(fields) => {
                let fill = |(key, field): (&String, &Value)| {
                    Ok((key.clone(), self.render_value(field, values)?))
                };
                Value::Object(fields.iter().map(fill).collect::<Result<_, String>>()?)
            }
        })
    }
}

/// Whether anything in this text is for the template engine.
pub(crate) fn is_template(text: &str) -> bool {
    ["{{", "{%", "{#"].iter().any(|mark| text.contains(mark))
}

/// All strings in a value that are templates.
pub(crate) fn templates(value: &Value) -> Vec<&str> {
    match value {
        Value::Null | Value::Bool(_) | Value::Number(_) => Vec::new(),
        Value::String(text) => {
            Some(text.as_str()).filter(|text| is_template(text)).into_iter().collect()
        }
        Value::Array(items) => items.iter().flat_map(templates).collect(),
        Value::Object(fields) => fields.values().flat_map(templates).collect(),
    }
}

/// What a template is filled with, taken from one conversation when a template names it:
/// finding the input takes as long as the conversation is.
#[derive(Debug)]
pub(crate) struct TemplateValues<'a>(pub(crate) &'a ModelRequest);

impl TemplateValues<'_> {
    fn input(&self) -> Option<Value> {
        let messages = &self.0.messages;
        let said = |message: &Arc<Message>| match &**message {
            Message::User(parts) => Some(joined_text(parts)),
            Message::Assistant(_) | Message::Results(_) => None,
        };
        let first = messages[run_start(self.0)..].iter().find_map(said);
        let first = first.or_else(|| messages.iter().find_map(said));
        first.map(parse_value)
    }

    fn last_result(&self) -> Option<String> {
        let newest = self.0.messages.iter().rev();
        let mut newest = newest.filter_map(|message| match &**message {
            Message::Results(results) => results.last().map(|result| joined_text(&result.content)),
            Message::User(_) | Message::Assistant(_) => None,
        });
        newest.next()
    }

    /// The values that this template may use.
    fn context(&self, source: &str) -> minijinja::Value {
        // Whatever is not named can only be seen by a template that shows all there is.
        let may_use = |name: &str| source.contains(name) || source.contains("debug");
        let absent = minijinja::Value::UNDEFINED;
        let input = may_use("input").then(|| self.input()).flatten();
        let last_result = may_use("last_result").then(|| self.last_result()).flatten();
        minijinja::context! {
            input => input.map_or(absent.clone(), |input| Serde(&input).into()),
            last_result => last_result.map_or(absent, minijinja::Value::from),
        }
    }

    fn missing(&self, source: &str) -> String {
        let mut text = String::new();
        let absent = [self.input().is_none(), self.last_result().is_none()];
        for (name, absent) in NAMES.iter().zip(absent) {
            if absent && source.contains(name) {
                // Writing to a string can't fail.
                let _ = write!(text, ", the conversation has no `{name}` yet");
            }
        }
        text
    }
}

/// Where the run's own talk begins, after what was said before it: every turn that it
/// has made is one thing the model said. The whole of it where something is missing.
fn run_start(ask: &ModelRequest) -> usize {
    let replies = ask.messages.iter().enumerate();
    let replies = replies.filter(|(_, message)| matches!(&***message, Message::Assistant(_)));
    let made = usize::try_from(ask.turn.saturating_sub(1)).unwrap_or(usize::MAX);
    let before = replies.rev().nth(made);
    before.map_or(0, |(at, _)| at + 1)
}

/// A text that is JSON counts as its value, but a number that JSON would spell
/// otherwise (`1.50`, `1e3`) stays the text that was typed.
fn parse_value(text: String) -> Value {
    let typed = |value: &Value| {
        let spelled = value.to_string();
        !value.is_number() || spelled == text.trim()
    };
    let value = serde_json::from_str(&text).ok().filter(typed);
    value.unwrap_or(Value::String(text))
}

fn joined_text(parts: &[Part]) -> String {
    let texts = parts.iter().filter_map(Part::text);
    texts.collect()
}

/// Text stands as it is, all else as JSON: not as the engine's own notation.
fn as_text(value: &minijinja::Value) -> Result<String, Error> {
    match value.as_str() {
        Some(text) => Ok(text.to_owned()),
        // Only the missing `else` of an `if` gets here; all else undefined has failed.
        None if value.kind() == ValueKind::Undefined => Ok(String::new()),
        None => serde_json::to_string(value).map_err(|error| {
            let what = "a value that is no JSON";
            Error::new(ErrorKind::BadSerialization, what).with_source(error)
        }),
    }
}

/// Enough of a template to find it by.
fn excerpt(source: &str) -> String {
    source.chars().take(EXCERPT_CHARS_MAX).collect()
}

fn error_text(error: &Error) -> String {
    match error.detail() {
        Some(detail) => format!("{}: {detail}", error.kind()),
        None => error.kind().to_string(),
    }
}
