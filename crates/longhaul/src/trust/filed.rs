//! What the project's `.env` fills in for `.mcp.json`: a part of what is decided.
//!
//! Never: shows what may be a secret. It counts by its value all the same.

use crate::config::dotenv;
use crate::config::env::Env;
use crate::mcp::server::{Way, argv, without_query};
use crate::trust::named::add;

/// No file is called so, so that what follows is never taken for one.
const MARK: &[u8] = b"\0.env";

/// So many letters and digits in a row look like a key.
const KEY_LETTERS: usize = 20;

/// What a variable is called that holds a secret.
const SECRET_WORDS: [&str; 7] = ["KEY", "TOKEN", "SECRET", "PASS", "PWD", "AUTH", "CRED"];

/// Adds what is filled in to what a decision is bound to.
pub(crate) fn bind(filed: &Env, bytes: &mut Vec<u8>) {
    let all: Vec<(&str, &str)> = filed.all().collect();
    if all.is_empty() {
        return;
    }
    add(bytes, MARK);
    bytes.extend_from_slice(&(all.len() as u64).to_le_bytes());
    for (name, value) in all {
        add(bytes, name.as_bytes());
        add(bytes, value.as_bytes());
    }
}

/// How a person is told what is filled in for a server; none: nothing is.
pub(crate) fn said(way: &Way, filed: &Env) -> Option<String> {
    let open = way.deciding();
    let said = way.variables().into_iter().filter_map(|name| {
        let value = filed.var(name)?;
        let is_open = open.contains(&name) && !is_secret(name, value);
        Some(match is_open {
            true => format!("{name}={}", argv([&without_query(value)])),
            false => format!("{name} (its value is not shown)"),
        })
    });
    let said: Vec<String> = said.collect();
    let file = dotenv::FILE_NAME;
    (!said.is_empty()).then(|| format!("set by {file} of this project: {}", said.join(", ")))
}

/// Whether a value looks like something that nobody else should read.
fn is_secret(name: &str, value: &str) -> bool {
    let name = name.to_uppercase();
    let is_key = |part: &str| {
        part.len() >= KEY_LETTERS
            && part.contains(|letter: char| letter.is_ascii_digit())
            && part.contains(|letter: char| letter.is_ascii_alphabetic())
    };
    let parts = |letter: char| !letter.is_ascii_alphanumeric() && !"_-+".contains(letter);
    SECRET_WORDS.iter().any(|word| name.contains(word)) || value.split(parts).any(is_key)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_looks_like_a_secret_is_not_shown() {
        for (name, value, secret) in [
            ("SRV", "evil.py", false),
            ("BASE", "https://evil.example/mcp", false),
            ("FOLDER", "a/very-long-name-of-a-folder/of-tools", false),
            ("GH", "ghp_0123456789abcdefABCDEF", true),
            ("X", "Bearer eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.x", true),
            ("github_token", "a", true),
            ("DB_PASSWORD", "a", true),
        ] {
            assert_eq!(is_secret(name, value), secret, "{name}={value}");
        }
    }

    #[test]
    fn two_ways_to_fill_in_are_never_bound_alike() {
        let bound = |pairs: &[(&str, &str)]| {
            let pairs = pairs.iter();
            let pairs = pairs.map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
            let mut bytes = Vec::new();
            bind(&Env::only(pairs.collect()), &mut bytes);
            bytes
        };
        assert!(bound(&[]).is_empty());
        assert!(bound(&[("A", " ")]).is_empty(), "blanks are nothing");
        let all = [
            bound(&[("A", "b")]),
            bound(&[("A", "c")]),
            bound(&[("Ab", "")]),
            bound(&[("A", "b"), ("C", "d")]),
            bound(&[("A", "bC"), ("D", "d")]),
        ];
        for (at, one) in all.iter().enumerate() {
            assert!(!all[..at].contains(one), "{at}");
        }
    }
}
