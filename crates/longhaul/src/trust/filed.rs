//! What the project's `.env` fills in for `.mcp.json`: a part of what is decided.
//!
//! Never: hides what is run, or where something is sent. What may be a secret
//! elsewhere is not shown, which is said, and counts by its value all the same.

use std::collections::BTreeSet;

use crate::config::dotenv::FILE_NAME;
use crate::config::env::Env;
use crate::mcp::expand::{expand_known, variables};
use crate::mcp::server::{Way, argv, origin, without_query};
use crate::trust::named::add;

/// No file is called so, so that what follows is never taken for one.
const MARK: &[u8] = b"\0.env";

/// So many letters and digits in a row look like a key.
const KEY_LETTERS: usize = 20;

/// What a variable is called that holds a secret.
const SECRET_WORDS: [&str; 7] = ["KEY", "TOKEN", "SECRET", "PASS", "PWD", "AUTH", "CRED"];

/// So many variables of a server are shown, each in a line of its own.
const LINES_MAX: usize = 64;

/// Programs that run what they are handed: a text, a file, or what they load by name.
const RUNNERS: &[&str] = &[
    "sh",
    "ash",
    "bash",
    "dash",
    "zsh",
    "ksh",
    "mksh",
    "fish",
    "csh",
    "tcsh",
    "busybox",
    "pwsh",
    "powershell",
    "python",
    "pypy",
    "node",
    "nodejs",
    "deno",
    "bun",
    "tsx",
    "perl",
    "ruby",
    "php",
    "lua",
    "luajit",
    "tclsh",
    "julia",
    "osascript",
];

/// Programs that load what they run by its name; their own options have no values.
const FETCHERS: &[&str] = &["npx", "pnpx", "bunx", "uvx", "pipx"];

/// Their options behind which a text is run, by the letters of short ones and by how
/// long ones begin.
const CODE_LETTERS: &str = "ceprCE";
const CODE_WORDS: [&str; 5] = ["command", "eval", "exec", "init-command", "print"];

/// Where a variable stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Part {
    /// In what is run, or in where that is started.
    Program,
    /// In another argument of it.
    Argument,
    /// In the address.
    Address,
    /// In what is only handed over.
    Handed,
}

/// The variables of a server that say what is done.
struct Parts<'a> {
    program: BTreeSet<&'a str>,
    arguments: BTreeSet<&'a str>,
    address: BTreeSet<&'a str>,
}

impl<'a> Parts<'a> {
    fn of(way: &'a Way, filed: &Env) -> Self {
        let none = BTreeSet::new;
        match way {
            Way::Stdio {
                command, args, cwd, ..
            } => {
                let words: Vec<&String> = [command].into_iter().chain(args).collect();
                let is_run = run(&words, filed);
                let run = words.iter().zip(&is_run).filter(|(_, is_run)| **is_run);
                let run = run.map(|(word, _)| *word).chain(cwd);
                Self {
                    program: run.flat_map(|word| variables(word)).collect(),
                    arguments: args.iter().flat_map(|word| variables(word)).collect(),
                    address: none(),
                }
            }
            Way::Http { url, .. } => Self {
                program: none(),
                arguments: none(),
                address: variables(url).collect(),
            },
        }
    }

    fn find(&self, name: &str) -> Part {
        if self.program.contains(name) {
            Part::Program
        } else if self.arguments.contains(name) {
            Part::Argument
        } else if self.address.contains(name) {
            Part::Address
        } else {
            Part::Handed
        }
    }
}

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

/// How a person is told what is filled in for a server, what is run first.
pub(crate) fn said(way: &Way, filed: &Env) -> Vec<String> {
    let parts = Parts::of(way, filed);
    let set = way.variables().into_iter();
    let set = set.filter_map(|name| Some((parts.find(name), name, filed.var(name)?)));
    let mut set: Vec<(Part, &str, &str)> = set.collect();
    set.sort_unstable();
    let (handed, open): (Vec<_>, Vec<_>) = set
        .into_iter()
        .partition(|(part, ..)| *part == Part::Handed);
    let by = format!("set by {FILE_NAME} of this project");
    let mut lines: Vec<String> = open
        .iter()
        .take(LINES_MAX)
        .map(|one| format!("{by}: {}", shown(*one)))
        .collect();
    if open.len() > LINES_MAX {
        let more = open.len() - LINES_MAX;
        lines.push(format!("{by}, and not shown: {more} more like these"));
    }
    lines.extend(address(way, filed, &open));
    let handed = handed.iter();
    let handed = handed.map(|(_, name, _)| format!("{name} (its value is not shown)"));
    let handed: Vec<String> = handed.collect();
    if !handed.is_empty() {
        lines.push(format!("{by}: {}", handed.join(", ")));
    }
    lines
}

fn shown((part, name, value): (Part, &str, &str)) -> String {
    let hidden = |of: &str| {
        format!("{name}, a part of {of} (its value is not shown: read it in {FILE_NAME} first)")
    };
    match part {
        Part::Argument if is_secret(name, value) => hidden("the command"),
        Part::Address if is_secret(name, value) => hidden("the address"),
        Part::Program | Part::Argument => format!("{name}={}", argv([&value.to_owned()])),
        Part::Address => format!("{name}={}", argv([&without_query(value)])),
        Part::Handed => name.to_owned(),
    }
}

/// Where an address leads that is filled in; none: nothing of it is.
fn address(way: &Way, filed: &Env, open: &[(Part, &str, &str)]) -> Option<String> {
    let Way::Http { url, .. } = way else {
        return None;
    };
    if open.is_empty() {
        return None;
    }
    let filled = expand_known(url, filed).ok()?;
    let mut open = open.iter();
    // Who is asked is no secret, whatever a variable is called.
    let whole = match open.any(|(_, name, value)| is_secret(name, value)) {
        true => origin(&filled),
        false => without_query(&filled),
    };
    Some(format!("its address is then: {}", argv([&whole])))
}

/// Which of these words say what is run: the program, and where that one runs what it
/// is handed, all up to the first word that is no option, and all from an option on
/// behind which a text is run.
fn run(words: &[&String], filed: &Env) -> Vec<bool> {
    let filled = words.iter();
    let filled = filled.map(|word| expand_known(word, filed).unwrap_or_default());
    let filled: Vec<String> = filled.collect();
    let mut is_run = vec![false; words.len()];
    if let Some(program) = is_run.first_mut() {
        *program = true;
    }
    let has = |word: &String, is: fn(&str) -> bool| word.split_whitespace().any(is);
    let Some(runner) = filled.iter().position(|word| has(word, is_runner)) else {
        return is_run;
    };
    let behind = filled.iter().skip(runner + 1);
    let options = behind.take_while(|word| word.starts_with('-')).count();
    // The word behind an option may be its value, and the next one what is run.
    let fetches = filled.get(runner).is_some_and(|word| has(word, is_fetcher));
    let next = filled.get(runner + 2 + options);
    let next = next.filter(|word| options > 0 && !fetches && !word.starts_with('-'));
    let values = usize::from(next.is_some());
    let code = filled.iter().skip(runner);
    let code = code.take_while(|word| !has(word, is_code)).count();
    for (at, is_run) in is_run.iter_mut().enumerate() {
        *is_run |= at <= runner + 1 + options + values || at >= runner + code;
    }
    is_run
}

fn is_runner(word: &str) -> bool {
    is_one_of(RUNNERS, word) || is_fetcher(word)
}

fn is_fetcher(word: &str) -> bool {
    is_one_of(FETCHERS, word)
}

fn is_one_of(known: &[&str], word: &str) -> bool {
    let name = word.rsplit('/').next().unwrap_or(word).to_lowercase();
    let version = |letter: char| letter.is_ascii_digit() || ".-".contains(letter);
    known.contains(&name.trim_end_matches(version))
}

fn is_code(word: &str) -> bool {
    match word.strip_prefix("--") {
        Some(long) => CODE_WORDS.iter().any(|known| long.starts_with(known)),
        None => word.strip_prefix('-').is_some_and(|short| {
            let letters = short.chars();
            let mut letters = letters.take_while(char::is_ascii_alphabetic);
            letters.any(|letter| CODE_LETTERS.contains(letter))
        }),
    }
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
    fn what_is_run_is_known_among_the_words() {
        for (words, expect) in [
            ("x --key ${A}", "x"),
            ("sh -c ${A} y", "sh -c ${A} y"),
            ("/bin/bash -lc ${A}", "/bin/bash -lc ${A}"),
            ("${SHELL_OF} ${FLAG} ${A}", "${SHELL_OF} ${FLAG} ${A}"),
            ("env X=1 dash -c ${A}", "env X=1 dash -c ${A}"),
            ("python3.12 -u ${A} --key ${B}", "python3.12 -u ${A}"),
            ("npx -y ${A} --key ${B}", "npx -y ${A}"),
            (
                "node --require ./a.js ${A} ${B}",
                "node --require ./a.js ${A}",
            ),
            ("python -W ignore ${A} ${B}", "python -W ignore ${A}"),
            ("node --eval=${A}", "node --eval=${A}"),
            ("perl -e${A} ${B}", "perl -e${A} ${B}"),
            (
                "node --require ./x.js -e ${A}",
                "node --require ./x.js -e ${A}",
            ),
            ("docker run -e KEY=${A} img", "docker"),
        ] {
            let words: Vec<String> = words.split(' ').map(str::to_owned).collect();
            let words: Vec<&String> = words.iter().collect();
            let filed = [("SHELL_OF", "/usr/bin/zsh"), ("FLAG", "-c")];
            let filed = filed.map(|(name, value)| (name.to_owned(), value.to_owned()));
            let is_run = run(&words, &Env::only(filed.into()));
            let found = words.iter().zip(is_run).filter(|(_, is_run)| *is_run);
            let found: Vec<&str> = found.map(|(word, _)| word.as_str()).collect();
            assert_eq!(found.join(" "), expect);
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
