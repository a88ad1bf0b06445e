//! `longhaul agents show`: prints every field that an agent's file sets.

use anyhow::bail;
use clap::Args;
use longhaul_core::duration;
use longhaul_core::event::run::CompactionPolicy;
use longhaul_core::policy::effect::{EffectClass, InDoubtPolicy};
use longhaul_core::policy::gate::{
    ApprovalRequirement, GateRule, GateRuleAction, GateTimeout, GateTimeoutAction,
    ResultApprovalGate,
};
use longhaul_core::policy::{ChildCancelPolicy, LaneBusyPolicy, ParkedLanePolicy};
use longhaul_core::raw::RawJson;
use longhaul_core::usage::MicroUsd;
use longhaul_engine::agent::config::{
    ChildRunsConfig, GradingConfig, IsolationLevel, LoopGuardConfig, PerceptionConfig,
    PerceptionInterval, PerceptionSource, SandboxConfig,
};
use longhaul_engine::agent::{Agent, BudgetPatch, EffectRule, RetryPatch};
use longhaul_engine::tools::registry::{RegisteredTool, ToolRegistry};
use longhaul_engine::{CHILD_TOOLS, RUN_AGENT};
use longhaul_project::agents::escape;
use longhaul_project::agents::loaded_agents::AgentError;
use longhaul_project::spanned;
use serde_json::json;

use crate::agents::project::ProjectWithAgents;
use crate::event_printer::first_line;
use crate::{output, sanitize};

/// Approximate number of bytes of a tool's JSON per token.
const BYTES_PER_TOKEN: usize = 4;

/// Arguments of `longhaul agents show`.
#[derive(Debug, Args)]
pub(crate) struct ShowAgentCommand {
    /// Name of the agent
    name: String,
    /// Print the agent as one JSON object
    #[arg(long)]
    json: bool,
}

impl ShowAgentCommand {
    pub(crate) fn run(&self, project: &ProjectWithAgents) -> anyhow::Result<()> {
        let loaded_agent = match project.loaded.find_loaded_agent(&self.name) {
            Ok(loaded_agent) => loaded_agent,
            Err(AgentError::Unknown(message)) => {
                bail!("{message}\n`longhaul agents` lists all agents")
            }
            Err(error @ AgentError::Broken { .. }) => bail!("{error}"),
        };
        let agent = &loaded_agent.agent;
        if self.json {
            let source = loaded_agent.source.as_str();
            let value = json!({
                "version": agent.definition_hash(), "path": loaded_agent.path, "source": source,
                "notes": loaded_agent.notes, "agent": agent,
            });
            return output::print_json(&value);
        }
        let line = |name: &str, text: String| match text.is_empty() {
            true => Ok(()),
            false => output::print_text(&format!(
                "{name:12}{}",
                spanned::escape_control_characters(&text)
            )),
        };
        line("name", agent.name.to_string())?;
        line("file", sanitize::sanitize_line(&loaded_agent.path.display().to_string()))?;
        line("source", loaded_agent.source.as_str().to_owned())?;
        line("version", agent.definition_hash().to_string())?;
        line("tool size", format_tool_tokens(agent, &project.tools))?;
        let gate_timeout = project.config.run_policy_defaults().gate_timeout;
        for (name, text) in agent_field_rows(agent, gate_timeout) {
            line(name, text)?;
        }
        for note in &loaded_agent.notes {
            line("note", note.clone())?;
        }
        if agent.prompt.is_empty() {
            return Ok(());
        }
        let prompt = escape::unescape_template_syntax(&agent.prompt);
        output::print_text(&format!("\n{}", spanned::escape_control_characters(&prompt)))
    }
}

/// Returns the label and the text of every field that the agent's file sets. Gates for which it sets
/// no timeout have `gate_timeout`.
fn agent_field_rows(agent: &Agent, gate_timeout: GateTimeout) -> Vec<(&'static str, String)> {
    let names = agent.skills.iter().map(|skill| skill.name.as_str());
    let rules = match agent.project_rules.len() {
        0 => String::new(),
        bytes => format!("AGENTS.md, {bytes} bytes"),
    };
    let mut lines = vec![
        ("about", agent.description.trim_end().to_owned()),
        ("model", agent.models.join(", then ")),
        ("idle model", agent.idle_models.join(", then ")),
        ("tools", format_tools(agent)),
        ("skills", names.collect::<Vec<_>>().join(", ")),
        ("context", agent.context.join(", ")),
        ("max turns", format_option(agent.max_turns, |turns| turns.to_string())),
        ("budget", format_budget_caps(agent.budget)),
        ("retry", format_retry(agent.retry)),
        ("sandbox", format_option(agent.sandbox.as_ref(), format_sandbox)),
        ("guards", format_option(agent.guards, format_loop_guards)),
        ("children", format_children(&agent.children)),
        ("compaction", format_option(agent.compaction.as_ref(), format_compaction)),
        ("keep open", format_option(agent.keep_open, duration::format_duration)),
        ("ask human", format_option(agent.question_timeout, format_gate_timeout)),
        ("in doubt", format_option(agent.in_doubt, format_in_doubt_policy)),
        ("outcome", format_option(agent.outcome.as_ref(), format_grading)),
        (
            "result",
            format_option(agent.result_gate.as_ref(), |gate| {
                format_result_gate(gate, gate_timeout)
            }),
        ),
        ("lane", agent.lane.clone().unwrap_or_default()),
        ("parked", format_parked_lane_policy(agent)),
        ("lane busy", format_busy_lane_policy(agent.lane_busy)),
        ("perception", format_option(agent.perception.as_ref(), format_perception)),
        ("output", format_option(agent.output.as_ref(), format_output_schema)),
        ("rules", rules),
    ];
    let rules = agent.rules.iter();
    lines.extend(rules.map(|rule| ("rule", format_gate_rule(rule, gate_timeout))));
    let effects = agent.effects.iter();
    lines.extend(effects.map(|effect| ("effect", format_effect_rule(effect))));
    let events = agent.events.iter();
    lines.extend(events.map(|(kind, template)| ("event", format!("{kind}: {template}"))));
    lines
}

/// Formats the names of the agent's tools, and the tools that an agent with `run_agent` also gets.
/// A deferred tool (the model loads its schema on demand) ends with `?`, as in the agent's file.
fn format_tools(agent: &Agent) -> String {
    let tool_names = agent.tools.iter().map(|tool| match agent.deferred_tools.contains(tool) {
        true => format!("{tool}?"),
        false => tool.clone(),
    });
    let tool_names = tool_names.collect::<Vec<_>>().join(", ");
    match agent.tools.iter().any(|tool| tool == RUN_AGENT) {
        true => format!("{tool_names} (with {})", CHILD_TOOLS.join(", ")),
        false => tool_names,
    }
}

/// Returns how many tokens the agent's tools take in each request, as far as they are known without
/// starting MCP servers.
fn format_tool_tokens(agent: &Agent, tools: &ToolRegistry) -> String {
    let mut bytes = 0;
    let mut unmeasured_tools = Vec::new();
    for name in agent.tools.iter().filter(|name| !agent.deferred_tools.contains(name)) {
        match tools.find_tool(name).map(RegisteredTool::spec) {
            Some(spec) => {
                bytes += name.len() + spec.description.len() + spec.schema.to_string().len();
            }
            None => unmeasured_tools.push(name.as_str()),
        }
    }
    let tokens = bytes.div_ceil(BYTES_PER_TOKEN);
    let deferred_note = match agent.deferred_tools.is_empty() {
        true => "",
        false => " (without the list of deferred tools that find_tools has)",
    };
    match (agent.tools.is_empty(), unmeasured_tools.as_slice()) {
        (true, _) => String::new(),
        (false, []) => format!("about {tokens} tokens{deferred_note}"),
        (false, unmeasured_tools) => {
            format!(
                "about {tokens} tokens, and those of {}{deferred_note}",
                unmeasured_tools.join(", ")
            )
        }
    }
}

/// Formats an optional value with the given function. `None` gives an empty text.
fn format_option<T>(value: Option<T>, format_value: impl Fn(T) -> String) -> String {
    value.map(format_value).unwrap_or_default()
}

/// Joins the texts that are not empty with commas, each with its name in front.
fn join_named_texts(parts: &[(&str, String)]) -> String {
    let texts = parts.iter().filter(|(_, text)| !text.is_empty());
    let texts = texts.map(|(label, text)| format!("{label} {text}").trim().to_owned());
    texts.collect::<Vec<_>>().join(", ")
}

fn format_budget_caps(budget: BudgetPatch) -> String {
    let caps = budget.caps;
    let usd = |micros: MicroUsd| (micros.0 as f64 / 1e6).to_string();
    join_named_texts(&[
        ("usd", format_option(caps.micro_usd, usd)),
        ("tokens", format_option(caps.tokens, |tokens| tokens.to_string())),
        ("turns", format_option(caps.turns, |turns| turns.to_string())),
        ("active time", format_option(caps.active, duration::format_duration)),
        ("warned at", format_option(budget.warn_percent, |percent| format!("{percent} %"))),
    ])
}

fn format_retry(retry: RetryPatch) -> String {
    let format_factor = |percent| (f64::from(percent) / 100.0).to_string();
    join_named_texts(&[
        ("retries", format_option(retry.max_retries, |retries| retries.to_string())),
        ("first after", format_option(retry.initial_delay, duration::format_duration)),
        ("times", format_option(retry.multiplier_percent, format_factor)),
        ("at most", format_option(retry.max_delay, duration::format_duration)),
        ("reported after", format_option(retry.soft_timeout, duration::format_duration)),
        ("ended after", format_option(retry.hard_timeout, duration::format_duration)),
        ("waits for the provider", format_option(retry.outage, duration::format_duration)),
    ])
}

fn format_result_gate(gate: &ResultApprovalGate, default_timeout: GateTimeout) -> String {
    let conditions = format_gate_approvers_and_tags(gate.approvers, &gate.tags, "");
    format!(
        "asks \"{}\", {}{conditions}",
        gate.ask,
        format_gate_timeout_and_action(gate.timeout.unwrap_or(default_timeout), gate.on_timeout)
    )
}

/// Formats who grades the results of the agent, and by which rubric.
fn format_grading(grading: &GradingConfig) -> String {
    let GradingConfig { rubric, grader, max_rounds } = grading;
    let grader = grader.as_deref().unwrap_or("the model of the run");
    let rubric = first_line(rubric);
    format!("graded by {grader} in at most {max_rounds} rounds, rubric: {rubric}")
}

fn format_output_schema(schema: &RawJson) -> String {
    schema.as_str().to_owned()
}

fn format_sandbox(sandbox: &SandboxConfig) -> String {
    match sandbox.isolation {
        IsolationLevel::Sandboxed => String::new(),
        IsolationLevel::None => "unsandboxed".to_owned(),
    }
}

fn format_loop_guards(guards: LoopGuardConfig) -> String {
    let limits = [
        guards.identical_calls.map(|calls| format!("{calls} identical calls")),
        guards.no_progress.map(|turns| format!("{turns} turns without progress")),
        guards.repeated_text.map(|replies| format!("{replies} replies with the same text")),
        guards.compactions.map(|count| format!("{count} compactions in quick succession")),
    ];
    let limits: Vec<String> = limits.into_iter().flatten().collect();
    match limits.is_empty() {
        true => "off".to_owned(),
        false => format!("stopped after {}", limits.join(", ")),
    }
}

fn format_compaction(compaction: &CompactionPolicy) -> String {
    let threshold =
        compaction.at_percent.map(|percent| format!("at {percent} % of the context window"));
    let keep = compaction.keep.as_ref().map(|summary_parts| format!("keeps {summary_parts}"));
    threshold.into_iter().chain(keep).collect::<Vec<_>>().join(", ")
}

/// Formats what happens about a call whose outcome is unknown after a crash.
fn format_in_doubt_policy(in_doubt: InDoubtPolicy) -> String {
    let text = match in_doubt {
        InDoubtPolicy::Tell => "the model is told",
        InDoubtPolicy::Ask => "a person is asked",
        InDoubtPolicy::Fail => "the run fails",
    };
    text.to_owned()
}

/// Formats which agents may run as children, and whether they continue after their parent's cancel.
fn format_children(children: &ChildRunsConfig) -> String {
    let agents = children.agents.join(", ");
    match (children.is_default(), children.on_cancel) {
        (true, _) => String::new(),
        (false, ChildCancelPolicy::Cancel) => agents,
        (false, ChildCancelPolicy::Keep) if agents.is_empty() => {
            "continue after a cancel of the run".to_owned()
        }
        (false, ChildCancelPolicy::Keep) => format!("{agents}, continue after a cancel of the run"),
    }
}

/// Formats what happens with the lane of a run while the run is parked (waits without a worker).
fn format_parked_lane_policy(agent: &Agent) -> String {
    let text = match agent.lane_on_park {
        ParkedLanePolicy::Keep => "",
        ParkedLanePolicy::Release => "releases its lane",
    };
    text.to_owned()
}

/// Formats what happens with a new task while the lane of the agent is busy.
fn format_busy_lane_policy(policy: LaneBusyPolicy) -> String {
    let text = match policy {
        LaneBusyPolicy::Enqueue => "",
        LaneBusyPolicy::Steer => "a task goes to the run in progress, as a message",
        LaneBusyPolicy::Collect => "a task is added to the run that waits",
        LaneBusyPolicy::Interrupt => "a task cancels the runs before it",
        LaneBusyPolicy::Reject => "a task is refused",
    };
    text.to_owned()
}

/// Formats where the agent's perception (data about the outside world) comes from, and how often.
fn format_perception(perception: &PerceptionConfig) -> String {
    let source = match &perception.source {
        PerceptionSource::Command(args) => args.join(" "),
        PerceptionSource::Url(url) => url.clone(),
        PerceptionSource::Named(name) => name.clone(),
    };
    match perception.every {
        PerceptionInterval::Run => format!("{source}, once per run"),
        PerceptionInterval::Turn => format!("{source}, before each turn"),
    }
}

fn format_gate_rule(rule: &GateRule, default_timeout: GateTimeout) -> String {
    let match_glob = rule.match_glob.as_ref().map(|match_glob| format!(" {match_glob}"));
    let calls = format!("{}{}", rule.tool, match_glob.unwrap_or_default());
    match &rule.action {
        GateRuleAction::Allow => format!("{calls}: allowed"),
        GateRuleAction::Deny(reason) => format!("{calls}: denied, {reason}"),
        GateRuleAction::Ask(question) => {
            let timeout = rule.timeout.unwrap_or(default_timeout);
            let timeout = format_gate_timeout_and_action(timeout, rule.on_timeout);
            let remind = format_option(rule.remind, duration::format_duration);
            let escalations = rule.escalation.iter().map(|step| {
                format!(", notifies {} after {}", step.to, duration::format_duration(step.after))
            });
            let conditions = format_gate_approvers_and_tags(rule.approvers, &rule.tags, &remind);
            let conditions = conditions + &escalations.collect::<String>();
            format!("{calls}: asks \"{question}\", {timeout}{conditions}")
        }
    }
}

fn format_gate_timeout(timeout: GateTimeout) -> String {
    match timeout.duration() {
        Some(timeout) => format!("waits {}", duration::format_duration(timeout)),
        None => "waits without limit".to_owned(),
    }
}

fn format_gate_timeout_and_action(timeout: GateTimeout, on_timeout: GateTimeoutAction) -> String {
    let waits = format_gate_timeout(timeout);
    if timeout == GateTimeout::Never {
        return waits;
    }
    let then_action = match on_timeout {
        GateTimeoutAction::Reject => "then rejected",
        GateTimeoutAction::Approve => "then approved",
        GateTimeoutAction::Fail => "then the run fails",
        GateTimeoutAction::Pause => "then the run pauses",
    };
    format!("{waits}, {then_action}")
}

/// Formats the required approvers, the tags and the reminder interval of a gate, with a leading
/// comma if there are any.
fn format_gate_approvers_and_tags(
    requirement: ApprovalRequirement,
    tags: &[String],
    remind: &str,
) -> String {
    let count = (requirement.count != 1).then_some(requirement.count);
    let submitter_text = requirement.not_submitter.then_some("not by the submitter");
    let conditions = join_named_texts(&[
        ("approvers", format_option(count, |count| count.to_string())),
        ("", format_option(submitter_text, str::to_owned)),
        ("reminds every", remind.to_owned()),
        ("tags", tags.join(" ")),
    ]);
    match conditions.as_str() {
        "" => String::new(),
        conditions => format!(", {conditions}"),
    }
}

fn format_effect_rule(effect: &EffectRule) -> String {
    let match_glob = effect.match_glob.as_deref().unwrap_or_default();
    let class = effect.class.map(|class| match class {
        EffectClass::Pure => "pure",
        EffectClass::Keyed => "keyed",
        EffectClass::Once => "once",
        EffectClass::Session => "session",
    });
    let key = effect.key.as_ref().map(|key| format!("key {key}"));
    let parts: Vec<String> = class.map(str::to_owned).into_iter().chain(key).collect();
    format!("{}: {}", format!("{} {match_glob}", effect.tool).trim_end(), parts.join(", "))
}
