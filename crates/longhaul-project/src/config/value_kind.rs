//! Kinds of setting values, and their parsers. An invalid value is rejected with a description of
//! the expected one.

use std::ops::RangeInclusive;

use longhaul_core::policy::gate::GATE_TIMEOUT_MAX;
use longhaul_core::suggest;
use longhaul_core::time::Millis;

use crate::config::price_overrides::usd_to_exact_micros;
use crate::config::spend_caps::parse_spend_caps;
use crate::config::value::{SecretText, SettingValue, redact_password};
use crate::spanned::{Node, NodeValue, Position, toml};
use longhaul_core::duration::{self, DURATION_EXAMPLES};

/// Minimum amount of a budget in dollars: one millionth, the smallest amount that is counted.
pub(crate) const USD_MIN: f64 = 0.000_001;

/// Kind of a setting's value, which decides how it is parsed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SettingValueKind {
    /// A text that is neither empty nor blank.
    Text,
    TextList,
    Boolean,
    /// An integer of 0 or more.
    UnsignedInt,
    /// An integer of 1 or more.
    PositiveInt,
    /// An amount in dollars, greater than zero.
    Usd,
    /// Dollars per million tokens, with at most six decimals.
    Price,
    /// A factor of 1 or more.
    Factor,
    /// A fraction from 0 to 1.
    Fraction,
    /// A duration greater than zero.
    Duration,
    /// A duration of at least this many milliseconds.
    MinDuration(u64),
    /// A duration greater than zero, or `never`.
    GateTimeout,
    /// A URL with `http://` or `https://`.
    Url,
    /// A store URL with `sqlite:` or `postgres://`.
    StoreUrl,
    /// An address of the form `host:port`.
    HostPort,
    /// Name of an environment variable.
    EnvName,
    /// One or several names of environment variables.
    EnvNames,
    /// Value of an HTTP header. It may be a secret.
    HeaderValue,
    /// One of the listed texts.
    Choice(&'static [&'static str]),
    /// A value of any type.
    Any,
    /// A list of spend caps.
    SpendCaps,
    /// A setting that this build does not support, so every value is an error. The text names the
    /// feature.
    Unsupported(&'static str),
}

impl SettingValueKind {
    /// Describes which values are valid, for messages and documentation.
    pub fn describe_expected_value(self) -> String {
        let description = match self {
            Self::Text => "text, such as \"mail\"",
            Self::TextList => "a list of texts, such as [\"mail\", \"web\"]",
            Self::Boolean => "true or false",
            Self::UnsignedInt => "a whole number, 0 or more",
            Self::PositiveInt => "a whole number, 1 or more",
            Self::Usd => "dollars as a number greater than 0, such as 2.5",
            Self::Price => "dollars for a million tokens, such as 0.075",
            Self::Factor => "a factor of 1 or more, such as 2.0",
            Self::Fraction => "a fraction from 0 to 1, such as 0.9",
            Self::Duration => return format!("a duration, such as {DURATION_EXAMPLES}"),
            Self::MinDuration(min) => {
                let min = duration::format_duration(Millis(min));
                return format!("a duration of {min} or more, such as {DURATION_EXAMPLES}");
            }
            Self::GateTimeout => "\"never\", or a duration such as \"24h\" of at most 10 years",
            Self::Url => "a URL, such as \"https://example.com/hook\"",
            Self::StoreUrl => {
                "a store, such as \"sqlite:.longhaul/longhaul.db\" or \"postgres://user@host/db\""
            }
            Self::HostPort => "a host and a port, such as \"127.0.0.1:4180\"",
            Self::EnvName => "the name of a variable, such as \"HOOK_SECRET\"",
            Self::EnvNames => "the name of a variable or a list of them, such as [\"API_KEY\"]",
            Self::HeaderValue => "text on one line, such as \"context-1m-2025-08-07\"",
            Self::Choice(choices) => return format!("one of `{}`", choices.join("`, `")),
            Self::Any => "a value",
            Self::SpendCaps => "a list of caps, such as [{ window = \"day\", usd = 50.0 }]",
            Self::Unsupported(_) => "nothing",
        };
        description.to_owned()
    }

    /// Parses a value from a configuration file.
    ///
    /// # Errors
    /// The value is invalid. The message describes the problem and the expected value.
    pub fn parse_node(self, node: &Node) -> Result<SettingValue, String> {
        self.try_convert_node(node)?.ok_or_else(|| match &node.value {
            NodeValue::Text(_) if self == Self::HeaderValue => {
                self.invalid_value_message("this text")
            }
            NodeValue::Text(text) => {
                self.invalid_value_message(&format!("\"{}\"", redact_password(text)))
            }
            NodeValue::Integer(integer) => self.invalid_value_message(&integer.to_string()),
            NodeValue::Float(float) => self.invalid_value_message(&float.to_string()),
            NodeValue::Boolean(flag) => self.invalid_value_message(&flag.to_string()),
            NodeValue::List(_) | NodeValue::Table(_) | NodeValue::Null => {
                self.invalid_value_message(node.type_name())
            }
        })
    }

    /// Parses a value from an environment variable or a flag, which is plain text.
    ///
    /// # Errors
    /// The value is invalid. The message describes the problem and the expected value.
    pub fn parse_plain_text(self, input: &str) -> Result<SettingValue, String> {
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
            let parts = input.split(',').map(str::trim);
            let parts = parts.filter(|part| !part.is_empty());
            self.parse_node(&node(NodeValue::List(parts.map(text).collect())))
        } else if is_number || matches!(self, Self::Boolean | Self::Any | Self::SpendCaps) {
            self.parse_node(&toml::parse_toml_value(input).unwrap_or_else(|_| text(input)))
        } else {
            self.parse_node(&text(input))
        }
    }

    fn invalid_value_message(self, found: &str) -> String {
        format!("{found} is not valid here: write {}", self.describe_expected_value())
    }

    /// Converts a parsed node to a value of this kind. `Ok(None)` means that the node has the wrong
    /// type; an error is a message for other problems.
    fn try_convert_node(self, node: &Node) -> Result<Option<SettingValue>, String> {
        let text = |is_valid: fn(&str) -> bool| node.as_text().filter(|text| is_valid(text));
        let text_value = |is_valid: fn(&str) -> bool| {
            text(is_valid).map(|text| SettingValue::Text(text.to_owned()))
        };
        Ok(match self {
            Self::Text => text_value(|text| !text.trim().is_empty()),
            Self::Url => text_value(is_http_url),
            Self::StoreUrl => text_value(is_store_url),
            Self::HostPort => text_value(is_host_port),
            Self::EnvName => text_value(is_env_name),
            Self::HeaderValue => {
                text(is_header_value).map(|text| SettingValue::Secret(SecretText::new(text)))
            }
            Self::Choice(choices) => match node.as_text() {
                Some(text) if !choices.contains(&text) => {
                    return Err(suggest::unknown_name_message("value", text, choices));
                }
                Some(_) | None => text_value(|_| true),
            },
            Self::TextList => Self::Text.parse_list(node)?,
            Self::EnvNames => match text(is_env_name) {
                Some(text) => Some(SettingValue::TextList(vec![text.to_owned()])),
                None => Self::EnvName.parse_list(node)?,
            },
            Self::Boolean => parse_boolean(node),
            Self::UnsignedInt => parse_integer(node, 0),
            Self::PositiveInt => parse_integer(node, 1),
            Self::Usd => parse_number(node, USD_MIN..=1e9),
            Self::Price => parse_number(node, 0.0..=1e6)
                .filter(|_| node.as_number().and_then(usd_to_exact_micros).is_some()),
            Self::Factor => parse_number(node, 1.0..=1_000.0),
            Self::Fraction => parse_number(node, 0.0..=1.0),
            Self::Duration => parse_duration(node, 1),
            Self::MinDuration(min) => parse_duration(node, min),
            Self::GateTimeout => text_value(|text| text == "never").or_else(|| {
                let is_in_range = |value: &SettingValue| {
                    matches!(value, SettingValue::Duration(timeout) if *timeout <= GATE_TIMEOUT_MAX)
                };
                parse_duration(node, 1).filter(is_in_range)
            }),
            Self::Any => Some(SettingValue::Any(node.to_json())),
            Self::SpendCaps => {
                let caps = node.to_json();
                parse_spend_caps(&caps)?;
                Some(SettingValue::Any(caps))
            }
            Self::Unsupported(feature) => {
                return Err(format!(
                    "the setting has no effect, because {feature} are not supported by this build \
                     yet: remove it"
                ));
            }
        })
    }

    /// Parses a list whose elements are of this kind. `Ok(None)` means that the node is not a list.
    fn parse_list(self, node: &Node) -> Result<Option<SettingValue>, String> {
        let Some(list) = node.as_list() else {
            return Ok(None);
        };
        let mut texts = Vec::new();
        for element in list {
            texts.extend(self.parse_node(element)?.to_text_list());
        }
        Ok(Some(SettingValue::TextList(texts)))
    }
}

fn parse_boolean(node: &Node) -> Option<SettingValue> {
    let NodeValue::Boolean(flag) = node.value else {
        return None;
    };
    Some(SettingValue::Boolean(flag))
}

fn parse_integer(node: &Node, min: i128) -> Option<SettingValue> {
    let NodeValue::Integer(integer) = node.value else {
        return None;
    };
    // The maximum is 2^53, which is enough for token counts. All other counts are smaller.
    let is_in_range = (min..=1 << 53).contains(&integer);
    let integer = u64::try_from(integer).ok().filter(|_| is_in_range);
    integer.map(SettingValue::Integer)
}

fn parse_number(node: &Node, range: RangeInclusive<f64>) -> Option<SettingValue> {
    let number = node.as_number().filter(|number| range.contains(number));
    number.map(SettingValue::Float)
}

fn parse_duration(node: &Node, min: u64) -> Option<SettingValue> {
    let millis = node.as_text().and_then(duration::parse_duration);
    millis.filter(|millis| millis.0 >= min).map(SettingValue::Duration)
}

fn is_http_url(text: &str) -> bool {
    let rest = text.strip_prefix("https://").or_else(|| text.strip_prefix("http://"));
    rest.is_some_and(|rest| {
        let host = rest.split(['/', '?', '#']).next().unwrap_or_default();
        !host.is_empty() && !rest.contains(char::is_whitespace)
    })
}

fn is_store_url(text: &str) -> bool {
    // A store in memory is not allowed here: its runs would be lost with the process.
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
    let has_valid_start = text.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_');
    has_valid_start && text.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
}
