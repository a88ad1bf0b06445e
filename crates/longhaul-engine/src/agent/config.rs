//! Optional settings of an agent file: skills, sandbox, loop guard (ends runs that repeat
//! themselves), context provider, child runs and the rubric for results.
//!
//! The settings are plain data. The providers and volumes that they name are looked up when a run's
//! environment is built.

use longhaul_core::policy::ChildCancelPolicy;
use longhaul_core::policy::effect_facts::ANY_HOST;
use longhaul_core::port::sandbox::Isolation;
use longhaul_core::raw::is_default;
use longhaul_core::time::Millis;
use serde::{Deserialize, Serialize};

/// Name and description of a skill. The text of the skill is read from its file when the agent asks
/// for it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Skill {
    /// Name of the skill, which is also the name of its folder.
    pub name: String,
    /// What the skill is good for and when to use it.
    pub description: String,
}

/// Settings of the sandbox in which the agent's commands run.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct SandboxConfig {
    /// Name of the sandbox provider. `None` means the project's default provider.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub provider: Option<String>,
    /// Name of the image from which the sandbox is created. `None` if the agent file names none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub image: Option<String>,
    /// How strictly the agent's commands are isolated from the machine.
    pub isolation: IsolationLevel,
    /// Lowest isolation that the agent accepts. `None` means the default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub min_isolation: Option<Isolation>,
    /// Network access of the sandbox: `none`, `host`, or a list of host names.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub network: Vec<String>,
    /// Idle time after which the sandbox is stopped. `None` if the agent file sets none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub idle_stop: Option<Millis>,
    /// Maximum lifetime of the sandbox, after which the provider stops it. `None` if the agent file
    /// sets none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub auto_stop: Option<Millis>,
    /// How long the sandbox is kept after the run has ended, before it is deleted. `None` if the
    /// agent file sets no time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub keep: Option<Millis>,
    /// Names of package managers whose downloads are kept for later sandboxes, such as `cargo`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub cache: Vec<String>,
    /// Maximum amount of memory in megabytes. `None` means the provider's default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory_mb: Option<u64>,
    /// Maximum number of processors. `None` means the provider's default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpus: Option<f64>,
    /// Persistent disk that is mounted into the sandbox and outlives it. `None` means no such disk.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub volume: Option<SandboxVolume>,
    /// Whether only runs with a git repository have the sandbox. Other runs work on this machine,
    /// without the tools that run commands or need a repository.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub only_for_repo: bool,
    /// Whether the placeholders of secrets are also written to `.env` in the work folder.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub env_file: bool,
}

impl SandboxConfig {
    /// Returns the hosts that programs in the sandbox can reach, for people who approve a command.
    pub fn reachable_hosts(&self) -> Vec<String> {
        match &self.network[..] {
            [only] if only == "none" => Vec::new(),
            [only] if only == "host" => vec![ANY_HOST.to_owned()],
            hosts => hosts.to_vec(),
        }
    }

    /// Returns the lowest isolation that the agent accepts.
    pub fn min_isolation(&self) -> Isolation {
        match self.isolation {
            IsolationLevel::Sandboxed => self.min_isolation.unwrap_or_default(),
            IsolationLevel::Container => Isolation::Container,
            IsolationLevel::None => Isolation::None,
        }
    }
}

/// How strictly the commands of an agent are isolated from the machine.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum IsolationLevel {
    /// Commands are isolated as much as the sandbox provider supports.
    #[default]
    Sandboxed,
    /// The worker runs in a container, which is all the isolation that the agent needs.
    Container,
    /// Commands run without a sandbox. The agent file has to request this explicitly.
    None,
}

/// Persistent disk that outlives the sandbox into which it is mounted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SandboxVolume {
    /// Name that identifies the volume to the sandbox provider.
    pub name: String,
    /// Path inside the sandbox at which the volume is mounted.
    pub path: String,
}

/// Limits of the loop guard, which detects that a run repeats itself. At half of a limit the model
/// is warned, and at the limit the run ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct LoopGuardConfig {
    /// Number of consecutive identical tool calls with identical results at which the run ends.
    /// `None` means no limit.
    pub identical_calls: Option<u32>,
    /// Number of consecutive turns that only repeat recent calls with the same results, such as two
    /// calls that alternate, at which the run ends. `None` means no limit.
    pub no_progress: Option<u32>,
    /// Number of consecutive replies with the same text at which the run ends. `None` means no
    /// limit.
    pub repeated_text: Option<u32>,
    /// Number of consecutive compactions of the conversation, with fewer than two turns in between,
    /// at which the run ends. `None` means no limit.
    pub compactions: Option<u32>,
}

impl LoopGuardConfig {
    /// Settings that turn the loop guard off: a run may repeat itself without limits.
    pub const OFF: Self =
        Self { identical_calls: None, no_progress: None, repeated_text: None, compactions: None };
}

impl Default for LoopGuardConfig {
    fn default() -> Self {
        Self {
            identical_calls: Some(16),
            no_progress: Some(32),
            repeated_text: Some(16),
            compactions: Some(4),
        }
    }
}

/// Settings of an agent's context provider, which supplies the current state of what the agent
/// works with, such as a shop: its address, and how often it is asked.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PerceptionConfig {
    /// Kind and address of the context provider.
    #[serde(flatten)]
    pub source: PerceptionSource,
    /// How often the context provider is asked for the current state of what the agent works with.
    #[serde(default)]
    pub every: PerceptionInterval,
}

/// Kind and address of a context provider, which supplies the current state of what an agent works
/// with, such as a shop.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PerceptionSource {
    /// Command that reads a request (run, event and input) as JSON on stdin and writes the current
    /// state of what the agent works with as JSON to stdout.
    Command(Vec<String>),
    /// URL to which a request (run, event and input) is posted as JSON. The response is the current
    /// state of what the agent works with, as JSON.
    Url(String),
    /// Context provider registered under this name by the program that embeds Longhaul.
    Named(String),
}

/// How often the context provider is asked for the current state of what the agent works with.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PerceptionInterval {
    /// The context provider is asked once, before the first turn.
    #[default]
    Run,
    /// The context provider is asked before every turn.
    Turn,
}

/// Settings of the child runs that an agent may start with the tool `run_agent`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ChildRunsConfig {
    /// Names of the agents that the agent may start. An empty list means every agent.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub agents: Vec<String>,
    /// What happens with open child runs when the run is cancelled or fails.
    #[serde(skip_serializing_if = "is_default")]
    pub on_cancel: ChildCancelPolicy,
}

/// How the result of a run is graded before it is accepted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GradingConfig {
    /// Rubric: the criteria that a result must meet.
    pub rubric: String,
    /// Model that grades the result, as `provider/model` or alias. `None` means the models of the
    /// run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub grader: Option<String>,
    /// Maximum number of grading rounds. If the result of the last round is not accepted, the run
    /// fails.
    pub max_rounds: u32,
}

impl GradingConfig {
    pub const MAX_ROUNDS_DEFAULT: u32 = 3;

    /// Highest maximum number of grading rounds that an agent file can set.
    pub const MAX_ROUNDS_MAX: u32 = 10;

    /// Maximum length of a rubric in bytes.
    pub const RUBRIC_BYTES_MAX: usize = 32 * 1024;
}
