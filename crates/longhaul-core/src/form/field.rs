//! The fields of a form: their schemas, their values, and the values that a person types.

use std::collections::BTreeSet;

use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Number, Value};

use crate::time::Timestamp;

/// Maximum length in bytes of a text that is the value of a form field.
const TEXT_BYTES_MAX: usize = 64 * 1024;
/// Maximum number of choices that a form field or a question can offer.
const CHOICES_MAX: usize = 100;
/// Maximum length in bytes of the text of one choice that a form field or a question offers.
const CHOICE_BYTES_MAX: usize = 1024;
/// Largest number up to which an `f64` represents every integer exactly.
const EXACT_INTEGER_MAX: f64 = 9_007_199_254_740_992.0;

#[derive(Debug, Clone, PartialEq)]
pub struct FormField {
    /// Name of the field in the answer.
    pub name: String,
    /// Title of the field for people. It is the name if the schema has no title.
    pub title: String,
    /// Description of the field for people. It may be empty.
    pub description: String,
    /// Type of the field's value, with its limits.
    pub kind: FormFieldKind,
    /// Value of the field if the person enters nothing. `None` means that there is no default.
    pub default: Option<Value>,
    /// Whether the answer must contain the field.
    pub required: bool,
}

/// Type of a form field's value, with its limits.
#[derive(Debug, Clone, PartialEq)]
pub enum FormFieldKind {
    /// The field's value is a text.
    Text {
        /// Minimum number of characters of the text. `None` means no minimum.
        min_length: Option<u64>,
        /// Maximum number of characters of the text. `None` means that only `TEXT_BYTES_MAX`
        /// limits the text.
        max_length: Option<u64>,
        /// Format that the text must have, such as an email address. `None` means any text.
        format: Option<TextFormat>,
    },
    /// The field's value is a number.
    Number {
        integer: bool,
        /// Lowest valid number. `None` means no minimum.
        minimum: Option<f64>,
        /// Highest valid number. `None` means no maximum.
        maximum: Option<f64>,
    },
    /// The field's value is yes or no.
    Boolean,
    /// The field's value is one of these choices.
    Choice(Vec<FormChoice>),
}

/// One of the choices that a form field offers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FormChoice {
    /// Value of the field in the answer if the person selects this choice.
    pub value: String,
    /// Title of the value for people. It is the value itself if the schema has no title.
    pub title: String,
}

/// Format of a text in a form.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum TextFormat {
    /// An email address.
    Email,
    /// A URI, such as `https://example.com`.
    Uri,
    /// A date, such as `2026-01-31`.
    Date,
    /// A time with a date, such as `2026-01-31T09:00:00Z`.
    DateTime,
}

impl FormField {
    pub(super) fn from_schema(name: &str, schema: &Value, required: bool) -> Result<Self, String> {
        let object = schema.as_object().ok_or("it must be an object")?;
        let valid_name = name.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '-'));
        if name.is_empty() || name.len() > 64 || !valid_name {
            return Err("a name has 1 to 64 letters, digits, `_` and `-`".to_owned());
        }
        let kind = FormFieldKind::kind_from_schema(object)?;
        let title: Option<String> = optional(object, "title", "a text")?;
        if title.as_ref().is_some_and(|title| title.trim().is_empty()) {
            return Err("the field's `title` must not be blank".to_owned());
        }
        let field = Self {
            name: name.to_owned(),
            title: title.unwrap_or_else(|| name.to_owned()),
            description: optional(object, "description", "a text")?.unwrap_or_default(),
            kind,
            default: object.get("default").cloned(),
            required,
        };
        if let Some(default) = &field.default {
            field.check_value(default).map_err(|error| format!("the field's default {error}"))?;
        }
        Ok(field)
    }

    /// Checks a value of the field. The error is the rest of a sentence about the field, such as
    /// `must be at least 1`.
    pub(super) fn check_value(&self, value: &Value) -> Result<(), String> {
        match (&self.kind, value) {
            (FormFieldKind::Text { min_length, max_length, format }, Value::String(text)) => {
                check_text_length(text, *min_length, *max_length)?;
                format.map_or(Ok(()), |format| format.check_text_format(text))
            }
            (FormFieldKind::Number { integer, minimum, maximum }, Value::Number(number)) => {
                check_number_limits(number, *integer, (*minimum, *maximum))
            }
            (FormFieldKind::Boolean, Value::Bool(_)) => Ok(()),
            (FormFieldKind::Choice(choices), Value::String(text))
                if choices.iter().any(|choice| choice.value == *text) =>
            {
                Ok(())
            }
            (kind, _) => Err(format!("must be {}", kind.description())),
        }
    }

    /// Parses what a person typed or selected for the field. `None` means that the field is left
    /// out, because nothing was typed and it is not required. A default takes the place of an empty
    /// input.
    pub fn parse_input(&self, input: &str) -> Result<Option<Value>, String> {
        let input = input.trim();
        if input.is_empty() {
            return match (&self.default, self.required) {
                (Some(default), _) => Ok(Some(default.clone())),
                (None, true) => Err("is missing".to_owned()),
                (None, false) => Ok(None),
            };
        }
        let value = match &self.kind {
            FormFieldKind::Text { .. } => Value::String(input.to_owned()),
            FormFieldKind::Number { .. } => {
                let number = input.parse::<Number>();
                let number = number.map_err(|_| format!("must be {}", self.kind.description()))?;
                Value::Number(float_as_integer(&number).unwrap_or(number))
            }
            FormFieldKind::Boolean => match input.to_ascii_lowercase().as_str() {
                "y" | "yes" | "true" => Value::Bool(true),
                "n" | "no" | "false" => Value::Bool(false),
                _ => return Err("must be yes or no".to_owned()),
            },
            FormFieldKind::Choice(choices) => {
                let by_value = choices.iter().find(|choice| choice.value == input);
                let has_title = |choice: &&FormChoice| choice.title.eq_ignore_ascii_case(input);
                let choice = by_value.or_else(|| choices.iter().find(has_title));
                Value::String(choice.map_or_else(|| input.to_owned(), |one| one.value.clone()))
            }
        };
        self.check_value(&value).map(|()| Some(value))
    }
}

impl FormFieldKind {
    fn kind_from_schema(schema: &Map<String, Value>) -> Result<Self, String> {
        let common = ["type", "title", "description", "default"];
        let allow =
            |keys: &[&str]| check_schema_keys(schema, &[&common[..], keys].concat(), "the field");
        let kind = schema.get("type").and_then(Value::as_str);
        if schema.contains_key("enum") || schema.contains_key("oneOf") {
            allow(&["enum", "enumNames", "oneOf"])?;
            return match kind {
                None | Some("string") => parse_choices(schema).map(Self::Choice),
                Some(_) => Err("the values of a choice must be texts".to_owned()),
            };
        }
        match kind {
            Some("string") => {
                allow(&["minLength", "maxLength", "format"])?;
                let format = optional(schema, "format", "email, uri, date or date-time")?;
                let (min_length, max_length) = parse_text_length_limits(schema)?;
                Ok(Self::Text { min_length, max_length, format })
            }
            Some(kind @ ("number" | "integer")) => {
                allow(&["minimum", "maximum"])?;
                let integer = kind == "integer";
                let (minimum, maximum) = parse_number_limits(schema, integer)?;
                Ok(Self::Number { integer, minimum, maximum })
            }
            Some("boolean") => allow(&[]).map(|()| Self::Boolean),
            Some(_) | None => {
                Err("the field's `type` must be string, number, integer or boolean; \
                                   nested values are not supported"
                    .to_owned())
            }
        }
    }

    /// Describes the valid values for people, such as `a whole number`.
    pub fn description(&self) -> String {
        match self {
            Self::Text { format: Some(format), .. } => format.description().to_owned(),
            Self::Text { .. } => "a text".to_owned(),
            Self::Number { integer: true, .. } => "a whole number".to_owned(),
            Self::Number { integer: false, .. } => "a number".to_owned(),
            Self::Boolean => "true or false".to_owned(),
            Self::Choice(choices) => {
                let values: Vec<&str> = choices.iter().map(|choice| &*choice.value).collect();
                format!("one of {}", values.join(", "))
            }
        }
    }
}

impl TextFormat {
    const fn description(self) -> &'static str {
        match self {
            Self::Email => "an email address",
            Self::Uri => "a URI such as https://example.com",
            Self::Date => "a date such as 2026-01-31",
            Self::DateTime => "a time such as 2026-01-31T09:00:00Z",
        }
    }

    fn check_text_format(self, text: &str) -> Result<(), String> {
        let is_valid = match self {
            Self::Email => {
                let parts = text.split_once('@');
                let is_part = |part: &str| !part.is_empty() && !part.contains(['@', ' ', '\n']);
                parts.is_some_and(|(name, host)| is_part(name) && is_part(host))
            }
            Self::Uri => text.split_once(':').is_some_and(|(scheme, rest)| {
                let is_scheme_char = |c: char| c.is_ascii_alphanumeric() || "+-.".contains(c);
                scheme.starts_with(|c: char| c.is_ascii_alphabetic())
                    && scheme.chars().all(is_scheme_char)
                    && !rest.is_empty()
                    && !rest.contains(char::is_whitespace)
            }),
            Self::Date => text.parse::<jiff::civil::Date>().is_ok() && text.len() == 10,
            Self::DateTime => text.parse::<Timestamp>().is_ok(),
        };
        match is_valid {
            true => Ok(()),
            false => Err(format!("must be {}", self.description())),
        }
    }
}

/// Returns an error if a schema has a key that is not in `valid`. `schema_name` describes the
/// schema in the error.
pub(super) fn check_schema_keys(
    object: &Map<String, Value>,
    valid: &[&str],
    schema_name: &str,
) -> Result<(), String> {
    match object.keys().find(|key| !valid.contains(&key.as_str())) {
        Some(key) => Err(format!("`{key}` is not supported in {schema_name}")),
        None => Ok(()),
    }
}

/// Returns the value under this key of a field's schema, or `None` if the key is missing. `expected`
/// describes the valid values in the error.
fn optional<T: DeserializeOwned>(
    schema: &Map<String, Value>,
    key: &str,
    expected: &str,
) -> Result<Option<T>, String> {
    let value = schema.get(key).map(T::deserialize).transpose();
    value.map_err(|_| format!("the field's `{key}` must be {expected}"))
}

/// Returns the minimum and maximum text length that a schema sets. `None` means no limit.
fn parse_text_length_limits(
    schema: &Map<String, Value>,
) -> Result<(Option<u64>, Option<u64>), String> {
    let length = |key: &str| optional(schema, key, "a whole number from 0 on");
    let (min, max): (Option<u64>, Option<u64>) = (length("minLength")?, length("maxLength")?);
    if min.unwrap_or(0) > max.unwrap_or(TEXT_BYTES_MAX as u64).min(TEXT_BYTES_MAX as u64) {
        return Err(format!(
            "no text is long enough: its `minLength` is above its `maxLength` or {TEXT_BYTES_MAX}"
        ));
    }
    Ok((min, max))
}

/// Returns the lowest and highest number that a schema allows. `None` means no limit.
fn parse_number_limits(
    schema: &Map<String, Value>,
    integer: bool,
) -> Result<(Option<f64>, Option<f64>), String> {
    let limit = |key: &str| optional(schema, key, "a number");
    let (minimum, maximum): (Option<f64>, Option<f64>) = (limit("minimum")?, limit("maximum")?);
    let lowest = minimum.map(|low| if integer { low.ceil() } else { low });
    let highest = maximum.map(|high| if integer { -(-high).ceil() } else { high });
    match lowest.zip(highest) {
        Some((lowest, highest)) if lowest > highest => {
            Err("no number is between its `minimum` and its `maximum`".to_owned())
        }
        _ => Ok((minimum, maximum)),
    }
}

/// Returns a whole number that was written with a fraction or an exponent, such as `1e3`, as an
/// integer. `None` for all other numbers.
fn float_as_integer(number: &Number) -> Option<Number> {
    let value = number.as_f64().filter(|_| number.is_f64())?;
    let is_exact = value.fract() == 0.0 && value.abs() <= EXACT_INTEGER_MAX;
    is_exact.then(|| Number::from(value as i64))
}

/// Checks the number, length and uniqueness of the texts that a person chooses from. `noun` is the
/// noun for one of them in errors, such as `option`.
pub(super) fn check_choice_texts<'a>(
    texts: impl ExactSizeIterator<Item = &'a str>,
    noun: &str,
) -> Result<(), String> {
    if texts.len() > CHOICES_MAX {
        return Err(format!("there can be at most {CHOICES_MAX} {noun}s"));
    }
    let mut seen = BTreeSet::new();
    for text in texts {
        if text.trim().is_empty() {
            return Err(format!("each {noun} must not be blank"));
        }
        if text.len() > CHOICE_BYTES_MAX {
            return Err(format!("each {noun} must have at most {CHOICE_BYTES_MAX} bytes"));
        }
        if !seen.insert(text.trim().to_lowercase()) {
            return Err(format!("the {noun} `{text}` occurs twice"));
        }
    }
    Ok(())
}

/// A choice in the `oneOf` of a schema.
#[derive(Deserialize)]
struct TitledChoice {
    r#const: String,
    title: Option<String>,
}

/// Returns the choices in the `enum` or `oneOf` of a schema, after checking their number, lengths
/// and uniqueness.
fn parse_choices(schema: &Map<String, Value>) -> Result<Vec<FormChoice>, String> {
    let values: Option<Vec<String>> = optional(schema, "enum", "a list of texts")?;
    let titles: Option<Vec<String>> = optional(schema, "enumNames", "a list of texts")?;
    let titled: Option<Vec<TitledChoice>> =
        optional(schema, "oneOf", "a list of objects with the texts `const` and `title`")?;
    let count = values.as_ref().map(Vec::len);
    if titles.as_ref().is_some_and(|titles| Some(titles.len()) != count) {
        return Err("the field's `enumNames` must have one text for each text of `enum`".to_owned());
    }
    let choices: Vec<FormChoice> = match (values, titled) {
        (Some(values), None) => {
            let titles = titles.unwrap_or_else(|| values.clone());
            let choices = values.into_iter().zip(titles);
            choices.map(|(value, title)| FormChoice { value, title }).collect()
        }
        (None, Some(titled)) => titled
            .into_iter()
            .map(|TitledChoice { r#const: value, title }| FormChoice {
                title: title.unwrap_or_else(|| value.clone()),
                value,
            })
            .collect(),
        (Some(_), Some(_)) | (None, None) => Vec::new(),
    };
    if choices.is_empty() {
        return Err("a choice needs `enum` with a list of texts, or `oneOf`".to_owned());
    }
    check_choice_texts(choices.iter().map(|choice| choice.value.as_str()), "option")?;
    check_choice_texts(choices.iter().map(|choice| choice.title.as_str()), "title")?;
    Ok(choices)
}

fn check_text_length(text: &str, min: Option<u64>, max: Option<u64>) -> Result<(), String> {
    let length = text.chars().count() as u64;
    match (min, max) {
        (Some(min), _) if length < min => Err(format!("must have at least {min} characters")),
        (_, Some(max)) if length > max => Err(format!("must have at most {max} characters")),
        _ if text.len() > TEXT_BYTES_MAX => {
            Err(format!("must have at most {TEXT_BYTES_MAX} bytes"))
        }
        _ => Ok(()),
    }
}

fn check_number_limits(
    number: &Number,
    integer: bool,
    (minimum, maximum): (Option<f64>, Option<f64>),
) -> Result<(), String> {
    let value = number.as_f64().unwrap_or(f64::NAN);
    if !value.is_finite() || integer && value.fract() != 0.0 {
        return Err(format!("must be a {} number", if integer { "whole" } else { "finite" }));
    }
    match (minimum, maximum) {
        (Some(minimum), _) if value < minimum => Err(format!("must be at least {minimum}")),
        (_, Some(maximum)) if value > maximum => Err(format!("must be at most {maximum}")),
        _ => Ok(()),
    }
}
