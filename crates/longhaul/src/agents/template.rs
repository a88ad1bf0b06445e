//! Compiles the templates of an agent's file, to find what is wrong with them early.
//!
//! Never: fills one.

use longhaul_core::suggest;
use longhaul_core::template::check;
use minijinja::{Environment, UndefinedBehavior};

use crate::written::Place;

/// What is wrong with a template; the place counts from its own start.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct TemplateFault {
    pub(crate) place: Place,
    pub(crate) message: String,
}

/// The names that a template may speak of.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Names<'a> {
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
pub(crate) fn fault(source: &str, names: Names<'_>) -> Option<TemplateFault> {
    if let Some((at, word)) = loads(source) {
        return Some(TemplateFault {
            place: Place::of(source, at),
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
            return Some(TemplateFault {
                place: Place { line, column: 1 },
                message: format!(
                    "broken template: {}",
                    error.detail().unwrap_or("bad syntax")
                ),
            });
        }
    };
    let known = match names {
        Names::Only(known) => known,
        Names::Any => return None,
    };
    let is_known = |name: &str| {
        known.contains(&name) || environment.globals().any(|(global, _)| global == name)
    };
    let mut unknown: Vec<String> = template.undeclared_variables(false).into_iter().collect();
    unknown.retain(|name| !is_known(name));
    unknown.sort_unstable();
    let name = unknown.first()?;
    Some(TemplateFault {
        // The compiler does not say where a name stands; its first mention is a good guess.
        place: Place::of(source, mention(source, name)),
        message: format!("the template: {}", suggest::unknown("name", name, known)),
    })
}

/// The first word that would load another template, and where it stands. The
/// compiler takes it; only whoever fills the template finds nobody to load it.
fn loads(source: &str) -> Option<(usize, &str)> {
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
fn mention(source: &str, name: &str) -> usize {
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
        let found = fault(source, Names::Only(&["input", "context"]));
        let found = found.map(|fault| (fault.place.to_string(), fault.message));
        let Some((place, message)) = said else {
            assert_eq!(found, None, "{source}");
            return;
        };
        let found = found.unwrap_or_default();
        assert_eq!(found.0, place, "{source}");
        assert!(found.1.contains(message), "{found:?}");
    }

    #[test]
    fn a_template_is_compiled_before_anybody_needs_it() {
        check("plain", None);
        check(
            "{{ input.repo }} {% for i in range(3) %}{{ i }}{% endfor %}",
            None,
        );
        check(
            "an inptu\n{{ inptu }}",
            Some(("2:4", "did you mean `input`?")),
        );
    }

    #[test]
    fn what_would_load_another_template_is_found() {
        let said = "would load another template";
        check("one\n{% include 'x' %}", Some(("2:4", said)));
        check("{%- import 'x' as y %}", Some(("1:5", said)));
        check("a {%+ from 'x' import y %}", Some(("1:7", said)));
        check(
            "{% if input %}{% extends 'x' %}{% endif %}",
            Some(("1:18", said)),
        );
        check("{% raw %}{% include 'x' %}{% endraw %} include", None);
        check("{# {% include 'x' %} #} { from {{ \"{% from\" }}", None);
        check(
            "{% raw %}a{% endraw %}{% include 'x' %}",
            Some(("1:26", said)),
        );
        check("{% set included = 1 %}{{ included }} {", None);
    }

    #[test]
    fn broken_syntax_has_its_line() {
        let found = fault("one\n\ntwo {{ input", Names::Any).unwrap();
        assert_eq!(found.place.line, 3);
        assert!(found.message.starts_with("broken template: "), "{found:?}");
    }
}
