//! Checks answers to questions: an answer must be one of the options, or fill in the form.

use longhaul_core::form::{Form, find_option_by_text};
use longhaul_core::policy::gate::GateSpec;

/// Checks an answer to a question and returns the text to record: the option that the answer names,
/// the completed form, or the unchanged text. The error says which answers are valid.
pub fn check_question_answer(question: &GateSpec, text: &str) -> Result<String, String> {
    if let Some(schema) = &question.schema {
        let form = Form::from_schema(&schema.to_value())?;
        let answer = serde_json::from_str(text)
            .map_err(|error| format!("the answer must be a JSON object: {error}"))?;
        return Ok(form.check_answer(&answer)?.to_string());
    }
    if question.options.is_empty() {
        return Ok(text.to_owned());
    }
    let option = find_option_by_text(&question.options, text);
    option.map(str::to_owned).ok_or_else(|| {
        let options: Vec<String> =
            question.options.iter().map(|option| format!("`{option}`")).collect();
        format!("the answer must be one of {}", options.join(", "))
    })
}
