//! Body of a request that submits a run.

use std::collections::BTreeMap;

use longhaul_core::message::Message;
use longhaul_core::raw::RawJson;
use longhaul_core::time::Timestamp;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize};
use utoipa::ToSchema;

use crate::run::BudgetBody;
use crate::{history, schema};

/// A new run, as the caller submits it.
#[derive(Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = NewRun)]
pub struct NewRunBody {
    /// Name of the agent for the run. Either `agent` or `chain` is required.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub agent: Option<String>,
    /// Input of the task: a text or any JSON.
    #[schema(schema_with = schema::any_json_schema)]
    pub input: RawJson,
    /// Context values that the runtime injects into tool calls. The model can neither see nor set
    /// them.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schema(value_type = BTreeMap<String, serde_json::Value>)]
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
    #[serde(default, alias = "threadId", skip_serializing_if = "Option::is_none")]
    pub thread: Option<String>,
    /// Resource: the person or thing that the conversation is about.
    #[serde(default, alias = "resourceId", skip_serializing_if = "Option::is_none")]
    pub resource: Option<String>,
    /// Lane of the run. Runs of one lane execute one at a time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lane: Option<String>,
    /// Inbox in which the run is queued. Default: `default`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub inbox: Option<String>,
    /// Type of the task, by which lists and workers can filter.
    #[serde(default, rename = "type", skip_serializing_if = "Option::is_none")]
    #[schema(min_length = 1, max_length = 256)]
    pub kind: Option<String>,
    /// Kind of the event, if the task is an event for the agent. Replaces `type`. The agent reads a
    /// text that is made from the kind and the input.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub event: Option<String>,
    /// Priority of the run; runs with higher values are driven first.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub priority: i32,
    /// Model of the run, as `provider/model` or an alias. Default: the agent's models.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// Budget of the run. A budget above the agent's budget requires the role approver.
    #[serde(default, skip_serializing_if = "is_default_budget")]
    pub budget: BudgetBody,
    /// Person or system on whose behalf the run acts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(schema_with = schema::any_json_schema)]
    pub actor: Option<RawJson>,
    /// References to related objects in other systems.
    #[serde(default, alias = "linkedGraphHandles", skip_serializing_if = "Option::is_none")]
    #[schema(schema_with = schema::any_json_schema)]
    pub links: Option<RawJson>,
    /// Tags of the run, by which lists can filter.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tags: Vec<String>,
    /// Any data of the caller, returned with the run. `threadId` and `resourceId` in it set the
    /// thread and the resource if the fields `thread` and `resource` are missing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(schema_with = schema::any_json_schema)]
    pub metadata: Option<RawJson>,
    /// Earliest time at which the run may start.
    #[serde(
        default,
        deserialize_with = "deserialize_timestamp",
        skip_serializing_if = "Option::is_none"
    )]
    #[schema(value_type = Option<String>, format = DateTime)]
    pub start_at: Option<Timestamp>,
    /// Chain to run instead of an agent: the name of a chain, or its steps as in a chain file, such as
    /// `{"steps": [{"agent": "implement"}, {"agent": "review"}]}`.
    #[serde(
        default,
        alias = "chainId",
        alias = "chainConfig",
        skip_serializing_if = "Option::is_none"
    )]
    #[schema(schema_with = schema::any_json_schema)]
    pub chain: Option<RawJson>,
    /// Name of one step of the chain. Only this step is run. `None` runs the whole chain.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub step: Option<String>,
    /// Whether the results of all steps of the chain are approved automatically. `true` requires
    /// the role approver. `None` and `false` leave this to the `auto_approve` of each step.
    #[serde(default, alias = "autoApprove", skip_serializing_if = "Option::is_none")]
    pub auto_approve: Option<bool>,
    // A field that this build does not support is parsed, so that it can be rejected by name
    // instead of being ignored.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(ignore)]
    pub sandbox: Option<RawJson>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
const fn is_zero(number: &i32) -> bool {
    *number == 0
}

fn is_default_budget(budget: &BudgetBody) -> bool {
    *budget == BudgetBody::default()
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
