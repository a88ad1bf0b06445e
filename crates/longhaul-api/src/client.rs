//! A client of a Longhaul server. It decides nothing that the server decides.

mod connection;
pub mod events;
mod request;

use std::fmt::Display;
use std::sync::Arc;

use longhaul_core::event::entry::{Entry, Envelope};
use longhaul_core::event::steer::Delivery;
use longhaul_core::id::{GateId, KeyName, RunId, Seq};
use longhaul_core::policy::budget::BudgetRaise;
use longhaul_core::policy::gate::{Answer, GateStatus};
use longhaul_core::port::store::{GateFilter, RunFilter};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::client::connection::Connection;
use crate::client::events::EventStream;
use crate::client::request::Request;
use crate::gate::{AnswerBody, AnswerResponse, GateView};
use crate::health::Ready;
use crate::key::{CreatedKey, KeyBody, KeyView, TicketView};
use crate::list::List;
use crate::problem::Problem;
use crate::run::{CancelBody, ResumeBody, RunBriefView, RunView};
use crate::steer::{SteerBody, SteerReceipt, SteerView};
use crate::submit::NewRunBody;
use crate::transcript::TranscriptView;
use crate::why::WhyView;

pub use connection::is_alive;
pub use reqwest::Url;

/// Maximum number of items that one request brings.
const RUNS_MAX: usize = 100;
const BRIEF_MAX: usize = 1_000;
const GATES_MAX: usize = 1_000;
const EVENTS_MAX: usize = 1_000;

/// A client of one server. Every method answers with the server's [`Problem`] when the server
/// refuses, and with one of the codes `unreachable`, `response_lost` or `unexpected_response` when there is no
/// response that this build understands.
#[derive(Debug, Clone)]
pub struct Client {
    connection: Arc<Connection>,
}

/// One page of a journal.
#[derive(Debug, Deserialize)]
struct EventPage {
    data: Vec<Envelope>,
}

/// How long a list may become.
struct ListRange {
    limit: usize,
    page_size: usize,
    after: Option<String>,
}

impl Client {
    /// A client of the server at `base`. `user` is the person at the terminal, whom a server
    /// on the same machine puts into the journal.
    ///
    /// # Errors
    /// A key with characters that no key has; a machine without TLS certificates.
    pub fn new(base: Url, key: Option<&str>, user: Option<&str>) -> Result<Self, Problem> {
        let connection = Arc::new(Connection::new(base, key, user)?);
        Ok(Self { connection })
    }

    /// Submits a run; it is on disk when this returns. The same `idempotency_key` finds the
    /// same run.
    pub async fn submit(
        &self,
        run: &NewRunBody,
        idempotency_key: Option<String>,
    ) -> Result<RunView, Problem> {
        // A random key where the caller gave none: a response that is lost on the way must not
        // make two runs.
        let key = idempotency_key.unwrap_or_else(|| uuid::Uuid::now_v7().to_string());
        let request = Request::post(&["v1", "runs"], run).idempotent(key);
        self.connection.send(&request).await
    }

    /// One run, whole.
    pub async fn show(&self, run: RunId) -> Result<RunView, Problem> {
        self.get(&["v1", "runs", &run.to_string()]).await
    }

    /// Why a run is in its status, and what helps.
    pub async fn why(&self, run: RunId) -> Result<WhyView, Problem> {
        self.get(&["v1", "runs", &run.to_string(), "why"]).await
    }

    /// The conversation of a run.
    pub async fn transcript(&self, run: RunId) -> Result<TranscriptView, Problem> {
        self.get(&["v1", "runs", &run.to_string(), "transcript"]).await
    }

    /// One page of a run's journal.
    pub async fn events(
        &self,
        run: RunId,
        after: Seq,
        limit: usize,
    ) -> Result<Vec<Entry>, Problem> {
        let request = Request::get(&["v1", "runs", &run.to_string(), "events"])
            .query("after", after)
            .query("limit", limit.clamp(1, EVENTS_MAX));
        let page: EventPage = self.connection.send(&request).await?;
        let entries = page.data.iter().map(Entry::try_from);
        entries.collect::<Result<_, _>>().map_err(|bad| self.connection.unreadable_event(&bad))
    }

    /// Follows a run from after an event on.
    pub async fn follow(&self, run: RunId, after: Seq) -> Result<EventStream, Problem> {
        EventStream::new(Arc::clone(&self.connection), run, after).await
    }

    /// Runs as lists show them, newest first.
    pub async fn brief_runs(&self, filter: &RunFilter) -> Result<Vec<RunBriefView>, Problem> {
        let (request, limits) = list_runs_request(filter, BRIEF_MAX);
        self.list(request.query("brief", true), limits).await
    }

    /// The same runs, each of them whole.
    pub async fn runs(&self, filter: &RunFilter) -> Result<Vec<RunView>, Problem> {
        let (request, limits) = list_runs_request(filter, RUNS_MAX);
        self.list(request, limits).await
    }

    /// Gates, newest first.
    pub async fn gates(&self, filter: &GateFilter) -> Result<Vec<GateView>, Problem> {
        if let Some(gate) = filter.gate {
            return Ok(vec![self.gate(gate).await?]);
        }
        let limits = ListRange {
            limit: filter.limit,
            page_size: GATES_MAX,
            after: filter.after.map(|gate| gate.to_string()),
        };
        let request = Request::get(&["v1", "gates"])
            .query_opt("status", filter.status.map(gate_status))
            .query_opt("run", filter.run);
        self.list(request, limits).await
    }

    /// One gate.
    pub async fn gate(&self, gate: GateId) -> Result<GateView, Problem> {
        self.get(&["v1", "gates", &gate.to_string()]).await
    }

    /// Answers a gate.
    pub async fn answer(&self, gate: GateId, answer: Answer) -> Result<AnswerResponse, Problem> {
        let path = ["v1", "gates", &gate.to_string(), "answer"];
        self.post(&path, &AnswerBody::from(answer)).await
    }

    /// Sends a message to a run.
    pub async fn steer(
        &self,
        run: RunId,
        text: String,
        delivery: Delivery,
    ) -> Result<SteerReceipt, Problem> {
        let path = ["v1", "runs", &run.to_string(), "steer"];
        self.post(&path, &SteerBody { text, delivery }).await
    }

    /// The messages that were sent to a run, and what became of each.
    pub async fn steers(&self, run: RunId) -> Result<Vec<SteerView>, Problem> {
        let path = ["v1", "runs", &run.to_string(), "steer"];
        let list: List<SteerView> = self.get(&path).await?;
        Ok(list.data)
    }

    /// Cancels a run.
    pub async fn cancel(&self, run: RunId, reason: &str) -> Result<RunView, Problem> {
        let reason = reason.to_owned();
        let path = ["v1", "runs", &run.to_string(), "cancel"];
        self.post(&path, &CancelBody { reason }).await
    }

    /// Pauses a run.
    pub async fn pause(&self, run: RunId) -> Result<RunView, Problem> {
        let path = ["v1", "runs", &run.to_string(), "pause"];
        self.post(&path, &json!({})).await
    }

    /// Resumes a run, maybe with a larger budget.
    pub async fn resume(&self, run: RunId, raise: Option<BudgetRaise>) -> Result<RunView, Problem> {
        let budget = raise.map(Into::into);
        let path = ["v1", "runs", &run.to_string(), "resume"];
        self.post(&path, &ResumeBody { budget }).await
    }

    /// Makes a key; its secret is in the response and nowhere else.
    pub async fn create_key(&self, key: &KeyBody) -> Result<CreatedKey, Problem> {
        self.post(&["v1", "keys"], key).await
    }

    /// All keys, the oldest first.
    pub async fn keys(&self) -> Result<Vec<KeyView>, Problem> {
        let list: List<KeyView> = self.get(&["v1", "keys"]).await?;
        Ok(list.data)
    }

    /// Revokes a key and everything that it gave out.
    pub async fn revoke_key(&self, name: &KeyName) -> Result<KeyView, Problem> {
        let request = Request::delete(&["v1", "keys", &name.to_string()]);
        self.connection.send(&request).await
    }

    /// A link that opens the pages in a browser, once.
    pub async fn ticket(&self) -> Result<TicketView, Problem> {
        self.post(&["v1", "tickets"], &json!({})).await
    }

    /// Whether a worker drives the runs there.
    pub async fn has_driver(&self) -> Result<bool, Problem> {
        let request = Request::get(&["readyz"]).without_retries();
        match self.connection.send::<Ready>(&request).await {
            Ok(ready) => Ok(ready.driven),
            // The server answers that it can't work now.
            Err(problem) if problem.code != "unreachable" => Ok(false),
            Err(problem) => Err(problem),
        }
    }

    async fn get<T: DeserializeOwned>(&self, path: &[&str]) -> Result<T, Problem> {
        self.connection.send(&Request::get(path)).await
    }

    async fn post<T: DeserializeOwned>(
        &self,
        path: &[&str],
        body: &impl Serialize,
    ) -> Result<T, Problem> {
        self.connection.send(&Request::post(path, body)).await
    }

    /// A list of up to so many items, page by page.
    async fn list<T: DeserializeOwned>(
        &self,
        request: Request,
        limits: ListRange,
    ) -> Result<Vec<T>, Problem> {
        let mut all: Vec<T> = Vec::new();
        let mut after = limits.after;
        while all.len() < limits.limit {
            let limit = limits.page_size.min(limits.limit - all.len());
            let page = request.clone().query("limit", limit);
            let page = page.query_opt("after", after.as_deref());
            let page: List<T> = self.connection.send(&page).await?;
            after = page.next;
            let is_empty = page.data.is_empty();
            all.extend(page.data);
            if is_empty || after.is_none() {
                break;
            }
        }
        all.truncate(limits.limit);
        Ok(all)
    }
}

/// The request for these runs.
fn list_runs_request(filter: &RunFilter, page: usize) -> (Request, ListRange) {
    let mut request = Request::get(&["v1", "runs"]);
    for status in &filter.statuses {
        request = request.query("status", status.as_str());
    }
    let request = request
        .query_opt("agent", filter.agent.as_ref())
        .query_opt("lane", filter.lane.as_ref())
        .query_opt("root", filter.root);
    let limits = ListRange {
        limit: filter.limit,
        page_size: page,
        after: filter.after.map(|run| run.to_string()),
    };
    (request, limits)
}

const fn gate_status(status: GateStatus) -> impl Display {
    match status {
        GateStatus::Open => "open",
        GateStatus::Answered => "answered",
        GateStatus::Expired => "expired",
        GateStatus::Withdrawn => "withdrawn",
    }
}
