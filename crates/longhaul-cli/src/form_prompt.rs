//! Asks a person for the fields of a form, one after another, and shows the form on a gate's card.

use longhaul_api::gate::GateView;
use longhaul_core::form::{Form, FormField};
use serde_json::{Map, Value};

use crate::sanitize;

/// A form that a person fills in at the terminal, field by field.
#[derive(Debug)]
pub(crate) struct FormPrompt {
    form: Form,
    answer: Map<String, Value>,
    next_field: usize,
}

impl FormPrompt {
    /// Returns the form of a gate. `None` means that the answer to the gate is a text.
    pub(crate) fn for_gate(gate: &GateView) -> Option<Self> {
        gate.form().map(|form| Self { form, answer: Map::new(), next_field: 0 })
    }

    /// Returns the question about the next field. `None` means that the form is filled in.
    pub(crate) fn next_question(&self) -> Option<String> {
        self.form.fields.get(self.next_field).map(|field| format!("{}:", form_field_text(field)))
    }

    /// Enters a typed line into the next field. The error says why the line is invalid.
    pub(crate) fn enter_field_value(&mut self, line: &str) -> Result<(), String> {
        let Some(field) = self.form.fields.get(self.next_field) else {
            return Ok(());
        };
        let value = field.parse_input(line).map_err(|reason| format!("{} {reason}", field.name))?;
        if let Some(value) = value {
            self.answer.insert(field.name.clone(), value);
        }
        self.next_field += 1;
        Ok(())
    }

    /// Returns the fields that were entered, as a JSON object.
    pub(crate) fn answer_json(&self) -> String {
        Value::Object(self.answer.clone()).to_string()
    }
}

/// Returns the lines that describe the form of a gate. Empty if the gate has no form.
pub(crate) fn form_description_lines(gate: &GateView) -> Vec<String> {
    let form = gate.form();
    form.iter().flat_map(|form| &form.fields).map(form_field_text).collect()
}

/// Returns the command with which a person answers a question.
pub(crate) fn answer_command(gate: &GateView) -> String {
    match gate.schema.is_some() {
        true => format!("longhaul answer {} --answer '{{...}}'", gate.id),
        false => format!("longhaul answer {} TEXT", gate.id),
    }
}

/// Describes a field in one line, such as `people (a whole number, default 2)`.
fn form_field_text(field: &FormField) -> String {
    let mut constraints = vec![field.kind.description()];
    match &field.default {
        Some(default) => constraints.push(format!("default {default}")),
        None if !field.required => constraints.push("optional".to_owned()),
        None => {}
    }
    let title = (field.title != field.name).then(|| format!(": {}", field.title));
    let description = match field.description.as_str() {
        "" => String::new(),
        text => format!(" - {text}"),
    };
    let (name, title) = (&field.name, title.unwrap_or_default());
    sanitize::sanitize_line(&format!("{name}{title}{description} ({})", constraints.join(", ")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn fields_are_asked_one_by_one_until_each_is_valid() {
        let form = Form::from_schema(&json!({
            "properties": {
                "city": { "type": "string", "title": "Destination" },
                "people": { "type": "integer", "default": 2 },
                "window": { "type": "boolean", "description": "a seat with a view" },
            },
            "required": ["city"],
        }));
        let mut prompt = FormPrompt { form: form.unwrap(), answer: Map::new(), next_field: 0 };
        for (line, question, outcome) in [
            ("", "city: Destination (a text):", Err("city is missing")),
            ("Bern", "city: Destination (a text):", Ok(())),
            ("two", "people (a whole number, default 2):", Err("people must be a whole number")),
            ("", "people (a whole number, default 2):", Ok(())),
            ("", "window - a seat with a view (true or false, optional):", Ok(())),
        ] {
            assert_eq!(prompt.next_question().as_deref(), Some(question));
            assert_eq!(prompt.enter_field_value(line), outcome.map_err(str::to_owned), "{line}");
        }
        assert_eq!(prompt.next_question(), None);
        assert_eq!(prompt.answer_json(), r#"{"city":"Bern","people":2}"#);
    }
}
