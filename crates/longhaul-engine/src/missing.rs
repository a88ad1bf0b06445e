//! Says which value a template has missed, where, and what there is instead.
//!
//! Never: shows a value, only names, and never more than a few of them.

use minijinja::Environment;
use serde_json::{Map, Value};

use crate::like::sorted;

/// So many names are listed, each with so many letters.
const NAMES_MAX: usize = 8;
const LETTERS_MAX: usize = 60;

/// Words of the language itself.
const WORDS: [&str; 22] = [
    "if", "elif", "else", "endif", "for", "in", "endfor", "set", "endset", "not", "and", "or",
    "is", "true", "false", "none", "True", "False", "None", "macro", "filter", "loop",
];

/// What was missed in this line, in words.
pub(crate) fn missing(source: &str, values: &Value, line: Option<usize>) -> String {
    let line = line.unwrap_or(1);
    let paths: Vec<String> = tags(source, line).flat_map(paths).collect();
    let undeclared = Environment::new()
        .template_from_str(source)
        .map(|template| template.undeclared_variables(false))
        .unwrap_or_default();
    let of_values = paths.iter().filter_map(|path| {
        let root = path.split('.').next()?;
        (values.get(root).is_some() || undeclared.contains(root)).then(|| gap(values, path))?
    });
    let own = paths.iter().find(|path| path.contains('.'));
    let what = of_values.into_iter().next();
    // What a loop or a `set` named can't be looked up.
    let what = what.or_else(|| own.map(|path| format!("`{path}` is missing")));
    let what = what.unwrap_or_else(|| "a value is missing".to_owned());
    format!("line {line}: {what}")
}

/// The insides of all tags that stand in this line, or at least end or begin there.
fn tags(source: &str, line: usize) -> impl Iterator<Item = &str> {
    let mut rest = 0;
    let tags = std::iter::from_fn(move || {
        let opens = source[rest..].match_indices('{');
        let mut opens = opens.map(|(at, _)| rest + at);
        let start = opens.find(|at| source[at + 1..].starts_with(['{', '%']))?;
        let closes = match source.as_bytes().get(start + 1) {
            Some(b'%') => "%}",
            _ => "}}",
        };
        let inside = &source[start + 2..];
        let end = inside.find(closes).unwrap_or(inside.len());
        rest = start + 2 + end;
        Some((start, &inside[..end]))
    });
    tags.filter_map(move |(start, inside)| {
        let first = source[..start].matches('\n').count() + 1;
        let last = first + inside.matches('\n').count();
        (first..=last).contains(&line).then_some(inside)
    })
}

/// The names in a tag with what follows each after dots: neither texts, nor
/// filters, nor what is called.
fn paths(tag: &str) -> Vec<String> {
    let is_name = |letter: char| letter.is_alphanumeric() || letter == '_';
    let mut paths = Vec::new();
    let mut rest = tag;
    let mut after_bar = false;
    while let Some(letter) = rest.chars().next() {
        if letter == '"' || letter == '\'' {
            let text = &rest[1..];
            rest = text.find(letter).map_or("", |end| &text[end + 1..]);
            after_bar = false;
        } else if is_name(letter) {
            let end = rest.find(|letter| !is_name(letter) && letter != '.');
            let (path, after) = rest.split_at(end.unwrap_or(rest.len()));
            let called = after.trim_start().starts_with('(');
            let is_word = WORDS.contains(&path) || letter.is_numeric();
            if !after_bar && !called && !is_word {
                paths.push(path.trim_end_matches('.').to_owned());
            }
            after_bar = false;
            rest = after;
        } else {
            after_bar = letter == '|' || (after_bar && letter.is_whitespace());
            rest = &rest[letter.len_utf8()..];
        }
    }
    paths
}

/// The first step of a path that leads nowhere, in words; none: there is a value.
fn gap(values: &Value, path: &str) -> Option<String> {
    let mut at = values;
    let mut walked: Vec<&str> = Vec::new();
    for step in path.split('.') {
        let next = match at {
            Value::Object(fields) => fields.get(step),
            Value::Array(list) => step.parse().ok().and_then(|place: usize| list.get(place)),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => None,
        };
        let Some(next) = next else {
            let here = walked.join(".");
            walked.push(step);
            let whole = walked.join(".");
            let there = there(at, &here, step);
            return Some(format!("`{whole}` is missing; {there}"));
        };
        walked.push(step);
        at = next;
    }
    None
}

/// What stands where something was missed.
fn there(at: &Value, here: &str, missed: &str) -> String {
    let kind = match at {
        Value::Object(fields) => return names(fields, here, missed),
        Value::Array(list) => return format!("`{here}` is a list of {}", list.len()),
        Value::Null => "nothing",
        Value::Bool(_) => "true or false",
        Value::Number(_) => "a number",
        Value::String(_) => "a text",
    };
    format!("`{here}` is {kind}")
}

fn names(fields: &Map<String, Value>, here: &str, missed: &str) -> String {
    let holds = match here {
        "" => "there is".to_owned(),
        here => format!("`{here}` has"),
    };
    if fields.is_empty() {
        return format!("{holds} nothing in it").replace("there is nothing in it", "there is none");
    }
    let all = sorted(missed, fields.keys().map(String::as_str));
    let shown = all.iter().take(NAMES_MAX).map(|name| {
        let name: String = name.chars().take(LETTERS_MAX).collect();
        format!("`{name}`")
    });
    let shown: Vec<String> = shown.collect();
    let more = match all.len().saturating_sub(NAMES_MAX) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    format!("{holds} {}{more}", shown.join(", "))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn check(source: &str, line: usize, said: &str) {
        let values = json!({
            "input": { "repo": "a/b", "branches": ["x"], "title": "t" },
            "context": {},
            "memory": [],
        });
        assert_eq!(missing(source, &values, Some(line)), said, "{source}");
    }

    #[test]
    fn what_was_missed_is_named_with_what_is_there() {
        check(
            "You.\n{{ input.repo }} {{ input.branch }}",
            2,
            "line 2: `input.branch` is missing; `input` has `branches`, `repo`, `title`",
        );
        check(
            "{{ inptu }}",
            1,
            "line 1: `inptu` is missing; there is `input`, `context`, `memory`",
        );
        check(
            "{{ context.user }}",
            1,
            "line 1: `context.user` is missing; `context` has nothing in it",
        );
        check(
            "{{ input.repo.name|upper }}",
            1,
            "line 1: `input.repo.name` is missing; `input.repo` is a text",
        );
        check(
            "{{ input.branches.4 }}",
            1,
            "line 1: `input.branches.4` is missing; `input.branches` is a list of 1",
        );
        check(
            "{% for one in input.branches %}\n{{ one.nmae }}{% endfor %}",
            2,
            "line 2: `one.nmae` is missing",
        );
        check(
            "{% if 'input.x' == input.repo and\n input.no %}",
            2,
            "line 2: `input.no` is missing; `input` has `branches`, `repo`, `title`",
        );
        check("{{ range(3) }}", 1, "line 1: a value is missing");
    }

    #[test]
    fn the_list_is_short() {
        let fields: Map<String, Value> = (0..50).map(|n| (format!("n{n}"), json!(1))).collect();
        let said = missing("{{ input.n7x }}", &json!({ "input": fields }), Some(1));
        let listed = "line 1: `input.n7x` is missing; `input` has `n7`, ";
        assert!(said.starts_with(listed), "{said}");
        assert!(said.ends_with(" and 42 more"), "{said}");
    }
}
