//! A task in a request.

use std::collections::BTreeMap;

use longhaul_core::message::Message;
use longhaul_core::raw::RawJson;
use longhaul_core::time::Timestamp;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize};
use utoipa::ToSchema;

use crate::run::BudgetBody;
use crate::{history, schema};

/// A run to be made.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = NewRun)]
pub struct NewRunBody {
    /// Who does it.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = String, required = true)]
    pub agent: Option<String>,
    /// A text or any JSON.
    #[schema(schema_with = schema::any)]
    pub input: RawJson,
    /// Names that the runtime injects and the model can neither see nor set.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schema(value_type = BTreeMap<String, serde_json::Value>)]
    pub context: BTreeMap<String, RawJson>,
    /// A conversation that comes with it, which the user begins.
    #[serde(
        default,
        deserialize_with = "history::deserialize",
        skip_serializing_if = "Vec::is_empty"
    )]
    #[schema(schema_with = history::schema)]
    pub history: Vec<Message>,
    /// The conversation it belongs to.
    #[serde(default, alias = "threadId", skip_serializing_if = "Option::is_none")]
    pub thread: Option<String>,
    /// Whom the conversation is about.
    #[serde(default, alias = "resourceId", skip_serializing_if = "Option::is_none")]
    pub resource: Option<String>,
    /// Only one run of a lane goes at a time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lane: Option<String>,
    /// Where it queues; `default` unless it is said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub inbox: Option<String>,
    /// What kind of task it is, for filters.
    #[serde(default, rename = "type", skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
    /// Higher goes first.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub priority: i32,
    /// The model, as `provider/model` or a short name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// Caps of its own. Above the agent's they need the role approver.
    #[serde(default, skip_serializing_if = "is_default")]
    pub budget: BudgetBody,
    /// On whose behalf.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(schema_with = schema::any)]
    pub actor: Option<RawJson>,
    /// Handles of things elsewhere.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(schema_with = schema::any)]
    pub links: Option<RawJson>,
    /// Labels to find it by.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tags: Vec<String>,
    /// Anything that is wanted back.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(schema_with = schema::any)]
    pub metadata: Option<RawJson>,
    /// It does not begin before this point.
    #[serde(default, deserialize_with = "timestamp", skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, format = DateTime)]
    pub start_at: Option<Timestamp>,
    // What this build does not have yet is refused by name, so that nobody
    // thinks it was heard.
    #[serde(
        default,
        alias = "chainId",
        alias = "chainConfig",
        skip_serializing_if = "Option::is_none"
    )]
    #[schema(ignore)]
    pub chain: Option<RawJson>,
    #[serde(default, alias = "autoApprove", skip_serializing_if = "Option::is_none")]
    #[schema(ignore)]
    pub auto_approve: Option<RawJson>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(ignore)]
    pub sandbox: Option<RawJson>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde hands over a reference")]
const fn is_zero(number: &i32) -> bool {
    *number == 0
}

fn is_default(budget: &BudgetBody) -> bool {
    *budget == BudgetBody::default()
}

/// A point in time as others write it. Our own journals know one more way, for
/// times that have no date.
pub(crate) fn timestamp<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Timestamp>, D::Error> {
    let Some(said) = Option::<String>::deserialize(from)? else {
        return Ok(None);
    };
    let dated = said.get(4..5) == Some("-");
    let read = said.parse().ok().filter(|_| dated);
    let words = "a time is written as in RFC 3339, such as 2026-01-31T12:00:00Z";
    read.map(Some).ok_or_else(|| D::Error::custom(words))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_timestamp_must_be_an_rfc_3339_date() {
        let read = |text: &str| timestamp(&serde_json::json!(text)).is_ok();
        assert!(read("2026-01-31T12:00:00Z"));
        assert!(read("2026-01-31T12:00:00.123456+02:00"));
        for odd in ["5us", "-5us", "", "tomorrow", "2026-13-01T00:00:00Z"] {
            assert!(!read(odd), "{odd}");
        }
        assert_eq!(timestamp(&serde_json::Value::Null).ok(), Some(None));
    }
}
