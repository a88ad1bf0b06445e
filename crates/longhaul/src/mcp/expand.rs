//! `${VAR}` and `${VAR:-default}` in `.mcp.json`, as other programs fill them in.
//!
//! Never: keeps a value, names more of what is missing than its variable, or makes a
//! text of any length out of a few variables.

use crate::config::env::Env;

/// The longest text that is filled in: no program can be handed a longer argument.
pub(crate) const EXPANDED_BYTES_MAX: usize = 128 << 10;

/// Why a text can't be filled in.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ExpandError {
    /// A variable that is not set, and for which nothing else is said.
    #[error("the variable {0} is not set, and no default is written as `${{{0}:-...}}`")]
    Missing(String),
    /// Its variables say too much.
    #[error(
        "with the variable {0} filled in a text of it is longer than {EXPANDED_BYTES_MAX} bytes"
    )]
    TooLong(String),
}

/// A piece of a text.
#[derive(Debug, PartialEq, Eq)]
enum Segment<'a> {
    /// As it stands.
    Literal(&'a str),
    /// The value of this variable, or what is said for it.
    Variable(&'a str, Option<&'a str>),
}

/// The text with its variables filled in.
///
/// # Errors
/// A variable is not set, or makes the text too long.
pub fn expand(text: &str, env: &Env) -> Result<String, ExpandError> {
    expand_or(text, env, |name, default| match default {
        Some(default) => Ok(default.to_owned()),
        None => Err(ExpandError::Missing(name.to_owned())),
    })
}

/// The text with those variables filled in that are set there; others stand as
/// they are written.
pub(crate) fn expand_known(text: &str, env: &Env) -> Result<String, ExpandError> {
    expand_or(text, env, |name, default| {
        Ok(match default {
            Some(default) => format!("${{{name}:-{default}}}"),
            None => format!("${{{name}}}"),
        })
    })
}

fn expand_or(
    text: &str,
    env: &Env,
    unset: impl Fn(&str, Option<&str>) -> Result<String, ExpandError>,
) -> Result<String, ExpandError> {
    let mut whole = String::new();
    for piece in split_segments(text) {
        match piece {
            Segment::Literal(plain) => whole.push_str(plain),
            Segment::Variable(name, default) => match env.var(name) {
                Some(value) if whole.len() + value.len() > EXPANDED_BYTES_MAX => {
                    return Err(ExpandError::TooLong(name.to_owned()));
                }
                Some(value) => whole.push_str(value),
                None => whole.push_str(&unset(name, default)?),
            },
        }
    }
    Ok(whole)
}

/// The names of the variables in a text.
pub fn variables(text: &str) -> impl Iterator<Item = &str> {
    split_segments(text).into_iter().filter_map(|piece| match piece {
        Segment::Variable(name, _) => Some(name),
        Segment::Literal(_) => None,
    })
}

fn split_segments(text: &str) -> Vec<Segment<'_>> {
    let mut pieces = Vec::new();
    let (mut rest, mut from) = (text, 0);
    while let Some(found) = rest[from..].find("${") {
        let start = from + found;
        let Some((piece, end)) = parse_variable(&rest[start..]) else {
            // What only looks like a variable stands as it is.
            from = start + 2;
            continue;
        };
        pieces.push(Segment::Literal(&rest[..start]));
        pieces.push(piece);
        rest = &rest[start + end..];
        from = 0;
    }
    pieces.push(Segment::Literal(rest));
    pieces
}

/// The variable that this text begins with, and how long it is written.
fn parse_variable(text: &str) -> Option<(Segment<'_>, usize)> {
    let end = text.find('}')?;
    let inside = text.get(2..end)?;
    let (name, default) = match inside.split_once(":-") {
        Some((name, default)) => (name, Some(default)),
        None => (inside, None),
    };
    let starts = name.starts_with(|letter: char| letter.is_ascii_alphabetic() || letter == '_');
    let fits = |letter: char| letter.is_ascii_alphanumeric() || letter == '_';
    (starts && name.chars().all(fits)).then_some((Segment::Variable(name, default), end + 1))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::process_env::ProcessEnv;

    #[test]
    fn variables_are_expanded_and_missing_ones_are_named() {
        let here = ProcessEnv {
            env: [("TOKEN", "t0k"), ("EMPTY", ""), ("DOLLAR", "${TOKEN}")]
                .map(|(name, value)| (name.to_owned(), value.to_owned()))
                .into(),
            ..ProcessEnv::default()
        };
        let env = Env::new(&here);
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
            // A value is never read again.
            ("${DOLLAR}", Ok("${TOKEN}")),
            // No variable of ours.
            ("$TOKEN ${1} ${A B} ${", Ok("$TOKEN ${1} ${A B} ${")),
            ("${1}${TOKEN}", Ok("${1}t0k")),
            ("näh ${TOKEN} ö", Ok("näh t0k ö")),
        ] {
            let got = expand(text, &env);
            let expect = expect.map(str::to_owned);
            let expect = expect.map_err(|name| ExpandError::Missing(name.to_owned()));
            assert_eq!(got, expect, "{text}");
        }
        let known = expand_known("a${TOKEN:-x} ${MISSING} ${EMPTY:-y}${1}", &env);
        assert_eq!(known.unwrap(), "at0k ${MISSING} ${EMPTY:-y}${1}");
        let names: Vec<&str> = variables("${A}-${B:-x}${1}").collect();
        assert_eq!(names, ["A", "B"]);
        let said = ExpandError::Missing("A".to_owned()).to_string();
        assert_eq!(said, "the variable A is not set, and no default is written as `${A:-...}`");
    }

    #[test]
    fn the_expanded_length_is_limited() {
        let long = "a".repeat(EXPANDED_BYTES_MAX / 2);
        let env = Env::from_vars([("A".to_owned(), long)].into());
        assert!(expand("${A}${A}", &env).is_ok());
        for text in ["${A}${A}b${A}", "b${A}${A}"] {
            let long = Err(ExpandError::TooLong("A".to_owned()));
            assert_eq!(expand(text, &env), long);
            assert_eq!(expand_known(text, &env), long);
        }
    }
}
