//! The desk behind a server.
//!
//! Never: opens the store, or decides anything that the server decides.

use async_trait::async_trait;
use longhaul_api::client::Client;
use longhaul_api::client::events::EventStream;
use longhaul_api::gate::{self, GateView};
use longhaul_api::key::{KeyBody, KeyView};
use longhaul_api::run::{BriefView, BudgetBody, RunView};
use longhaul_api::steer::SteerView;
use longhaul_api::submit::NewRun;
use longhaul_api::transcript::TranscriptView;
use longhaul_api::why::WhyView;
use longhaul_core::event::entry::Entry;
use longhaul_core::event::steer::Delivery;
use longhaul_core::id::{GateId, KeyName, RunId, Seq, SteerId};
use longhaul_core::policy::budget::Raise;
use longhaul_core::policy::gate::Answer;
use longhaul_core::port::store::{GatesAsk, RowsAsk};
use longhaul_core::task::Start;
use longhaul_core::time::{Clock as _, Timestamp};
use longhaul_engine::Task;
use longhaul_engine::clock::SystemClock;
use longhaul_engine::handle::{KeyAsk, MadeKey, Verdict};
use longhaul_engine::secret::Secret;

use crate::desk::{Desk, Following};
use crate::no::No;

/// The task as a request says it. The server knows by the key who submits.
fn new_run(task: Task) -> NewRun {
    let warn_at = task.budget.warn_percent;
    NewRun {
        agent: Some(task.agent),
        input: task.input,
        context: task.context,
        history: task.history,
        thread: task.thread.as_ref().map(ToString::to_string),
        resource: task.resource.as_ref().map(ToString::to_string),
        lane: task.lane.as_ref().map(ToString::to_string),
        inbox: task.inbox.as_ref().map(ToString::to_string),
        kind: task.kind,
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
            Start::At(at) => Some(at),
            // A batch is submitted as one, and never from here.
            Start::Now | Start::AfterBatch => None,
        },
        chain: None,
        auto_approve: None,
        sandbox: None,
    }
}

#[async_trait]
impl Desk for Client {
    async fn submit(&self, mut task: Task) -> Result<RunId, No> {
        let key = task.idempotency_key.take();
        Ok(Self::submit(self, &new_run(task), key).await?.id)
    }

    async fn show(&self, run: RunId) -> Result<RunView, No> {
        Ok(Self::show(self, run).await?)
    }

    async fn why(&self, run: RunId) -> Result<WhyView, No> {
        Ok(Self::why(self, run).await?)
    }

    async fn transcript(&self, run: RunId) -> Result<TranscriptView, No> {
        Ok(Self::transcript(self, run).await?)
    }

    async fn events(&self, run: RunId, after: Seq, limit: usize) -> Result<Vec<Entry>, No> {
        Ok(Self::events(self, run, after, limit).await?)
    }

    async fn follow(&self, run: RunId, after: Seq) -> Result<Box<dyn Following>, No> {
        Ok(Box::new(Self::follow(self, run, after).await?))
    }

    async fn brief(&self, ask: RowsAsk) -> Result<Vec<BriefView>, No> {
        Ok(self.brief_runs(&ask).await?)
    }

    async fn whole(&self, ask: RowsAsk) -> Result<Vec<RunView>, No> {
        Ok(self.runs(&ask).await?)
    }

    async fn gates(&self, ask: GatesAsk) -> Result<Vec<GateView>, No> {
        Ok(Self::gates(self, &ask).await?)
    }

    async fn gate(&self, gate: GateId) -> Result<GateView, No> {
        Ok(Self::gate(self, gate).await?)
    }

    async fn answer(&self, gate: GateId, answer: Answer) -> Result<(Verdict, GateView), No> {
        let answered = Self::answer(self, gate, answer).await?;
        let verdict = match answered.verdict {
            gate::Verdict::Closed => Verdict::Closed(answered.seq),
            gate::Verdict::Counted => Verdict::Counted(answered.seq),
        };
        Ok((verdict, answered.gate))
    }

    async fn steer(&self, run: RunId, text: String, delivery: Delivery) -> Result<SteerId, No> {
        Ok(Self::steer(self, run, text, delivery).await?.id)
    }

    async fn steers(&self, run: RunId) -> Result<Vec<SteerView>, No> {
        Ok(Self::steers(self, run).await?)
    }

    async fn cancel(&self, run: RunId, reason: &str) -> Result<RunView, No> {
        Ok(Self::cancel(self, run, reason).await?)
    }

    async fn pause(&self, run: RunId) -> Result<RunView, No> {
        Ok(Self::pause(self, run).await?)
    }

    async fn resume(&self, run: RunId, raise: Option<Raise>) -> Result<RunView, No> {
        Ok(Self::resume(self, run, raise).await?)
    }

    async fn make_key(&self, ask: KeyAsk) -> Result<MadeKey, No> {
        let body = KeyBody {
            name: ask.name.to_string(),
            role: ask.role,
            expires_in_ms: ask.span.map(|span| span.0),
        };
        let created = self.create_key(&body).await?;
        Ok(MadeKey {
            secret: Secret::shown(created.secret),
            key: created.key,
        })
    }

    async fn keys(&self) -> Result<Vec<KeyView>, No> {
        Ok(Self::keys(self).await?)
    }

    async fn revoke_key(&self, name: &KeyName) -> Result<KeyView, No> {
        Ok(Self::revoke_key(self, name).await?)
    }

    async fn now(&self) -> Result<Timestamp, No> {
        // A server does not tell the time; ages may be off by what clocks differ.
        Ok(SystemClock.now())
    }

    async fn is_driven(&self) -> Result<bool, No> {
        Ok(Self::is_driven(self).await?)
    }
}

#[async_trait]
impl Following for EventStream {
    async fn next(&mut self) -> Result<Option<Vec<Entry>>, No> {
        Ok(Self::next(self).await?)
    }
}

#[cfg(test)]
mod tests {
    use longhaul_core::id::{InboxName, LaneKey, ResourceKey, ThreadKey};
    use longhaul_core::raw::RawJson;
    use longhaul_core::time::Millis;
    use longhaul_core::usage::Micros;
    use longhaul_engine::agent::BudgetPatch;
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
            assert_eq!(serde_json::to_value(new_run(task)).unwrap(), body);
        }
    }
}
