//! Kinds of setting values, and their parsers. An invalid value is rejected with a description of
//! the expected one.

use longhaul_core::policy::gate::GATE_TIMEOUT_MAX;
use longhaul_core::suggest;
use longhaul_core::time::Millis;
use serde_json::Value as Json;

use crate::config::price_overrides::usd_to_exact_micros;
use crate::config::spend_caps::parse_spend_caps;
use crate::config::value::{SecretText, SettingValue, redact_password};
use crate::spanned::{Node, NodeValue, Position, toml};
use longhaul_core::duration::{self, DURATION_EXAMPLES};

/// Minimum amount of a budget in dollars: one millionth, the smallest amount that is counted.
pub(crate) const USD_MIN: f64 = 0.000_001;

/// Kind of a setting's value, which decides how it is parsed.
#[derive(Debug, Clone, Copy)]
pub enum SettingValueKind {
    /// A text that passes the check, with a description of the valid texts.
    Text(fn(&str) -> bool, &'static str),
    TextList,
    Boolean,
    /// An integer of at least this value.
    Integer(u64),
    /// A number in this range, with a description of it.
    Number(f64, f64, &'static str),
    /// Dollars per million tokens, with at most six decimals.
    Price,
    /// A duration of at least this many milliseconds.
    Duration(u64),
    /// A duration greater than zero, or `never`.
    GateTimeout,
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
    /// A text that is neither empty nor blank.
    pub const TEXT: Self = Self::Text(|text| !text.trim().is_empty(), "text, such as \"mail\"");
    /// A URL with `http://` or `https://`.
    pub const URL: Self = Self::Text(is_http_url, "a URL, such as \"https://example.com/hook\"");
    /// A store URL with `sqlite:` or `postgres://`.
    pub const STORE_URL: Self = Self::Text(
        is_store_url,
        "a store, such as \"sqlite:.longhaul/longhaul.db\" or \"postgres://user@host/db\"",
    );
    /// An address of the form `host:port`.
    pub const HOST_PORT: Self =
        Self::Text(is_host_port, "a host and a port, such as \"127.0.0.1:4180\"");
    /// Name of an environment variable.
    const ENV_NAME: Self =
        Self::Text(is_env_name, "the name of a variable, such as \"HOOK_SECRET\"");
    /// An amount in dollars, greater than zero.
    pub const USD: Self =
        Self::Number(USD_MIN, 1e9, "dollars as a number greater than 0, such as 2.5");
    pub const FACTOR: Self = Self::Number(1.0, 1e3, "a factor of 1 or more, such as 2.0");
    pub const FRACTION: Self = Self::Number(0.0, 1.0, "a fraction from 0 to 1, such as 0.9");

    /// Describes which values are valid, for messages and documentation.
    pub fn describe_expected_value(self) -> String {
        let description = match self {
            Self::Text(_, expected) | Self::Number(_, _, expected) => expected,
            Self::TextList => "a list of texts, such as [\"mail\", \"web\"]",
            Self::Boolean => "true or false",
            Self::Integer(min) => return format!("a whole number, {min} or more"),
            Self::Price => "dollars for a million tokens, such as 0.075",
            Self::Duration(0 | 1) => return format!("a duration, such as {DURATION_EXAMPLES}"),
            Self::Duration(min) => {
                let min = duration::format_duration(Millis(min));
                return format!("a duration of {min} or more, such as {DURATION_EXAMPLES}");
            }
            Self::GateTimeout => "\"never\", or a duration such as \"24h\" of at most 10 years",
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
        self.convert_node(node)?.ok_or_else(|| {
            let found = match &node.value {
                NodeValue::Text(_) if matches!(self, Self::HeaderValue) => "this text".to_owned(),
                NodeValue::Text(text) => format!("\"{}\"", redact_password(text)),
                NodeValue::Integer(integer) => integer.to_string(),
                NodeValue::Float(float) => float.to_string(),
                NodeValue::Boolean(flag) => flag.to_string(),
                NodeValue::List(_) | NodeValue::Table(_) | NodeValue::Null => {
                    node.type_name().to_owned()
                }
            };
            format!("{found} is not valid here: write {}", self.describe_expected_value())
        })
    }

    /// Parses a value from an environment variable or a flag, which is plain text.
    ///
    /// # Errors
    /// The value is invalid. The message describes the problem and the expected value.
    pub fn parse_plain_text(self, input: &str) -> Result<SettingValue, String> {
        let node = |content| Node { position: Position::START, value: content };
        let text = |text: &str| node(NodeValue::Text(text.to_owned()));
        let is_number = matches!(self, Self::Integer(_) | Self::Number(..) | Self::Price);
        let node = if matches!(self, Self::TextList | Self::EnvNames) {
            let parts = input.split(',').map(str::trim).filter(|part| !part.is_empty());
            node(NodeValue::List(parts.map(text).collect()))
        } else if is_number || matches!(self, Self::Boolean | Self::Any | Self::SpendCaps) {
            toml::parse_toml_value(input).unwrap_or_else(|_| text(input))
        } else {
            text(input)
        };
        self.parse_node(&node)
    }

    /// Converts a parsed node to a value of this kind. `Ok(None)` means that the node has the wrong
    /// type; an error is a message for other problems.
    fn convert_node(self, node: &Node) -> Result<Option<SettingValue>, String> {
        let duration = |min: u64| {
            let millis = node.as_text().and_then(duration::parse_duration);
            millis.filter(|millis| millis.0 >= min)
        };
        let number = |min: f64, max: f64| {
            let number = node.as_number().filter(|number| (min..=max).contains(number));
            number.map(Json::from)
        };
        let is_json = match self {
            Self::Text(is_valid, _) => node.as_text().is_some_and(is_valid),
            Self::Choice(choices) => match node.as_text() {
                Some(text) if !choices.contains(&text) => {
                    return Err(suggest::unknown_name_message("value", text, choices));
                }
                text => text.is_some(),
            },
            Self::TextList => Self::TEXT.check_list(node)?,
            Self::EnvNames => match node.as_text() {
                Some(name) if is_env_name(name) => {
                    return Ok(Some(SettingValue::Json(Json::from(vec![name]))));
                }
                Some(_) => false,
                None => Self::ENV_NAME.check_list(node)?,
            },
            Self::Boolean => matches!(node.value, NodeValue::Boolean(_)),
            // The maximum is 2^53, which is enough for token counts. All other counts are smaller.
            Self::Integer(min) => node
                .as_integer()
                .is_some_and(|integer| (i128::from(min)..=1 << 53).contains(&integer)),
            Self::Number(min, max, _) => return Ok(number(min, max).map(SettingValue::Json)),
            Self::Price => {
                let price = number(0.0, 1e6);
                let price =
                    price.filter(|price| price.as_f64().and_then(usd_to_exact_micros).is_some());
                return Ok(price.map(SettingValue::Json));
            }
            Self::Duration(min) => return Ok(duration(min).map(duration_value)),
            Self::GateTimeout if node.as_text() == Some("never") => true,
            Self::GateTimeout => {
                let timeout = duration(1).filter(|timeout| *timeout <= GATE_TIMEOUT_MAX);
                return Ok(timeout.map(duration_value));
            }
            Self::HeaderValue => {
                let text = node.as_text().filter(|text| is_header_value(text));
                return Ok(text.map(|text| SettingValue::Secret(SecretText::new(text))));
            }
            Self::Any => true,
            Self::SpendCaps => parse_spend_caps(&node.to_json()).map(|_| true)?,
            Self::Unsupported(feature) => {
                return Err(format!(
                    "the setting has no effect, because {feature} are not supported by this build \
                     yet: remove it"
                ));
            }
        };
        Ok(is_json.then(|| SettingValue::Json(node.to_json())))
    }

    /// Checks that the elements of a list are of this kind. Returns `false` if the node is not a
    /// list.
    fn check_list(self, node: &Node) -> Result<bool, String> {
        let Some(list) = node.as_list() else {
            return Ok(false);
        };
        list.iter().try_for_each(|element| self.parse_node(element).map(drop))?;
        Ok(true)
    }
}

fn duration_value(millis: Millis) -> SettingValue {
    SettingValue::Json(Json::from(duration::format_duration(millis)))
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
