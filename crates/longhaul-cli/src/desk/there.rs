//! The desk behind a server: asks over HTTP what others ask of the store.
//!
//! Never: opens the store, or decides anything that the server decides.

pub(crate) mod ask;
mod body;
mod stream;
pub(crate) mod wire;

use std::sync::Arc;

use async_trait::async_trait;
use longhaul_core::event::entry::{Entry, Envelope};
use longhaul_core::event::steer::Delivery;
use longhaul_core::id::{GateId, KeyName, RunId, Seq, SteerId};
use longhaul_core::policy::budget::Raise;
use longhaul_core::policy::gate::{Answer, GateStatus};
use longhaul_core::port::store::{GatesAsk, RowsAsk};
use longhaul_core::time::{Clock as _, Timestamp};
use longhaul_engine::Task;
use longhaul_engine::clock::SystemClock;
use longhaul_engine::gate_view::GateView;
use longhaul_engine::handle::{KeyAsk, MadeKey, Verdict};
use longhaul_engine::key_view::KeyView;
use longhaul_engine::secret::Secret;
use longhaul_engine::steer_view::SteerView;
use longhaul_engine::transcript_view::TranscriptView;
use longhaul_engine::view::{BriefView, RunView};
use longhaul_engine::why_view::WhyView;
use reqwest::Url;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::desk::there::ask::Ask;
use crate::desk::there::body::{AnswerBody, BudgetBody, KeyBody, TaskBody};
use crate::desk::there::stream::Streaming;
use crate::desk::there::wire::Wire;
use crate::desk::{Desk, Following};
use crate::no::{No, Problem};

/// So many come with one request.
const WHOLE_MAX: usize = 100;
const BRIEF_MAX: usize = 1_000;
const GATES_MAX: usize = 1_000;
const EVENTS_MAX: usize = 1_000;

/// A server.
#[derive(Debug)]
pub(crate) struct There {
    wire: Arc<Wire>,
}

/// A list, as answers have it.
#[derive(Debug, Deserialize)]
struct Page<T> {
    data: Vec<T>,
    /// Where the next page begins: a text or a number.
    #[serde(default)]
    next: Option<Value>,
}

/// What came of an answer at a gate.
#[derive(Debug, Deserialize)]
struct Answered {
    verdict: String,
    seq: Seq,
    gate: GateView,
}

/// A message that was taken in.
#[derive(Debug, Deserialize)]
struct Receipt {
    id: SteerId,
}

/// A key that was made just now.
#[derive(Deserialize)]
struct Made {
    secret: String,
    key: KeyView,
}

/// What opens the pages.
#[derive(Deserialize)]
struct Ticket {
    url: String,
}

/// Whether runs go on there.
#[derive(Debug, Deserialize)]
struct Ready {
    #[serde(default)]
    driven: bool,
}

impl There {
    /// The server at this address, for whoever holds this key.
    pub(crate) fn new(base: Url, key: Option<&Secret>) -> Result<Self, No> {
        let wire = Arc::new(Wire::new(base, key)?);
        Ok(Self { wire })
    }

    /// A link that opens the pages in a browser, once.
    pub(crate) async fn link(&self) -> Result<String, No> {
        let ask = Ask::post(&["v1", "tickets"], &json!({}));
        let ticket: Ticket = self.wire.send(&ask).await?;
        Ok(ticket.url)
    }

    /// A list of up to so many, page by page.
    async fn list<T: DeserializeOwned>(&self, ask: Ask, limits: Limits) -> Result<Vec<T>, No> {
        let mut all: Vec<T> = Vec::new();
        let mut after = limits.after;
        while all.len() < limits.wanted {
            let limit = limits.page.min(limits.wanted - all.len());
            let page = ask.clone().with("limit", limit);
            let page = page.with_some("after", after.as_deref());
            let page: Page<T> = self.wire.send(&page).await?;
            after = page.next.as_ref().and_then(cursor);
            let came = page.data.len();
            all.extend(page.data);
            if came == 0 || after.is_none() {
                break;
            }
        }
        all.truncate(limits.wanted);
        Ok(all)
    }

    /// Says a word about a run; how it stands then.
    async fn order(&self, run: RunId, what: &str, body: &Value) -> Result<RunView, No> {
        let path = ["v1", "runs", &run.to_string(), what];
        self.wire.send(&Ask::post(&path, body)).await
    }

    /// A look at one side of a run.
    async fn side<T: DeserializeOwned>(&self, run: RunId, side: &str) -> Result<T, No> {
        let path = ["v1", "runs", &run.to_string(), side];
        self.wire.send(&Ask::get(&path)).await
    }
}

/// How long a list may become.
struct Limits {
    wanted: usize,
    page: usize,
    after: Option<String>,
}

/// Where a page begins, as it is asked for.
fn cursor(next: &Value) -> Option<String> {
    match next {
        Value::Null => None,
        Value::String(text) => Some(text.clone()),
        Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_) => {
            Some(next.to_string())
        }
    }
}

/// Which runs, as it is asked for.
fn runs(ask: &RowsAsk, page: usize) -> (Ask, Limits) {
    let mut request = Ask::get(&["v1", "runs"]);
    for status in &ask.statuses {
        request = request.with("status", status.as_str());
    }
    let request = request
        .with_some("agent", ask.agent.as_ref())
        .with_some("lane", ask.lane.as_ref())
        .with_some("root", ask.root);
    let limits = Limits {
        wanted: ask.limit,
        page,
        after: ask.after.map(|run| run.to_string()),
    };
    (request, limits)
}

const fn status_word(status: GateStatus) -> &'static str {
    match status {
        GateStatus::Open => "open",
        GateStatus::Answered => "answered",
        GateStatus::Expired => "expired",
        GateStatus::Withdrawn => "withdrawn",
    }
}

#[async_trait]
impl Desk for There {
    async fn submit(&self, task: Task) -> Result<RunId, No> {
        // A random key where nobody named one: an answer that is lost on the way
        // must not make two runs.
        let once = task.idempotency_key.clone();
        let once = once.unwrap_or_else(|| uuid::Uuid::now_v7().to_string());
        let ask = Ask::post(&["v1", "runs"], &TaskBody::from(&task)).once(once);
        let run: RunView = self.wire.send(&ask).await?;
        Ok(run.id)
    }

    async fn show(&self, run: RunId) -> Result<RunView, No> {
        let ask = Ask::get(&["v1", "runs", &run.to_string()]);
        self.wire.send(&ask).await
    }

    async fn why(&self, run: RunId) -> Result<WhyView, No> {
        self.side(run, "why").await
    }

    async fn transcript(&self, run: RunId) -> Result<TranscriptView, No> {
        self.side(run, "transcript").await
    }

    async fn events(&self, run: RunId, after: Seq, limit: usize) -> Result<Vec<Entry>, No> {
        let ask = Ask::get(&["v1", "runs", &run.to_string(), "events"])
            .with("after", after)
            .with("limit", limit.clamp(1, EVENTS_MAX));
        let page: Page<Envelope> = self.wire.send(&ask).await?;
        let entries = page.data.iter().map(Entry::try_from);
        entries.collect::<Result<_, _>>().map_err(|bad| {
            let base = self.wire.base();
            let detail = format!("{base} tells what this build can't read: {bad}");
            Problem::new("strange", detail).into()
        })
    }

    async fn follow(&self, run: RunId, after: Seq) -> Result<Box<dyn Following>, No> {
        let streaming = Streaming::new(Arc::clone(&self.wire), run, after).await?;
        Ok(Box::new(streaming))
    }

    async fn brief(&self, ask: RowsAsk) -> Result<Vec<BriefView>, No> {
        let (ask, limits) = runs(&ask, BRIEF_MAX);
        self.list(ask.with("brief", true), limits).await
    }

    async fn whole(&self, ask: RowsAsk) -> Result<Vec<RunView>, No> {
        let (ask, limits) = runs(&ask, WHOLE_MAX);
        self.list(ask, limits).await
    }

    async fn gates(&self, ask: GatesAsk) -> Result<Vec<GateView>, No> {
        if let Some(gate) = ask.gate {
            return Ok(vec![self.gate(gate).await?]);
        }
        let limits = Limits {
            wanted: ask.limit,
            page: GATES_MAX,
            after: ask.after.map(|gate| gate.to_string()),
        };
        let ask = Ask::get(&["v1", "gates"])
            .with_some("status", ask.status.map(status_word))
            .with_some("run", ask.run);
        self.list(ask, limits).await
    }

    async fn gate(&self, gate: GateId) -> Result<GateView, No> {
        let ask = Ask::get(&["v1", "gates", &gate.to_string()]);
        self.wire.send(&ask).await
    }

    async fn answer(&self, gate: GateId, answer: Answer) -> Result<(Verdict, GateView), No> {
        let path = ["v1", "gates", &gate.to_string(), "answer"];
        let ask = Ask::post(&path, &AnswerBody::from(&answer));
        let answered: Answered = self.wire.send(&ask).await?;
        let verdict = match answered.verdict.as_str() {
            "counted" => Verdict::Counted(answered.seq),
            _ => Verdict::Closed(answered.seq),
        };
        Ok((verdict, answered.gate))
    }

    async fn steer(&self, run: RunId, text: String, delivery: Delivery) -> Result<SteerId, No> {
        let path = ["v1", "runs", &run.to_string(), "steer"];
        let ask = Ask::post(&path, &json!({ "text": text, "delivery": delivery }));
        let receipt: Receipt = self.wire.send(&ask).await?;
        Ok(receipt.id)
    }

    async fn steers(&self, run: RunId) -> Result<Vec<SteerView>, No> {
        let page: Page<SteerView> = self.side(run, "steer").await?;
        Ok(page.data)
    }

    async fn cancel(&self, run: RunId, reason: &str) -> Result<RunView, No> {
        self.order(run, "cancel", &json!({ "reason": reason }))
            .await
    }

    async fn pause(&self, run: RunId) -> Result<RunView, No> {
        self.order(run, "pause", &json!({})).await
    }

    async fn resume(&self, run: RunId, raise: Option<Raise>) -> Result<RunView, No> {
        let body = match raise {
            Some(raise) => json!({ "budget": BudgetBody::from(raise) }),
            None => json!({}),
        };
        self.order(run, "resume", &body).await
    }

    async fn make_key(&self, ask: KeyAsk) -> Result<MadeKey, No> {
        let ask = Ask::post(&["v1", "keys"], &KeyBody::from(&ask));
        let made: Made = self.wire.send(&ask).await?;
        Ok(MadeKey {
            secret: Secret::shown(made.secret),
            key: made.key,
        })
    }

    async fn keys(&self) -> Result<Vec<KeyView>, No> {
        let page: Page<KeyView> = self.wire.send(&Ask::get(&["v1", "keys"])).await?;
        Ok(page.data)
    }

    async fn revoke_key(&self, name: &KeyName) -> Result<KeyView, No> {
        let ask = Ask::delete(&["v1", "keys", &name.to_string()]);
        self.wire.send(&ask).await
    }

    async fn now(&self) -> Result<Timestamp, No> {
        // A server does not tell the time; ages may be off by what clocks differ.
        Ok(SystemClock.now())
    }

    async fn is_driven(&self) -> Result<bool, No> {
        let ask = Ask::get(&["readyz"]).impatient();
        match self.wire.send::<Ready>(&ask).await {
            Ok(ready) => Ok(ready.driven),
            // It is there and says that it does not work now.
            Err(No::Refused(problem)) if problem.code != "unreachable" => Ok(false),
            Err(no) => Err(no),
        }
    }
}
