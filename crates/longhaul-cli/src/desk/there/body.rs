//! What is sent to a server, as its contract has it.
//!
//! Never: who submits or answers. A server knows that by the key.

use std::collections::BTreeMap;

use longhaul_core::access::Role;
use longhaul_core::message::Message;
use longhaul_core::policy::budget::Raise;
use longhaul_core::policy::gate::{Answer, Decision, Scope};
use longhaul_core::raw::{Hash, RawJson};
use longhaul_core::task::Start;
use longhaul_core::time::Timestamp;
use longhaul_engine::Task;
use longhaul_engine::agent::BudgetPatch;
use longhaul_engine::handle::KeyAsk;
use longhaul_engine::view::usd;
use serde::Serialize;

/// A task.
#[derive(Debug, Serialize)]
pub(crate) struct TaskBody<'a> {
    agent: &'a str,
    input: &'a RawJson,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    context: &'a BTreeMap<String, RawJson>,
    #[serde(skip_serializing_if = "<[Message]>::is_empty")]
    history: &'a [Message],
    #[serde(skip_serializing_if = "Option::is_none")]
    thread: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    resource: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    lane: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    inbox: Option<String>,
    #[serde(rename = "type", skip_serializing_if = "Option::is_none")]
    kind: Option<&'a str>,
    #[serde(skip_serializing_if = "is_zero")]
    priority: i32,
    #[serde(skip_serializing_if = "Option::is_none")]
    model: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    budget: Option<BudgetBody>,
    #[serde(skip_serializing_if = "Option::is_none")]
    actor: Option<&'a RawJson>,
    #[serde(skip_serializing_if = "Option::is_none")]
    links: Option<&'a RawJson>,
    #[serde(skip_serializing_if = "<[String]>::is_empty")]
    tags: &'a [String],
    #[serde(skip_serializing_if = "Option::is_none")]
    metadata: Option<&'a RawJson>,
    #[serde(skip_serializing_if = "Option::is_none")]
    start_at: Option<Timestamp>,
}

#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "serde hands over a reference"
)]
const fn is_zero(number: &i32) -> bool {
    *number == 0
}

impl<'a> From<&'a Task> for TaskBody<'a> {
    fn from(task: &'a Task) -> Self {
        let patch = task.budget;
        Self {
            agent: &task.agent,
            input: &task.input,
            context: &task.context,
            history: &task.history,
            thread: task.thread.as_ref().map(ToString::to_string),
            resource: task.resource.as_ref().map(ToString::to_string),
            lane: task.lane.as_ref().map(ToString::to_string),
            inbox: task.inbox.as_ref().map(ToString::to_string),
            kind: task.kind.as_deref(),
            priority: task.priority,
            model: task.model.as_deref(),
            budget: (patch != BudgetPatch::default()).then(|| BudgetBody::from(patch)),
            actor: task.actor.as_ref(),
            links: task.links.as_ref(),
            tags: &task.tags,
            metadata: task.metadata.as_ref(),
            start_at: match task.start {
                Start::At(at) => Some(at),
                // A batch is submitted as one, and never from here.
                Start::Now | Start::AfterBatch => None,
            },
        }
    }
}

/// Caps.
#[derive(Debug, Serialize)]
pub(crate) struct BudgetBody {
    #[serde(skip_serializing_if = "Option::is_none")]
    usd: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tokens: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    turns: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    active_ms: Option<u64>,
    /// A share of one, as settings have it.
    #[serde(skip_serializing_if = "Option::is_none")]
    warn_at: Option<f64>,
}

impl From<BudgetPatch> for BudgetBody {
    fn from(patch: BudgetPatch) -> Self {
        Self {
            warn_at: patch.warn_percent.map(|percent| f64::from(percent) / 100.0),
            ..Self::from(patch.caps)
        }
    }
}

impl From<Raise> for BudgetBody {
    fn from(raise: Raise) -> Self {
        Self {
            usd: raise.micros.map(usd),
            tokens: raise.tokens,
            turns: raise.turns,
            active_ms: raise.active.map(|span| span.0),
            warn_at: None,
        }
    }
}

/// An answer at a gate.
#[derive(Debug, Serialize)]
pub(crate) struct AnswerBody<'a> {
    decision: &'static str,
    scope: Scope,
    #[serde(skip_serializing_if = "Option::is_none")]
    note: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    edited: Option<&'a RawJson>,
    #[serde(skip_serializing_if = "Option::is_none")]
    payload: Option<RawJson>,
    #[serde(skip_serializing_if = "Option::is_none")]
    digest: Option<Hash>,
}

impl<'a> From<&'a Answer> for AnswerBody<'a> {
    fn from(answer: &'a Answer) -> Self {
        let (edited, payload) = match &answer.decision {
            Decision::Edit(edited) => (Some(edited), answer.payload.clone()),
            Decision::Answer(words) => (None, Some(RawJson::of(words))),
            Decision::Approve | Decision::Reject | Decision::Complete => {
                (None, answer.payload.clone())
            }
        };
        Self {
            decision: answer.decision.as_str(),
            scope: answer.scope,
            note: answer.note.as_deref(),
            edited,
            payload,
            digest: answer.digest,
        }
    }
}

/// A key to be made.
#[derive(Debug, Serialize)]
pub(crate) struct KeyBody {
    name: String,
    role: Role,
    #[serde(skip_serializing_if = "Option::is_none")]
    expires_in_ms: Option<u64>,
}

impl From<&KeyAsk> for KeyBody {
    fn from(ask: &KeyAsk) -> Self {
        Self {
            name: ask.name.to_string(),
            role: ask.role,
            expires_in_ms: ask.span.map(|span| span.0),
        }
    }
}

#[cfg(test)]
mod tests {
    use longhaul_core::id::{InboxName, LaneKey, ResourceKey, ThreadKey};
    use longhaul_core::time::Millis;
    use longhaul_core::usage::Micros;
    use serde_json::json;

    use super::*;

    #[test]
    fn a_task_is_sent_as_the_contract_has_it() {
        let plain = Task::new("writer", "milk");
        let mut full = Task::new("writer", json!({ "a": [1, 2] }));
        full.context.insert("token".to_owned(), RawJson::of(&"x"));
        full.thread = Some(ThreadKey::new("t").unwrap());
        full.resource = Some(ResourceKey::new("r").unwrap());
        full.lane = Some(LaneKey::new("l").unwrap());
        full.inbox = Some(InboxName::new("i").unwrap());
        full.kind = Some("chore".to_owned());
        full.priority = -3;
        full.model = Some("scripted/tidy".to_owned());
        full.tags = vec!["one".to_owned()];
        full.metadata = Some(RawJson::of(&json!({ "k": 1 })));
        full.actor = Some(RawJson::of(&"anna"));
        full.links = Some(RawJson::of(&["url"]));
        full.start = Start::At(Timestamp::from_micros(1_000_000));
        full.submitter = Some("cli:anna".to_owned());
        full.idempotency_key = Some("once".to_owned());
        full.budget = BudgetPatch {
            caps: Raise {
                micros: Some(Micros(2_500_000)),
                tokens: Some(100),
                turns: Some(7),
                active: Some(Millis(60_000)),
            },
            warn_percent: Some(80),
        };
        for (task, body) in [
            (&plain, json!({ "agent": "writer", "input": "milk" })),
            (
                &full,
                json!({
                    "agent": "writer", "input": { "a": [1, 2] }, "context": { "token": "x" },
                    "thread": "t", "resource": "r", "lane": "l", "inbox": "i", "type": "chore",
                    "priority": -3, "model": "scripted/tidy",
                    "budget": {
                        "usd": 2.5, "tokens": 100, "turns": 7, "active_ms": 60_000, "warn_at": 0.8,
                    },
                    "actor": "anna", "links": ["url"], "tags": ["one"], "metadata": { "k": 1 },
                    "start_at": "1970-01-01T00:00:01.000000Z",
                }),
            ),
        ] {
            assert_eq!(serde_json::to_value(TaskBody::from(task)).unwrap(), body);
        }
    }

    #[test]
    fn an_answer_is_sent_as_the_contract_has_it() {
        let said = |decision, digest| Answer {
            decision,
            by: "cli:anna".to_owned(),
            scope: Scope::Once,
            note: Some("so".to_owned()),
            payload: None,
            digest,
        };
        let digest = Hash::of(b"shown");
        let (edit, words) = (RawJson::of(&json!({ "a": 1 })), "left".to_owned());
        for (answer, body) in [
            (
                said(Decision::Approve, Some(digest)),
                json!({ "decision": "approve", "scope": "once", "note": "so", "digest": digest }),
            ),
            (
                said(Decision::Edit(edit), Some(digest)),
                json!({
                    "decision": "edit", "scope": "once", "note": "so", "edited": { "a": 1 },
                    "digest": digest,
                }),
            ),
            (
                said(Decision::Reject, None),
                json!({ "decision": "reject", "scope": "once", "note": "so" }),
            ),
            (
                said(Decision::Answer(words), None),
                json!({ "decision": "answer", "scope": "once", "note": "so", "payload": "left" }),
            ),
        ] {
            assert_eq!(
                serde_json::to_value(AnswerBody::from(&answer)).unwrap(),
                body
            );
        }
    }
}
