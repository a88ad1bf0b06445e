//! The output schema of an agent, and the check of final answers against that schema.
//!
//! An invalid answer is never repaired: the model is told what is wrong.

use longhaul_core::event::turn::{OutputCheckResult, ToolCallClassification};
use longhaul_core::message::StopReason;
use longhaul_core::port::model::ModelResponse;
use longhaul_core::raw::RawJson;
use longhaul_core::time::Clock;
use longhaul_run::strip_code_fence;
use serde_json::{Map, Value, json};

use crate::guard::validation::SchemaValidator;

/// Maximum size of an output schema in bytes. Models could not follow a longer schema.
const SCHEMA_BYTES_MAX: usize = 64 * 1024;

/// Maximum size of a final answer in bytes. Longer answers are invalid.
const ANSWER_BYTES_MAX: usize = 4 * 1024 * 1024;

/// Name of the control tool whose input is the result of the run.
pub(crate) const FINISH_TOOL: &str = "finish";

/// Keys under which a JSON Schema keeps its definitions.
const DEFINITIONS: [&str; 2] = ["$defs", "definitions"];

/// The compiled output schema of an agent.
#[derive(Debug, Clone)]
pub(crate) struct OutputSchema {
    schema: RawJson,
    validator: SchemaValidator,
}

impl OutputSchema {
    /// Compiles a schema. The error says why the schema is not valid.
    pub(crate) fn new(schema: &RawJson) -> Result<Self, String> {
        if schema.as_str().len() > SCHEMA_BYTES_MAX {
            return Err(format!("the schema is longer than {SCHEMA_BYTES_MAX} bytes"));
        }
        let value = schema.to_value();
        if !value.is_object() {
            return Err("a JSON Schema must be an object".to_owned());
        }
        Ok(Self {
            schema: RawJson::from_serialize(&value),
            validator: SchemaValidator::new(&value)?,
        })
    }

    pub(crate) const fn schema(&self) -> &RawJson {
        &self.schema
    }

    /// Checks a reply that would end the run against the output schema. `None` if the reply does
    /// not end the run.
    pub(crate) async fn validate_final_reply(
        &self,
        response: &ModelResponse,
        calls: &[ToolCallClassification],
        clock: &dyn Clock,
    ) -> Option<OutputCheckResult> {
        let ends = match response.stop {
            StopReason::PauseTurn | StopReason::MaxTokens | StopReason::Refusal => false,
            StopReason::EndTurn | StopReason::ToolUse | StopReason::Other(_) => true,
        };
        if !ends {
            return None;
        }
        if response.reply.tool_calls().next().is_none() {
            return Some(self.validate_answer(&response.reply.text(), clock).await);
        }
        // The input was checked against the schema when the call was classified.
        let finish = response.reply.tool_calls().zip(calls);
        let finish = finish
            .filter(|(_, found)| found.tool.as_str() == FINISH_TOOL && found.problem.is_none());
        let (call, _) = finish.last()?;
        let output = call.input.to_value().get("output").map(RawJson::from_serialize)?;
        Some(OutputCheckResult::Valid(output))
    }

    /// Checks the text of a final answer against the output schema.
    pub(crate) async fn validate_answer(&self, text: &str, clock: &dyn Clock) -> OutputCheckResult {
        if text.len() > ANSWER_BYTES_MAX {
            let reason = format!("the answer is longer than {ANSWER_BYTES_MAX} bytes");
            return OutputCheckResult::Invalid(reason);
        }
        let inner = strip_code_fence(text);
        let Ok(value) = serde_json::from_str::<Value>(inner) else {
            if let Some(output) = self.text_as_json_string(text, clock).await {
                return OutputCheckResult::Valid(output);
            }
            let reason =
                "the answer is not JSON, but the result must be data that matches the schema";
            return OutputCheckResult::Invalid(reason.to_owned());
        };
        let Err(reason) = self.validator.validate(&value, "the answer", clock).await else {
            return OutputCheckResult::Valid(RawJson::from_serialize(&value));
        };
        let is_plain = !value.is_object() && !value.is_array();
        let output = if is_plain { self.text_as_json_string(text, clock).await } else { None };
        match output {
            Some(output) => OutputCheckResult::Valid(output),
            None => OutputCheckResult::Invalid(format!(
                "the answer does not match the schema: {reason}"
            )),
        }
    }

    /// Returns the text of an answer as a JSON string, if the schema explicitly allows a string. A
    /// schema without a type would accept any text, even a text that only talks about the result.
    async fn text_as_json_string(&self, text: &str, clock: &dyn Clock) -> Option<RawJson> {
        let schema = self.schema.to_value();
        let accepts_string = match &schema["type"] {
            Value::String(kind) => kind == "string",
            Value::Array(kinds) => kinds.iter().any(|kind| kind == "string"),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::Object(_) => false,
        };
        let value = Value::String(text.trim().to_owned());
        let is_valid =
            accepts_string && self.validator.validate(&value, "the answer", clock).await.is_ok();
        is_valid.then(|| RawJson::from_serialize(&value))
    }

    /// Returns the input schema of the tool `finish`, with this schema for the property `output`.
    /// Definitions are moved to the top level, where references look for them.
    pub(crate) fn finish_tool_input_schema(&self) -> Value {
        let mut output_schema = self.schema.to_value();
        let mut top = Map::new();
        if let Value::Object(fields) = &mut output_schema {
            for name in DEFINITIONS {
                if let Some(definitions) = fields.remove(name) {
                    top.insert(name.to_owned(), definitions);
                }
            }
            // The draft is declared once, at the top level.
            if let Some(draft) = fields.remove("$schema") {
                top.insert("$schema".to_owned(), draft);
            }
            fields.remove("$id");
        }
        rewrite_references(&mut output_schema);
        top.values_mut().for_each(rewrite_references);
        top.insert("type".into(), "object".into());
        top.insert("properties".into(), json!({ "output": output_schema }));
        top.insert("required".into(), json!(["output"]));
        top.insert("additionalProperties".into(), false.into());
        Value::Object(top)
    }
}

/// Rewrites the references in a schema that became the property `output`.
fn rewrite_references(schema: &mut Value) {
    match schema {
        Value::Object(fields) => {
            if let Some(Value::String(target)) = fields.get_mut("$ref")
                && let Some(json_pointer) = target.strip_prefix('#')
                && !DEFINITIONS.iter().any(|name| json_pointer.starts_with(&format!("/{name}/")))
            {
                *target = format!("#/properties/output{json_pointer}");
            }
            fields.values_mut().for_each(rewrite_references);
        }
        Value::Array(items) => items.iter_mut().for_each(rewrite_references),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::SystemClock;

    fn compile_test_schema(schema: Value) -> OutputSchema {
        OutputSchema::new(&RawJson::from_serialize(&schema)).unwrap()
    }

    fn title_schema() -> OutputSchema {
        compile_test_schema(json!({
            "type": "object",
            "properties": { "title": { "type": "string" } },
            "required": ["title"],
        }))
    }

    async fn assert_answer_validation(text: &str, expect: Result<&str, &str>) {
        match (title_schema().validate_answer(text, &SystemClock).await, expect) {
            (OutputCheckResult::Valid(data), Ok(expect)) => assert_eq!(data.as_str(), expect),
            (OutputCheckResult::Invalid(reason), Err(expect)) => {
                assert!(reason.contains(expect), "{reason}")
            }
            (got, _) => panic!("{text}: {got:?}"),
        }
    }

    #[tokio::test]
    async fn an_invalid_output_says_what_is_wrong() {
        assert_answer_validation(r#"{"title": "A"}"#, Ok(r#"{"title":"A"}"#)).await;
        assert_answer_validation("```json\n{\"title\": \"A\"}\n```", Ok(r#"{"title":"A"}"#)).await;
        assert_answer_validation("Here it is.", Err("not JSON")).await;
        assert_answer_validation("{}", Err("title")).await;
        assert_answer_validation(r#"{"title": 7}"#, Err("/title")).await;
        let long = format!("{{\"title\": [\"{}\"]}}", "x".repeat(10_000));
        match title_schema().validate_answer(&long, &SystemClock).await {
            OutputCheckResult::Invalid(reason) => assert!(reason.len() < 1_000, "{}", reason.len()),
            OutputCheckResult::Valid(_) => panic!("a list is not a valid title"),
        }
    }

    #[test]
    fn an_invalid_output_schema_is_rejected() {
        let anchor = json!({ "$anchor": "leaf", "type": "integer" });
        let anchored = json!({ "$defs": { "some": anchor }, "items": { "$ref": "#leaf" } });
        for schema in [json!(7), json!({ "type": "nonsense" }), anchored] {
            assert!(OutputSchema::new(&RawJson::from_serialize(&schema)).is_err(), "{schema}");
        }
        let large_schema = json!({ "pattern": r"(\p{L}{60}){10}" });
        assert!(OutputSchema::new(&RawJson::from_serialize(&large_schema)).is_err());
        let long = json!({ "description": "x".repeat(SCHEMA_BYTES_MAX) });
        assert!(OutputSchema::new(&RawJson::from_serialize(&long)).is_err());
    }

    #[test]
    fn references_resolve_in_the_finish_tool_schema() {
        let tree = compile_test_schema(json!({
            "$defs": { "leaf": { "type": "integer" } },
            "type": "object",
            "properties": {
                "value": { "$ref": "#/$defs/leaf" },
                "next": { "$ref": "#" },
            },
            "required": ["value"],
        }));
        let finish = jsonschema::validator_for(&tree.finish_tool_input_schema()).unwrap();
        let is_valid = |output: Value| finish.is_valid(&json!({ "output": output }));
        assert!(is_valid(json!({ "value": 1, "next": { "value": 2 } })));
        assert!(!is_valid(json!({ "value": 1, "next": { "value": "two" } })));
        assert!(!is_valid(json!({ "next": { "value": 2 } })));
    }
}
