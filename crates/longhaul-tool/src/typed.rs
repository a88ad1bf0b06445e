//! Tools whose input is a Rust type. The schema is derived from the type, and the input is parsed
//! before the tool is called.
//!
//! Invariant: values that the runtime injects are passed in the context, not in the input. They are
//! not part of the schema, and the model can't set them. A schema has no external references: types
//! are inlined, and only a recursive type is defined under `$defs`.

use std::fmt::Debug;
use std::sync::Arc;

use async_trait::async_trait;
use schemars::generate::SchemaSettings;
use schemars::transform::transform_subschemas;
use schemars::{JsonSchema, Schema};
use serde::Deserialize as _;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};

use longhaul_core::event::tool::{ToolOutput, VerifyOutcome};
use longhaul_core::id::{IdError, ToolName};
use longhaul_core::policy::effect::{EffectClass, InDoubtPolicy};
use longhaul_core::policy::effect_facts::PredictedEffects;
use longhaul_core::port::tool::{Tool, ToolContext, ToolFailure, ToolSpec};
use longhaul_core::raw::canonical_json;
use longhaul_core::time::Millis;

/// A tool whose input is a Rust type.
///
/// The model sees the comments on the input's fields as their descriptions. With
/// `#[serde(deny_unknown_fields)]`, other fields are rejected.
#[async_trait]
pub trait TypedTool: Send + Sync + Debug + 'static {
    /// The input from the model: a struct with named fields.
    type Input: DeserializeOwned + JsonSchema + Send;

    /// Name of the tool for the model and for the `tools` of an agent file.
    const NAME: &'static str;

    /// Description of the tool for the model.
    const DESCRIPTION: &'static str;

    /// Effect class of the tool's calls (whether they may be repeated after a crash), unless
    /// `class` is overridden.
    const CLASS: EffectClass = EffectClass::Once;

    /// Whether `verify` is implemented, which checks whether an earlier call has taken effect.
    const VERIFIES: bool = false;

    /// What to do with a call in doubt (started, outcome unknown after a crash). `None` means the
    /// agent's setting applies.
    const IN_DOUBT: Option<InDoubtPolicy> = None;

    /// Timeout of a call of this tool. `None` means the runtime's default.
    const TIMEOUT: Option<Millis> = None;

    /// Whether calls are cancel safe: dropping a call stops everything it has started before the
    /// drop returns, so that a cancelled call is never in doubt.
    const IS_CANCEL_SAFE: bool = false;

    /// Returns the effect class of a call with this input: whether it may be repeated after a
    /// crash.
    fn class(&self, _input: &Self::Input) -> EffectClass {
        Self::CLASS
    }

    /// Returns the texts that approval rules match, such as paths. `None` means the whole input as
    /// canonical JSON.
    fn rule_match_texts(&self, _input: &Self::Input) -> Option<Vec<String>> {
        None
    }

    /// Returns what a call would change, for the person who approves it. Must be fast and change
    /// nothing.
    async fn predict_effects(&self, _input: Self::Input, _ctx: &ToolContext) -> PredictedEffects {
        PredictedEffects::default()
    }

    /// Runs a call of the tool.
    async fn call(&self, input: Self::Input, ctx: &ToolContext) -> Result<ToolOutput, ToolFailure>;

    /// Checks whether an earlier call with the context's idempotency key has taken effect.
    async fn verify(&self, _input: Self::Input, _ctx: &ToolContext) -> VerifyOutcome {
        VerifyOutcome::Unknown
    }
}

/// Why a type can't be used as a typed tool.
#[derive(Debug, thiserror::Error)]
pub enum TypedToolError {
    /// The name of the tool is invalid.
    #[error(transparent)]
    Name(#[from] IdError),
    /// The input type of the tool is not an object. Providers accept only objects at the top of a
    /// schema.
    #[error(
        "the input of the tool `{tool}` is {found}, but it must be an object: make its type a \
         struct with named fields, and put the varying part into one of them"
    )]
    InputNotObject { tool: ToolName, found: &'static str },
}

/// Returns the [`Tool`] of a typed tool. Fails if its name or its input type is invalid.
pub fn typed<T: TypedTool>(tool: T) -> Result<Arc<dyn Tool>, TypedToolError> {
    let spec = ToolSpec {
        can_verify: T::VERIFIES,
        in_doubt: T::IN_DOUBT,
        timeout: T::TIMEOUT,
        ..tool_spec::<T::Input>(T::NAME, T::DESCRIPTION)?
    };
    Ok(Arc::new(TypedToolAdapter { spec, tool }))
}

/// Returns the spec of a tool whose input is a Rust type, with the defaults for everything else.
pub(crate) fn tool_spec<I: JsonSchema>(
    name: &str,
    description: &str,
) -> Result<ToolSpec, TypedToolError> {
    let name = ToolName::new(name)?;
    let schema = match input_schema::<I>() {
        Ok(schema) => schema,
        Err(found) => return Err(TypedToolError::InputNotObject { tool: name, found }),
    };
    Ok(ToolSpec {
        name,
        description: description.to_owned(),
        schema,
        can_verify: false,
        in_doubt: None,
        timeout: None,
    })
}

/// Parses the input of a tool call. The error says what is wrong with the input.
pub(crate) fn parse_input<T: DeserializeOwned>(
    spec: &ToolSpec,
    input: Value,
) -> Result<T, ToolFailure> {
    serde_json::from_value(input).map_err(|error| {
        let fields = spec.schema["properties"].as_object();
        let fields: Vec<&str> =
            fields.into_iter().flat_map(|fields| fields.keys()).map(String::as_str).collect();
        let (name, fields) = (&spec.name, fields.join(", "));
        ToolFailure::new(format!(
            "{name} can't read its input: {error}. Call it again with a JSON object of: {fields}."
        ))
    })
}

/// Adapter that implements [`Tool`] for a typed tool.
#[derive(Debug)]
struct TypedToolAdapter<T> {
    spec: ToolSpec,
    tool: T,
}

#[async_trait]
impl<T: TypedTool> Tool for TypedToolAdapter<T> {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    fn class(&self, input: &Value) -> EffectClass {
        let input = T::Input::deserialize(input);
        input.map_or(T::CLASS, |input| self.tool.class(&input))
    }

    fn rule_match_texts(&self, input: &Value) -> Vec<String> {
        let typed = T::Input::deserialize(input).ok();
        let texts = typed.and_then(|typed| self.tool.rule_match_texts(&typed));
        texts.unwrap_or_else(|| vec![canonical_json(input)])
    }

    fn is_cancel_safe(&self) -> bool {
        T::IS_CANCEL_SAFE
    }

    async fn predict_effects(&self, input: &Value, ctx: &ToolContext) -> PredictedEffects {
        match T::Input::deserialize(input) {
            Ok(input) => self.tool.predict_effects(input, ctx).await,
            Err(_) => PredictedEffects::default(),
        }
    }

    async fn call(&self, input: Value, ctx: &ToolContext) -> Result<ToolOutput, ToolFailure> {
        let input = parse_input(&self.spec, input)?;
        self.tool.call(input, ctx).await
    }

    async fn verify(&self, input: Value, ctx: &ToolContext) -> VerifyOutcome {
        match parse_input(&self.spec, input) {
            Ok(input) => self.tool.verify(input, ctx).await,
            // An input that can't be parsed was never called with.
            Err(_) => VerifyOutcome::Unknown,
        }
    }
}

/// Returns the JSON Schema (draft 2020-12) of a tool's input type. The error says what the type is
/// if it is not an object.
fn input_schema<T: JsonSchema>() -> Result<Value, &'static str> {
    let settings = SchemaSettings::draft2020_12().with(|settings| {
        settings.inline_subschemas = true;
        settings.meta_schema = None;
    });
    let mut schema = settings.into_generator().into_root_schema_for::<T>();
    simplify(&mut schema);
    let Value::Object(mut schema) = schema.to_value() else {
        return Err("anything");
    };
    let choices = ["oneOf", "anyOf", "allOf"];
    if choices.iter().any(|choice| schema.contains_key(*choice)) {
        return Err("a choice between several types");
    }
    if schema.get("type").and_then(Value::as_str) != Some("object") {
        return Err("not an object");
    }
    // The tool has a name and a description of its own.
    schema.remove("title");
    schema.remove("description");
    schema.entry("properties").or_insert_with(|| json!({}));
    Ok(Value::Object(schema))
}

/// Removes schema keywords that some model providers reject and no model needs.
fn simplify(schema: &mut Schema) {
    transform_subschemas(&mut simplify, schema);
    let Some(schema) = schema.as_object_mut() else {
        return;
    };
    // `uint8` and the like are not JSON Schema formats. The limits stay.
    let kinds = schema.get("type").map_or(&[][..], |kind| {
        kind.as_array().map_or_else(|| std::slice::from_ref(kind), Vec::as_slice)
    });
    if kinds.iter().any(|kind| kind == "integer" || kind == "number") {
        schema.remove("format");
    }
    // Line breaks of a wrapped comment are removed, paragraphs are kept.
    if let Some(Value::String(text)) = schema.get_mut("description") {
        let paragraphs = text.split("\n\n").map(|lines| lines.replace('\n', " "));
        *text = paragraphs.collect::<Vec<_>>().join("\n\n");
    }
    let required = schema.get("required").cloned().unwrap_or_default();
    let is_required = |name: &str| {
        let names = required.as_array().into_iter().flatten();
        names.into_iter().any(|required| required == name)
    };
    let properties = schema.get_mut("properties").and_then(Value::as_object_mut);
    for (name, property) in properties.into_iter().flatten() {
        if let Value::Object(property) = property
            && !is_required(name)
        {
            remove_null(property);
        }
    }
}

/// Removes `null` from the schema of an optional property, because a model leaves the property out
/// instead. Providers differ most in how they treat lists of types.
fn remove_null(property: &mut Map<String, Value>) {
    let is_null = |value: &Value| value.is_null() || value == "null" || value["type"] == "null";
    for list in ["type", "enum", "anyOf"] {
        let Some(Value::Array(values)) = property.get_mut(list) else {
            continue;
        };
        values.retain(|value| !is_null(value));
        let mut remaining = std::mem::take(values);
        match (list, remaining.len()) {
            ("type", 1) => {
                property.insert(list.to_owned(), remaining.remove(0));
            }
            ("anyOf", 1) => {
                property.remove(list);
                let Value::Object(object) = remaining.remove(0) else {
                    continue;
                };
                for (key, value) in object {
                    // The field's own description takes precedence over that of its type.
                    property.entry(key).or_insert(value);
                }
            }
            _ => {
                property.insert(list.to_owned(), Value::Array(remaining));
            }
        }
    }
    if property.get("default").is_some_and(Value::is_null) {
        property.remove("default");
    }
}
