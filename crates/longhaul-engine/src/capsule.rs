//! What one run may touch: its agent, its models, its tools, its context.
//!
//! Never: more than its agent's file names. A tool that is not listed does not
//! exist for the run.

use std::collections::BTreeMap;
use std::sync::Arc;

use longhaul_core::id::{CallId, Epoch};
use longhaul_core::port::tool::ToolContext;
use longhaul_core::raw::RawJson;
use longhaul_run::Run;
use serde_json::Value;

use crate::agent::Agent;
use crate::error::Error;
use crate::ports::{Found, Ports};
use crate::toolbox::Equipped;

/// The tool that pages through long results: an agent with any tool has it.
pub(crate) const READ_OUTPUT: &str = "read_output";

/// What one run may touch.
#[derive(Debug, Clone)]
pub(crate) struct Capsule {
    pub(crate) agent: Arc<Agent>,
    /// In the order in which they are asked; never empty.
    models: Vec<Found>,
    tools: BTreeMap<String, Equipped>,
    context: BTreeMap<String, RawJson>,
}

/// A capsule, or the sentence that says what to configure.
pub(crate) type Opened = Result<Capsule, String>;

impl Capsule {
    /// Looks up everything that a run needs and that is not data.
    pub(crate) async fn open(ports: &Ports, run: &Run) -> Result<Opened, Error> {
        let task = run.task();
        let read = ports.definitions.read(&*ports.shelves, task.definition);
        let Some(agent) = read.await? else {
            let version = task.definition;
            return Ok(Err(format!(
                "The definition {version} of agent `{}` is not in the store, or not one that \
                 this build can read. Use the build that submitted the run.",
                task.agent
            )));
        };
        Ok(Self::equip(ports, run, agent).await)
    }

    async fn equip(ports: &Ports, run: &Run, agent: Arc<Agent>) -> Opened {
        let task = run.task();
        // What was perceived is what is asked; before that the task's word, then the agent's.
        let models = match run.transcript().models() {
            [unnamed] if unnamed.is_empty() => match &task.model {
                Some(named) => find(ports, std::slice::from_ref(named))?,
                None => find(ports, &agent.models)?,
            },
            perceived => find(ports, perceived)?,
        };
        let mut tools = BTreeMap::new();
        let paging = (!agent.tools.is_empty()).then_some(READ_OUTPUT);
        for name in agent.tools.iter().map(String::as_str).chain(paging) {
            if let Some(equipped) = ports.tools.find(name) {
                tools.insert(name.to_owned(), equipped.clone());
                continue;
            }
            let Some(supplied) = ports.supplies.find(name, run.id()).await else {
                return Err(format!(
                    "Agent `{}` uses the tool `{name}`, which this worker does not have. \
                     Configure it, or start a worker that has it.",
                    agent.name
                ));
            };
            let named = |tool: Equipped| (tool.card().name.as_str().to_owned(), tool);
            tools.extend(supplied?.into_iter().map(named));
        }
        let context = task
            .context
            .iter()
            .filter(|(name, _)| agent.context.iter().any(|listed| listed == *name))
            .map(|(name, value)| (name.clone(), value.clone()))
            .collect();
        Ok(Self {
            agent,
            models,
            tools,
            context,
        })
    }

    /// The models that the run may ask, in order.
    pub(crate) fn models(&self) -> &[Found] {
        &self.models
    }

    /// The model that a question is for.
    pub(crate) fn model(&self, name: &str) -> Option<&Found> {
        let named = self.models.iter().find(|found| found.name == name);
        named.or_else(|| self.models.first())
    }

    /// The tool under this name, ours or the one that models are told, if the run
    /// may use it.
    pub(crate) fn tool(&self, name: &str) -> Option<&Equipped> {
        let told = |equipped: &&Equipped| equipped.card().name.wire() == name;
        let known = self.tools.get(name);
        known.or_else(|| self.tools.values().find(told))
    }

    /// Every tool that the run may use.
    pub(crate) fn tools(&self) -> impl Iterator<Item = &Equipped> {
        self.tools.values()
    }

    /// The values that the runtime injects.
    pub(crate) const fn context(&self) -> &BTreeMap<String, RawJson> {
        &self.context
    }

    /// The input of a call without what only the runtime may say: a name that
    /// is injected, and that the tool itself does not ask the model for.
    pub(crate) fn without_injected(&self, equipped: &Equipped, mut input: Value) -> Value {
        let asked_for = |name: &str| equipped.card().schema["properties"].get(name).is_some();
        if let Value::Object(fields) = &mut input {
            fields.retain(|name, _| !self.agent.context.contains(name) || asked_for(name));
        }
        input
    }

    /// What surrounds a call.
    pub(crate) fn around(&self, run: &Run, call: CallId, epoch: Epoch) -> ToolContext {
        ToolContext {
            context: self.context.clone(),
            thread: run.task().thread.clone(),
            resource: run.task().resource.clone(),
            ..ToolContext::new(run.id(), call, epoch)
        }
    }
}

/// The models of these names, each once; no name: the project's own.
fn find(ports: &Ports, names: &[String]) -> Result<Vec<Found>, String> {
    if names.is_empty() {
        return Ok(vec![ports.models.find(None)?]);
    }
    let mut models: Vec<Found> = Vec::new();
    for name in names {
        let found = ports.models.find(Some(name))?;
        // Two short names may mean the same model.
        if models.iter().all(|known| known.name != found.name) {
            models.push(found);
        }
    }
    Ok(models)
}
