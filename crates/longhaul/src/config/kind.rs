//! What may stand at a key, and how it is read.
//!
//! Never: repairs a value. What does not fit is refused with what would.

use longhaul_core::time::Millis;

use crate::config::own_prices::exact;
use crate::config::value::{Hidden, Value, without_password};
use crate::like;
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
    pub fn read(self, node: &Node) -> Result<Value, String> {
        if let Self::NotYet(what) = self {
            return Err(format!(
                "would have no effect, {what} are not yet in this build: remove it"
            ));
        }
        let value = match &node.content {
            Content::Text(text) => self.of_text(text)?,
            Content::Whole(whole) => self.of_whole(*whole),
            Content::Real(real) => self.of_real(*real),
            Content::Flag(flag) => (self == Self::Flag).then_some(Value::Flag(*flag)),
            Content::List(list) => self.of_list(list)?,
            Content::Table(_) | Content::Nothing => None,
        };
        let any = || (self == Self::Any).then(|| Value::Any(node.to_json()));
        value.or_else(any).ok_or_else(|| match &node.content {
            Content::Text(_) if self == Self::Header => self.refusal("this text"),
            Content::Text(text) => self.refusal(&format!("\"{}\"", without_password(text))),
            Content::Whole(whole) => self.refusal(&whole.to_string()),
            Content::Real(real) => self.refusal(&real.to_string()),
            Content::Flag(flag) => self.refusal(&flag.to_string()),
            Content::List(_) | Content::Table(_) | Content::Nothing => self.refusal(node.what()),
        })
    }

    /// Reads what stands in the environment or behind a flag: bare words.
    pub fn read_words(self, words: &str) -> Result<Value, String> {
        let node = |content| Node {
            place: Place::START,
            content,
        };
        let text = |text: &str| node(Content::Text(text.to_owned()));
        match self {
            Self::Text
            | Self::Span
            | Self::SpanFrom(_)
            | Self::Url
            | Self::Store
            | Self::Address
            | Self::EnvName
            | Self::Header
            | Self::Choice(_)
            | Self::NotYet(_) => self.read(&text(words)),
            Self::Texts | Self::EnvNames => {
                let parts = words
                    .split(',')
                    .map(str::trim)
                    .filter(|part| !part.is_empty());
                self.read(&node(Content::List(parts.map(text).collect())))
            }
            Self::Flag
            | Self::Whole
            | Self::Count
            | Self::Money
            | Self::Price
            | Self::Factor
            | Self::Share
            | Self::Any => {
                let value = toml::read_value(words).unwrap_or_else(|_| text(words));
                self.read(&value)
            }
        }
    }

    fn refusal(self, found: &str) -> String {
        format!("{found} does not fit here, write {}", self.expects())
    }

    fn of_text(self, text: &str) -> Result<Option<Value>, String> {
        let own = || Value::Text(text.to_owned());
        let whole = !text.trim().is_empty();
        Ok(match self {
            Self::Text => whole.then(own),
            Self::Url => is_url(text).then(own),
            Self::Store => is_store(text).then(own),
            Self::Address => is_address(text).then(own),
            Self::EnvName => is_env_name(text).then(own),
            Self::EnvNames => is_env_name(text).then(|| Value::Texts(vec![text.to_owned()])),
            Self::Span => span::read(text).filter(|span| span.0 > 0).map(Value::Span),
            Self::SpanFrom(min) => span::read(text)
                .filter(|span| span.0 >= min)
                .map(Value::Span),
            Self::Header => is_header(text).then(|| Value::Hidden(Hidden::new(text))),
            Self::Choice(words) if words.contains(&text) => Some(own()),
            Self::Choice(words) => return Err(like::unknown("word", text, words)),
            Self::Texts
            | Self::Flag
            | Self::Whole
            | Self::Count
            | Self::Money
            | Self::Price
            | Self::Factor
            | Self::Share
            | Self::Any
            | Self::NotYet(_) => None,
        })
    }

    fn of_whole(self, whole: i128) -> Option<Value> {
        let least = match self {
            Self::Whole => 0,
            Self::Count => 1,
            Self::Money | Self::Price | Self::Factor | Self::Share => {
                return self.of_real(whole as f64);
            }
            Self::Text
            | Self::Texts
            | Self::Flag
            | Self::Span
            | Self::SpanFrom(_)
            | Self::Url
            | Self::Store
            | Self::Address
            | Self::EnvName
            | Self::EnvNames
            | Self::Header
            | Self::Choice(_)
            | Self::Any
            | Self::NotYet(_) => return None,
        };
        // Counts of every kind fit in 32 bits but tokens, which fit in 53.
        let most = 1_i128 << 53;
        let whole = (least..=most).contains(&whole).then_some(whole)?;
        u64::try_from(whole).ok().map(Value::Whole)
    }

    fn of_real(self, real: f64) -> Option<Value> {
        let range = match self {
            Self::Money => 0.0..=1e9,
            Self::Price if exact(real).is_none() => return None,
            Self::Price => 0.0..=1e6,
            Self::Factor => 1.0..=1_000.0,
            Self::Share => 0.0..=1.0,
            Self::Text
            | Self::Texts
            | Self::Flag
            | Self::Whole
            | Self::Count
            | Self::Span
            | Self::SpanFrom(_)
            | Self::Url
            | Self::Store
            | Self::Address
            | Self::EnvName
            | Self::EnvNames
            | Self::Header
            | Self::Choice(_)
            | Self::Any
            | Self::NotYet(_) => return None,
        };
        range.contains(&real).then_some(Value::Real(real))
    }

    fn of_list(self, list: &[Node]) -> Result<Option<Value>, String> {
        let one = match self {
            Self::Texts => Self::Text,
            Self::EnvNames => Self::EnvName,
            Self::Text
            | Self::Flag
            | Self::Whole
            | Self::Count
            | Self::Money
            | Self::Price
            | Self::Factor
            | Self::Share
            | Self::Span
            | Self::SpanFrom(_)
            | Self::Url
            | Self::Store
            | Self::Address
            | Self::EnvName
            | Self::Header
            | Self::Choice(_)
            | Self::Any
            | Self::NotYet(_) => return Ok(None),
        };
        let texts = list.iter().map(|node| match one.read(node)? {
            Value::Text(text) => Ok(text),
            Value::Whole(_)
            | Value::Real(_)
            | Value::Flag(_)
            | Value::Span(_)
            | Value::Texts(_)
            | Value::Hidden(_)
            | Value::Any(_) => Err(one.refusal(node.what())),
        });
        texts
            .collect::<Result<_, _>>()
            .map(|texts| Some(Value::Texts(texts)))
    }
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
