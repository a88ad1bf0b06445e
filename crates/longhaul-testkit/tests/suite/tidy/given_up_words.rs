//! Words that were given up for plain technical ones, in names and in prose.

use std::collections::BTreeMap;

use super::finding::Finding;
use super::sources::SourceFile;
use super::tokens;

/// One row for each group of words. Its first lines explain the columns.
const TABLE: &str = include_str!("given_up_words.txt");

/// A name of more words is a sentence, such as the name of a test.
const NAME_WORDS_MAX: usize = 3;

#[derive(Debug, Clone)]
struct Rule {
    /// Forbidden in prose too; otherwise in names only.
    in_prose: bool,
    replacement: &'static str,
    allowed: Vec<&'static str>,
}

/// Rules by word or by phrase of two words.
type Rules = BTreeMap<String, Rule>;

/// Checks every name and every line against the table.
pub(crate) fn check(files: &[SourceFile]) -> Vec<Finding> {
    let rules = parse_table();
    let mut findings = Vec::new();
    for file in files.iter().filter(|file| !file.path.ends_with(".lock")) {
        let mut report = |line: usize, hits: Vec<(String, &Rule)>| {
            for (word, rule) in hits {
                let fix = format!("write: {}", rule.replacement);
                let problem = format!("`{word}` was given up");
                findings.push(Finding::at(&file.path, line, problem, &fix));
            }
        };
        let name = file.path.rsplit('/').next().unwrap_or_default();
        let stem = name.split('.').next().unwrap_or_default();
        report(0, in_line(&file.path, &rules));
        report(0, in_name(stem, &file.path, &rules));
        for (line, number) in file.text.lines().zip(1..) {
            report(number, in_line(line, &rules));
        }
        if file.is_rust() {
            for token in tokens::all_tokens(&file.text) {
                report(token.line, in_name(&token.text, &file.path, &rules));
            }
        }
        if is_script(file) {
            for (line, number) in file.text.lines().zip(1..) {
                let name = name_defined_in_script_line(line).unwrap_or_default();
                report(number, in_name(name, &file.path, &rules));
            }
        }
    }
    findings
}

fn is_script(file: &SourceFile) -> bool {
    let is_named_script = [".py", ".mjs", ".sh"].iter().any(|end| file.path.ends_with(end));
    is_named_script || file.text.starts_with("#!/")
}

/// Returns the name that a line of Python, JavaScript or shell code defines: after a keyword such as
/// `def`, or before `=`, at the beginning of the line. Parameters and other names are not found.
fn name_defined_in_script_line(line: &str) -> Option<&str> {
    const KEYWORDS: [&str; 7] = ["def", "class", "function", "const", "let", "for", "local"];
    let is_separator = |c: char| !c.is_alphanumeric() && c != '_';
    let mut words = line.split(' ').filter(|word| !["", "async", "export"].contains(word));
    let first = words.next()?;
    let name = match KEYWORDS.contains(&first) {
        true => words.next()?.split(is_separator).next(),
        false => line.split_once('=').map(|(name, _)| name.trim()),
    };
    name.filter(|name| !name.is_empty() && !name.contains(is_separator))
}

fn parse_table() -> Rules {
    let mut rules = Rules::new();
    let is_row = |line: &&str| !line.is_empty() && !line.starts_with('#');
    for row in TABLE.lines().filter(is_row) {
        let columns: Vec<&str> = row.split('|').map(str::trim).collect();
        let [forms, area, replacement, allowed] = columns[..] else {
            panic!("a row needs four columns: {row}")
        };
        assert!(["all", "names"].contains(&area), "{row}");
        let allowed = allowed.split(';').map(str::trim);
        let rule = Rule {
            in_prose: area == "all",
            replacement,
            allowed: allowed.filter(|text| !text.is_empty()).collect(),
        };
        for form in forms.split(' ') {
            let duplicate = rules.insert(form.replace('+', " "), rule.clone());
            assert!(duplicate.is_none(), "{form} is listed twice");
        }
    }
    rules
}

/// Returns the words of a line that are forbidden in prose.
fn in_line<'r>(line: &str, rules: &'r Rules) -> Vec<(String, &'r Rule)> {
    let mut hits = prose_hits(line, rules);
    hits.retain(|(word, rule)| {
        let remove = |line: String, phrase: &&str| line.replace(phrase, " ");
        let remaining = rule.allowed.iter().fold(line.to_owned(), remove);
        prose_hits(&remaining, rules).iter().any(|(other, _)| other == word)
    });
    hits
}

fn prose_hits<'r>(line: &str, rules: &'r Rules) -> Vec<(String, &'r Rule)> {
    let words = words(line);
    let pairs = words.windows(2).map(|pair| pair.join(" "));
    let all = words.iter().cloned().chain(pairs);
    let hits = all.filter_map(|word| rules.get(&word).map(|rule| (word, rule)));
    hits.filter(|(_, rule)| rule.in_prose).collect()
}

/// Returns the words of an identifier or a file name that are forbidden in names only.
fn in_name<'r>(name: &str, path: &str, rules: &'r Rules) -> Vec<(String, &'r Rule)> {
    let words = words(name);
    if words.len() > NAME_WORDS_MAX {
        return Vec::new();
    }
    let is_allowed = |text: &&str| *text == name || path.ends_with(text);
    let hits = words.into_iter().filter_map(|word| rules.get(&word).map(|rule| (word, rule)));
    let hits = hits.filter(|(_, rule)| !rule.in_prose && !rule.allowed.iter().any(is_allowed));
    hits.collect()
}

/// Returns the words of a text in lower case, with `snake_case` and `CamelCase` split.
fn words(text: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let mut previous = ' ';
    for c in text.chars() {
        if !c.is_ascii_alphabetic() || previous.is_ascii_lowercase() && c.is_ascii_uppercase() {
            words.push(String::new());
        }
        if let Some(word) = words.last_mut().filter(|_| c.is_ascii_alphabetic()) {
            word.push(c.to_ascii_lowercase());
        }
        previous = c;
    }
    words.retain(|word| !word.is_empty());
    words
}

#[test]
fn given_up_words_are_found_in_names_prose_and_paths() {
    let rules = parse_table();
    let first = |in_prose| rules.iter().find(|(_, rule)| rule.in_prose == in_prose);
    let (prose_word, name) = (first(true).expect("a row").0, first(false).expect("a row").0);
    let text = format!(
        "//- {prose_word}.md\nA {prose_word}.\n//- a.rs\n// {name}, {prose_word}\n\
         fn a(my_{name}: u8) {{ \"{name}\" }}\nfn a_{name}_is_in_a_sentence() {{}}\n\
         //- a.py\n{name} = 1  # {name}\ndef my_{name}(): f({name})\n# looks for {name}\n\
         //- a.mjs\n  async function my_{name}() {{}}\n//- a\n#!/bin/sh\n  local {name}\n"
    );
    let findings = check(&super::sources::fixture(&text));
    let hits =
        [(format!("{prose_word}.md:0"), prose_word), (format!("{prose_word}.md:1"), prose_word)];
    let hits = hits
        .into_iter()
        .chain([("a.rs:1".to_owned(), prose_word)])
        .chain(["a.rs:2", "a.py:1", "a.py:2", "a.mjs:1", "a:2"].map(|at| (at.to_owned(), name)));
    let expected: Vec<_> = hits.map(|(at, word)| format!("{at}: `{word}` was given up")).collect();
    assert_eq!(super::finding::summaries(&findings), expected);
}
