//! `${VAR}` and `${VAR:-default}` in `.mcp.json`, as other programs fill them in.
//!
//! Never: keeps a value, or names more of what is missing than its variable.

use crate::config::env::Env;

/// A variable that is not set, and for which nothing else is said.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the variable {0} is not set, and no default is written as `${{{0}:-...}}`")]
pub struct Missing(pub String);

/// A piece of a text.
#[derive(Debug, PartialEq, Eq)]
enum Piece<'a> {
    /// As it stands.
    Plain(&'a str),
    /// The value of this variable, or what is said for it.
    Variable(&'a str, Option<&'a str>),
}

/// The text with its variables filled in.
pub fn expand(text: &str, env: &Env) -> Result<String, Missing> {
    let mut whole = String::new();
    for piece in pieces(text) {
        whole.push_str(match piece {
            Piece::Plain(plain) => plain,
            Piece::Variable(name, default) => match (env.var(name), default) {
                (Some(value), _) => value,
                (None, Some(default)) => default,
                (None, None) => return Err(Missing(name.to_owned())),
            },
        });
    }
    Ok(whole)
}

/// The text with those variables filled in that are set there; others stand as
/// they are written.
pub(crate) fn expand_known(text: &str, env: &Env) -> String {
    let mut whole = String::new();
    for piece in pieces(text) {
        match piece {
            Piece::Plain(plain) => whole.push_str(plain),
            Piece::Variable(name, default) => match (env.var(name), default) {
                (Some(value), _) => whole.push_str(value),
                (None, Some(default)) => whole.push_str(&format!("${{{name}:-{default}}}")),
                (None, None) => whole.push_str(&format!("${{{name}}}")),
            },
        }
    }
    whole
}

/// The names of the variables in a text.
pub fn variables(text: &str) -> impl Iterator<Item = &str> {
    pieces(text).into_iter().filter_map(|piece| match piece {
        Piece::Variable(name, _) => Some(name),
        Piece::Plain(_) => None,
    })
}

fn pieces(text: &str) -> Vec<Piece<'_>> {
    let mut pieces = Vec::new();
    let (mut rest, mut from) = (text, 0);
    while let Some(found) = rest[from..].find("${") {
        let start = from + found;
        let Some((piece, end)) = variable(&rest[start..]) else {
            // What only looks like a variable stands as it is.
            from = start + 2;
            continue;
        };
        pieces.push(Piece::Plain(&rest[..start]));
        pieces.push(piece);
        rest = &rest[start + end..];
        from = 0;
    }
    pieces.push(Piece::Plain(rest));
    pieces
}

/// The variable that this text begins with, and how long it is written.
fn variable(text: &str) -> Option<(Piece<'_>, usize)> {
    let end = text.find('}')?;
    let inside = text.get(2..end)?;
    let (name, default) = match inside.split_once(":-") {
        Some((name, default)) => (name, Some(default)),
        None => (inside, None),
    };
    let starts = name.starts_with(|letter: char| letter.is_ascii_alphabetic() || letter == '_');
    let fits = |letter: char| letter.is_ascii_alphanumeric() || letter == '_';
    (starts && name.chars().all(fits)).then_some((Piece::Variable(name, default), end + 1))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::surroundings::Surroundings;

    #[test]
    fn variables_are_filled_in_and_what_is_missing_is_named() {
        let here = Surroundings {
            env: [("TOKEN", "t0k"), ("EMPTY", ""), ("DOLLAR", "${TOKEN}")]
                .map(|(name, value)| (name.to_owned(), value.to_owned()))
                .into(),
            ..Surroundings::default()
        };
        let env = Env::of(&here);
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
            let got = got.as_deref().map_err(|missing| missing.0.as_str());
            assert_eq!(got, expect, "{text}");
        }
        let known = expand_known("a${TOKEN:-x} ${MISSING} ${EMPTY:-y}${1}", &env);
        assert_eq!(known, "at0k ${MISSING} ${EMPTY:-y}${1}");
        let names: Vec<&str> = variables("${A}-${B:-x}${1}").collect();
        assert_eq!(names, ["A", "B"]);
        let said = Missing("A".to_owned()).to_string();
        assert_eq!(
            said,
            "the variable A is not set, and no default is written as `${A:-...}`"
        );
    }
}
