//! What an agent's file asks of the runtime beyond model, tools and rules.
//!
//! Never: looks anything up. A wish is data; whoever equips a run finds what it names.

use longhaul_core::time::Millis;
use serde::{Deserialize, Serialize};

/// A skill as its file introduces itself; its body is read when it is needed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Skill {
    /// Its name, which is its folder's.
    pub name: String,
    /// What it is good for, and when.
    pub description: String,
}

/// Where commands run.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct SandboxConfig {
    /// Who makes it; none: the project's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub provider: Option<String>,
    /// What it is made of.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub image: Option<String>,
    /// How far it is walled off.
    pub isolation: Isolation,
    /// What it may reach: `none`, `host`, or names of hosts.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub network: Vec<String>,
    /// Idle for so long, it is stopped.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub idle_stop: Option<Millis>,
    /// The provider stops it after so long.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub auto_stop: Option<Millis>,
    /// It is deleted so long after its run's end.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub keep: Option<Millis>,
    /// A disk that outlives it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub volume: Option<Volume>,
    /// Whether its secrets are in a file `.env` as well.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub env_file: bool,
}

/// How far commands are walled off.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Isolation {
    /// As far as the provider can.
    #[default]
    Sandboxed,
    /// Not at all: the file says so itself.
    None,
}

/// A disk that outlives its sandbox.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Volume {
    /// Its name.
    pub name: String,
    /// Where it is seen.
    pub path: String,
}

/// When a run is told, or stopped, because it turns in circles.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct LoopGuardConfig {
    /// So many identical calls with identical results in a row end the run, and
    /// at half of it the model is told; none: never.
    pub identical_calls: Option<u32>,
}

/// Who looks at the world.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PerceptionConfig {
    /// Who.
    #[serde(flatten)]
    pub source: PerceptionSource,
    /// How often.
    #[serde(default)]
    pub every: PerceptionInterval,
}

/// Who looks.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PerceptionSource {
    /// A program: the event on its standard input, JSON on its output.
    Command(Vec<String>),
    /// An address: the event is posted, the answer is JSON.
    Url(String),
    /// A provider of the program that Longhaul is part of, by its name.
    Named(String),
}

/// How often somebody looks.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PerceptionInterval {
    /// Once, before the first turn.
    #[default]
    Run,
    /// Before each turn.
    Turn,
}
