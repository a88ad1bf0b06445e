//! Forms: the fields that a person fills in to answer a question.
//!
//! A form is written as a flat JSON Schema, in the subset that MCP elicitation uses: an object whose
//! properties are texts, numbers, booleans and choices. A schema outside this subset is rejected,
//! so every form can be shown at a terminal and on a page.

mod field;

use serde::Deserialize as _;
use serde_json::{Map, Value};

pub use crate::form::field::{FormChoice, FormField, FormFieldKind, TextFormat};

use crate::form::field::{check_choice_texts, check_schema_keys};

/// Maximum number of fields of a form.
const FIELDS_MAX: usize = 20;
/// Maximum length of the schema of a form in bytes.
const SCHEMA_BYTES_MAX: usize = 16 * 1024;

/// A form that a person fills in.
#[derive(Debug, Clone, PartialEq)]
pub struct Form {
    /// Fields of the form, in the order of the schema.
    pub fields: Vec<FormField>,
}

impl Form {
    /// Parses the schema of a form. The error says why the schema is not a valid form.
    pub fn from_schema(schema: &Value) -> Result<Self, String> {
        let object = schema.as_object().ok_or("the schema of a form must be an object")?;
        if schema.to_string().len() > SCHEMA_BYTES_MAX {
            return Err(format!("the schema of a form has more than {SCHEMA_BYTES_MAX} bytes"));
        }
        let keys = ["$schema", "type", "title", "description", "properties", "required"];
        check_schema_keys(object, &[&keys[..], &["additionalProperties"]].concat(), "a form")?;
        if object.get("type").is_some_and(|kind| kind != "object") {
            return Err("the `type` of a form must be `object`".to_owned());
        }
        let properties = object.get("properties").and_then(Value::as_object);
        let properties = properties.ok_or("a form needs `properties`: its fields")?;
        if properties.is_empty() || properties.len() > FIELDS_MAX {
            return Err(format!("a form must have 1 to {FIELDS_MAX} fields"));
        }
        let required: Result<Vec<String>, _> =
            object.get("required").map_or(Ok(Vec::new()), Vec::deserialize);
        let required = required
            .ok()
            .filter(|names| names.iter().all(|name| properties.contains_key(name)))
            .ok_or("`required` must be a list of field names")?;
        let fields = properties.iter().map(|(name, field)| {
            let is_required = required.contains(name);
            FormField::from_schema(name, field, is_required)
                .map_err(|error| format!("the field `{name}` of the form is invalid: {error}"))
        });
        Ok(Self { fields: fields.collect::<Result<_, _>>()? })
    }

    /// Checks an answer to the form, and adds the defaults of missing fields. The error names each
    /// invalid field.
    pub fn check_answer(&self, answer: &Value) -> Result<Value, String> {
        let Some(answers) = answer.as_object() else {
            return Err(format!("the answer must be a JSON object with {}", self.field_names()));
        };
        let mut problems = Vec::new();
        if let Some(name) =
            answers.keys().find(|name| !self.fields.iter().any(|field| field.name == **name))
        {
            let fields = self.field_names();
            problems.push(format!("`{name}` is not a field of the form, which has {fields}"));
        }
        let mut values = Map::new();
        for field in &self.fields {
            match answers.get(&field.name).or(field.default.as_ref()) {
                Some(value) => match field.check_value(value) {
                    Ok(()) => _ = values.insert(field.name.clone(), value.clone()),
                    Err(error) => problems.push(format!("`{}` {error}", field.name)),
                },
                None if field.required => problems.push(format!("`{}` is missing", field.name)),
                None => {}
            }
        }
        match problems.is_empty() {
            true => Ok(Value::Object(values)),
            false => Err(problems.join("; ")),
        }
    }

    fn field_names(&self) -> String {
        let names: Vec<String> =
            self.fields.iter().map(|field| format!("`{}`", field.name)).collect();
        names.join(", ")
    }
}

/// Checks the options of a question: each must be a different text that a person can type.
pub fn check_question_options(options: &[String]) -> Result<(), String> {
    check_choice_texts(options.iter().map(String::as_str), "option")
}

/// Returns whether options can be named by their number: none of them is a number itself.
pub fn are_options_numbered(options: &[String]) -> bool {
    options.iter().all(|option| option.trim().parse::<u64>().is_err())
}

/// Returns the option that a text names, regardless of case and surrounding whitespace. `None`
/// means that the text is none of the options.
pub fn find_option_by_text<'a>(options: &'a [String], text: &str) -> Option<&'a str> {
    let text = text.trim();
    let exact_match = options.iter().find(|option| option.trim() == text);
    let case_insensitive =
        || options.iter().find(|option| option.trim().to_lowercase() == text.to_lowercase());
    exact_match.or_else(case_insensitive).map(String::as_str)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn trip_form() -> Form {
        Form::from_schema(&json!({
            "type": "object",
            "properties": {
                "city": { "type": "string", "minLength": 2, "maxLength": 10 },
                "people": { "type": "integer", "minimum": 1, "maximum": 9, "default": 2 },
                "mail": { "type": "string", "format": "email" },
                "day": { "type": "string", "format": "date" },
                "at": { "type": "string", "format": "date-time" },
                "site": { "type": "string", "format": "uri" },
                "window": { "type": "boolean" },
                "class": { "enum": ["1", "2"], "enumNames": ["first", "second"] },
                "meal": { "type": "string", "oneOf": [{ "const": "v", "title": "Vegan" }] },
                "price": { "type": "number" },
            },
            "required": ["city"],
            "additionalProperties": false,
        }))
        .unwrap()
    }

    #[test]
    fn a_valid_answer_is_completed_with_defaults() {
        let all = json!({
            "city": "Bern", "people": 3, "mail": "a@b.ch", "day": "2026-01-31",
            "at": "2026-01-31T09:00:00Z", "site": "https://b.ch", "window": false, "class": "1",
            "meal": "v", "price": 2.5,
        });
        assert_eq!(trip_form().check_answer(&all), Ok(all));
        let short = trip_form().check_answer(&json!({ "city": "Bern" }));
        assert_eq!(short, Ok(json!({ "city": "Bern", "people": 2 })));
    }

    #[test]
    fn a_typed_value_wins_over_the_title_of_another_choice() {
        let form = Form::from_schema(&json!({
            "type": "object",
            "properties": { "priority": { "enum": ["0", "1"], "enumNames": ["1", "2"] } },
        }))
        .unwrap();
        for (input, value) in [("0", "0"), ("1", "1"), ("2", "1")] {
            assert_eq!(form.fields[0].parse_input(input), Ok(Some(json!(value))));
        }
    }

    #[test]
    fn an_invalid_answer_is_rejected_with_each_reason() {
        for (answer, problem) in [
            (json!("Bern"), "must be a JSON object with `city`, "),
            (json!({}), "`city` is missing"),
            (json!({ "city": "B" }), "`city` must have at least 2 characters"),
            (json!({ "city": "Bern an der Aare" }), "`city` must have at most 10 characters"),
            (json!({ "city": 7 }), "`city` must be a text"),
            (json!({ "city": "Bern", "town": 1 }), "`town` is not a field of the form"),
            (json!({ "city": "Bern", "people": 0 }), "`people` must be at least 1"),
            (json!({ "city": "Bern", "people": 10 }), "`people` must be at most 9"),
            (json!({ "city": "Bern", "people": 1.5 }), "`people` must be a whole number"),
            (json!({ "city": "Bern", "people": "2" }), "`people` must be a whole number"),
            (json!({ "city": "Bern", "mail": "anna" }), "`mail` must be an email address"),
            (json!({ "city": "Bern", "day": "31.1." }), "`day` must be a date"),
            (json!({ "city": "Bern", "at": "noon" }), "`at` must be a time"),
            (json!({ "city": "Bern", "site": "b.ch" }), "`site` must be a URI"),
            (json!({ "city": "Bern", "window": "no" }), "`window` must be true or false"),
            (json!({ "city": "Bern", "class": "3" }), "`class` must be one of 1, 2"),
            (json!({ "city": "Bern", "city2": 1, "meal": "x" }), "`meal` must be one of v"),
            (json!({ "city": null }), "`city` must be a text"),
        ] {
            let problems = trip_form().check_answer(&answer).unwrap_err();
            assert!(problems.contains(problem), "{answer}: {problems}");
        }
    }

    #[test]
    fn a_schema_that_forms_do_not_support_is_rejected() {
        let with_field = |field: Value| json!({ "properties": { "a": field } });
        for (schema, problem) in [
            (json!("x"), "must be an object"),
            (json!({ "type": "array" }), "must be `object`"),
            (json!({ "type": "object" }), "needs `properties`"),
            (json!({ "properties": {} }), "1 to 20 fields"),
            (json!({ "properties": { "a": { "type": "string" } }, "required": ["b"] }), "required"),
            (json!({ "allOf": [], "properties": {} }), "`allOf` is not supported"),
            (json!({ "properties": { "a b": { "type": "string" } } }), "a name has"),
            (with_field(json!({ "type": "object" })), "nested values"),
            (with_field(json!({ "type": "array" })), "nested values"),
            (with_field(json!({ "type": "string", "pattern": "a" })), "`pattern`"),
            (with_field(json!({ "type": "string", "format": "ipv4" })), "`format`"),
            (with_field(json!({ "enum": [1, 2] })), "list of texts"),
            (with_field(json!({ "enum": [] })), "list of texts"),
            (
                with_field(json!({ "type": "integer", "default": "x" })),
                "the field's default must be",
            ),
            (with_field(json!({ "type": "string", "description": "x".repeat(20_000) })), "bytes"),
            (json!({ "properties": { "a": { "type": "string" } }, "required": "a" }), "required"),
            (with_field(json!({ "type": "string", "minLength": 3, "maxLength": 2 })), "minLength"),
            (with_field(json!({ "type": "string", "minLength": -1 })), "`minLength` must be"),
            (with_field(json!({ "type": "string", "maxLength": "9" })), "`maxLength` must be"),
            (with_field(json!({ "type": "string", "minLength": 70_000 })), "minLength"),
            (with_field(json!({ "type": "number", "minimum": 3, "maximum": 2 })), "`minimum`"),
            (with_field(json!({ "type": "number", "minimum": "1" })), "`minimum` must be"),
            (with_field(json!({ "type": "integer", "minimum": 1.2, "maximum": 1.8 })), "`minimum`"),
            (with_field(json!({ "type": "string", "title": " " })), "`title` must"),
            (with_field(json!({ "type": "string", "description": 7 })), "`description` must be"),
            (with_field(json!({ "enum": ["a", " "] })), "must not be blank"),
            (with_field(json!({ "enum": ["a", "A "] })), "twice"),
            (with_field(json!({ "enum": ["a", "b"], "enumNames": ["x", "x"] })), "twice"),
            (with_field(json!({ "enum": ["a", "b"], "enumNames": ["x"] })), "`enumNames` must"),
            (with_field(json!({ "enum": vec!["a"; 101] })), "at most 100"),
            (with_field(json!({ "oneOf": [{ "const": "a", "title": "" }] })), "must not be blank"),
        ] {
            let error = Form::from_schema(&schema).unwrap_err();
            assert!(error.contains(problem), "{schema}: {error}");
        }
    }

    #[test]
    fn typed_text_becomes_a_value_of_the_field() {
        let form = trip_form();
        let field = |name: &str| form.fields.iter().find(|field| field.name == name).unwrap();
        for (name, input, value) in [
            ("city", " Bern ", Ok(Some(json!("Bern")))),
            ("city", "", Err("is missing")),
            ("people", "", Ok(Some(json!(2)))),
            ("people", "4", Ok(Some(json!(4)))),
            ("people", "many", Err("must be a whole number")),
            ("people", "4e0", Ok(Some(json!(4)))),
            ("people", "4.0", Ok(Some(json!(4)))),
            ("people", "1e3", Err("must be at most 9")),
            ("window", "Y", Ok(Some(json!(true)))),
            ("window", "no", Ok(Some(json!(false)))),
            ("window", "maybe", Err("must be yes or no")),
            ("window", "", Ok(None)),
            ("class", "First", Ok(Some(json!("1")))),
            ("class", "2", Ok(Some(json!("2")))),
            ("class", "3", Err("must be one of 1, 2")),
        ] {
            let value = value.map_err(str::to_owned);
            assert_eq!(field(name).parse_input(input), value, "{name} {input}");
        }
    }

    #[test]
    fn an_option_is_found_by_its_text() {
        let options = ["Red".to_owned(), "red ".to_owned(), "Blue".to_owned()];
        for (text, option) in [
            ("red", Some("red ")),
            ("RED", Some("Red")),
            (" blue\n", Some("Blue")),
            ("green", None),
            ("", None),
        ] {
            assert_eq!(find_option_by_text(&options, text), option, "{text}");
        }
    }
}
