//! What the result of a run must be: a schema, and whether an answer fits it.
//!
//! Never: mends an answer. What does not fit is said to the model.

use longhaul_core::event::turn::{CallClassification, OutputCheck};
use longhaul_core::message::StopReason;
use longhaul_core::port::model::ModelResponse;
use longhaul_core::raw::RawJson;
use longhaul_core::time::Clock;
use longhaul_run::strip_code_fence;
use serde_json::{Map, Value, json};

use crate::validation::SchemaValidator;

/// A longer schema is none that a model could follow.
const SCHEMA_BYTES_MAX: usize = 64 * 1024;

/// A longer answer is not judged.
const ANSWER_BYTES_MAX: usize = 4 * 1024 * 1024;

/// The tool whose input is a result.
pub(crate) const FINISH_TOOL: &str = "finish";

/// Where definitions stand in a schema.
const DEFINITIONS: [&str; 2] = ["$defs", "definitions"];

/// What the result of a run must be.
#[derive(Debug, Clone)]
pub(crate) struct OutputSchema {
    schema: RawJson,
    validator: SchemaValidator,
}

impl OutputSchema {
    /// The contract of this schema, or what is wrong with it.
    pub(crate) fn new(schema: &RawJson) -> Result<Self, String> {
        if schema.as_str().len() > SCHEMA_BYTES_MAX {
            return Err(format!("it is longer than {SCHEMA_BYTES_MAX} bytes"));
        }
        let value = schema.to_value();
        if !value.is_object() {
            return Err("a JSON Schema is an object".to_owned());
        }
        Ok(Self {
            schema: RawJson::from_serialize(&value),
            validator: SchemaValidator::new(&value)?,
        })
    }

    /// The schema.
    pub(crate) const fn schema(&self) -> &RawJson {
        &self.schema
    }

    /// Whether a reply that ends the run fits, whose calls were appraised like this;
    /// none: it does not end it.
    pub(crate) async fn check(
        &self,
        answered: &ModelResponse,
        calls: &[CallClassification],
        clock: &dyn Clock,
    ) -> Option<OutputCheck> {
        let ends = match answered.stop {
            StopReason::PauseTurn | StopReason::MaxTokens | StopReason::Refusal => false,
            StopReason::EndTurn | StopReason::ToolUse | StopReason::Other(_) => true,
        };
        if !ends {
            return None;
        }
        if answered.reply.calls().next().is_none() {
            return Some(self.check_text(&answered.reply.text(), clock).await);
        }
        // Whoever appraised it has held it against the schema.
        let finish = answered.reply.calls().zip(calls);
        let finish = finish
            .filter(|(_, found)| found.tool.as_str() == FINISH_TOOL && found.problem.is_none());
        let (call, _) = finish.last()?;
        let output = call.input.to_value().get("output").map(RawJson::from_serialize)?;
        Some(OutputCheck::Valid(output))
    }

    async fn check_text(&self, text: &str, clock: &dyn Clock) -> OutputCheck {
        if text.len() > ANSWER_BYTES_MAX {
            let why = format!("the answer is longer than {ANSWER_BYTES_MAX} bytes");
            return OutputCheck::Invalid(why);
        }
        let inner = strip_code_fence(text);
        let Ok(value) = serde_json::from_str::<Value>(inner) else {
            if let Some(words) = self.text_output(text, clock).await {
                return OutputCheck::Valid(words);
            }
            let why = "the answer is not JSON, and the result must be data that fits the schema";
            return OutputCheck::Invalid(why.to_owned());
        };
        let Err(why) = self.validator.check(&value, "the answer", clock).await else {
            return OutputCheck::Valid(RawJson::from_serialize(&value));
        };
        let is_plain = !value.is_object() && !value.is_array();
        let words = match is_plain {
            true => self.text_output(text, clock).await,
            false => None,
        };
        match words {
            Some(words) => OutputCheck::Valid(words),
            None => OutputCheck::Invalid(format!("the answer does not fit the schema: {why}")),
        }
    }

    /// The words of an answer as the data that they are where the schema spells out
    /// that the result may be a text. A schema that says nothing of it takes every
    /// text, also one that only speaks of the result.
    async fn text_output(&self, text: &str, clock: &dyn Clock) -> Option<RawJson> {
        let schema = self.schema.to_value();
        let may_be = match &schema["type"] {
            Value::String(kind) => kind == "string",
            Value::Array(kinds) => kinds.iter().any(|kind| kind == "string"),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::Object(_) => false,
        };
        let words = Value::String(text.trim().to_owned());
        let fits = may_be && self.validator.check(&words, "the answer", clock).await.is_ok();
        fits.then(|| RawJson::from_serialize(&words))
    }

    /// The schema of `finish`: its output is of this kind. Definitions move to the
    /// top, where the names of them are looked for.
    pub(crate) fn finish_input_schema(&self) -> Value {
        let mut output = self.schema.to_value();
        let mut top = Map::new();
        if let Value::Object(fields) = &mut output {
            for name in DEFINITIONS {
                if let Some(definitions) = fields.remove(name) {
                    top.insert(name.to_owned(), definitions);
                }
            }
            // Which draft it is of is said once, at the top.
            if let Some(draft) = fields.remove("$schema") {
                top.insert("$schema".to_owned(), draft);
            }
            fields.remove("$id");
        }
        rebase_refs(&mut output);
        top.values_mut().for_each(rebase_refs);
        top.insert("type".into(), "object".into());
        top.insert("properties".into(), json!({ "output": output }));
        top.insert("required".into(), json!(["output"]));
        top.insert("additionalProperties".into(), false.into());
        Value::Object(top)
    }
}

/// References within the schema point to where it stands now. Those to an anchor
/// find it wherever it stands.
fn rebase_refs(schema: &mut Value) {
    match schema {
        Value::Object(fields) => {
            // What has an address of its own is looked through from there.
            let address = fields.get("$id").and_then(Value::as_str);
            if address.is_some_and(|address| !address.starts_with('#')) {
                return;
            }
            if let Some(Value::String(target)) = fields.get_mut("$ref")
                && let Some(rest) = target.strip_prefix('#')
                && (rest.is_empty() || rest.starts_with('/'))
                && !DEFINITIONS.iter().any(|name| rest.starts_with(&format!("/{name}/")))
            {
                *target = format!("#/properties/output{rest}");
            }
            fields.values_mut().for_each(rebase_refs);
        }
        Value::Array(items) => items.iter_mut().for_each(rebase_refs),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::SystemClock;

    fn output_schema(schema: Value) -> OutputSchema {
        OutputSchema::new(&RawJson::from_serialize(&schema)).unwrap()
    }

    fn title_schema() -> OutputSchema {
        output_schema(json!({
            "type": "object",
            "properties": { "title": { "type": "string" } },
            "required": ["title"],
        }))
    }

    async fn check(text: &str, expect: Result<&str, &str>) {
        match (title_schema().check_text(text, &SystemClock).await, expect) {
            (OutputCheck::Valid(data), Ok(expect)) => assert_eq!(data.as_str(), expect),
            (OutputCheck::Invalid(why), Err(expect)) => assert!(why.contains(expect), "{why}"),
            (got, _) => panic!("{text}: {got:?}"),
        }
    }

    #[tokio::test]
    async fn an_invalid_output_says_what_is_wrong() {
        check(r#"{"title": "A"}"#, Ok(r#"{"title":"A"}"#)).await;
        check("```json\n{\"title\": \"A\"}\n```", Ok(r#"{"title":"A"}"#)).await;
        check("Here it is.", Err("not JSON")).await;
        check("{}", Err("title")).await;
        check(r#"{"title": 7}"#, Err("/title")).await;
        let long = format!("{{\"title\": [\"{}\"]}}", "x".repeat(10_000));
        match title_schema().check_text(&long, &SystemClock).await {
            OutputCheck::Invalid(why) => assert!(why.len() < 1_000, "{}", why.len()),
            OutputCheck::Valid(_) => panic!("a list is no title"),
        }
    }

    #[test]
    fn an_invalid_output_schema_is_rejected() {
        for schema in [json!(7), json!({ "type": "nonsense" })] {
            assert!(OutputSchema::new(&RawJson::from_serialize(&schema)).is_err(), "{schema}");
        }
        let vast = json!({ "pattern": r"(\p{L}{60}){10}" });
        assert!(OutputSchema::new(&RawJson::from_serialize(&vast)).is_err());
        let long = json!({ "description": "x".repeat(SCHEMA_BYTES_MAX) });
        assert!(OutputSchema::new(&RawJson::from_serialize(&long)).is_err());
    }

    #[test]
    fn references_resolve_in_the_schema_of_finish() {
        let tree = output_schema(json!({
            "$defs": { "leaf": { "type": "integer" } },
            "type": "object",
            "properties": {
                "value": { "$ref": "#/$defs/leaf" },
                "next": { "$ref": "#" },
            },
            "required": ["value"],
        }));
        let finish = jsonschema::validator_for(&tree.finish_input_schema()).unwrap();
        let fits = |output: Value| finish.is_valid(&json!({ "output": output }));
        assert!(fits(json!({ "value": 1, "next": { "value": 2 } })));
        assert!(!fits(json!({ "value": 1, "next": { "value": "two" } })));
        assert!(!fits(json!({ "next": { "value": 2 } })));
    }

    #[test]
    fn anchors_resolve_in_the_schema_of_finish() {
        for anchor in [
            json!({ "$anchor": "leaf", "type": "integer" }),
            json!({ "$id": "https://example.org/leaf", "$anchor": "leaf", "$ref": "#/$defs/whole",
                "$defs": { "whole": { "type": "integer" } } }),
        ] {
            let target = match anchor.get("$id") {
                Some(_) => "https://example.org/leaf",
                None => "#leaf",
            };
            let tree = output_schema(json!({
                "$defs": { "some": anchor },
                "type": "object",
                "properties": { "value": { "$ref": target } },
            }));
            let finish = jsonschema::validator_for(&tree.finish_input_schema()).unwrap();
            let fits = |output: Value| finish.is_valid(&json!({ "output": output }));
            assert!(fits(json!({ "value": 1 })), "{target}");
            assert!(!fits(json!({ "value": "two" })), "{target}");
        }
    }
}
