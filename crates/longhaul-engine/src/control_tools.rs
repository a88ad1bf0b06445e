//! Specs of the control tools, such as `ask_human` or `finish`, as the model sees them.
//!
//! Control tools are never executed: the state machine turns their calls into gates, timers, child
//! runs and results.

use std::borrow::Cow;
use std::sync::Arc;

use longhaul_core::duration::format_duration;
use longhaul_core::id::ToolName;
use longhaul_core::policy::gate::GateTimeout;
use longhaul_core::port::tool::ToolSpec;
use longhaul_run::RUN_AGENT;
use serde_json::{Value, json};

use crate::agent::Agent;
use crate::output_schema::OutputSchema;

/// Maximum number of agents that the description of `run_agent` lists.
const LISTED_AGENTS_MAX: usize = 50;

/// Definition of a control tool, from which its spec is built.
struct ControlToolDef {
    name: &'static str,
    description: Cow<'static, str>,
    properties: Value,
    required: &'static [&'static str],
}

pub fn is_control_tool(name: &str) -> bool {
    control_tool_specs().iter().any(|spec| spec.name.as_str() == name)
}

pub(crate) fn control_tool_specs() -> Vec<ToolSpec> {
    let [ask_human, report_blocked, wait] = question_tool_defs(GateTimeout::default());
    let definitions = [
        ask_human,
        report_blocked,
        report_progress_tool_def(),
        wait,
        finish_tool_def(),
        run_agent_tool_def(),
    ];
    definitions.into_iter().filter_map(build_control_tool_spec).collect()
}

/// Returns the specs of the tools whose calls wait for an answer within this time.
pub(crate) fn question_tool_specs(timeout: GateTimeout) -> Vec<ToolSpec> {
    question_tool_defs(timeout).into_iter().filter_map(build_control_tool_spec).collect()
}

/// Returns the tools whose calls wait for an answer within this time.
fn question_tool_defs(timeout: GateTimeout) -> [ControlToolDef; 3] {
    let limit = match timeout {
        GateTimeout::Never => "as long as it takes".to_owned(),
        GateTimeout::After(duration) => format!("at most {}", format_duration(duration)),
    };
    [ask_human_tool_def(&limit), report_blocked_tool_def(&limit), wait_tool_def(&limit)]
}

fn build_control_tool_spec(definition: ControlToolDef) -> Option<ToolSpec> {
    Some(ToolSpec {
        name: ToolName::new(definition.name).ok()?,
        description: definition.description.into_owned(),
        schema: json!({
            "type": "object",
            "properties": definition.properties,
            "required": definition.required,
            "additionalProperties": false,
        }),
        can_verify: false,
        in_doubt: None,
        timeout: None,
    })
}

fn ask_human_tool_def(limit: &str) -> ControlToolDef {
    ControlToolDef {
        name: "ask_human",
        description: format!(
            "Asks a person a question and waits for the answer, {limit}. Use it when only a person \
             can know."
        )
        .into(),
        properties: json!({
            "question": { "type": "string", "minLength": 1, "maxLength": 8_000 },
            "options": {
                "type": "array",
                "maxItems": 20,
                "items": { "type": "string", "maxLength": 400 },
                "description": "Answers to choose from, if there are only a few. No other answer is \
                    accepted",
            },
            "schema": {
                "type": "object",
                "description": "A form instead of `options`: a flat JSON Schema whose properties \
                    are strings, numbers, integers, booleans or enums. The answer is a JSON object",
            },
        }),
        required: &["question"],
    }
}

fn report_blocked_tool_def(limit: &str) -> ControlToolDef {
    ControlToolDef {
        name: "report_blocked",
        description: format!(
            "Reports that you can't continue without help, and waits for it, {limit}. Say what is \
             missing and who could fix it."
        )
        .into(),
        properties: json!({
            "reason": { "type": "string", "minLength": 1, "maxLength": 8_000 },
        }),
        required: &["reason"],
    }
}

fn report_progress_tool_def() -> ControlToolDef {
    ControlToolDef {
        name: "report_progress",
        description: "Reports your progress to the people who watch. It does not end your turn."
            .into(),
        properties: json!({
            "percent": { "type": "number", "minimum": 0, "maximum": 100 },
            "message": { "type": "string", "maxLength": 2_000 },
        }),
        required: &["percent", "message"],
    }
}

fn wait_tool_def(limit: &str) -> ControlToolDef {
    ControlToolDef {
        name: "wait",
        description:
            "Waits until a time, for a duration, for a child run or for a signal. It costs \
            nothing. Use it instead of sleeping or asking again and again."
                .into(),
        properties: json!({
            "for": { "type": "string", "description": "A duration, such as `2h 30m`" },
            "until": { "type": "string", "description": "A time, such as `2026-01-31T09:00:00Z`" },
            "child": { "type": "string", "description": "The id of a child run that you started" },
            "signal": {
                "type": "string",
                "description": format!("The name of a signal, which is awaited {limit}"),
                "maxLength": 200,
            },
        }),
        required: &[],
    }
}

fn run_agent_tool_def() -> ControlToolDef {
    ControlToolDef {
        name: RUN_AGENT,
        description:
            "Gives a task to another agent, which works on it in a run of its own and does \
            not see this conversation. Returns the agent's result. Call it several times in one \
            turn to let agents work at the same time."
                .into(),
        properties: json!({
            "agent": { "type": "string", "minLength": 1, "maxLength": 200 },
            "input": { "description": "The task: a text with all that the agent must know, or any \
                JSON that it expects" },
            "background": {
                "type": "boolean",
                "description": "Go on without waiting for the result. You are told when the run \
                    ends. Default: false",
            },
        }),
        required: &["agent", "input"],
    }
}

/// Returns the spec of the control tool `run_agent`, whose description lists the agents that may be
/// started, but at most `LISTED_AGENTS_MAX` of them. `None` only if the built-in tool name is
/// invalid.
pub(crate) fn build_run_agent_tool_spec(agents: &[Arc<Agent>]) -> Option<ToolSpec> {
    let mut spec = build_control_tool_spec(run_agent_tool_def())?;
    let shown = agents.iter().take(LISTED_AGENTS_MAX);
    let lines = shown.map(|agent| match agent.description.as_str() {
        "" => format!("\n- {}", agent.name),
        description => format!("\n- {}: {description}", agent.name),
    });
    spec.description.push_str(" The agents are:");
    spec.description.extend(lines);
    Some(spec)
}

/// Returns the spec of the control tool `finish` for an agent with this output schema. `None` only
/// if the built-in tool name is invalid.
pub(crate) fn build_finish_tool_spec(output_schema: &OutputSchema) -> Option<ToolSpec> {
    let base = build_control_tool_spec(finish_tool_def())?;
    Some(ToolSpec {
        description: format!("{} The result must match the schema.", base.description),
        schema: output_schema.finish_tool_input_schema(),
        ..base
    })
}

fn finish_tool_def() -> ControlToolDef {
    ControlToolDef {
        name: "finish",
        description: "Ends your work with this result. Nothing runs after it.".into(),
        properties: json!({
            "output": { "description": "The result: a text, or any JSON" },
        }),
        required: &["output"],
    }
}
