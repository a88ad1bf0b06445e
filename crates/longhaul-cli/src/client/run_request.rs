//! Converts tasks into bodies of API requests, and back.

use longhaul_api::run::BudgetBody;
use longhaul_api::submit::NewRunBody;
use longhaul_core::raw::RawJson;
use longhaul_core::task::EarliestStart;
use longhaul_engine::task::ChainChoice;
use longhaul_engine::{Longhaul, Task};
use longhaul_server::task_from_new_run_body;

use crate::caller_name::caller_name;

/// Converts the body of a request into a task of a batch. The error says why the task can't be
/// submitted.
pub(super) fn batch_task_from_body(longhaul: &Longhaul, body: NewRunBody) -> Result<Task, String> {
    let task = task_from_new_run_body(body, &caller_name())?;
    // The agents of a chain are checked when the chain is submitted.
    match task.chain.is_some() || longhaul.get_agent(&task.agent).is_ok() {
        true => Ok(task),
        false => Err(format!("there is no agent named `{}`", task.agent)),
    }
}

/// Converts a task into the body of a request that submits it. The submitter is left out, because
/// the server knows the submitter from the API key.
pub(super) fn task_to_request_body(task: Task) -> NewRunBody {
    let warn_at = task.budget.warn_percent;
    NewRunBody {
        agent: Some(task.agent).filter(|_| task.chain.is_none()),
        input: task.input,
        context: task.context,
        history: task.history,
        thread: task.thread.as_ref().map(ToString::to_string),
        resource: task.resource.as_ref().map(ToString::to_string),
        lane: task.lane.as_ref().map(ToString::to_string),
        inbox: task.inbox.as_ref().map(ToString::to_string),
        event: task.kind.clone().filter(|_| task.event),
        kind: task.kind.filter(|_| !task.event),
        priority: task.priority,
        model: task.model,
        budget: BudgetBody {
            warn_at: warn_at.map(|percent| f64::from(percent) / 100.0),
            ..BudgetBody::from(task.budget.caps)
        },
        actor: task.actor,
        links: task.links,
        tags: task.tags,
        metadata: task.metadata,
        start_at: match task.start {
            EarliestStart::At(at) => Some(at),
            // Batches are never submitted from here.
            EarliestStart::Now | EarliestStart::AfterBatch => None,
        },
        step: task.chain.as_ref().and_then(|chain| chain.step.clone()),
        auto_approve: task.chain.as_ref().and_then(|chain| chain.auto_approve.then_some(true)),
        chain: task.chain.map(|chain| match chain.chain {
            ChainChoice::Named(name) => RawJson::from_serialize(&name),
            ChainChoice::Inline(spec) => RawJson::from_serialize(&spec),
        }),
        sandbox: None,
    }
}

#[cfg(test)]
mod tests {
    use longhaul_core::chain::{ChainSpec, ChainStepSpec};
    use longhaul_core::id::{InboxName, LaneKey, ResourceKey, ThreadKey};
    use longhaul_core::policy::budget::BudgetRaise;
    use longhaul_core::time::{Millis, Timestamp};
    use longhaul_core::usage::MicroUsd;
    use longhaul_engine::agent::BudgetPatch;
    use serde_json::json;

    use super::*;

    #[test]
    fn a_task_is_converted_to_a_request_body() {
        let plain = Task::new("writer", "milk");
        let mut full = Task::new("writer", json!({ "a": [1, 2] }));
        full.context.insert("token".to_owned(), RawJson::from_serialize(&"x"));
        full.thread = Some(ThreadKey::new("t").unwrap());
        full.resource = Some(ResourceKey::new("r").unwrap());
        full.lane = Some(LaneKey::new("l").unwrap());
        full.inbox = Some(InboxName::new("i").unwrap());
        full.kind = Some("chore".to_owned());
        full.priority = -3;
        full.model = Some("scripted/tidy".to_owned());
        full.tags = vec!["one".to_owned()];
        full.metadata = Some(RawJson::from_serialize(&json!({ "k": 1 })));
        full.actor = Some(RawJson::from_serialize(&"anna"));
        full.links = Some(RawJson::from_serialize(&["url"]));
        full.start = EarliestStart::At(Timestamp::from_micros(1_000_000));
        full.submitter = Some("cli:anna".to_owned());
        full.idempotency_key = Some("once".to_owned());
        full.budget = BudgetPatch {
            caps: BudgetRaise {
                micro_usd: Some(MicroUsd(2_500_000)),
                tokens: Some(100),
                turns: Some(7),
                active: Some(Millis(60_000)),
            },
            warn_percent: Some(80),
        };
        for (task, body) in [
            (plain, json!({ "agent": "writer", "input": "milk" })),
            (
                full,
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
            assert_eq!(serde_json::to_value(task_to_request_body(task)).unwrap(), body);
        }
        let mut chain = Task::for_chain("pair", "milk");
        chain.chain.as_mut().unwrap().step = Some("review".to_owned());
        let steps = vec![ChainStepSpec::new("writer")];
        let inline = Task::for_chain(ChainSpec { steps, ..ChainSpec::default() }, "milk");
        for (task, body) in [
            (chain, json!({ "chain": "pair", "step": "review", "input": "milk" })),
            (
                inline,
                json!({
                    "chain": { "steps": [{ "agent": "writer", "condition": "always" }] },
                    "input": "milk",
                }),
            ),
        ] {
            assert_eq!(serde_json::to_value(task_to_request_body(task)).unwrap(), body);
        }
    }
}
