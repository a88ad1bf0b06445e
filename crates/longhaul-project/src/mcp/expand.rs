//! Expands `${VAR}` and `${VAR:-default}` in `.mcp.json`, as other MCP clients do.
//!
//! Invariant: values of variables are not stored, an error contains only the name of the variable,
//! and the expanded text has a size limit.

use crate::config::env::Env;

/// Maximum size of an expanded text in bytes: the longest argument that the operating system passes
/// to a program.
pub(crate) const EXPANDED_BYTES_MAX: usize = 128 << 10;

/// Reason why the variables in a text can't be expanded.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ExpandVariablesError {
    /// The variable with this name is not set and has no default.
    #[error("the variable {0} is not set, and no default is written as `${{{0}:-...}}`")]
    Missing(String),
    /// The text is longer than `EXPANDED_BYTES_MAX` after the variable with this name was expanded.
    #[error("the value exceeds {EXPANDED_BYTES_MAX} bytes after the variable {0} is expanded")]
    TooLong(String),
}

/// Name of a variable, and its default. It expands to its value, or else to the default.
type Variable<'a> = (&'a str, Option<&'a str>);

/// Replaces the variables in a text with their values.
///
/// # Errors
/// A variable is not set, or the result is too long.
pub fn expand_variables(text: &str, env: &Env) -> Result<String, ExpandVariablesError> {
    expand_with_fallback(text, env, |name, default| match default {
        Some(default) => Ok(default.to_owned()),
        None => Err(ExpandVariablesError::Missing(name.to_owned())),
    })
}

/// Replaces the variables that `env` sets with their values. Other variables stay as written.
pub(crate) fn expand_set_variables(text: &str, env: &Env) -> Result<String, ExpandVariablesError> {
    expand_with_fallback(text, env, |name, default| {
        Ok(match default {
            Some(default) => format!("${{{name}:-{default}}}"),
            None => format!("${{{name}}}"),
        })
    })
}

fn expand_with_fallback(
    text: &str,
    env: &Env,
    fallback: impl Fn(&str, Option<&str>) -> Result<String, ExpandVariablesError>,
) -> Result<String, ExpandVariablesError> {
    let mut expanded = String::new();
    for (literal, variable) in split_text_segments(text) {
        expanded.push_str(literal);
        let Some((name, default)) = variable else { continue };
        match env.var(name) {
            Some(value) if expanded.len() + value.len() > EXPANDED_BYTES_MAX => {
                return Err(ExpandVariablesError::TooLong(name.to_owned()));
            }
            Some(value) => expanded.push_str(value),
            None => expanded.push_str(&fallback(name, default)?),
        }
    }
    Ok(expanded)
}

/// Returns the names of the variables that a text contains.
pub fn referenced_variable_names(text: &str) -> impl Iterator<Item = &str> {
    split_text_segments(text).into_iter().filter_map(|(_, variable)| Some(variable?.0))
}

/// Splits a text into literal texts, each with the variable that follows it.
fn split_text_segments(text: &str) -> Vec<(&str, Option<Variable<'_>>)> {
    let mut pieces = Vec::new();
    let (mut rest, mut from) = (text, 0);
    while let Some(offset) = rest[from..].find("${") {
        let start = from + offset;
        let Some((variable, end)) = parse_variable_reference(&rest[start..]) else {
            // A `${` without a valid variable is literal text.
            from = start + 2;
            continue;
        };
        pieces.push((&rest[..start], Some(variable)));
        rest = &rest[start + end..];
        from = 0;
    }
    pieces.push((rest, None));
    pieces
}

/// Parses the `${...}` at the start of a text. Returns the variable, and the length of the `${...}`
/// in bytes.
fn parse_variable_reference(text: &str) -> Option<(Variable<'_>, usize)> {
    let end = text.find('}')?;
    let reference = text.get(2..end)?;
    let (name, default) = match reference.split_once(":-") {
        Some((name, default)) => (name, Some(default)),
        None => (reference, None),
    };
    let has_valid_start = name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_');
    let is_name_char = |c: char| c.is_ascii_alphanumeric() || c == '_';
    (has_valid_start && name.chars().all(is_name_char)).then_some(((name, default), end + 1))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::process_env::ProcessEnv;

    #[test]
    fn variables_are_expanded_and_missing_ones_are_named() {
        let process_env = ProcessEnv {
            env: [("TOKEN", "t0k"), ("EMPTY", ""), ("DOLLAR", "${TOKEN}")]
                .map(|(name, value)| (name.to_owned(), value.to_owned()))
                .into(),
            ..ProcessEnv::default()
        };
        let env = Env::new(&process_env);
        for (text, expect) in [
            ("plain", Ok("plain")),
            ("", Ok("")),
            ("${TOKEN}", Ok("t0k")),
            ("a${TOKEN}b${TOKEN}", Ok("at0kbt0k")),
            ("${MISSING}", Err("MISSING")),
            ("${EMPTY}", Err("EMPTY")),
            ("${MISSING:-else}", Ok("else")),
            ("${EMPTY:-}", Ok("")),
            ("${TOKEN:-else}", Ok("t0k")),
            // An expanded value is not expanded again.
            ("${DOLLAR}", Ok("${TOKEN}")),
            // Not valid variables.
            ("$TOKEN ${1} ${A B} ${", Ok("$TOKEN ${1} ${A B} ${")),
            ("${1}${TOKEN}", Ok("${1}t0k")),
            ("näh ${TOKEN} ö", Ok("näh t0k ö")),
        ] {
            let result = expand_variables(text, &env);
            let expect = expect.map(str::to_owned);
            let expect = expect.map_err(|name| ExpandVariablesError::Missing(name.to_owned()));
            assert_eq!(result, expect, "{text}");
        }
        let expanded = expand_set_variables("a${TOKEN:-x} ${MISSING} ${EMPTY:-y}${1}", &env);
        assert_eq!(expanded.unwrap(), "at0k ${MISSING} ${EMPTY:-y}${1}");
        let names: Vec<&str> = referenced_variable_names("${A}-${B:-x}${1}").collect();
        assert_eq!(names, ["A", "B"]);
        let message = ExpandVariablesError::Missing("A".to_owned()).to_string();
        assert_eq!(message, "the variable A is not set, and no default is written as `${A:-...}`");
    }

    #[test]
    fn the_expanded_length_is_limited() {
        let long = "a".repeat(EXPANDED_BYTES_MAX / 2);
        let env = Env::from_vars([("A".to_owned(), long)].into());
        assert!(expand_variables("${A}${A}", &env).is_ok());
        for text in ["${A}${A}b${A}", "b${A}${A}"] {
            let long = Err(ExpandVariablesError::TooLong("A".to_owned()));
            assert_eq!(expand_variables(text, &env), long);
            assert_eq!(expand_set_variables(text, &env), long);
        }
    }
}
