//! The cards of the tools that the heart knows: what a model is told of them.
//!
//! Never: what they do. The heart turns them into gates, timers and ends.

use longhaul_core::id::ToolName;
use longhaul_core::port::tool::ToolSpec;
use serde_json::{Value, json};

use crate::output_schema::OutputSchema;

/// A control tool as it is written down here.
struct ControlToolDef {
    name: &'static str,
    description: &'static str,
    properties: Value,
    required: &'static [&'static str],
}

/// The cards of all control tools.
pub(crate) fn specs() -> Vec<ToolSpec> {
    let written = [ask_human(), report_blocked(), report_progress(), wait(), finish()];
    written.into_iter().filter_map(spec).collect()
}

fn spec(written: ControlToolDef) -> Option<ToolSpec> {
    Some(ToolSpec {
        name: ToolName::new(written.name).ok()?,
        description: written.description.to_owned(),
        schema: json!({
            "type": "object",
            "properties": written.properties,
            "required": written.required,
            "additionalProperties": false,
        }),
        can_verify: false,
        in_doubt: None,
        timeout: None,
    })
}

fn ask_human() -> ControlToolDef {
    ControlToolDef {
        name: "ask_human",
        description: "Asks a person a question and waits for the answer, for days if need be. \
            Use it when only a person can know.",
        properties: json!({
            "question": { "type": "string", "minLength": 1, "maxLength": 8_000 },
            "options": {
                "type": "array",
                "maxItems": 20,
                "items": { "type": "string", "maxLength": 400 },
                "description": "Answers to choose from, if there are only a few",
            },
        }),
        required: &["question"],
    }
}

fn report_blocked() -> ControlToolDef {
    ControlToolDef {
        name: "report_blocked",
        description: "Says that you can't go on without help, and waits for it. Say what is \
            missing and who could mend it.",
        properties: json!({
            "reason": { "type": "string", "minLength": 1, "maxLength": 8_000 },
        }),
        required: &["reason"],
    }
}

fn report_progress() -> ControlToolDef {
    ControlToolDef {
        name: "report_progress",
        description: "Tells the people who watch how far you are. It does not end your turn.",
        properties: json!({
            "percent": { "type": "number", "minimum": 0, "maximum": 100 },
            "message": { "type": "string", "maxLength": 2_000 },
        }),
        required: &["percent", "message"],
    }
}

fn wait() -> ControlToolDef {
    ControlToolDef {
        name: "wait",
        description: "Rests until a time has come or a signal arrives. It costs nothing.",
        properties: json!({
            "for": { "type": "string", "description": "A span, such as `2h 30m`" },
            "until": { "type": "string", "description": "A time, such as `2026-01-31T09:00:00Z`" },
            "signal": { "type": "string", "description": "The name of a signal", "maxLength": 200 },
        }),
        required: &[],
    }
}

/// The card of `finish` where the result must be of this kind.
pub(crate) fn finish_spec(contract: &OutputSchema) -> Option<ToolSpec> {
    let card = spec(finish())?;
    Some(ToolSpec {
        description: format!("{} It must fit the schema.", card.description),
        schema: contract.finish_input_schema(),
        ..card
    })
}

fn finish() -> ControlToolDef {
    ControlToolDef {
        name: "finish",
        description: "Ends your work with this result. Nothing is done after it.",
        properties: json!({
            "output": { "description": "The result: a text, or any JSON" },
        }),
        required: &["output"],
    }
}
