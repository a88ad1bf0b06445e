//! Compiles the templates of an agent's file, to find what is wrong with them early.
//!
//! Never: fills one.

use longhaul_core::suggest;
use longhaul_core::template::check;
use minijinja::{Environment, UndefinedBehavior};

use crate::spanned::Position;

/// What is wrong with a template; the place counts from its own start.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct TemplateError {
    pub(crate) position: Position,
    pub(crate) message: String,
}

/// The names that a template may speak of.
#[derive(Debug, Clone, Copy)]
pub(crate) enum AllowedNames<'a> {
    /// These.
    Only(&'a [&'a str]),
    /// Whatever the event brings.
    Any,
}

/// The names that the lane of an agent may speak of.
pub(crate) const LANE_NAMES: &[&str] = &["input", "context"];

/// The names that a prompt may speak of.
pub(crate) fn prompt_names(perceives: bool) -> Vec<&'static str> {
    let mut names = vec!["input", "context", "memory"];
    names.extend(perceives.then_some("perception"));
    names
}

/// What is wrong with this text as a template.
pub(crate) fn find_error(source: &str, names: AllowedNames<'_>) -> Option<TemplateError> {
    if let Some((at, word)) = find_loading_tag(source) {
        return Some(TemplateError {
            position: Position::from_offset(source, at),
            message: format!(
                "the template: `{word}` would load another template, and there is no other: \
                 write its text here"
            ),
        });
    }
    let mut environment = Environment::new();
    environment.set_undefined_behavior(UndefinedBehavior::Strict);
    let checked = check(source, environment.syntax());
    let template = match checked.and_then(|()| environment.template_from_str(source)) {
        Ok(template) => template,
        Err(error) => {
            let line = error.line().unwrap_or(1);
            return Some(TemplateError {
                position: Position { line, column: 1 },
                message: format!("broken template: {}", error.detail().unwrap_or("bad syntax")),
            });
        }
    };
    let known = match names {
        AllowedNames::Only(known) => known,
        AllowedNames::Any => return None,
    };
    let is_known = |name: &str| {
        known.contains(&name) || environment.globals().any(|(global, _)| global == name)
    };
    let mut unknown: Vec<String> = template.undeclared_variables(false).into_iter().collect();
    unknown.retain(|name| !is_known(name));
    unknown.sort_unstable();
    let name = unknown.first()?;
    Some(TemplateError {
        // The compiler does not say where a name stands; its first mention is a good guess.
        position: Position::from_offset(source, first_use(source, name)),
        message: format!("the template: {}", suggest::unknown_message("name", name, known)),
    })
}

/// The first word that would load another template, and where it stands. The
/// compiler takes it; only whoever fills the template finds nobody to load it.
fn find_loading_tag(source: &str) -> Option<(usize, &str)> {
    let mut at = 0;
    while let Some(found) = source[at..].find('{') {
        at += found + 1;
        let rest = &source[at..];
        let end = match rest.as_bytes().first()? {
            b'#' => rest.find("#}"),
            b'{' => rest.find("}}"),
            b'%' => {
                let code = rest[1..].trim_start_matches(['-', '+']).trim_start();
                let is_part = |c: char| c.is_alphanumeric() || c == '_';
                let word = &code[..code.find(|c| !is_part(c)).unwrap_or(code.len())];
                if ["include", "import", "from", "extends"].contains(&word) {
                    return Some((source.len() - code.len(), word));
                }
                match word {
                    "raw" => rest.find("endraw"),
                    _ => rest.find("%}"),
                }
            }
            _ => Some(0),
        };
        at += end?;
    }
    None
}

/// Where a template first speaks of a name: behind its first opening brace.
fn first_use(source: &str, name: &str) -> usize {
    let code = source.find("{{").into_iter().chain(source.find("{%")).min();
    let code = code.unwrap_or(0);
    let found = source[code..].match_indices(name).find(|(at, _)| {
        let rest = &source[code + at + name.len()..];
        let before = source[..code + at].chars().next_back();
        let is_part = |c: char| c.is_alphanumeric() || c == '_';
        !rest.starts_with(is_part) && !before.is_some_and(|c| is_part(c) || c == '.')
    });
    found.map_or(0, |(at, _)| code + at)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(source: &str, said: Option<(&str, &str)>) {
        let found = find_error(source, AllowedNames::Only(&["input", "context"]));
        let found = found.map(|fault| (fault.position.to_string(), fault.message));
        let Some((place, message)) = said else {
            assert_eq!(found, None, "{source}");
            return;
        };
        let found = found.unwrap_or_default();
        assert_eq!(found.0, place, "{source}");
        assert!(found.1.contains(message), "{found:?}");
    }

    #[test]
    fn unknown_names_are_found_with_their_position() {
        check("plain", None);
        check("{{ input.repo }} {% for i in range(3) %}{{ i }}{% endfor %}", None);
        check("an inptu\n{{ inptu }}", Some(("2:4", "did you mean `input`?")));
    }

    #[test]
    fn tags_that_load_another_template_are_found() {
        let said = "would load another template";
        check("one\n{% include 'x' %}", Some(("2:4", said)));
        check("{%- import 'x' as y %}", Some(("1:5", said)));
        check("a {%+ from 'x' import y %}", Some(("1:7", said)));
        check("{% if input %}{% extends 'x' %}{% endif %}", Some(("1:18", said)));
        check("{% raw %}{% include 'x' %}{% endraw %} include", None);
        check("{# {% include 'x' %} #} { from {{ \"{% from\" }}", None);
        check("{% raw %}a{% endraw %}{% include 'x' %}", Some(("1:26", said)));
        check("{% set included = 1 %}{{ included }} {", None);
    }

    #[test]
    fn a_syntax_error_has_its_line() {
        let found = find_error("one\n\ntwo {{ input", AllowedNames::Any).unwrap();
        assert_eq!(found.position.line, 3);
        assert!(found.message.starts_with("broken template: "), "{found:?}");
    }
}
