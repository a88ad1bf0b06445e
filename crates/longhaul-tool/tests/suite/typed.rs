//! Typed tools: the derived schema, and the parsed input of a call.

use std::collections::BTreeMap;

use async_trait::async_trait;
use insta::assert_snapshot;
use longhaul_core::event::tool::{ToolOutput, VerifyOutcome};
use longhaul_core::id::{CallId, Epoch, RunId};
use longhaul_core::policy::effect::{EffectClass, InDoubtPolicy};
use longhaul_core::port::tool::{ToolContext, ToolFailure};
use longhaul_core::raw::RawJson;
use longhaul_core::time::Millis;
use longhaul_tool::typed::{TypedTool, typed};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};

/// How loud.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum Voice {
    Low,
    Loud,
}

/// Where somebody is.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Seat {
    /// From the front, from 1
    row: u8,
}

fn default_times() -> u32 {
    1
}

/// This comment is about the type and not for the model.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Call {
    /// Whom to call, such as `Anna`
    name: String,
    /// How loud; low unless given
    voice: Option<Voice>,
    /// Where they sit
    seat: Option<Seat>,
    /// How often
    #[serde(default = "default_times")]
    #[schemars(range(min = 1, max = 9))]
    times: u32,
    /// Words for them
    words: Option<Vec<String>>,
}

#[derive(Debug)]
struct Caller;

#[async_trait]
impl TypedTool for Caller {
    type Input = Call;
    const NAME: &'static str = "call_out";
    const DESCRIPTION: &'static str = "Calls somebody.";
    const CLASS: EffectClass = EffectClass::Keyed;
    const VERIFIES: bool = true;
    const IN_DOUBT: Option<InDoubtPolicy> = Some(InDoubtPolicy::Tell);
    const TIMEOUT: Option<Millis> = Some(Millis::from_secs(3));
    const IS_CANCEL_SAFE: bool = true;

    fn class(&self, input: &Call) -> EffectClass {
        match input.voice {
            Some(Voice::Loud) => EffectClass::Once,
            Some(Voice::Low) | None => EffectClass::Pure,
        }
    }

    fn rule_match_texts(&self, input: &Call) -> Option<Vec<String>> {
        (input.name != "whole").then(|| vec![input.name.clone()])
    }

    async fn call(&self, input: Call, ctx: &ToolContext) -> Result<ToolOutput, ToolFailure> {
        if input.name.is_empty() {
            return Err(ToolFailure::new("nobody has no name"));
        }
        let row = input.seat.map_or(0, |seat| seat.row);
        let joined = input.words.unwrap_or_default().join(" ");
        let recipient = ctx.context.get("recipient").map(RawJson::as_str);
        let text = format!("{} x{} row {row} {joined} {recipient:?}", input.name, input.times);
        Ok(ToolOutput::text(text))
    }

    async fn verify(&self, input: Call, _around: &ToolContext) -> VerifyOutcome {
        VerifyOutcome::Happened(ToolOutput::text(input.name))
    }
}

fn tool_context() -> ToolContext {
    let call = CallId { turn: 1, index: 1 };
    ToolContext {
        context: BTreeMap::from([("recipient".to_owned(), RawJson::from_serialize(&"ada"))]),
        ..ToolContext::new(RunId::from_bits(7), call, Epoch(1))
    }
}

#[test]
fn the_schema_has_the_doc_comments_as_descriptions() {
    let tool = typed(Caller).unwrap();
    let spec = tool.spec();
    assert_eq!(spec.name.as_str(), "call_out");
    assert_eq!(spec.timeout, Some(Millis::from_secs(3)));
    assert_eq!(spec.in_doubt, Some(InDoubtPolicy::Tell));
    assert!(spec.can_verify && tool.is_cancel_safe());
    assert_snapshot!(serde_json::to_string_pretty(&spec.schema).unwrap());
}

#[test]
fn effect_class_and_rule_match_texts_come_from_the_type() {
    let tool = typed(Caller).unwrap();
    let check = |input: Value, class: EffectClass, match_text: &str| {
        assert_eq!(tool.class(&input), class, "{input}");
        assert_eq!(tool.rule_match_texts(&input), [match_text], "{input}");
    };
    check(json!({ "name": "Bo" }), EffectClass::Pure, "Bo");
    check(json!({ "name": "Bo", "voice": "loud" }), EffectClass::Once, "Bo");
    check(json!({ "name": "whole" }), EffectClass::Pure, r#"{"name":"whole"}"#);
    // An invalid input gets the defaults of the type.
    check(json!({}), EffectClass::Keyed, "{}");
}

#[tokio::test]
async fn a_call_gets_typed_input_and_the_context() {
    let tool = typed(Caller).unwrap();
    let call = async |input: Value| {
        let result = tool.call(input, &tool_context()).await;
        match result {
            Ok(output) => format!("{:?}", output.content),
            Err(failure) => failure.to_string(),
        }
    };
    let check = |text: String, part: &str| assert!(text.contains(part), "{text}");
    let full_input = json!({ "name": "Bo", "seat": { "row": 2 }, "words": ["a", "b"], "times": 3 });
    check(call(full_input).await, r#"Bo x3 row 2 a b Some(\"\\\"ada\\\"\")"#);
    check(call(json!({ "name": "Bo" })).await, "Bo x1 row 0");
    check(call(json!({ "name": "" })).await, "nobody has no name");
    let unknown_field = call(json!({ "name": "Bo", "recipient": "eve" })).await;
    check(unknown_field.clone(), "can't read its input: unknown field `recipient`");
    check(unknown_field, "Call it again with a JSON object of: name, voice, seat, times, words");
    let outcome = tool.verify(json!({ "name": "Bo" }), &tool_context()).await;
    assert_eq!(outcome, VerifyOutcome::Happened(ToolOutput::text("Bo")));
    let outcome = tool.verify(json!({}), &tool_context()).await;
    assert_eq!(outcome, VerifyOutcome::Unknown);
}

/// A tool with any input type that does nothing.
#[derive(Debug)]
struct SchemaTool<T>(std::marker::PhantomData<fn() -> T>);

#[async_trait]
impl<T: serde::de::DeserializeOwned + JsonSchema + Send + std::fmt::Debug + 'static> TypedTool
    for SchemaTool<T>
{
    type Input = T;
    const NAME: &'static str = "of";
    const DESCRIPTION: &'static str = "Nothing.";

    async fn call(&self, _: T, _: &ToolContext) -> Result<ToolOutput, ToolFailure> {
        Ok(ToolOutput::default())
    }
}

fn schema_of<T: serde::de::DeserializeOwned + JsonSchema + Send + std::fmt::Debug + 'static>()
-> String {
    match typed(SchemaTool::<T>(std::marker::PhantomData)) {
        Ok(tool) => tool.spec().schema.to_string(),
        Err(error) => error.to_string(),
    }
}

#[derive(Debug, Deserialize, JsonSchema)]
#[expect(dead_code, reason = "only its schema is used")]
struct Tree {
    name: String,
    below: Vec<Self>,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[expect(dead_code, reason = "only its schema is used")]
struct Forest {
    trees: Vec<Tree>,
    best: Option<Box<Tree>>,
}

#[derive(Debug, Deserialize, JsonSchema)]
struct Nothing {}

#[derive(Debug, Deserialize, JsonSchema)]
struct Unit;

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(tag = "kind")]
#[expect(dead_code, reason = "only its schema is used")]
enum Either {
    This { a: String },
    That { b: String },
}

#[test]
fn recursive_types_are_named_and_non_object_types_are_rejected() {
    let schemas = [
        schema_of::<Nothing>(),
        schema_of::<Tree>(),
        schema_of::<Forest>(),
        schema_of::<Unit>(),
        schema_of::<String>(),
        schema_of::<Either>(),
        schema_of::<Value>(),
        schema_of::<BTreeMap<String, u8>>(),
    ];
    assert_snapshot!(schemas.join("\n"));
}
