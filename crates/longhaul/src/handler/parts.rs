//! Converts a handler to an agent, a tool and a model.

use std::sync::Arc;

use longhaul_core::id::{AgentName, IdError, ToolName};
use longhaul_core::policy::budget::BudgetRaise;
use longhaul_core::policy::effect::{EffectClass, InDoubtPolicy};
use longhaul_core::port::model::Model;
use longhaul_core::port::tool::{Tool, ToolSpec};
use longhaul_core::time::Millis;
use longhaul_engine::agent::{Agent as AgentDefinition, BudgetPatch};
use longhaul_engine::services::StorePorts;
use serde_json::json;

use crate::handler::function::Handler;
use crate::handler::model::{FINISH_TOOL, HandlerModel};
use crate::handler::threads::HandlerThreadRunner;
use crate::handler::tool::HandlerTool;

/// Maximum duration of one call of a handler, unless its hard timeout is longer.
const CALL_TIMEOUT: Millis = Millis::from_secs(24 * 60 * 60);

/// Maximum active time (time in model and tool calls, without waits) of a handler's run: enough for
/// every call that a crash may repeat, plus a margin.
const ACTIVE_MAX: Millis = Millis::from_secs(10 * 24 * 60 * 60);

/// Maximum number of turns of a handler's run. Two turns are needed; crashes, retries and messages
/// may add more.
const TURNS_MAX: u32 = 1_000;

/// The agent, tool and model that a handler is converted to.
#[derive(Debug)]
pub(crate) struct HandlerAgentParts {
    pub(crate) agent: AgentDefinition,
    pub(crate) tool: Arc<dyn Tool>,
    pub(crate) model_name: String,
    pub(crate) model: Arc<dyn Model>,
}

/// Creates the agent, the tool and the model of a handler. `ports` have the journals of runs, and the
/// full texts of truncated results.
pub(crate) fn handler_to_agent_parts(
    handler: Handler,
    ports: &StorePorts,
    threads: &HandlerThreadRunner,
) -> Result<HandlerAgentParts, IdError> {
    let tool = ToolName::new(format!("handler:{}", handler.name))?;
    let model_name = format!("handler/{}", handler.name);
    let agent = AgentDefinition {
        description: "A function of the program that this runtime is part of.".to_owned(),
        models: vec![model_name.clone()],
        fixed_model: true,
        tools: vec![tool.to_string(), FINISH_TOOL.to_owned()],
        retry: handler.retry,
        // Only the timeouts of an attempt limit a run: with the agents' default budget a long call
        // would end before its result becomes the run's output.
        budget: BudgetPatch {
            caps: BudgetRaise {
                turns: Some(TURNS_MAX),
                active: Some(ACTIVE_MAX),
                ..BudgetRaise::default()
            },
            warn_percent: None,
        },
        ..AgentDefinition::new(AgentName::new(handler.name)?)
    };
    let model = HandlerModel {
        name: model_name.clone(),
        tool: tool.name_for_model_api().into_owned(),
        store: Arc::clone(&ports.store),
        records: Arc::clone(&ports.records),
    };
    // A call of the class `Keyed` is repeated after a crash: the idempotency key makes that safe.
    let (class, in_doubt) = match handler.once {
        true => (EffectClass::Once, Some(InDoubtPolicy::Fail)),
        false => (EffectClass::Keyed, None),
    };
    let spec = ToolSpec {
        name: tool,
        description: agent.description.clone(),
        schema: json!({ "type": "object", "additionalProperties": false }),
        can_verify: false,
        in_doubt,
        timeout: Some(CALL_TIMEOUT.max(agent.retry.hard_timeout.unwrap_or_default())),
    };
    let tool = HandlerTool {
        spec,
        class,
        function: handler.function,
        agent: agent.name.clone(),
        store: Arc::clone(&ports.store),
        threads: threads.clone(),
    };
    Ok(HandlerAgentParts { agent, tool: Arc::new(tool), model_name, model: Arc::new(model) })
}
