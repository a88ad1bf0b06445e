//! Compiles the templates of an agent's file, to find what is wrong with them early.
//!
//! Never: fills one.

use minijinja::{Environment, UndefinedBehavior};

use crate::like;
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

/// What is wrong with this text as a template.
pub(crate) fn fault(source: &str, names: Names<'_>) -> Option<TemplateFault> {
    let mut environment = Environment::new();
    environment.set_undefined_behavior(UndefinedBehavior::Strict);
    let template = match environment.template_from_str(source) {
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
        message: format!("the template: {}", like::unknown("name", name, known)),
    })
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
    fn broken_syntax_has_its_line() {
        let found = fault("one\n\ntwo {{ input", Names::Any).unwrap();
        assert_eq!(found.place.line, 3);
        assert!(found.message.starts_with("broken template: "), "{found:?}");
    }
}
