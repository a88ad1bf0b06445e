//! What one run may touch: its agent, its models, its tools, its context.
//!
//! Never: more than its agent's file names. A tool that is not listed does not
//! exist for the run, and one that came after the model was told of its tools
//! does not either.

use std::collections::BTreeMap;
use std::sync::Arc;

use longhaul_core::id::{CallId, Epoch};
use longhaul_core::port::context::{ContextProvider, Perception};
use longhaul_core::port::tool::{ClaimId, ToolContext};
use longhaul_core::raw::RawJson;
use longhaul_core::time::Clock;
use longhaul_run::Run;
use serde_json::Value;

use crate::agent::Agent;
use crate::agent::config::{Isolation, SandboxConfig, Skill};
use crate::blocker::Blocker;
use crate::control_tools;
use crate::error::Error;
use crate::event_text::{IDLE_TICK, event_kind};
use crate::output_schema::{FINISH_TOOL, OutputSchema};
use crate::services::{EngineServices, ModelError, ResolvedModel};
use crate::tool_registry::RegisteredTool;

/// The tool that pages through long results: an agent with any tool has it.
pub(crate) const READ_OUTPUT: &str = "read_output";

/// The tool that reads a skill up: an agent with skills has it.
const READ_SKILL: &str = "read_skill";

/// What one run may touch.
#[derive(Debug, Clone)]
pub(crate) struct RunEnv {
    pub(crate) agent: Arc<Agent>,
    pub(crate) clock: Arc<dyn Clock>,
    /// In the order in which they are asked; never empty.
    models: Vec<ResolvedModel>,
    tools: BTreeMap<String, RegisteredTool>,
    /// Our names by those that models are told.
    wire_names: BTreeMap<String, String>,
    external_tools: Vec<String>,
    context: BTreeMap<String, RawJson>,
    output_schema: Option<OutputSchema>,
    context_provider: Option<Arc<dyn ContextProvider>>,
}

/// A capsule, or what is missing.
pub(crate) type RunEnvResult = Result<RunEnv, Blocker>;

/// The tools that others bring, by the names that an agent's file has for them.
pub(crate) type ExternalTools = BTreeMap<String, Vec<RegisteredTool>>;

/// The agent that a run is pinned to, or the sentence that says why not.
pub(crate) async fn pinned_agent(
    ports: &EngineServices,
    run: &Run,
) -> Result<Result<Arc<Agent>, String>, Error> {
    let task = run.task();
    let version = task.definition;
    let read = ports.definitions.load(&*ports.records, version).await?;
    Ok(read.ok_or_else(|| {
        format!(
            "The definition {version} of agent `{}` is not in the store, or not one that \
             this build can read. Use the build that submitted the run.",
            task.agent
        )
    }))
}

/// What an agent names and this worker does not have itself: others may bring it,
/// and that may take long.
pub(crate) fn missing_tools(ports: &EngineServices, agent: &Agent) -> Vec<String> {
    let lacks = |name: &&str| ports.tools.find(name).is_none();
    tool_names(ports, agent).into_iter().filter(lacks).map(str::to_owned).collect()
}

/// Lets others bring these for a driver's stay.
pub(crate) async fn load_external_tools(
    ports: &EngineServices,
    agent: &Agent,
    names: &[String],
    stay: ClaimId,
) -> Result<ExternalTools, String> {
    let mut brought = ExternalTools::new();
    for name in names {
        let Some(supplied) = ports.tool_source.load_for(agent, name, stay).await else {
            return Err(format!(
                "Agent `{}` uses the tool `{name}`, which this worker does not have. \
                 Configure it, or start a worker that has it.",
                agent.name
            ));
        };
        brought.insert(name.clone(), supplied?);
    }
    Ok(brought)
}

impl RunEnv {
    /// Looks up everything that a run needs and that is not data.
    pub(crate) async fn load(
        ports: &EngineServices,
        run: &Run,
        epoch: Epoch,
    ) -> Result<RunEnvResult, Error> {
        let agent = match pinned_agent(ports, run).await? {
            Ok(agent) => agent,
            Err(sentence) => return Ok(Err(sentence.into())),
        };
        let stay = ClaimId { run: run.id(), epoch };
        let names = missing_tools(ports, &agent);
        let brought = load_external_tools(ports, &agent, &names, stay).await;
        Ok(match brought {
            Ok(brought) => Self::build(ports, run, agent, brought),
            Err(sentence) => Err(sentence.into()),
        })
    }

    /// The capsule of an agent for which others brought these.
    pub(crate) fn build(
        ports: &EngineServices,
        run: &Run,
        agent: Arc<Agent>,
        brought: ExternalTools,
    ) -> RunEnvResult {
        let task = run.task();
        let models = resolve_models(ports, &model_names(ports, run, &agent))
            .map_err(|none| none.to_string())?;
        let (mut tools, supplied) = collect_tools(ports, run, &agent, brought)?;
        let contract = compile_output_schema(&agent)?;
        if let Some(contract) = &contract {
            let card = control_tools::finish_spec(contract).map(RegisteredTool::control);
            let finish = card.transpose().map_err(|bad| bad.to_string())?;
            tools.extend(finish.map(|finish| (FINISH_TOOL.to_owned(), finish)));
        }
        // Whoever has looked once, and looks only once, is not needed any more.
        let looks = !run.is_prepared() || task.policy.refresh_perception_each_turn;
        let sight = agent.perception.as_ref().filter(|_| looks);
        let eye = sight.map(|sight| ports.context_providers.resolve(&sight.source)).transpose()?;
        let context = task
            .context
            .iter()
            .filter(|(name, _)| agent.context.iter().any(|listed| listed == *name))
            .map(|(name, value)| (name.clone(), value.clone()))
            .collect();
        Ok(Self {
            agent,
            clock: Arc::clone(&ports.clock),
            models,
            wire_names: wire_names(&tools),
            tools,
            external_tools: supplied,
            context,
            output_schema: contract,
            context_provider: eye,
        })
    }

    /// The models that the run may ask, in order.
    pub(crate) fn models(&self) -> &[ResolvedModel] {
        &self.models
    }

    /// The model that a question is for.
    pub(crate) fn model(&self, name: &str) -> Option<&ResolvedModel> {
        let named = self.models.iter().find(|found| found.name == name);
        named.or_else(|| self.models.first())
    }

    /// The tool under this name, ours or the one that models know, if the run may
    /// use it.
    pub(crate) fn tool(&self, name: &str) -> Option<&RegisteredTool> {
        let wired = || self.tools.get(self.wire_names.get(name)?);
        self.tools.get(name).or_else(wired)
    }

    /// Every tool that the run may use, under the name that models know.
    pub(crate) fn tools_by_wire_name(&self) -> impl Iterator<Item = (&str, &RegisteredTool)> {
        self.wire_names
            .iter()
            .filter_map(|(wire, ours)| Some((wire.as_str(), self.tools.get(ours)?)))
    }

    /// Those of them that others bring, by our names.
    pub(crate) fn external_tools(&self) -> impl Iterator<Item = &str> {
        self.external_tools.iter().map(String::as_str)
    }

    /// The skills that it can read up.
    pub(crate) fn skills(&self) -> &[Skill] {
        match self.tools.contains_key(READ_SKILL) {
            true => &self.agent.skills,
            false => &[],
        }
    }

    /// What its result must be.
    pub(crate) const fn output_schema(&self) -> Option<&OutputSchema> {
        self.output_schema.as_ref()
    }

    /// Who looks at the world for it.
    pub(crate) const fn context_provider(&self) -> Option<&Arc<dyn ContextProvider>> {
        self.context_provider.as_ref()
    }

    /// The values that the runtime injects: what whoever looked said, and above it
    /// what came with the task.
    pub(crate) fn context_with(&self, seen: Option<&Perception>) -> BTreeMap<String, RawJson> {
        self.merge_context(seen.map(|seen| &seen.context))
    }

    /// The same for a run that was perceived.
    pub(crate) fn injected_context(&self, run: &Run) -> BTreeMap<String, RawJson> {
        self.merge_context(Some(run.perception().context()))
    }

    fn merge_context(&self, seen: Option<&BTreeMap<String, RawJson>>) -> BTreeMap<String, RawJson> {
        let mut context = seen.cloned().unwrap_or_default();
        context.extend(self.context.clone());
        context
    }

    /// The input of a call without what only the runtime may say: a name that
    /// is injected, and that the tool itself does not ask the model for.
    pub(crate) fn without_injected(&self, equipped: &RegisteredTool, mut input: Value) -> Value {
        let asked_for = |name: &str| equipped.spec().schema["properties"].get(name).is_some();
        if let Value::Object(fields) = &mut input {
            fields.retain(|name, _| !self.agent.context.contains(name) || asked_for(name));
        }
        input
    }

    /// What surrounds a call.
    pub(crate) fn tool_context(&self, run: &Run, call: CallId, epoch: Epoch) -> ToolContext {
        let skills = self.agent.skills.iter();
        ToolContext {
            context: self.injected_context(run),
            thread: run.task().thread.clone(),
            resource: run.task().resource.clone(),
            skills: skills.map(|skill| skill.name.clone()).collect(),
            ..ToolContext::new(run.id(), call, epoch)
        }
    }
}

/// The names of the models that a run asks. What was perceived is what is asked;
/// before that the task's word, then that of who assembled this for idle ticks,
/// then the agent's.
fn model_names(ports: &EngineServices, run: &Run, agent: &Agent) -> Vec<String> {
    let perceived = run.transcript().models();
    if perceived.iter().any(|name| !name.is_empty()) {
        return perceived.to_vec();
    }
    let task = run.task();
    if let Some(named) = &task.model {
        return vec![named.clone()];
    }
    let is_idle = event_kind(agent, task) == Some(IDLE_TICK) && !agent.idle_models.is_empty();
    match ports.models.idle_model().filter(|_| is_idle) {
        Some(idle) => vec![idle],
        None if is_idle => agent.idle_models.clone(),
        None => agent.models.clone(),
    }
}

/// The names of all that an agent uses.
fn tool_names<'a>(ports: &EngineServices, agent: &'a Agent) -> Vec<&'a str> {
    let paging = (!agent.tools.is_empty()).then_some(READ_OUTPUT);
    let reads = !agent.skills.is_empty() && ports.tools.find(READ_SKILL).is_some();
    let reading = reads.then_some(READ_SKILL);
    let named = agent.tools.iter().map(String::as_str);
    named.chain(paging).chain(reading).collect()
}

/// The tools of a run, and which of them others bring. After the model was told of
/// its tools nothing comes to them; what others no longer bring is gone, and a call
/// of it says so.
fn collect_tools(
    ports: &EngineServices,
    run: &Run,
    agent: &Agent,
    mut brought: ExternalTools,
) -> Result<(BTreeMap<String, RegisteredTool>, Vec<String>), Blocker> {
    let mut tools = BTreeMap::new();
    let mut supplied = Vec::new();
    for name in tool_names(ports, agent) {
        if let Some(equipped) = ports.tools.find(name) {
            check_sandbox(agent, equipped)?;
            tools.insert(name.to_owned(), equipped.clone());
            continue;
        }
        for equipped in brought.remove(name).unwrap_or_default() {
            check_sandbox(agent, &equipped)?;
            let name = equipped.spec().name.as_str().to_owned();
            if !run.is_prepared() || run.perception().external_tools().contains(&name) {
                supplied.push(name.clone());
                tools.insert(name, equipped);
            }
        }
    }
    Ok((tools, supplied))
}

fn compile_output_schema(agent: &Agent) -> Result<Option<OutputSchema>, Blocker> {
    let contract = agent.output.as_ref().map(OutputSchema::new).transpose();
    contract.map_err(|why| {
        Blocker::permanent(format!(
            "The output schema of agent `{}` is broken: {why}. Mend it, cancel this run, which \
             keeps the agent it began with, and submit the task again.",
            agent.name
        ))
    })
}

/// The names that models are told, and ours behind them.
fn wire_names(tools: &BTreeMap<String, RegisteredTool>) -> BTreeMap<String, String> {
    let wired = |(name, tool): (&String, &RegisteredTool)| {
        let wire = tool.spec().name.wire_name().into_owned();
        (wire, name.clone())
    };
    tools.iter().map(wired).collect()
}

/// Refuses a tool without walls to an agent that did not spell that out.
fn check_sandbox(agent: &Agent, equipped: &RegisteredTool) -> Result<(), Blocker> {
    let is_open = |wish: &SandboxConfig| wish.isolation == Isolation::None;
    if !equipped.is_unsandboxed() || agent.sandbox.as_ref().is_some_and(is_open) {
        return Ok(());
    }
    Err(Blocker::permanent(format!(
        "Agent `{}` uses the tool `{}`, which acts on this machine without walls: this build has \
         no sandboxes yet. If that is what you want, write `sandbox: {{ isolation: none }}` into \
         the agent's file, cancel this run, which keeps the agent it began with, and submit the \
         task again.",
        agent.name,
        equipped.spec().name
    )))
}

/// The models of these names, each once; no name: the project's own.
fn resolve_models(
    ports: &EngineServices,
    names: &[String],
) -> Result<Vec<ResolvedModel>, ModelError> {
    if names.is_empty() {
        return Ok(vec![ports.models.resolve(None)?]);
    }
    let mut models: Vec<ResolvedModel> = Vec::new();
    for name in names {
        let found = ports.models.resolve(Some(name))?;
        // Two short names may mean the same model.
        if models.iter().all(|known| known.name != found.name) {
            models.push(found);
        }
    }
    Ok(models)
}
