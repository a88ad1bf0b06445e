//! Specs of the control tools, such as `ask_human` or `finish`, as the model sees them.
//!
//! Control tools are never executed: the state machine turns their calls into gates, timers, child
//! runs and results.

use std::sync::Arc;

use longhaul_core::duration::format_duration;
use longhaul_core::policy::gate::GateTimeout;
use longhaul_core::port::tool::ToolSpec;
use longhaul_run::RUN_AGENT;
use serde_json::{Value, json};

use crate::agent::Agent;
use crate::tools::output_schema::{FINISH_TOOL, OutputSchema};

/// Maximum number of agents that the description of `run_agent` lists.
const LISTED_AGENTS_MAX: usize = 50;

/// Name, description, properties of the input and required properties of a control tool.
type ControlToolDef = (&'static str, String, Value, &'static [&'static str]);

pub fn is_control_tool(name: &str) -> bool {
    control_tool_specs().iter().any(|spec| spec.name.as_str() == name)
}

pub(crate) fn control_tool_specs() -> Vec<ToolSpec> {
    let mut specs = question_tool_specs(GateTimeout::default());
    specs.extend(build_specs(other_tools()));
    specs
}

/// Returns the specs of the tools whose calls wait for an answer within this time.
pub(crate) fn question_tool_specs(timeout: GateTimeout) -> Vec<ToolSpec> {
    let limit = match timeout {
        GateTimeout::Never => "as long as it takes".to_owned(),
        GateTimeout::After(duration) => format!("at most {}", format_duration(duration)),
    };
    build_specs(question_tools(&limit))
}

fn build_specs(definitions: [ControlToolDef; 3]) -> Vec<ToolSpec> {
    definitions.map(build_spec).into()
}

fn build_spec((name, description, properties, required): ControlToolDef) -> ToolSpec {
    ToolSpec::with_input_properties(name, &description, properties, required)
}

/// Returns the tools whose calls wait for an answer; `limit` says how long.
fn question_tools(limit: &str) -> [ControlToolDef; 3] {
    [
        (
            "ask_human",
            format!(
                "Asks a person a question and waits for the answer, {limit}. Use it when only a \
                 person can know."
            ),
            json!({
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
            &["question"],
        ),
        (
            "report_blocked",
            format!(
                "Reports that you can't continue without help, and waits for it, {limit}. Say what \
                 is missing and who could fix it."
            ),
            json!({ "reason": { "type": "string", "minLength": 1, "maxLength": 8_000 } }),
            &["reason"],
        ),
        (
            "wait",
            "Waits until a time, for a duration, for a child run or for a signal. It costs \
             nothing. Use it instead of sleeping or asking again and again."
                .to_owned(),
            json!({
                "for": { "type": "string", "description": "A duration, such as `2h 30m`" },
                "until": { "type": "string", "description": "A time, such as `2026-01-31T09:00:00Z`" },
                "child": { "type": "string", "description": "The id of a child run that you started" },
                "signal": {
                    "type": "string",
                    "description": format!("The name of a signal, which is awaited {limit}"),
                    "maxLength": 200,
                },
            }),
            &[],
        ),
    ]
}

fn other_tools() -> [ControlToolDef; 3] {
    let report_progress = (
        "report_progress",
        "Reports your progress to the people who watch. It does not end your turn.".to_owned(),
        json!({
            "percent": { "type": "number", "minimum": 0, "maximum": 100 },
            "message": { "type": "string", "maxLength": 2_000 },
        }),
        &["percent", "message"][..],
    );
    [report_progress, finish_tool(), run_agent_tool()]
}

fn finish_tool() -> ControlToolDef {
    (
        FINISH_TOOL,
        "Ends your work with this result. Nothing runs after it.".to_owned(),
        json!({ "output": { "description": "The result: a text, or any JSON" } }),
        &["output"],
    )
}

fn run_agent_tool() -> ControlToolDef {
    (
        RUN_AGENT,
        "Gives a task to another agent, which works on it in a run of its own and does not see this \
         conversation. Returns the agent's result. Call it several times in one turn to let agents \
         work at the same time."
            .to_owned(),
        json!({
            "agent": { "type": "string", "minLength": 1, "maxLength": 200 },
            "input": { "description": "The task: a text with all that the agent must know, or any \
                JSON that it expects" },
            "background": {
                "type": "boolean",
                "description": "Go on without waiting for the result. You are told when the run \
                    ends. Default: false",
            },
        }),
        &["agent", "input"],
    )
}

/// Returns the spec of the control tool `run_agent`, whose description lists the agents that may be
/// started, but at most `LISTED_AGENTS_MAX` of them.
pub(crate) fn build_run_agent_tool_spec(agents: &[Arc<Agent>]) -> ToolSpec {
    let mut spec = build_spec(run_agent_tool());
    let shown = agents.iter().take(LISTED_AGENTS_MAX);
    let lines = shown.map(|agent| match agent.description.as_str() {
        "" => format!("\n- {}", agent.name),
        description => format!("\n- {}: {description}", agent.name),
    });
    spec.description.push_str(" The agents are:");
    spec.description.extend(lines);
    spec
}

/// Returns the spec of the control tool `finish` for an agent with this output schema.
pub(crate) fn build_finish_tool_spec(output_schema: &OutputSchema) -> ToolSpec {
    let mut spec = build_spec(finish_tool());
    spec.description.push_str(" The result must match the schema.");
    spec.schema = output_schema.finish_tool_input_schema();
    spec
}
