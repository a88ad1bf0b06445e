//! Outputs of the earlier steps of a chain, as the templates and the task text of a later step see
//! them.

use longhaul_core::chain::{CompletedChainStep, PositionInChain};
use longhaul_core::raw::RawJson;
use longhaul_core::status::RunOutput;
use serde_json::{Map, Value, json};

use crate::agent::Agent;
use crate::error::{Error, Result};
use crate::guard::template::template_uses_value;
use crate::replay::replay_run_state;
use crate::services::Services;

/// Maximum size in bytes of the previous step's text that is added to the task text.
const TEXT_BYTES_MAX: usize = 64 * 1024;

/// Outputs of the earlier steps of a chain. If a step has run several times, its newest output.
/// Empty for a run that belongs to no chain.
#[derive(Debug, Default)]
pub(crate) struct ChainOutputs {
    /// Name of the previous step, and a JSON object with its agent, run and output.
    previous: Option<(String, Value)>,
    /// JSON objects with agent, run and output of the earlier steps, by the names of the steps.
    steps: Map<String, Value>,
}

impl ChainOutputs {
    /// Reads the outputs of the earlier steps of a chain from the journals of their runs. A run
    /// that was deleted since has no output.
    pub(crate) async fn load(
        services: &Services,
        position: Option<&PositionInChain>,
    ) -> Result<Self> {
        let mut outputs = Self::default();
        let Some(position) = position else { return Ok(outputs) };
        for CompletedChainStep { step, run } in position.completed.iter().rev() {
            let Some(step) = position.chain.steps.get(*step) else { continue };
            if outputs.steps.contains_key(&step.name) {
                continue;
            }
            let output = match replay_run_state(services, *run).await {
                Ok((folded, _)) => folded.output().cloned().unwrap_or_default(),
                Err(Error::RunNotFound(_)) => RunOutput::default(),
                Err(error) => return Err(error),
            };
            let data = output.data.as_ref().map(RawJson::to_value);
            let output = json!({ "text": output.text, "data": data });
            let value = json!({ "agent": step.agent.as_str(), "run": run, "output": output });
            if outputs.previous.is_none() {
                outputs.previous = Some((step.name.clone(), value.clone()));
            }
            outputs.steps.insert(step.name.clone(), value);
        }
        Ok(outputs)
    }

    /// Adds the outputs of the earlier chain steps to the values of a template, under the names
    /// `previous` and `steps`.
    pub(crate) fn add_outputs_to_template_values(&self, values: &mut Value) {
        values["previous"] = self.previous.as_ref().map_or(Value::Null, |(_, value)| value.clone());
        values["steps"] = Value::Object(self.steps.clone());
    }

    /// Returns the task text with the text of the previous chain step under a heading, unless a
    /// template of the agent uses the outputs of earlier steps itself.
    pub(crate) fn add_outputs_to_task_text(&self, agent: &Agent, text: String) -> String {
        let sources = || agent.events.values().chain([&agent.prompt]);
        let uses = |name| sources().any(|source| template_uses_value(source, name));
        let Some((step, value)) = &self.previous else { return text };
        let previous = value["output"]["text"].as_str().unwrap_or_default();
        if previous.is_empty() || uses("previous") || uses("steps") {
            return text;
        }
        let excerpt = &previous[..previous.floor_char_boundary(TEXT_BYTES_MAX)];
        let omission_note = match excerpt.len() < previous.len() {
            true => format!("\n\n[{} more bytes are left out]", previous.len() - excerpt.len()),
            false => String::new(),
        };
        format!("{text}\n\n## Result of the previous step, `{step}`\n\n{excerpt}{omission_note}")
    }
}
