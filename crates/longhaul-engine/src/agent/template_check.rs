//! Compiles the templates of agent files to find errors when the files are loaded. It does not
//! render them.

use longhaul_core::position::Position;
use longhaul_core::suggest;
use longhaul_core::template::check_template_is_bounded;
use minijinja::{Environment, UndefinedBehavior};

/// An error in a template. The position is relative to the start of the template.
#[derive(Debug, PartialEq, Eq)]
pub struct TemplateError {
    pub position: Position,
    pub message: String,
}

/// Names of the variables that the templates of lane names and of the idempotency keys in `effects`
/// may use.
pub const LANE_VARIABLES: &[&str] = &["input", "context"];

/// Returns the names of the variables that a prompt template may use. They include `perception`
/// (data about the outside world) only if the agent has that field.
pub fn prompt_variable_names(has_perception: bool) -> Vec<&'static str> {
    let mut names = vec!["input", "context", "memory", "previous", "steps"];
    names.extend(has_perception.then_some("perception"));
    names
}

/// Returns the first error of a template. `None` means that the template is valid. Without names of
/// allowed variables it may use any, as those of events do, whose fields are not known in advance.
pub fn find_template_error(
    source: &str,
    allowed_variables: Option<&[&str]>,
) -> Option<TemplateError> {
    // Most prompts are plain text, and all agents are checked whenever a command starts.
    if !["{{", "{%", "{#"].iter().any(|tag| source.contains(tag)) {
        return None;
    }
    if let Some((at, keyword)) = find_tag_that_loads_template(source) {
        return Some(TemplateError {
            position: Position::from_offset(source, at),
            message: format!(
                "in the template: `{keyword}` would load another template, which is not supported: \
                 write its text here"
            ),
        });
    }
    let mut environment = Environment::new();
    environment.set_undefined_behavior(UndefinedBehavior::Strict);
    let bounds_check = check_template_is_bounded(source, environment.syntax());
    let template = match bounds_check.and_then(|()| environment.template_from_str(source)) {
        Ok(template) => template,
        Err(error) => {
            let line = error.line().unwrap_or(1);
            return Some(TemplateError {
                position: Position { line, column: 1 },
                message: format!("invalid template: {}", error.detail().unwrap_or("bad syntax")),
            });
        }
    };
    let allowed = allowed_variables?;
    let is_known = |name: &str| {
        allowed.contains(&name) || environment.globals().any(|(global, _)| global == name)
    };
    let mut unknown: Vec<String> = template.undeclared_variables(false).into_iter().collect();
    unknown.retain(|name| !is_known(name));
    unknown.sort_unstable();
    let name = unknown.first()?;
    Some(TemplateError {
        // The compiler reports no position for a name, so the first use in the text is a good
        // guess.
        position: Position::from_offset(source, first_variable_use_offset(source, name)),
        message: format!(
            "in the template: {}",
            suggest::unknown_name_message("name", name, allowed)
        ),
    })
}

/// Finds the first tag that would load another template, and returns its offset and its keyword.
/// The template compiler accepts such tags, but rendering them would fail.
fn find_tag_that_loads_template(source: &str) -> Option<(usize, &str)> {
    let mut at = 0;
    while let Some(offset) = source[at..].find('{') {
        at += offset + 1;
        let rest = &source[at..];
        let end = match rest.as_bytes().first()? {
            b'#' => rest.find("#}"),
            b'{' => rest.find("}}"),
            b'%' => {
                let code = rest[1..].trim_start_matches(['-', '+']).trim_start();
                let is_name_char = |c: char| c.is_alphanumeric() || c == '_';
                let keyword = &code[..code.find(|c| !is_name_char(c)).unwrap_or(code.len())];
                if ["include", "import", "from", "extends"].contains(&keyword) {
                    return Some((source.len() - code.len(), keyword));
                }
                match keyword {
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

/// Returns the offset of the first use of a variable after the first `{{` or `{%`, or 0 if it is
/// not found.
fn first_variable_use_offset(template: &str, variable: &str) -> usize {
    let code = template.find("{{").into_iter().chain(template.find("{%")).min();
    let code = code.unwrap_or(0);
    let found = template[code..].match_indices(variable).find(|(at, _)| {
        let rest = &template[code + at + variable.len()..];
        let before = template[..code + at].chars().next_back();
        let is_name_char = |c: char| c.is_alphanumeric() || c == '_';
        !rest.starts_with(is_name_char) && !before.is_some_and(|c| is_name_char(c) || c == '.')
    });
    found.map_or(0, |(at, _)| code + at)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn assert_template_error(template: &str, position_and_message: Option<(&str, &str)>) {
        let found = find_template_error(template, Some(&["input", "context"]));
        let found = found.map(|error| (error.position.to_string(), error.message));
        let Some((position, message)) = position_and_message else {
            assert_eq!(found, None, "{template}");
            return;
        };
        let found = found.unwrap_or_default();
        assert_eq!(found.0, position, "{template}");
        assert!(found.1.contains(message), "{found:?}");
    }

    #[test]
    fn unknown_variables_are_found_with_their_position() {
        assert_template_error("plain", None);
        assert_template_error("{{ input.repo }} {% for i in range(3) %}{{ i }}{% endfor %}", None);
        assert_template_error("an inptu\n{{ inptu }}", Some(("2:4", "did you mean `input`?")));
    }

    #[test]
    fn tags_that_load_another_template_are_found() {
        let expected = "would load another template";
        assert_template_error("one\n{% include 'x' %}", Some(("2:4", expected)));
        assert_template_error("{%- import 'x' as y %}", Some(("1:5", expected)));
        assert_template_error("a {%+ from 'x' import y %}", Some(("1:7", expected)));
        assert_template_error(
            "{% if input %}{% extends 'x' %}{% endif %}",
            Some(("1:18", expected)),
        );
        assert_template_error("{% raw %}{% include 'x' %}{% endraw %} include", None);
        assert_template_error("{# {% include 'x' %} #} { from {{ \"{% from\" }}", None);
        assert_template_error("{% raw %}a{% endraw %}{% include 'x' %}", Some(("1:26", expected)));
        assert_template_error("{% set included = 1 %}{{ included }} {", None);
    }

    #[test]
    fn a_template_syntax_error_reports_its_line() {
        let found = find_template_error("one\n\ntwo {{ input", None).unwrap();
        assert_eq!(found.position.line, 3);
        assert!(found.message.starts_with("invalid template: "), "{found:?}");
    }
}
