//! What may stand at a key, and how it is read.
//!
//! Never: repairs a value. What does not fit is refused with what would.

use std::ops::RangeInclusive;

use longhaul_core::suggest;
use longhaul_core::time::Millis;

use crate::config::price_overrides::exact_micros;
use crate::config::value::{SecretText, Value, redact_password};
use crate::duration::{self, DURATION_EXAMPLES};
use crate::spanned::{Node, NodeValue, Position, toml};

/// What may stand at a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ValueKind {
    /// Text, not empty.
    Text,
    /// A list of texts.
    TextList,
    /// Yes or no.
    Boolean,
    /// A whole number, 0 too.
    UnsignedInt,
    /// A whole number, at least 1.
    PositiveInt,
    /// Dollars, not negative.
    Usd,
    /// Dollars for a million tokens, exact to the millionth.
    Price,
    /// A factor, at least 1.
    Factor,
    /// A share, from 0 to 1.
    Fraction,
    /// A span of time, more than nothing.
    Duration,
    /// A span of time, at least so many milliseconds.
    MinDuration(u64),
    /// `http://` or `https://`.
    Url,
    /// `sqlite:` or `postgres://`.
    StoreUrl,
    /// `host:port`.
    HostPort,
    /// The name of a variable of the environment.
    EnvName,
    /// One such name or several.
    EnvNames,
    /// The value of a header of HTTP. It may be a secret.
    HeaderValue,
    /// One of these words.
    Choice(&'static [&'static str]),
    /// Anything.
    Any,
    /// Nothing: a later build brings this, and here it would have no effect.
    Unsupported(&'static str),
}

impl ValueKind {
    /// What would be right, for messages and documents.
    pub fn expected(self) -> String {
        let said = match self {
            Self::Text => "text, such as \"mail\"",
            Self::TextList => "a list of texts, such as [\"mail\", \"web\"]",
            Self::Boolean => "true or false",
            Self::UnsignedInt => "a whole number, 0 or more",
            Self::PositiveInt => "a whole number, 1 or more",
            Self::Usd => "dollars as a number, such as 2.5",
            Self::Price => "dollars for a million tokens, such as 0.075",
            Self::Factor => "a factor of 1 or more, such as 2.0",
            Self::Fraction => "a share from 0 to 1, such as 0.9",
            Self::Duration => return format!("a span of time, such as {DURATION_EXAMPLES}"),
            Self::MinDuration(min) => {
                let min = duration::format(Millis(min));
                return format!("a span of time of {min} or more, such as {DURATION_EXAMPLES}");
            }
            Self::Url => "an address, such as \"https://example.com/hook\"",
            Self::StoreUrl => {
                "a store, such as \"sqlite:.longhaul/longhaul.db\" or \"postgres://user@host/db\""
            }
            Self::HostPort => "a host and a port, such as \"127.0.0.1:4180\"",
            Self::EnvName => "the name of a variable, such as \"HOOK_SECRET\"",
            Self::EnvNames => "the name of a variable or a list of them, such as [\"API_KEY\"]",
            Self::HeaderValue => "text on one line, such as \"context-1m-2025-08-07\"",
            Self::Choice(words) => return format!("one of `{}`", words.join("`, `")),
            Self::Any => "a value",
            Self::Unsupported(_) => "nothing",
        };
        said.to_owned()
    }

    /// Reads what stands in a file.
    ///
    /// # Errors
    /// What is wrong with the value, and what would be right.
    pub fn parse(self, node: &Node) -> Result<Value, String> {
        self.convert(node)?.ok_or_else(|| match &node.value {
            NodeValue::Text(_) if self == Self::HeaderValue => self.mismatch_message("this text"),
            NodeValue::Text(text) => {
                self.mismatch_message(&format!("\"{}\"", redact_password(text)))
            }
            NodeValue::Integer(whole) => self.mismatch_message(&whole.to_string()),
            NodeValue::Float(real) => self.mismatch_message(&real.to_string()),
            NodeValue::Boolean(flag) => self.mismatch_message(&flag.to_string()),
            NodeValue::List(_) | NodeValue::Table(_) | NodeValue::Null => {
                self.mismatch_message(node.type_name())
            }
        })
    }

    /// Reads what stands in the environment or behind a flag: bare words.
    ///
    /// # Errors
    /// What is wrong with the words, and what would be right.
    pub fn parse_text(self, words: &str) -> Result<Value, String> {
        let node = |content| Node { position: Position::START, value: content };
        let text = |text: &str| node(NodeValue::Text(text.to_owned()));
        let is_list = matches!(self, Self::TextList | Self::EnvNames);
        let is_number = matches!(
            self,
            Self::UnsignedInt
                | Self::PositiveInt
                | Self::Usd
                | Self::Price
                | Self::Factor
                | Self::Fraction
        );
        if is_list {
            let parts = words.split(',').map(str::trim);
            let parts = parts.filter(|part| !part.is_empty());
            self.parse(&node(NodeValue::List(parts.map(text).collect())))
        } else if is_number || matches!(self, Self::Boolean | Self::Any) {
            self.parse(&toml::parse_value(words).unwrap_or_else(|_| text(words)))
        } else {
            self.parse(&text(words))
        }
    }

    fn mismatch_message(self, found: &str) -> String {
        format!("{found} does not fit here, write {}", self.expected())
    }

    /// The value that a node is; nothing where it does not fit. The error says why in words of
    /// its own.
    fn convert(self, node: &Node) -> Result<Option<Value>, String> {
        let text = |fits: fn(&str) -> bool| node.text().filter(|text| fits(text));
        let own = |fits: fn(&str) -> bool| text(fits).map(|text| Value::Text(text.to_owned()));
        Ok(match self {
            Self::Text => own(|text| !text.trim().is_empty()),
            Self::Url => own(is_url),
            Self::StoreUrl => own(is_store_url),
            Self::HostPort => own(is_host_port),
            Self::EnvName => own(is_env_name),
            Self::HeaderValue => {
                text(is_header_value).map(|text| Value::Secret(SecretText::new(text)))
            }
            Self::Choice(words) => match node.text() {
                Some(text) if !words.contains(&text) => {
                    return Err(suggest::unknown_message("word", text, words));
                }
                Some(_) | None => own(|_| true),
            },
            Self::TextList => Self::Text.parse_list(node)?,
            Self::EnvNames => match text(is_env_name) {
                Some(text) => Some(Value::TextList(vec![text.to_owned()])),
                None => Self::EnvName.parse_list(node)?,
            },
            Self::Boolean => parse_boolean(node),
            Self::UnsignedInt => parse_integer(node, 0),
            Self::PositiveInt => parse_integer(node, 1),
            Self::Usd => parse_number(node, 0.0..=1e9),
            Self::Price => parse_number(node, 0.0..=1e6)
                .filter(|_| node.number().and_then(exact_micros).is_some()),
            Self::Factor => parse_number(node, 1.0..=1_000.0),
            Self::Fraction => parse_number(node, 0.0..=1.0),
            Self::Duration => parse_duration(node, 1),
            Self::MinDuration(min) => parse_duration(node, min),
            Self::Any => Some(Value::Any(node.to_json())),
            Self::Unsupported(what) => {
                return Err(format!(
                    "would have no effect, {what} are not yet in this build: remove it"
                ));
            }
        })
    }

    /// A list of texts of this kind.
    fn parse_list(self, node: &Node) -> Result<Option<Value>, String> {
        let Some(list) = node.list() else {
            return Ok(None);
        };
        let mut texts = Vec::new();
        for element in list {
            texts.extend(self.parse(element)?.texts());
        }
        Ok(Some(Value::TextList(texts)))
    }
}

fn parse_boolean(node: &Node) -> Option<Value> {
    let NodeValue::Boolean(flag) = node.value else {
        return None;
    };
    Some(Value::Boolean(flag))
}

fn parse_integer(node: &Node, least: i128) -> Option<Value> {
    let NodeValue::Integer(whole) = node.value else {
        return None;
    };
    // Counts of every kind fit in 32 bits but tokens, which fit in 53.
    let fits = (least..=1 << 53).contains(&whole);
    let whole = u64::try_from(whole).ok().filter(|_| fits);
    whole.map(Value::Integer)
}

fn parse_number(node: &Node, range: RangeInclusive<f64>) -> Option<Value> {
    let real = node.number().filter(|real| range.contains(real));
    real.map(Value::Float)
}

fn parse_duration(node: &Node, least: u64) -> Option<Value> {
    let span = node.text().and_then(duration::parse);
    span.filter(|span| span.0 >= least).map(Value::Duration)
}

fn is_url(text: &str) -> bool {
    let rest = text.strip_prefix("https://").or_else(|| text.strip_prefix("http://"));
    rest.is_some_and(|rest| {
        let host = rest.split(['/', '?', '#']).next().unwrap_or_default();
        !host.is_empty() && !rest.contains(char::is_whitespace)
    })
}

fn is_store_url(text: &str) -> bool {
    // Runs that are gone with their process are no runs of ours.
    let path = text.strip_prefix("sqlite:").filter(|path| !path.contains(":memory:"));
    let server = text.strip_prefix("postgres://").or_else(|| text.strip_prefix("postgresql://"));
    path.or(server).is_some_and(|rest| !rest.trim().is_empty())
}

fn is_host_port(text: &str) -> bool {
    text.rsplit_once(':').is_some_and(|(host, port)| {
        let host_is_whole = !host.contains(':') || host.starts_with('[') && host.ends_with(']');
        !host.is_empty() && host_is_whole && port.parse::<u16>().is_ok()
    })
}

fn is_header_value(text: &str) -> bool {
    !text.trim().is_empty() && text.chars().all(|c| c == ' ' || c.is_ascii_graphic())
}

fn is_env_name(text: &str) -> bool {
    let starts = text.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_');
    starts && text.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
}
