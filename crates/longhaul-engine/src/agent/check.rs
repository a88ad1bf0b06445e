//! Checks the definition of an agent, whether a file or a program defines it. The messages are the
//! same for both.

use longhaul_core::glob;
use longhaul_core::raw::{RawJson, canonical_json};
use longhaul_core::schema::{SchemaComplexity, SchemaError, find_external_reference};
use serde_json::Value;

use crate::agent::Agent;
use crate::agent::config::{GradingConfig, IsolationLevel};
use crate::agent::template_check::{self, LANE_VARIABLES, prompt_variable_names};
use crate::drive::truncate::first_chars;
use crate::guard::validation::SchemaValidator;

/// Name of the tool that runs shell commands.
pub const SHELL_TOOL: &str = "shell";

/// Whether the agent's file declares that commands run unsandboxed.
pub fn is_unsandboxed(agent: &Agent) -> bool {
    let sandbox = agent.sandbox.as_ref();
    sandbox.is_some_and(|sandbox| sandbox.isolation == IsolationLevel::None)
}

/// Returns an error message if the agent has the shell tool and does not say where its commands
/// run.
pub fn missing_sandbox_error(agent: &Agent) -> Option<&'static str> {
    let runs = agent.tools.iter().any(|tool| tool == SHELL_TOOL);
    (runs && agent.sandbox.is_none()).then_some(
        "`shell` needs a sandbox: write `sandbox: { provider: local }`, or \
         `sandbox: { isolation: none }` to run its commands with your own rights",
    )
}

/// Returns all problems of the agent. Converts its output schema to canonical JSON, as for agent
/// files. `tool_problem` returns why a tool with this name can't be used.
pub fn check_agent_and_canonicalize_schema(
    agent: &mut Agent,
    tool_problem: &dyn Fn(&str) -> Option<String>,
) -> Vec<String> {
    let mut problems: Vec<String> =
        agent.tools.iter().filter_map(|tool| tool_problem(tool)).collect();
    problems.extend(missing_sandbox_error(agent).map(str::to_owned));
    let rules = agent.rules.iter().map(|rule| ("approve", &rule.tool, &rule.match_glob));
    let effects = agent.effects.iter().map(|rule| ("effects", &rule.tool, &rule.match_glob));
    for (field, tool, match_glob) in rules.chain(effects) {
        let errors =
            match_glob.iter().chain([tool]).filter_map(|glob| glob::check_length(glob).err());
        problems.extend(errors.map(|reason| format!("`{field}`: {reason}")));
    }
    let names = prompt_variable_names(agent.perception.is_some());
    let prompt = [("the prompt", &agent.prompt, Some(&names[..]))];
    let lane = agent.lane.iter();
    let lane = lane.map(|lane| ("`lane`", lane, Some(LANE_VARIABLES)));
    let events = agent.events.values();
    let events = events.map(|text| ("`events`", text, None));
    for (template_name, text, names) in prompt.into_iter().chain(lane).chain(events) {
        if let Some(error) = template_check::find_template_error(text, names) {
            problems.push(format!("{template_name}:{}: {}", error.position, error.message));
        }
    }
    if let Some(schema) = &agent.output {
        match validate_output_schema(schema.to_value()) {
            Ok(schema) => agent.output = Some(schema),
            Err(reason) => problems.push(format!("`output`: {reason}")),
        }
    }
    if let Some(GradingConfig { rubric, max_rounds, .. }) = &agent.outcome {
        problems.extend(rubric_error(rubric).map(|reason| format!("`outcome`: {reason}")));
        if !(1..=GradingConfig::MAX_ROUNDS_MAX).contains(max_rounds) {
            let max = GradingConfig::MAX_ROUNDS_MAX;
            problems.push(format!("`outcome`: `max_rounds` must be 1 to {max}"));
        }
    }
    problems
}

/// Returns the reason why this text is not a valid rubric. `None` means that it is valid.
pub fn rubric_error(rubric: &str) -> Option<String> {
    let max = GradingConfig::RUBRIC_BYTES_MAX;
    if rubric.trim().is_empty() {
        return Some("the rubric is empty".to_owned());
    }
    (rubric.len() > max).then(|| format!("the rubric is longer than {max} bytes: shorten it"))
}

/// Checks an output schema (the JSON Schema of an agent's result) and returns it as canonical JSON.
///
/// # Errors
/// The schema can't be used for validation. The message is the reason.
pub fn validate_output_schema(value: Value) -> Result<RawJson, String> {
    if !value.is_object() {
        return Err(
            "this is not a schema: write an object, such as {\"type\": \"object\"}".to_owned()
        );
    }
    if let Err(error) = SchemaValidator::new(&value) {
        if let Some(reference) = find_external_reference(&value) {
            return Err(format!(
                "the schema refers to `{reference}`, but external references are not fetched: put it \
                 under `$defs`"
            ));
        }
        // The message may contain a part of the schema.
        let error = first_chars(&error, 300);
        return Err(match SchemaComplexity::measure(&value) {
            Err(SchemaError::Cycle(_)) => format!("the schema has a cycle: {error}"),
            Err(SchemaError::Expansion) => format!("the schema is too large: {error}"),
            Err(SchemaError::Reference(_)) | Ok(_) => {
                format!("the schema is not a valid JSON Schema: {error}")
            }
        });
    }
    schema_as_canonical_json(&value)
}

/// Returns an output schema as canonical JSON, without a check of the schema.
///
/// # Errors
/// The schema can't be stored.
pub fn schema_as_canonical_json(schema: &Value) -> Result<RawJson, String> {
    RawJson::parse(canonical_json(schema))
        .map_err(|error| format!("the schema can't be stored: {error}"))
}
