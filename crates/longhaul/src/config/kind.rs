//! What may stand at a key, and how it is read.
//!
//! Never: repairs a value. What does not fit is refused with what would.

use std::ops::RangeInclusive;

use longhaul_core::suggest;
use longhaul_core::time::Millis;

use crate::config::own_prices::exact;
use crate::config::value::{Hidden, Value, without_password};
use crate::span::{self, SPAN_EXAMPLES};
use crate::written::{Content, Node, Place, toml};

/// What may stand at a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Text, not empty.
    Text,
    /// A list of texts.
    Texts,
    /// Yes or no.
    Flag,
    /// A whole number, 0 too.
    Whole,
    /// A whole number, at least 1.
    Count,
    /// Dollars, not negative.
    Money,
    /// Dollars for a million tokens, exact to the millionth.
    Price,
    /// A factor, at least 1.
    Factor,
    /// A share, from 0 to 1.
    Share,
    /// A span of time, more than nothing.
    Span,
    /// A span of time, at least so many milliseconds.
    SpanFrom(u64),
    /// `http://` or `https://`.
    Url,
    /// `sqlite:` or `postgres://`.
    Store,
    /// `host:port`.
    Address,
    /// The name of a variable of the environment.
    EnvName,
    /// One such name or several.
    EnvNames,
    /// The value of a header of HTTP. It may be a secret.
    Header,
    /// One of these words.
    Choice(&'static [&'static str]),
    /// Anything.
    Any,
    /// Nothing: a later build brings this, and here it would have no effect.
    NotYet(&'static str),
}

impl Kind {
    /// What would be right, for messages and documents.
    pub fn expects(self) -> String {
        let said = match self {
            Self::Text => "text, such as \"mail\"",
            Self::Texts => "a list of texts, such as [\"mail\", \"web\"]",
            Self::Flag => "true or false",
            Self::Whole => "a whole number, 0 or more",
            Self::Count => "a whole number, 1 or more",
            Self::Money => "dollars as a number, such as 2.5",
            Self::Price => "dollars for a million tokens, such as 0.075",
            Self::Factor => "a factor of 1 or more, such as 2.0",
            Self::Share => "a share from 0 to 1, such as 0.9",
            Self::Span => return format!("a span of time, such as {SPAN_EXAMPLES}"),
            Self::SpanFrom(min) => {
                let min = span::write(Millis(min));
                return format!("a span of time of {min} or more, such as {SPAN_EXAMPLES}");
            }
            Self::Url => "an address, such as \"https://example.com/hook\"",
            Self::Store => {
                "a store, such as \"sqlite:.longhaul/longhaul.db\" or \"postgres://user@host/db\""
            }
            Self::Address => "a host and a port, such as \"127.0.0.1:4180\"",
            Self::EnvName => "the name of a variable, such as \"HOOK_SECRET\"",
            Self::EnvNames => "the name of a variable or a list of them, such as [\"API_KEY\"]",
            Self::Header => "text on one line, such as \"context-1m-2025-08-07\"",
            Self::Choice(words) => return format!("one of `{}`", words.join("`, `")),
            Self::Any => "a value",
            Self::NotYet(_) => "nothing",
        };
        said.to_owned()
    }

    /// Reads what stands in a file.
    ///
    /// # Errors
    /// What is wrong with the value, and what would be right.
    pub fn read(self, node: &Node) -> Result<Value, String> {
        self.fit(node)?.ok_or_else(|| match &node.content {
            Content::Text(_) if self == Self::Header => self.refusal("this text"),
            Content::Text(text) => self.refusal(&format!("\"{}\"", without_password(text))),
            Content::Whole(whole) => self.refusal(&whole.to_string()),
            Content::Real(real) => self.refusal(&real.to_string()),
            Content::Flag(flag) => self.refusal(&flag.to_string()),
            Content::List(_) | Content::Table(_) | Content::Nothing => self.refusal(node.what()),
        })
    }

    /// Reads what stands in the environment or behind a flag: bare words.
    ///
    /// # Errors
    /// What is wrong with the words, and what would be right.
    pub fn read_words(self, words: &str) -> Result<Value, String> {
        let node = |content| Node {
            place: Place::START,
            content,
        };
        let text = |text: &str| node(Content::Text(text.to_owned()));
        let is_list = matches!(self, Self::Texts | Self::EnvNames);
        let is_number = matches!(
            self,
            Self::Whole | Self::Count | Self::Money | Self::Price | Self::Factor | Self::Share
        );
        if is_list {
            let parts = words.split(',').map(str::trim);
            let parts = parts.filter(|part| !part.is_empty());
            self.read(&node(Content::List(parts.map(text).collect())))
        } else if is_number || matches!(self, Self::Flag | Self::Any) {
            self.read(&toml::read_value(words).unwrap_or_else(|_| text(words)))
        } else {
            self.read(&text(words))
        }
    }

    fn refusal(self, found: &str) -> String {
        format!("{found} does not fit here, write {}", self.expects())
    }

    /// The value that a node is; nothing where it does not fit. The error says why in words of
    /// its own.
    fn fit(self, node: &Node) -> Result<Option<Value>, String> {
        let text = |fits: fn(&str) -> bool| node.text().filter(|text| fits(text));
        let own = |fits: fn(&str) -> bool| text(fits).map(|text| Value::Text(text.to_owned()));
        Ok(match self {
            Self::Text => own(|text| !text.trim().is_empty()),
            Self::Url => own(is_url),
            Self::Store => own(is_store),
            Self::Address => own(is_address),
            Self::EnvName => own(is_env_name),
            Self::Header => text(is_header).map(|text| Value::Hidden(Hidden::new(text))),
            Self::Choice(words) => match node.text() {
                Some(text) if !words.contains(&text) => {
                    return Err(suggest::unknown("word", text, words));
                }
                Some(_) | None => own(|_| true),
            },
            Self::Texts => Self::Text.each(node)?,
            Self::EnvNames => match text(is_env_name) {
                Some(text) => Some(Value::Texts(vec![text.to_owned()])),
                None => Self::EnvName.each(node)?,
            },
            Self::Flag => flag(node),
            Self::Whole => whole(node, 0),
            Self::Count => whole(node, 1),
            Self::Money => real(node, 0.0..=1e9),
            Self::Price => real(node, 0.0..=1e6).filter(|_| node.real().and_then(exact).is_some()),
            Self::Factor => real(node, 1.0..=1_000.0),
            Self::Share => real(node, 0.0..=1.0),
            Self::Span => span(node, 1),
            Self::SpanFrom(min) => span(node, min),
            Self::Any => Some(Value::Any(node.to_json())),
            Self::NotYet(what) => {
                return Err(format!(
                    "would have no effect, {what} are not yet in this build: remove it"
                ));
            }
        })
    }

    /// A list of texts of this kind.
    fn each(self, node: &Node) -> Result<Option<Value>, String> {
        let Some(list) = node.list() else {
            return Ok(None);
        };
        let mut texts = Vec::new();
        for element in list {
            texts.extend(self.read(element)?.words());
        }
        Ok(Some(Value::Texts(texts)))
    }
}

fn flag(node: &Node) -> Option<Value> {
    let Content::Flag(flag) = node.content else {
        return None;
    };
    Some(Value::Flag(flag))
}

fn whole(node: &Node, least: i128) -> Option<Value> {
    let Content::Whole(whole) = node.content else {
        return None;
    };
    // Counts of every kind fit in 32 bits but tokens, which fit in 53.
    let fits = (least..=1 << 53).contains(&whole);
    let whole = u64::try_from(whole).ok().filter(|_| fits);
    whole.map(Value::Whole)
}

fn real(node: &Node, range: RangeInclusive<f64>) -> Option<Value> {
    let real = node.real().filter(|real| range.contains(real));
    real.map(Value::Real)
}

fn span(node: &Node, least: u64) -> Option<Value> {
    let span = node.text().and_then(span::read);
    span.filter(|span| span.0 >= least).map(Value::Span)
}

fn is_url(text: &str) -> bool {
    let rest = text
        .strip_prefix("https://")
        .or_else(|| text.strip_prefix("http://"));
    rest.is_some_and(|rest| {
        let host = rest.split(['/', '?', '#']).next().unwrap_or_default();
        !host.is_empty() && !rest.contains(char::is_whitespace)
    })
}

fn is_store(text: &str) -> bool {
    // Runs that are gone with their process are no runs of ours.
    let path = text
        .strip_prefix("sqlite:")
        .filter(|path| !path.contains(":memory:"));
    let server = text
        .strip_prefix("postgres://")
        .or_else(|| text.strip_prefix("postgresql://"));
    path.or(server).is_some_and(|rest| !rest.trim().is_empty())
}

fn is_address(text: &str) -> bool {
    text.rsplit_once(':').is_some_and(|(host, port)| {
        let host_is_whole = !host.contains(':') || host.starts_with('[') && host.ends_with(']');
        !host.is_empty() && host_is_whole && port.parse::<u16>().is_ok()
    })
}

fn is_header(text: &str) -> bool {
    !text.trim().is_empty() && text.chars().all(|c| c == ' ' || c.is_ascii_graphic())
}

fn is_env_name(text: &str) -> bool {
    let starts = text.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_');
    starts && text.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
}
