//! Chains: sequences of steps, each of which is a run of its own.
//!
//! This module describes chains and derives the step that follows a completed one. The state machine
//! creates the run of that step in the append that ends the run before it.

use serde::{Deserialize, Serialize};

use crate::id::{AgentName, RunId};
use crate::policy::RunPolicy;
use crate::raw::Hash;
use crate::status::{RunOutput, Status};
use crate::text_macros::string_enum;
use crate::time::Millis;

/// Maximum number of steps in a chain file or in the chain of a request.
pub const CHAIN_STEPS_MAX: usize = 10;

/// Maximum number of runs of one chain, including those of repeated steps, unless the chain sets
/// `max_runs`.
pub const CHAIN_RUNS_DEFAULT: usize = 10;

/// Maximum of `max_runs`.
pub const CHAIN_RUNS_MAX: usize = 100;

/// Delay after which the result of a step with `auto_approve` is approved automatically.
pub const AUTO_APPROVE_DELAY: Millis = Millis::from_secs(3);

/// A chain as it is written in a file or a request.
#[serde_with::skip_serializing_none]
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ChainSpec {
    /// Purpose of the chain, as a sentence. `None` if it has no description.
    pub description: Option<String>,
    /// Maximum number of runs of the chain, including those of repeated steps. `None` means
    /// [`CHAIN_RUNS_DEFAULT`].
    pub max_runs: Option<u32>,
    /// Steps of the chain, in order.
    pub steps: Vec<ChainStepSpec>,
}

/// A step of a chain as it is written in a file or a request.
#[serde_with::skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ChainStepSpec {
    /// Name of the step, by which the templates of agents and `repeat` refer to it. `None` means
    /// the name of the agent.
    pub name: Option<String>,
    /// Name of the agent that executes the step.
    #[serde(alias = "mode")]
    pub agent: String,
    /// Whether the result of the step is approved automatically after three seconds.
    #[serde(default, alias = "autoApprove", skip_serializing_if = "std::ops::Not::not")]
    pub auto_approve: bool,
    /// Condition under which the step runs.
    #[serde(default)]
    pub condition: ChainStepCondition,
    /// Step to which the chain goes back after this step. `None` means that the chain continues.
    pub repeat: Option<ChainRepeatSpec>,
}

impl ChainStepSpec {
    /// Creates a step that always runs this agent.
    pub fn new(step_agent: impl Into<String>) -> Self {
        Self {
            name: None,
            agent: step_agent.into(),
            auto_approve: false,
            condition: ChainStepCondition::Always,
            repeat: None,
        }
    }

    /// Returns the name by which the templates of agents and `repeat` refer to the step.
    pub fn step_name(&self) -> &str {
        self.name.as_deref().unwrap_or(&self.agent)
    }
}

/// Instruction to go back to an earlier step, as it is written in a file or a request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ChainRepeatSpec {
    /// Name of the step to go back to: an earlier step or the step itself.
    pub from: String,
    /// Condition under which the chain does not go back.
    #[serde(default)]
    pub until: ChainRepeatEndCondition,
    /// Maximum number of times that the chain goes back.
    pub max: u32,
}

/// A problem in a chain file or in the chain of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChainProblem {
    /// Index of the step with the problem. `None` means that the problem is in the whole chain.
    pub step: Option<usize>,
    /// Field of the step with the problem. `None` if the problem is in the whole chain.
    pub field: Option<&'static str>,
    /// Description of the problem, and of what is valid instead.
    pub message: String,
}

impl ChainSpec {
    /// Returns everything that is wrong with the chain, other than agents that don't exist.
    pub fn problems(&self) -> Vec<ChainProblem> {
        let chain_problem = |message| ChainProblem { step: None, field: None, message };
        let count = self.steps.len();
        if !(1..=CHAIN_STEPS_MAX).contains(&count) {
            let message =
                format!("a chain has 1 to {CHAIN_STEPS_MAX} steps, and this one has {count}");
            return vec![chain_problem(message)];
        }
        let mut problems: Vec<ChainProblem> = Vec::new();
        let mut runs = count;
        for (index, step) in self.steps.iter().enumerate() {
            let mut add = |field, message| {
                problems.push(ChainProblem { step: Some(index), field: Some(field), message });
            };
            if let Err(error) = AgentName::new(step.agent.as_str()) {
                add("agent", error.to_string());
            }
            if let Some(Err(error)) = step.name.as_deref().map(AgentName::new) {
                add("name", error.to_string());
            }
            if let Some(earlier) = self.earlier_step_of_same_name(index) {
                let field = if step.name.is_some() { "name" } else { "agent" };
                let (name, first, second) = (step.step_name(), earlier + 1, index + 1);
                add(
                    field,
                    format!(
                        "steps {first} and {second} both have the name `{name}`: give one of them \
                         another `name`"
                    ),
                );
            }
            let Some(repeat) = &step.repeat else {
                continue;
            };
            match self.find_repeat_start_step(index, &repeat.from) {
                Ok(from) => {
                    let repeated_steps = index + 1 - from;
                    runs = runs.saturating_add(repeated_steps.saturating_mul(repeat.max as usize));
                }
                Err(message) => add("from", message),
            }
            if repeat.max == 0 {
                add("max", "`max` must be at least 1: how often the chain goes back".to_owned());
            }
        }
        problems.extend(self.check_run_count(runs).err().map(chain_problem));
        problems
    }

    /// Checks the number of runs that the chain could have. The error says what the limit is.
    fn check_run_count(&self, runs: usize) -> Result<(), String> {
        let max_runs = self.max_runs.map_or(CHAIN_RUNS_DEFAULT, |max| max as usize);
        if !(1..=CHAIN_RUNS_MAX).contains(&max_runs) {
            return Err(format!("`max_runs` must be a number from 1 to {CHAIN_RUNS_MAX}"));
        }
        let help = match runs {
            runs if runs <= max_runs => return Ok(()),
            ..=CHAIN_RUNS_MAX => format!(", or set `max_runs = {runs}` in the chain"),
            _ => format!("; `max_runs` is at most {CHAIN_RUNS_MAX}"),
        };
        Err(format!(
            "a chain has at most {max_runs} runs, and this one could have {runs}: lower \
             `repeat.max`{help}"
        ))
    }

    /// Returns the index of the first earlier step with the same name as the step `index`, if at
    /// least one of the two names is explicit. Steps without an explicit name may have the same
    /// agent.
    fn earlier_step_of_same_name(&self, index: usize) -> Option<usize> {
        let step = &self.steps[index];
        self.steps[..index].iter().position(|earlier| {
            earlier.step_name() == step.step_name()
                && (earlier.name.is_some() || step.name.is_some())
        })
    }

    /// Returns the index of the step named `start_name`, to which the chain goes back after step
    /// `index`. The error says why this name is invalid.
    pub fn find_repeat_start_step(&self, index: usize, start_name: &str) -> Result<usize, String> {
        let indices_of_start = |steps: &[ChainStepSpec]| {
            let matching =
                steps.iter().enumerate().filter(|(_, step)| step.step_name() == start_name);
            matching.map(|(position, _)| position).collect::<Vec<_>>()
        };
        let reachable = &self.steps[..=index];
        match indices_of_start(reachable)[..] {
            [start] => Ok(start),
            [] if !indices_of_start(&self.steps).is_empty() => Err(format!(
                "`from` names the step `{start_name}`, which comes after this step: a chain only goes back"
            )),
            [] => {
                let names: Vec<&str> = reachable.iter().map(ChainStepSpec::step_name).collect();
                Err(format!(
                    "`from` names no step of the chain; its steps are `{}`",
                    names.join("`, `")
                ))
            }
            _ => Err(format!(
                "`from` names several steps: give each step `{start_name}` a `name` of its own"
            )),
        }
    }
}

/// A chain as submitted with a run. The agent version and the policy of every step are fixed then
/// and do not change later.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Chain {
    /// Name of the chain. `None` means that the steps were given in the request itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Steps of the chain, in order.
    pub steps: Vec<ChainStep>,
}

/// One step of a chain: an agent and the condition under which it runs.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ChainStep {
    /// Name of the step, by which the templates of agents refer to it.
    pub name: String,
    /// Agent that executes the step.
    pub agent: AgentName,
    /// Hash of the agent definition that the step uses, even if the agent's file changes later.
    pub definition: Hash,
    /// Limits and rules of the step's run.
    pub policy: RunPolicy,
    /// Condition under which the step runs.
    #[serde(default)]
    pub condition: ChainStepCondition,
    /// Step to which the chain goes back after this step. `None` means that the chain continues.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub repeat: Option<ChainRepeat>,
}

/// Instruction to go back to an earlier step of a chain.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChainRepeat {
    /// Index of the step to go back to.
    pub from: usize,
    /// Condition under which the chain does not go back.
    pub until: ChainRepeatEndCondition,
    /// Maximum number of times that the chain goes back.
    pub max: u32,
}

string_enum! {
    /// Condition under which a step of a chain runs.
    #[derive(Default)]
    pub enum ChainStepCondition {
        /// Run the step regardless of the previous step's output.
        #[default]
        Always = "always",
        /// Run the step unless the previous step's output has `success: false`.
        OnSuccess = "on_success",
        /// Run the step only if the previous step's output has `issues_found: true`.
        OnIssuesFound = "on_issues_found",
    }
}

string_enum! {
    /// Condition on an output field under which a chain does not go back. The field is read from
    /// the newest output that has it since the chain last went back.
    #[derive(Default)]
    pub enum ChainRepeatEndCondition {
        /// The chain does not go back if the output field `issues_found` is not `true`.
        #[default]
        NoIssues = "no_issues",
        /// The chain does not go back if the output field `success` is not `false`.
        Success = "success",
    }
}

/// Fields of step outputs that decide how a chain continues. `None` means that no output has the
/// field.
#[serde_with::skip_serializing_none]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StepVerdict {
    /// Field `success` of the output's data. `None` if no output has the field.
    pub success: Option<bool>,
    /// Field `issues_found` of the output's data. `None` if no output has the field.
    pub issues_found: Option<bool>,
}

impl StepVerdict {
    /// Reads the fields `success` and `issues_found` from the data of a step's output. A field that
    /// is not a boolean becomes `None`.
    pub fn from_step_output(output: &RunOutput) -> Self {
        let data = output.data.as_ref().map(crate::raw::RawJson::to_value).unwrap_or_default();
        let field = |name: &str| data.get(name).and_then(serde_json::Value::as_bool);
        Self { success: field("success"), issues_found: field("issues_found") }
    }

    const fn holds(self, condition: ChainStepCondition) -> bool {
        match condition {
            ChainStepCondition::Always => true,
            ChainStepCondition::OnSuccess => !matches!(self.success, Some(false)),
            ChainStepCondition::OnIssuesFound => matches!(self.issues_found, Some(true)),
        }
    }

    const fn ends_repeat(self, until: ChainRepeatEndCondition) -> bool {
        match until {
            ChainRepeatEndCondition::NoIssues => !matches!(self.issues_found, Some(true)),
            ChainRepeatEndCondition::Success => !matches!(self.success, Some(false)),
        }
    }
}

/// A step of a chain that has completed, and the run that executed it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct CompletedChainStep {
    /// Index of the step, from 0.
    pub step: usize,
    /// Run that executed the step.
    pub run: RunId,
}

/// Position of a run in the chain that it belongs to.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PositionInChain {
    /// Chain that the run belongs to, with all its steps.
    pub chain: Chain,
    /// Index of the step that this run executes, from 0.
    pub step: usize,
    /// First run of the chain. All runs of the chain, including retries, share the budget of this
    /// run.
    pub first_run: RunId,
    /// Completed runs of the chain before this one, oldest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub completed: Vec<CompletedChainStep>,
    /// Fields `success` and `issues_found` of the step outputs since the chain last went back to an
    /// earlier step, each from the newest output that has the field.
    #[serde(default)]
    pub verdict: StepVerdict,
}

impl PositionInChain {
    pub const fn first(chain: Chain, run: RunId) -> Self {
        let verdict = StepVerdict { success: None, issues_found: None };
        Self { chain, step: 0, first_run: run, completed: Vec::new(), verdict }
    }

    /// Returns the step that this run executes. `None` if the chain has no step with this index.
    pub fn current_step(&self) -> Option<&ChainStep> {
        self.chain.steps.get(self.step)
    }

    /// Returns the position of the run that follows this run, which has completed with this output:
    /// the step that its `repeat` goes back to, or the first later step whose condition holds. `None`
    /// means that the chain ends.
    pub fn position_of_next_run(&self, ended_run: RunId, output: &RunOutput) -> Option<Self> {
        let verdict_of_step = StepVerdict::from_step_output(output);
        let verdict = StepVerdict {
            success: verdict_of_step.success.or(self.verdict.success),
            issues_found: verdict_of_step.issues_found.or(self.verdict.issues_found),
        };
        let (step, verdict) = match self.step_to_go_back_to(verdict) {
            Some(from) => (from, StepVerdict::default()),
            None => {
                let mut later_steps = self.chain.steps.iter().enumerate().skip(self.step + 1);
                let next = later_steps.find(|(_, step)| verdict_of_step.holds(step.condition));
                (next?.0, verdict)
            }
        };
        let mut completed = self.completed.clone();
        completed.push(CompletedChainStep { step: self.step, run: ended_run });
        let (chain, first_run) = (self.chain.clone(), self.first_run);
        let next = Self { chain, step, first_run, completed, verdict };
        Some(next).filter(|next| next.completed.len() < CHAIN_RUNS_MAX)
    }

    /// Returns the index of the step that the chain goes back to after this step. `None` means that
    /// the chain does not go back.
    fn step_to_go_back_to(&self, verdict: StepVerdict) -> Option<usize> {
        let repeat = self.current_step()?.repeat?;
        let goes_back = self.repeat_count_after_current_step() < repeat.max
            && !verdict.ends_repeat(repeat.until);
        goes_back.then_some(repeat.from)
    }

    /// Returns how often the chain has gone back after the step of this run, counted over the whole
    /// chain.
    fn repeat_count_after_current_step(&self) -> u32 {
        let followers = self.completed.iter().skip(1).map(|done| done.step).chain([self.step]);
        let pairs = self.completed.iter().zip(followers);
        pairs.filter(|(done, next)| done.step == self.step && *next <= done.step).count() as u32
    }
}

/// Stored position of a run in its chain, with the state of the chain.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChainRow {
    /// Name of the chain. `None` means that the steps were given in the request itself.
    pub name: Option<String>,
    /// Index of the run's step, from 0.
    pub step: u32,
    pub steps: u32,
    /// Newest run of the chain.
    pub current: RunId,
    /// Status of the newest run.
    pub current_status: Status,
}

string_enum! {
    /// Status of a chain, derived from the status of its newest run.
    pub enum ChainStatus {
        /// The newest run is queued or running.
        Running = "running",
        /// The newest run waits, is blocked or is paused.
        Waiting = "waiting",
        /// All steps whose condition held have completed.
        Completed = "completed",
        /// A step has failed.
        Failed = "failed",
        /// A step was cancelled.
        Cancelled = "cancelled",
    }
}

impl From<Status> for ChainStatus {
    fn from(newest_run_status: Status) -> Self {
        match newest_run_status {
            Status::Pending | Status::Running => Self::Running,
            Status::Waiting | Status::Blocked | Status::Paused => Self::Waiting,
            Status::Completed => Self::Completed,
            Status::Failed => Self::Failed,
            Status::Cancelled => Self::Cancelled,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_chain_has_at_most_ten_runs_unless_it_says_more() {
        let problems = |repeat_max: u32, max_runs: Option<u32>| {
            let (from, until) = ("fix".to_owned(), ChainRepeatEndCondition::NoIssues);
            let repeat = Some(ChainRepeatSpec { from, until, max: repeat_max });
            let fix = ChainStepSpec { repeat, ..ChainStepSpec::new("fix") };
            let steps = vec![ChainStepSpec::new("plan"), fix];
            let problems = ChainSpec { description: None, max_runs, steps }.problems();
            problems.into_iter().map(|problem| problem.message).collect::<Vec<_>>().join(" ")
        };
        assert_eq!(problems(8, None), "");
        assert_eq!(
            problems(9, None),
            "a chain has at most 10 runs, and this one could have 11: lower `repeat.max`, or set \
             `max_runs = 11` in the chain"
        );
        assert_eq!(problems(9, Some(11)), "");
        assert!(
            problems(3, Some(4))
                .starts_with("a chain has at most 4 runs, and this one could have 5")
        );
        assert_eq!(problems(98, Some(100)), "");
        assert!(problems(99, Some(100)).ends_with("lower `repeat.max`; `max_runs` is at most 100"));
        for max_runs in [0, 101] {
            assert_eq!(problems(1, Some(max_runs)), "`max_runs` must be a number from 1 to 100");
        }
    }
}
