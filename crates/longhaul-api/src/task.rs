//! A task as a caller submits it: the body of a request, and what a program builds. The engine adds
//! ids and the settings of the agent file.

use std::collections::BTreeMap;
use std::fmt;

use longhaul_core::chain::ChainSpec;
use longhaul_core::id::{BatchId, InboxName, LaneKey, ResourceKey, ThreadKey};
use longhaul_core::message::Message;
use longhaul_core::policy::budget::BudgetPatch;
use longhaul_core::raw::RawJson;
use longhaul_core::repo::RepoSource;
use longhaul_core::task::{EarliestStart, RunBatchMode, TaskSource};
use longhaul_core::time::Timestamp;
use serde::de::value::MapAccessDeserializer;
use serde::de::{Error as _, MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use utoipa::ToSchema;

use crate::history;
use crate::run::{BudgetBody, RunView};

/// A unit of work for an agent or a chain. A request has all fields except the last ones, which are
/// known to the process that submits the task.
#[serde_with::skip_serializing_none]
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = NewRun)]
pub struct Task {
    /// Name of the agent for the run. Either `agent` or `chain` is required.
    pub agent: Option<String>,
    /// Input of the task: a text or any JSON.
    pub input: RawJson,
    /// Context values that the runtime injects into tool calls. The model can neither see nor set
    /// them.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub context: BTreeMap<String, RawJson>,
    /// Earlier conversation with which the run starts. It must begin with a message of the user.
    #[serde(
        default,
        deserialize_with = "history::deserialize",
        skip_serializing_if = "Vec::is_empty"
    )]
    #[schema(schema_with = history::history_schema)]
    pub history: Vec<Message>,
    /// Thread (conversation) that the run belongs to.
    #[serde(alias = "threadId")]
    pub thread: Option<ThreadKey>,
    /// Resource: the person or thing that the conversation is about.
    #[serde(alias = "resourceId")]
    pub resource: Option<ResourceKey>,
    /// Lane of the run. Runs of one lane execute one at a time.
    pub lane: Option<LaneKey>,
    /// Inbox in which the run is queued. Default: `default`.
    pub inbox: Option<InboxName>,
    /// Type of the task, by which lists and workers can filter.
    #[serde(rename = "type")]
    #[schema(min_length = 1, max_length = 256)]
    pub kind: Option<String>,
    /// Kind of the event, if the task is an event for the agent. Replaces `type`. The agent reads a
    /// text that is made from the kind and the input.
    pub event: Option<String>,
    /// Priority of the run; runs with higher values are driven first.
    #[serde(default, skip_serializing_if = "is_default")]
    pub priority: i32,
    /// Model of the run, as `provider/model` or an alias. Default: the agent's models.
    pub model: Option<String>,
    /// Budget of the run. A budget above the agent's budget requires the role approver.
    #[serde(
        default,
        serialize_with = "serialize_budget",
        deserialize_with = "deserialize_budget",
        skip_serializing_if = "is_default"
    )]
    #[schema(value_type = BudgetBody)]
    pub budget: BudgetPatch,
    /// Person or system on whose behalf the run acts.
    pub actor: Option<RawJson>,
    /// References to related objects in other systems.
    #[serde(alias = "linkedGraphHandles")]
    pub links: Option<RawJson>,
    /// Tags of the run, by which lists can filter.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tags: Vec<String>,
    /// Any data of the caller, returned with the run. `threadId` and `resourceId` in it set the
    /// thread and the resource if the fields `thread` and `resource` are missing.
    pub metadata: Option<RawJson>,
    /// Earliest time at which the run may start.
    #[serde(
        default,
        rename = "start_at",
        serialize_with = "serialize_start",
        deserialize_with = "deserialize_start",
        skip_serializing_if = "is_default"
    )]
    #[schema(value_type = Option<Timestamp>)]
    pub start: EarliestStart,
    /// Chain to run instead of an agent: the name of a chain, or its steps as in a chain file, such as
    /// `{"steps": [{"agent": "implement"}, {"agent": "review"}]}`.
    #[serde(alias = "chainId", alias = "chainConfig")]
    #[schema(value_type = Option<RawJson>)]
    pub chain: Option<ChainChoice>,
    /// Name of one step of the chain. Only this step is run. `None` runs the whole chain.
    pub step: Option<String>,
    /// Whether the results of all steps of the chain are approved automatically. `true` requires
    /// the role approver. `None` and `false` leave this to the `auto_approve` of each step.
    #[serde(alias = "autoApprove")]
    pub auto_approve: Option<bool>,
    /// Git repository whose files the sandbox of the run contains: its URL, or
    /// `{"url": ..., "rev": ...}` with the branch, tag or commit.
    #[serde(default, deserialize_with = "deserialize_repo")]
    #[schema(value_type = Option<RawJson>)]
    pub repo: Option<RepoSource>,
    // A field that this build does not support is parsed, so that it can be rejected by name
    // instead of being unknown.
    #[schema(ignore)]
    pub sandbox: Option<RawJson>,
    /// Person or program that submits the task, such as `cli:anna`.
    #[serde(skip)]
    pub submitter: Option<String>,
    /// Further submitters of the task, such as the person who created its schedule.
    #[serde(skip)]
    pub other_submitters: Vec<String>,
    /// Principal for which spend caps per key count the run. `None` means the submitter.
    #[serde(skip)]
    pub charged_to: Option<String>,
    /// Idempotency key of the submit: submits with the same key return the same run.
    #[serde(skip)]
    pub idempotency_key: Option<String>,
    /// Task in an external inbox from which this task was created, if any. The run is then queued
    /// in an inbox of the same name, each external task is submitted once, and the end of the run
    /// is put into the outbox for the external inbox.
    #[serde(skip)]
    pub source: Option<TaskSource>,
}

/// Body of a request that submits a batch.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = NewBatch)]
pub struct NewBatchBody {
    /// Runs of the batch, 1 to 1,000, in order.
    #[schema(min_items = 1, max_items = 1000)]
    pub runs: Vec<Task>,
    /// Order in which the runs execute. Default: `parallel`.
    #[serde(default)]
    #[schema(required = false)]
    pub mode: RunBatchMode,
}

/// A batch with its runs.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[schema(as = Batch)]
pub struct BatchView {
    /// Id of the batch.
    pub id: BatchId,
    /// Order in which the runs execute.
    pub mode: RunBatchMode,
    /// Runs of the batch, in order.
    pub runs: Vec<RunView>,
}

/// Chain given by its name in the project or by its steps.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(untagged)]
pub enum ChainChoice {
    /// The project's chain with this name.
    Named(String),
    /// A chain without a name, with these steps.
    Inline(ChainSpec),
}

impl From<&str> for ChainChoice {
    fn from(name: &str) -> Self {
        Self::Named(name.to_owned())
    }
}

impl From<ChainSpec> for ChainChoice {
    fn from(spec: ChainSpec) -> Self {
        Self::Inline(spec)
    }
}

/// Reads a text or an object. Derived code for an untagged enum would lose the path of an error.
impl<'de> Deserialize<'de> for ChainChoice {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct ChainVisitor;

        impl<'de> Visitor<'de> for ChainVisitor {
            type Value = ChainChoice;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("string or map")
            }

            fn visit_str<E>(self, name: &str) -> Result<ChainChoice, E> {
                Ok(ChainChoice::from(name))
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<ChainChoice, A::Error> {
                ChainSpec::deserialize(MapAccessDeserializer::new(map)).map(ChainChoice::Inline)
            }
        }

        deserializer.deserialize_any(ChainVisitor)
    }
}

impl Task {
    /// Creates a task with this agent and input, and defaults for everything else.
    pub fn new(agent: impl Into<String>, input: impl Serialize) -> Self {
        let (agent, input) = (Some(agent.into()), RawJson::from_serialize(&input));
        Self { agent, input, ..Self::default() }
    }

    /// Creates a task for all steps of this chain, with defaults for everything else.
    pub fn for_chain(chain: impl Into<ChainChoice>, input: impl Serialize) -> Self {
        Self { agent: None, chain: Some(chain.into()), ..Self::new("", input) }
    }

    /// Returns the type of the task, or the kind of its event.
    pub fn task_type(&self) -> Option<&str> {
        self.event.as_deref().or(self.kind.as_deref())
    }
}

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

fn serialize_budget<S: Serializer>(budget: &BudgetPatch, serializer: S) -> Result<S::Ok, S::Error> {
    BudgetBody::from(*budget).serialize(serializer)
}

fn deserialize_budget<'de, D: Deserializer<'de>>(deserializer: D) -> Result<BudgetPatch, D::Error> {
    BudgetBody::deserialize(deserializer)?.try_into().map_err(D::Error::custom)
}

fn serialize_start<S: Serializer>(start: &EarliestStart, serializer: S) -> Result<S::Ok, S::Error> {
    match start {
        EarliestStart::At(time) => time.serialize(serializer),
        EarliestStart::Now | EarliestStart::AfterBatch => serializer.serialize_none(),
    }
}

/// Parses a repository: its URL, or an object. `null` means none.
fn deserialize_repo<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<RepoSource>, D::Error> {
    struct RepoVisitor;

    impl<'de> Visitor<'de> for RepoVisitor {
        type Value = Option<RepoSource>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("string or map")
        }

        fn visit_str<E>(self, url: &str) -> Result<Self::Value, E> {
            Ok(Some(RepoSource::new(url)))
        }

        fn visit_unit<E>(self) -> Result<Self::Value, E> {
            Ok(None)
        }

        fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Self::Value, A::Error> {
            RepoSource::deserialize(MapAccessDeserializer::new(map)).map(Some)
        }
    }

    deserializer.deserialize_any(RepoVisitor)
}

/// Parses the earliest time at which a task may start. `null` means now.
fn deserialize_start<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<EarliestStart, D::Error> {
    Ok(deserialize_timestamp(deserializer)?.into())
}

/// Parses a time in RFC 3339 format. Times without a date (such as `5us`), which the journal format
/// allows, are rejected.
pub(crate) fn deserialize_timestamp<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<Timestamp>, D::Error> {
    let Some(text) = Option::<String>::deserialize(deserializer)? else {
        return Ok(None);
    };
    let starts_with_year = text.get(4..5) == Some("-");
    let timestamp = text.parse().ok().filter(|_| starts_with_year);
    let message = "a time must be in RFC 3339 format, such as 2026-01-31T12:00:00Z, and not after \
                   9999-12-30T22:00:00Z";
    timestamp.map(Some).ok_or_else(|| D::Error::custom(message))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_timestamp_must_be_an_rfc_3339_date() {
        let is_accepted = |text: &str| deserialize_timestamp(&serde_json::json!(text)).is_ok();
        assert!(is_accepted("2026-01-31T12:00:00Z"));
        assert!(is_accepted("2026-01-31T12:00:00.123456+02:00"));
        for text in ["5us", "-5us", "", "tomorrow", "2026-13-01T00:00:00Z"] {
            assert!(!is_accepted(text), "{text}");
        }
        assert_eq!(deserialize_timestamp(&serde_json::Value::Null).ok(), Some(None));
    }
}
