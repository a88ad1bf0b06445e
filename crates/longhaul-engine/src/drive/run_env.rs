//! The environment of one run: its agent, models, tools and context values.
//!
//! Invariant: a run can only use what its agent file lists. If a tool appears after the model was
//! told which tools it has, the run can't use that tool.
//!
//! A run whose environment can't be built is blocked: it waits until a person has removed the cause.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use longhaul_core::id::{CallId, Epoch, RunId};
use longhaul_core::output_reference::{OUTPUT_MEMBER, OutputReference};
use longhaul_core::port::context::ContextProvider;
use longhaul_core::port::redact::Redact;
use longhaul_core::port::tool::{RunClaimId, ToolContext, ToolSpec};
use longhaul_core::raw::RawJson;
use longhaul_core::time::Clock;
use longhaul_run::{RUN_AGENT, Run, RunInput};
use serde_json::Value;

use crate::agent::Agent;
use crate::agent::check::is_unsandboxed;
use crate::agent::config::Skill;
use crate::drive::session::retry_while_busy;
use crate::error::Result;
use crate::prompt::event_text::{IDLE_TICK, event_kind};
use crate::services::{ResolveModelError, ResolvedModel, Services};
use crate::tools::children::child_tools;
use crate::tools::control;
use crate::tools::find_tools::{FIND_TOOLS, find_tools_tool};
use crate::tools::output_schema::{FINISH_TOOL, OutputSchema};
use crate::tools::recorded_outputs::{OutputReader, ReferenceError};
use crate::tools::registry::{RegisteredTool, ToolRegistrationError, describe_question_timeout};

/// Name of the tool that pages through long results. Every agent with tools may use it.
pub(crate) const READ_OUTPUT: &str = "read_output";

/// Name of the tool that reads a skill. Every agent with skills may use it.
const READ_SKILL: &str = "read_skill";

/// The environment of one run, which its driver needs besides the journal: agent, models, tools and
/// context values.
#[derive(Debug, Clone)]
pub(crate) struct RunEnv {
    pub(crate) agent: Arc<Agent>,
    pub(crate) clock: Arc<dyn Clock>,
    /// Models of the run in the order in which they are tried. Never empty.
    pub(crate) models: Vec<ResolvedModel>,
    tools: BTreeMap<String, RegisteredTool>,
    /// Maps the tool names that models see to Longhaul's own tool names.
    model_api_names: BTreeMap<String, String>,
    /// Longhaul's own names of the run's external tools.
    pub(crate) external_tools: Vec<String>,
    /// Names of the deferred tools (tools that the model must load before it can call them), as
    /// models see them.
    pub(crate) deferred_tools: BTreeSet<String>,
    context: BTreeMap<String, RawJson>,
    /// Output schema of the agent. `None` means that the result is free text.
    pub(crate) output_schema: Option<OutputSchema>,
    /// Context provider of the agent, which supplies the current state of what the agent works
    /// with. `None` if the agent has none, or if the provider is asked only once and has answered.
    pub(crate) context_provider: Option<Arc<dyn ContextProvider>>,
    pub(crate) redact: Arc<dyn Redact>,
    outputs: OutputReader,
}

/// The environment of a run (agent, models and tools), or the reason why it can't be built.
pub(crate) type RunEnvResult = Result<RunEnv, RunBlocker>;

/// External tools, by the name with which the agent file refers to them, such as `mcp:github`.
pub(crate) type ExternalTools = BTreeMap<String, Vec<RegisteredTool>>;

/// The reason why a run cannot continue.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RunBlocker {
    /// Message for people: what is missing and how to fix it.
    pub(crate) message: String,
    /// Whether the cause is part of the run itself, so that only a new run can succeed.
    pub(crate) is_permanent: bool,
}

/// Returns the version of the agent with which the run was submitted, with the tools that the run
/// can use. The inner error is a message for people.
pub(crate) async fn load_run_agent(
    services: &Services,
    run: &Run,
) -> Result<Result<Arc<Agent>, String>> {
    let task = run.task();
    let version = task.definition;
    let agent = services.definitions.load_agent(&*services.records, version).await?;
    let agent = agent.map(|agent| match task.repo {
        Some(_) => agent,
        None => agent.without_repo(&services.tools),
    });
    Ok(agent.ok_or_else(|| {
        format!(
            "The definition {version} of agent `{}` is not in the store, or \
             this build can't read it. Use the build that submitted the run.",
            task.agent
        )
    }))
}

/// Returns the names of the agent's tools that are not tools of this process. External sources may
/// provide these tools, and loading them may take long.
pub(crate) fn unregistered_tool_names(services: &Services, agent: &Agent) -> Vec<String> {
    let is_missing = |name: &&str| services.tools.find_tool(name).is_none();
    tool_names(services, agent).into_iter().filter(is_missing).map(str::to_owned).collect()
}

/// Loads the external tools with these names, such as `mcp:github`, for one claim of a run by a
/// worker. The error is a message for people.
pub(crate) async fn load_external_tools(
    services: &Services,
    agent: &Agent,
    names: &[String],
    claim: RunClaimId,
) -> Result<ExternalTools, String> {
    let mut external_tools = ExternalTools::new();
    for name in names {
        let Some(tools) = services.tool_source.load_tools_for_agent(agent, name, claim).await
        else {
            return Err(format!(
                "Agent `{}` uses the tool `{name}`, which this worker does not have. \
                 Configure it, or start a worker that has it.",
                agent.name
            ));
        };
        external_tools.insert(name.clone(), tools?);
    }
    Ok(external_tools)
}

impl RunEnv {
    /// Loads the agent and its external tools, and builds the run's environment (agent, models and
    /// tools).
    pub(crate) async fn load_for_run(
        services: &Services,
        run: &Run,
        epoch: Epoch,
    ) -> Result<RunEnvResult> {
        let agent = match load_run_agent(services, run).await? {
            Ok(agent) => agent,
            Err(message) => return Ok(Err(message.into())),
        };
        let claim = RunClaimId { run: run.id(), epoch };
        let names = unregistered_tool_names(services, &agent);
        let external_tools = load_external_tools(services, &agent, &names, claim).await;
        Ok(match external_tools {
            Ok(external_tools) => Self::build_for_run(services, run, agent, external_tools),
            Err(message) => Err(message.into()),
        })
    }

    /// Builds the run's environment (agent, models and tools) from its agent and the loaded
    /// external tools.
    pub(crate) fn build_for_run(
        services: &Services,
        run: &Run,
        agent: Arc<Agent>,
        external_tools: ExternalTools,
    ) -> RunEnvResult {
        let task = run.task();
        let models = resolve_models(services, &model_names(services, run, &agent))
            .map_err(|error| error.to_string())?;
        let CollectedTools { mut tools, external: external_names, deferred } =
            collect_run_tools(services, run, &agent, external_tools)?;
        let invalid = |error: ToolRegistrationError| RunBlocker::from(error.to_string());
        if !deferred.is_empty() {
            let tool = RegisteredTool::from_tool(find_tools_tool(deferred.clone()));
            tools.insert(FIND_TOOLS.to_owned(), tool.map_err(invalid)?);
        }
        describe_question_timeout(&mut tools, task.policy.question_timeout).map_err(invalid)?;
        let output_schema = compile_output_schema(&agent)?;
        if let Some(output_schema) = &output_schema {
            let spec = control::build_finish_tool_spec(output_schema);
            let tool = RegisteredTool::new_control_tool(spec).map_err(invalid)?;
            tools.insert(FINISH_TOOL.to_owned(), tool);
        }
        if tools.contains_key(RUN_AGENT) {
            let mut agents = services.agents.agents();
            agents.retain(|known| agent.may_start_agent(known.name.as_str()));
            let spec = control::build_run_agent_tool_spec(&agents);
            let tool = RegisteredTool::new_control_tool(spec).map_err(invalid)?;
            tools.insert(RUN_AGENT.to_owned(), tool);
            for tool in child_tools(services) {
                let name = tool.spec().name.to_string();
                tools.insert(name, RegisteredTool::from_tool(tool).map_err(invalid)?);
            }
        }
        // A provider that is asked only once is not needed after the run was prepared.
        let needs_perception = !run.is_prepared() || task.policy.refresh_perception_each_turn;
        let perception = agent.perception.as_ref().filter(|_| needs_perception);
        let provider = perception
            .map(|perception| services.context_providers.resolve_provider(&perception.source))
            .transpose()?;
        let mut context = task.context.clone();
        context.retain(|name, _| agent.context.contains(name));
        let api_name = |tool: &RegisteredTool| tool.spec().name.name_for_model_api().into_owned();
        let api_names = tools.iter().map(|(name, tool)| (api_name(tool), name.clone()));
        Ok(Self {
            agent,
            clock: Arc::clone(&services.clock),
            models,
            model_api_names: api_names.collect(),
            tools,
            external_tools: external_names,
            deferred_tools: deferred.into_keys().collect(),
            context,
            output_schema,
            context_provider: provider,
            redact: Arc::clone(&services.redact),
            outputs: OutputReader::new(services.store.clone(), services.records.clone()),
        })
    }

    /// Returns the model with this name. If the run has no such model, returns its first model.
    pub(crate) fn model(&self, name: &str) -> Option<&ResolvedModel> {
        let model = self.models.iter().find(|found| found.name == name);
        model.or_else(|| self.models.first())
    }

    /// Returns a tool by Longhaul's own name or by the name that models see. `None` if the run may
    /// not use the tool.
    pub(crate) fn tool(&self, name: &str) -> Option<&RegisteredTool> {
        let by_api_name = || self.tools.get(self.model_api_names.get(name)?);
        self.tools.get(name).or_else(by_api_name)
    }

    /// Iterates over the tools of the run, each with the name that models see.
    pub(crate) fn tools_by_api_name(&self) -> impl Iterator<Item = (&str, &RegisteredTool)> {
        self.model_api_names
            .iter()
            .filter_map(|(api_name, name)| Some((api_name.as_str(), self.tools.get(name)?)))
    }

    /// Returns the skills that the run can read.
    pub(crate) fn skills(&self) -> &[Skill] {
        if self.tools.contains_key(READ_SKILL) { &self.agent.skills } else { &[] }
    }

    /// Returns the context values that the runtime injects into the tool calls of a run: those in
    /// the context provider's last answer, as journaled, overridden by those of the task.
    pub(crate) fn injected_context(&self, run: &Run) -> BTreeMap<String, RawJson> {
        self.merge_context(Some(&run.perception().context))
    }

    /// Returns these context values of the context provider, overridden by those of the task.
    pub(crate) fn merge_context(
        &self,
        perceived: Option<&BTreeMap<String, RawJson>>,
    ) -> BTreeMap<String, RawJson> {
        let mut context = perceived.cloned().unwrap_or_default();
        context.extend(self.context.clone());
        context
    }

    /// Returns the model's input of a tool call, with references to outputs of earlier calls
    /// replaced by the outputs or parts of them. Removes parameters that the model must not set,
    /// because the runtime sets them. Waits while the store is busy.
    pub(crate) async fn resolve_tool_input(
        &self,
        run: RunId,
        tool: &RegisteredTool,
        input: Value,
    ) -> Result<(Value, Vec<OutputReference>), ReferenceError> {
        let resolved = retry_while_busy(&*self.clock, || async {
            let input = input.clone();
            match self.outputs.resolve_output_references(run, input, &*self.redact).await {
                Err(ReferenceError::Store(error)) => Err(error),
                resolved => Ok(resolved),
            }
        });
        let (input, outputs) = resolved.await??;
        if !outputs.is_empty() && tool.tool.is_none() {
            return Err(ReferenceError::Invalid(format!(
                "`{}` takes no references to outputs: leave out `{OUTPUT_MEMBER}`",
                tool.spec().name
            )));
        }
        Ok((self.remove_injected_parameters(tool, input), outputs))
    }

    /// Returns the input of a tool call without the parameters that the runtime injects. A
    /// parameter is kept if the tool's own schema has a parameter of that name.
    fn remove_injected_parameters(&self, tool: &RegisteredTool, mut input: Value) -> Value {
        let is_property = |name: &str| tool.spec().schema["properties"].get(name).is_some();
        if let Value::Object(fields) = &mut input {
            fields.retain(|name, _| !self.agent.context.contains(name) || is_property(name));
        }
        input
    }

    /// Returns the data about a call that its tool receives besides the input: ids, idempotency
    /// key, injected context values, thread, resource, skills and approval rules.
    pub(crate) fn tool_context(&self, run: &Run, call: CallId, epoch: Epoch) -> ToolContext {
        let skills = self.agent.skills.iter();
        // A call that a failed run has made keeps its idempotency key in the retry, and the tool has
        // seen the epochs of the failed run.
        let origin = run.call_origin(call);
        let key_run = origin.map_or(run.id(), |origin| origin.run);
        let epoch = Epoch(origin.map_or(0, |origin| origin.epochs.0).saturating_add(epoch.0));
        ToolContext {
            rules: run.rules_for_tool_of_call(call),
            idempotency_key: call.call_idempotency_key(key_run),
            context: self.injected_context(run),
            thread: run.task().thread.clone(),
            resource: run.task().resource.clone(),
            repo: run.task().repo.clone(),
            skills: skills.map(|skill| skill.name.clone()).collect(),
            ..ToolContext::new(run.id(), call, epoch)
        }
    }
}

/// Returns the names of the models of a run, in the order in which they are tried. A prepared run
/// keeps its models. Otherwise the task's model is used, or else the agent's models. For an
/// `idle_tick` event without a model in its task, an agent with `idle_models` uses those or the
/// configured override, and any other agent the idle model of the provider of its first model, if
/// there is one.
fn model_names(services: &Services, run: &Run, agent: &Agent) -> Vec<String> {
    let perceived = run.transcript().models_by_preference();
    if perceived.iter().any(|name| !name.is_empty()) {
        return perceived.to_vec();
    }
    let task = run.task();
    if let Some(model) = &task.model {
        return vec![agent.requested_model(model)];
    }
    if event_kind(agent, task) != Some(IDLE_TICK) {
        return agent.models.clone();
    }
    let first_model = agent.models.first().map(String::as_str);
    let (idle, others) = match agent.idle_models.is_empty() {
        true => (services.models.idle_tick_model_of_same_provider(first_model), &agent.models),
        false => (services.models.idle_tick_model_override(), &agent.idle_models),
    };
    idle.map_or_else(|| others.clone(), |idle| vec![idle])
}

/// Returns the names of all tools of an agent, including `read_output` and similar tools that its
/// file need not list.
fn tool_names<'a>(services: &Services, agent: &'a Agent) -> Vec<&'a str> {
    let read_output = (!agent.tools.is_empty()).then_some(READ_OUTPUT);
    let can_read_skills =
        !agent.skills.is_empty() && services.tools.find_tool(READ_SKILL).is_some();
    let read_skill = can_read_skills.then_some(READ_SKILL);
    let names = agent.tools.iter().map(String::as_str);
    names.chain(read_output).chain(read_skill).collect()
}

/// The tools of a run.
#[derive(Debug, Default)]
struct CollectedTools {
    tools: BTreeMap<String, RegisteredTool>,
    /// Names of the external tools.
    external: Vec<String>,
    /// Specs of the deferred tools (tools that the model must load before it can call them), by the
    /// name that models see.
    deferred: BTreeMap<String, ToolSpec>,
}

impl CollectedTools {
    /// Adds a tool. A tool that is listed twice is deferred only if it is deferred both times.
    fn insert(&mut self, name: String, tool: RegisteredTool, is_deferred: bool) {
        let api_name = tool.spec().name.name_for_model_api().into_owned();
        if !is_deferred {
            self.deferred.remove(&api_name);
        } else if !self.tools.contains_key(&name) {
            self.deferred.insert(api_name, tool.spec().clone());
        }
        self.tools.insert(name, tool);
    }
}

/// Returns the tools of a run. External tools that appear after the model has received its list of
/// tools are left out. Calls of external tools that no longer exist fail.
fn collect_run_tools(
    services: &Services,
    run: &Run,
    agent: &Agent,
    mut external_tools: ExternalTools,
) -> Result<CollectedTools, RunBlocker> {
    let mut collected = CollectedTools::default();
    for name in tool_names(services, agent) {
        let is_deferred = agent.deferred_tools.iter().any(|deferred| deferred == name);
        if let Some(tool) = services.tools.find_tool(name) {
            check_sandbox_requirement(agent, tool)?;
            collected.insert(name.to_owned(), tool.clone(), is_deferred);
            continue;
        }
        for tool in external_tools.remove(name).unwrap_or_default() {
            check_sandbox_requirement(agent, &tool)?;
            let name = tool.spec().name.as_str().to_owned();
            if !run.is_prepared() || run.perception().external_tools.contains(&name) {
                collected.external.push(name.clone());
                collected.insert(name, tool, is_deferred);
            }
        }
    }
    Ok(collected)
}

/// Compiles the output schema of an agent. `None` means that the result is free text.
pub(crate) fn compile_output_schema(agent: &Agent) -> Result<Option<OutputSchema>, RunBlocker> {
    let compiled = agent.output.as_ref().map(OutputSchema::new).transpose();
    compiled.map_err(|reason| {
        RunBlocker::permanent(format!(
            "The output schema of agent `{}` is invalid: {reason}. Fix it, cancel this run, which \
             keeps the agent version it started with, and submit the task again.",
            agent.name
        ))
    })
}

/// Rejects a tool that runs without a sandbox, unless the agent file allows it explicitly.
fn check_sandbox_requirement(agent: &Agent, tool: &RegisteredTool) -> Result<(), RunBlocker> {
    let works_in_sandbox = || {
        let tool = tool.tool.as_ref();
        agent.sandbox_config().is_some() && tool.is_some_and(|tool| tool.works_in_sandbox())
    };
    if !tool.is_unsandboxed() || is_unsandboxed(agent) || works_in_sandbox() {
        return Ok(());
    }
    Err(RunBlocker::permanent(format!(
        "Agent `{}` uses the tool `{}`, which does not work in a \
         sandbox. To allow it on this machine, write `sandbox: {{ isolation: none }}` into the \
         agent's file, cancel this run, which keeps the agent version it started with, and submit the \
         task again.",
        agent.name,
        tool.spec().name
    )))
}

/// Resolves the models with these names, without duplicates. An empty list means the project's
/// default model.
fn resolve_models(
    services: &Services,
    names: &[String],
) -> Result<Vec<ResolvedModel>, ResolveModelError> {
    if names.is_empty() {
        return Ok(vec![services.models.resolve_model_name(None)?]);
    }
    let mut models: Vec<ResolvedModel> = Vec::new();
    for name in names {
        let found = services.models.resolve_model_name(Some(name))?;
        // Two aliases may refer to the same model.
        if models.iter().all(|model| model.name != found.name) {
            models.push(found);
        }
    }
    Ok(models)
}

impl RunBlocker {
    /// Creates a blocker with a permanent cause, which no person can remove.
    pub(crate) const fn permanent(message: String) -> Self {
        Self { message, is_permanent: true }
    }

    /// Converts the blocker into the state machine's input that blocks the run.
    pub(crate) fn into_input(self) -> RunInput {
        match self.is_permanent {
            true => RunInput::Unrunnable(self.message),
            false => RunInput::MissingDependency(self.message),
        }
    }
}

impl From<String> for RunBlocker {
    /// Creates a blocker whose cause a person can remove.
    fn from(message: String) -> Self {
        Self { message, is_permanent: false }
    }
}
