//! Says which value a template has missed, where, and what there is instead.
//!
//! Never: shows a value, only names, and never more than a few of them.

use longhaul_core::suggest::sorted;
use minijinja::Environment;
use serde_json::{Map, Value};

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
    let is_known = |path: &str| {
        let root = path.split(['.', '[']).next().unwrap_or(path);
        values.get(root).is_some() || undeclared.contains(root)
    };
    let known = paths.iter().filter(|path| is_known(path));
    let mut gaps = known.filter_map(|path| gap(values, path.split('[').next()?));
    let what = gaps.next().unwrap_or_else(|| {
        // What a loop or a `set` named can't be looked up, nor what stands in brackets.
        let unknown = |path: &&String| path.contains('[') || !is_known(path);
        let some = paths.iter().filter(unknown);
        one_of(some.filter(|path| path.contains(['.', '['])))
    });
    format!("line {line}: {what}")
}

/// Each of these may be what was missed.
fn one_of<'a>(paths: impl Iterator<Item = &'a String>) -> String {
    let mut shown: Vec<String> = Vec::new();
    for path in paths {
        let path: String = path.chars().take(LETTERS_MAX).collect();
        let path = format!("`{path}`");
        if !shown.contains(&path) {
            shown.push(path);
        }
    }
    match &shown[..] {
        [] => "a value is missing".to_owned(),
        [one] => format!("{one} is missing"),
        [..] if shown.len() > NAMES_MAX => {
            let more = shown.len() - NAMES_MAX;
            let shown = shown[..NAMES_MAX].join(", ");
            format!("one of {shown} and {more} more is missing")
        }
        [..] => format!("one of {} is missing", shown.join(", ")),
    }
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

/// The names in a tag with what follows each after dots or in a bracket: neither
/// texts, nor filters, nor what is called or may be missing.
fn paths(tag: &str) -> Vec<String> {
    let is_name = |letter: char| letter.is_alphanumeric() || letter == '_';
    let mut paths = Vec::new();
    let mut rest = tag;
    // Behind a bar is a filter, and behind a dot more of what is there already.
    let mut goes_on = false;
    while let Some(letter) = rest.chars().next() {
        if letter == '"' || letter == '\'' {
            let text = &rest[1..];
            rest = text.find(letter).map_or("", |end| &text[end + 1..]);
            goes_on = false;
        } else if is_name(letter) {
            let end = rest.find(|letter| !is_name(letter) && letter != '.');
            let (path, after) = rest.split_at(end.unwrap_or(rest.len()));
            let called = after.trim_start().starts_with('(');
            let root = path.split('.').next().unwrap_or(path);
            let is_word = WORDS.contains(&root) || letter.is_numeric();
            if !goes_on && !called && !is_word && !may_be_missing(after) {
                let path = path.trim_end_matches('.');
                paths.push(format!("{path}{}", bracket(after)));
            }
            goes_on = false;
            rest = after;
        } else {
            goes_on = matches!(letter, '|' | '.') || (goes_on && letter.is_whitespace());
            rest = &rest[letter.len_utf8()..];
        }
    }
    paths
}

/// What stands in a bracket right behind a name, with the bracket.
fn bracket(after: &str) -> &str {
    let inside = after.strip_prefix('[').and_then(|inside| inside.find(']'));
    inside.map_or("", |end| &after[..end + 2])
}

/// Whether what stands before this is asked after, or has something in its place.
fn may_be_missing(after: &str) -> bool {
    let word = |text: &str| -> String {
        let letters = text.trim_start().chars();
        letters
            .take_while(|letter| letter.is_alphabetic())
            .collect()
    };
    let after = after.trim_start();
    if let Some(filter) = after.strip_prefix('|') {
        return ["default", "d"].contains(&word(filter).as_str());
    }
    let Some(asked) = after.strip_prefix("is ") else {
        return false;
    };
    let asked = asked.trim_start();
    let asked = asked.strip_prefix("not ").unwrap_or(asked);
    ["defined", "undefined"].contains(&word(asked).as_str())
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
    fn what_can_not_be_looked_up_is_one_of_those_in_the_line() {
        let check = |line: &str, said: &str| {
            let source = format!("{{% for m in memory %}}\n{line}\n{{% endfor %}}");
            check(&source, 2, &format!("line 2: {said}"));
        };
        check(
            "{{ m.role }}: {{ m.content }}",
            "one of `m.role`, `m.content` is missing",
        );
        check("{{ m.role }} and {{ m.role }}", "`m.role` is missing");
        check(
            "{{ m['role'] }} {{ m.text[0].by.whom }} {{ input['x'] }}",
            "one of `m['role']`, `m.text[0]`, `input['x']` is missing",
        );
        // These are there, or need not be.
        check(
            "{{ loop.index }} {{ input.repo }} {{ m.content }}",
            "`m.content` is missing",
        );
        check(
            "{{ input.no | default('x') }} {{ m.no|d }} {{ m.is }}: {{ m.text|upper }}",
            "one of `m.is`, `m.text` is missing",
        );
        check(
            "{% if m.no is not defined or input.no is defined %}{{ m.text }}{% endif %}",
            "`m.text` is missing",
        );
        check(
            "{{ m.a }}{{ input.no }}",
            "`input.no` is missing; `input` has `branches`, `repo`, `title`",
        );
        let many: String = (0..10).map(|n| format!("{{{{ m.n{n} }}}}")).collect();
        let eight = "`m.n0`, `m.n1`, `m.n2`, `m.n3`, `m.n4`, `m.n5`, `m.n6`, `m.n7`";
        check(&many, &format!("one of {eight} and 2 more is missing"));
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
