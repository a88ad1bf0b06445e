//! HTTP client for a Longhaul server.

mod connection;
pub mod events;
mod request;
mod threads;

use std::fmt::Display;
use std::sync::Arc;

use longhaul_core::duration;
use longhaul_core::event::entry::{JournalEntry, JournalEntryEnvelope};
use longhaul_core::event::steer::SteerDelivery;
use longhaul_core::id::{
    AgentName, ApiKeyName, BatchId, GateId, InboxName, LaneKey, RuleId, RunId, Seq, SteerId,
};
use longhaul_core::policy::budget::BudgetRaise;
use longhaul_core::policy::gate::{Answer, GateStatus};
use longhaul_core::policy::rule::RememberedApprovalFilter;
use longhaul_core::port::store::{GateFilter, RunFilter};
use longhaul_core::time::Millis;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::agent::AgentView;
use crate::agent_stats::AgentStatsView;
use crate::batch::{BatchView, NewBatchBody};
use crate::client::connection::ApiConnection;
use crate::client::events::EventStream;
use crate::client::request::ApiRequest;
use crate::gate::{AnswerBody, AnswerResponse, GateView};
use crate::health::ReadinessResponse;
use crate::inbox::{InboxDetailView, InboxView, NewTaskBody};
use crate::key::{CreatedKey, KeyView, LoginTicketView, NewKeyBody};
use crate::lane::LaneView;
use crate::list::List;
use crate::problem::Problem;
use crate::rule::RuleView;
use crate::run::{CancelBody, ResumeBody, RunBriefView, RunView};
use crate::schedule::{NewScheduleBody, ScheduleView};
use crate::spend::{RaiseCapBody, SpendCapView};
use crate::steer::{SteerBody, SteerChange, SteerReceipt, SteerView};
use crate::submit::NewRunBody;
use crate::transcript::TranscriptView;
use crate::why::RunExplanation;

pub use connection::is_server_alive;
pub use reqwest::Url;

/// Maximum number of runs in full form in one page of a list.
const RUNS_MAX: usize = 100;
/// Maximum number of runs in short form in one page of a list.
const BRIEF_MAX: usize = 1_000;
/// Maximum number of gates in one page of a list.
const GATES_MAX: usize = 1_000;
/// Maximum number of lanes in one page of a list.
const LANES_MAX: usize = 1_000;
/// Maximum number of remembered approvals in one page of a list.
const RULES_MAX: usize = 1_000;
/// Maximum number of journal entries in one page of a list.
const EVENTS_MAX: usize = 1_000;
/// Maximum number of inboxes in one page of a list.
const INBOXES_MAX: usize = 1_000;

/// HTTP client for one server. Cheap to clone.
///
/// Every method returns the server's [`Problem`] if the server rejects the request. If there is no
/// response that this build understands, the code of the problem is `unreachable`, `response_lost`
/// or `unexpected_response`.
#[derive(Debug, Clone)]
pub struct Client {
    connection: Arc<ApiConnection>,
}

/// One page of the events in a journal.
#[derive(Debug, Deserialize)]
struct EventPage {
    data: Vec<JournalEntryEnvelope>,
}

/// Range of a list that is requested page by page: at most `limit` items after the item `after`.
struct ListPaging {
    limit: usize,
    page_size: usize,
    after: Option<String>,
}

impl Client {
    /// Creates a client for the server with this base URL. `user` is the name of the person at the
    /// terminal; a server on the same machine records it in the journal.
    ///
    /// # Errors
    /// The key has invalid characters, or this machine has no TLS certificates.
    pub fn new(base_url: Url, api_key: Option<&str>, user: Option<&str>) -> Result<Self, Problem> {
        let connection = Arc::new(ApiConnection::new(base_url, api_key, user)?);
        Ok(Self { connection })
    }

    /// Submits a task as a new run. The run is on disk when this returns. A second call with the
    /// same `idempotency_key` returns the same run.
    pub async fn submit_run(
        &self,
        run: &NewRunBody,
        idempotency_key: Option<String>,
    ) -> Result<RunView, Problem> {
        // Without a key of the caller, a random one is used: a retry after a lost response must
        // not create a second run.
        let key = idempotency_key.unwrap_or_else(|| uuid::Uuid::now_v7().to_string());
        let request = ApiRequest::post(&["v1", "runs"], run).with_idempotency_key(key);
        self.connection.send_and_parse(&request).await
    }

    /// Submits runs as a batch: all of them or none. A second call with the same `idempotency_key`
    /// returns the same batch.
    pub async fn submit_batch(
        &self,
        batch: &NewBatchBody,
        idempotency_key: Option<String>,
    ) -> Result<BatchView, Problem> {
        let key = idempotency_key.unwrap_or_else(|| uuid::Uuid::now_v7().to_string());
        let request = ApiRequest::post(&["v1", "runs", "batch"], batch).with_idempotency_key(key);
        self.connection.send_and_parse(&request).await
    }

    /// Returns a batch with its runs.
    pub async fn batch(&self, batch: BatchId) -> Result<BatchView, Problem> {
        self.get_and_parse(&["v1", "batches", &batch.to_string()]).await
    }

    /// Returns the full view of a run.
    pub async fn get_run(&self, run: RunId) -> Result<RunView, Problem> {
        self.get_and_parse(&["v1", "runs", &run.to_string()]).await
    }

    /// Explains the current status of a run and what to do next.
    pub async fn explain_run(&self, run: RunId) -> Result<RunExplanation, Problem> {
        self.get_and_parse(&["v1", "runs", &run.to_string(), "why"]).await
    }

    /// Returns the conversation of a run.
    pub async fn transcript(&self, run: RunId) -> Result<TranscriptView, Problem> {
        self.get_and_parse(&["v1", "runs", &run.to_string(), "transcript"]).await
    }

    /// Returns one page of the events in a run's journal.
    pub async fn read_run_journal(
        &self,
        run: RunId,
        after: Seq,
        limit: usize,
    ) -> Result<Vec<JournalEntry>, Problem> {
        let request = ApiRequest::get(&["v1", "runs", &run.to_string(), "events"])
            .with_query_param("after", after)
            .with_query_param("limit", limit.clamp(1, EVENTS_MAX));
        let page: EventPage = self.connection.send_and_parse(&request).await?;
        let entries = page.data.iter().map(JournalEntry::try_from);
        entries
            .collect::<Result<_, _>>()
            .map_err(|error| self.connection.unreadable_event_problem(&error))
    }

    /// Streams the events of a run that follow the sequence number `after`.
    pub async fn follow_events(&self, run: RunId, after: Seq) -> Result<EventStream, Problem> {
        EventStream::open_for_run(Arc::clone(&self.connection), run, after).await
    }

    /// Returns the runs that match the filter in short form, newest first.
    pub async fn list_brief_runs(&self, filter: &RunFilter) -> Result<Vec<RunBriefView>, Problem> {
        let (request, limits) = list_runs_request(filter, BRIEF_MAX);
        self.read_list_pages(request.with_query_param("brief", true), limits).await
    }

    /// Returns the runs that match the filter in full form, newest first.
    pub async fn list_runs(&self, filter: &RunFilter) -> Result<Vec<RunView>, Problem> {
        let (request, limits) = list_runs_request(filter, RUNS_MAX);
        self.read_list_pages(request, limits).await
    }

    /// Returns the gates that match the filter, newest first.
    pub async fn list_gates(&self, filter: &GateFilter) -> Result<Vec<GateView>, Problem> {
        if let Some(gate) = filter.gate {
            return Ok(vec![self.get_gate(gate).await?]);
        }
        let limits = ListPaging {
            limit: filter.limit,
            page_size: GATES_MAX,
            after: filter.after.map(|gate| gate.to_string()),
        };
        let request = ApiRequest::get(&["v1", "gates"])
            .with_optional_query_param("status", filter.status.map(gate_status))
            .with_optional_query_param("run", filter.run)
            .with_optional_query_param("tag", filter.tag.as_ref());
        self.read_list_pages(request, limits).await
    }

    pub async fn get_gate(&self, gate: GateId) -> Result<GateView, Problem> {
        self.get_and_parse(&["v1", "gates", &gate.to_string()]).await
    }

    /// Answers a gate: decides an approval or answers a question.
    pub async fn answer_gate(
        &self,
        gate: GateId,
        answer: Answer,
    ) -> Result<AnswerResponse, Problem> {
        let path = ["v1", "gates", &gate.to_string(), "answer"];
        self.post_and_parse(&path, &AnswerBody::from(answer)).await
    }

    /// Sends a person's message to a run.
    pub async fn steer_run(
        &self,
        run: RunId,
        text: String,
        delivery: SteerDelivery,
    ) -> Result<SteerReceipt, Problem> {
        let path = ["v1", "runs", &run.to_string(), "steer"];
        self.post_and_parse(&path, &SteerBody { text, delivery }).await
    }

    /// Returns the messages that people sent to a run, with their status.
    pub async fn list_steers(&self, run: RunId) -> Result<Vec<SteerView>, Problem> {
        let path = ["v1", "runs", &run.to_string(), "steer"];
        let list: List<SteerView> = self.get_and_parse(&path).await?;
        Ok(list.data)
    }

    /// Changes a message that the run has not read yet.
    pub async fn update_steer(
        &self,
        run: RunId,
        steer: SteerId,
        change: &SteerChange,
    ) -> Result<SteerView, Problem> {
        let path = ["v1", "runs", &run.to_string(), "steer", &steer.to_string()];
        self.connection.send_and_parse(&ApiRequest::patch(&path, change)).await
    }

    /// Withdraws a message that the run has not read yet.
    pub async fn withdraw_steer(&self, run: RunId, steer: SteerId) -> Result<SteerView, Problem> {
        let path = ["v1", "runs", &run.to_string(), "steer", &steer.to_string()];
        self.connection.send_and_parse(&ApiRequest::delete(&path)).await
    }

    /// Cancels a run. The reason is recorded in the journal.
    pub async fn cancel_run(&self, run: RunId, reason: &str) -> Result<RunView, Problem> {
        let reason = reason.to_owned();
        let path = ["v1", "runs", &run.to_string(), "cancel"];
        self.post_and_parse(&path, &CancelBody { reason }).await
    }

    /// Completes a run that stays open for messages, with its result.
    pub async fn close_run(&self, run: RunId) -> Result<RunView, Problem> {
        self.post_and_parse(&["v1", "runs", &run.to_string(), "close"], &json!({})).await
    }

    /// Pauses a run until it is resumed.
    pub async fn pause_run(&self, run: RunId) -> Result<RunView, Problem> {
        let path = ["v1", "runs", &run.to_string(), "pause"];
        self.post_and_parse(&path, &json!({})).await
    }

    /// Resumes a run, optionally with a larger budget.
    pub async fn resume_run(
        &self,
        run: RunId,
        raise: Option<BudgetRaise>,
    ) -> Result<RunView, Problem> {
        let budget = raise.map(Into::into);
        let path = ["v1", "runs", &run.to_string(), "resume"];
        self.post_and_parse(&path, &ResumeBody { budget }).await
    }

    /// Returns the spend caps, each with its usage in the current window.
    pub async fn list_spend_caps(&self) -> Result<Vec<SpendCapView>, Problem> {
        let list: List<SpendCapView> = self.get_and_parse(&["v1", "spend"]).await?;
        Ok(list.data)
    }

    /// Raises a spend cap until its current window ends.
    pub async fn raise_cap(&self, id: &str, raise: &RaiseCapBody) -> Result<SpendCapView, Problem> {
        self.post_and_parse(&["v1", "spend", id, "raise"], raise).await
    }

    /// Returns the remembered approvals that match the filter, newest first.
    pub async fn list_rules(
        &self,
        filter: &RememberedApprovalFilter,
    ) -> Result<Vec<RuleView>, Problem> {
        let after = filter.after.map(|rule| rule.to_string());
        let range = ListPaging { limit: filter.limit, page_size: RULES_MAX, after };
        let request =
            ApiRequest::get(&["v1", "rules"]).with_query_param("all", filter.include_inactive);
        self.read_list_pages(request, range).await
    }

    /// Revokes a remembered approval.
    pub async fn revoke_rule(&self, rule: RuleId) -> Result<RuleView, Problem> {
        let request = ApiRequest::delete(&["v1", "rules", &rule.to_string()]);
        self.connection.send_and_parse(&request).await
    }

    /// Returns the lanes that contain runs or are paused, ordered by name.
    pub async fn lanes(&self, limit: usize) -> Result<Vec<LaneView>, Problem> {
        let range = ListPaging { limit, page_size: LANES_MAX, after: None };
        self.read_list_pages(ApiRequest::get(&["v1", "lanes"]), range).await
    }

    /// Returns the state of a lane.
    pub async fn lane(&self, lane: &LaneKey) -> Result<LaneView, Problem> {
        self.get_and_parse(&["v1", "lanes", lane.as_str()]).await
    }

    /// Pauses a lane: no run of it starts until it is resumed.
    pub async fn pause_lane(&self, lane: &LaneKey) -> Result<LaneView, Problem> {
        self.post_and_parse(&["v1", "lanes", lane.as_str(), "pause"], &json!({})).await
    }

    /// Resumes a paused lane.
    pub async fn resume_lane(&self, lane: &LaneKey) -> Result<LaneView, Problem> {
        self.post_and_parse(&["v1", "lanes", lane.as_str(), "resume"], &json!({})).await
    }

    /// Creates a new run that continues from the last good event of a failed run. A
    /// second call returns the same run.
    pub async fn retry(&self, run: RunId) -> Result<RunView, Problem> {
        self.post_and_parse(&["v1", "runs", &run.to_string(), "retry"], &json!({})).await
    }

    /// Returns the inboxes with the number of their tasks, ordered by name.
    pub async fn inboxes(&self) -> Result<Vec<InboxView>, Problem> {
        let limits = ListPaging { limit: usize::MAX, page_size: INBOXES_MAX, after: None };
        self.read_list_pages(ApiRequest::get(&["v1", "inboxes"]), limits).await
    }

    /// Returns an inbox with its newest tasks and its dead letters (failed tasks that nobody has
    /// retried).
    pub async fn inbox(&self, name: &InboxName) -> Result<InboxDetailView, Problem> {
        self.get_and_parse(&["v1", "inboxes", name.as_str()]).await
    }

    /// Submits a task to an inbox. The run of the task is on disk when this returns.
    pub async fn post_task(
        &self,
        inbox: &InboxName,
        task: &NewTaskBody,
    ) -> Result<RunView, Problem> {
        // Without a key of the caller, a random one is used: a retry after a lost response must
        // not create a second run.
        let key = task.idempotency_key.clone();
        let key = key.unwrap_or_else(|| uuid::Uuid::now_v7().to_string());
        let request = ApiRequest::post(&["v1", "inboxes", inbox.as_str(), "tasks"], task);
        self.connection.send_and_parse(&request.with_idempotency_key(key)).await
    }

    /// Creates an API key. The secret of the key is only in this response.
    pub async fn create_key(&self, key: &NewKeyBody) -> Result<CreatedKey, Problem> {
        self.post_and_parse(&["v1", "keys"], key).await
    }

    /// Returns all API keys, oldest first.
    pub async fn list_api_keys(&self) -> Result<Vec<KeyView>, Problem> {
        let list: List<KeyView> = self.get_and_parse(&["v1", "keys"]).await?;
        Ok(list.data)
    }

    /// Revokes an API key and ends all its sessions.
    pub async fn revoke_api_key(&self, name: &ApiKeyName) -> Result<KeyView, Problem> {
        let request = ApiRequest::delete(&["v1", "keys", &name.to_string()]);
        self.connection.send_and_parse(&request).await
    }

    /// Returns all schedules, ordered by name.
    pub async fn schedules(&self) -> Result<Vec<ScheduleView>, Problem> {
        let list: List<ScheduleView> = self.get_and_parse(&["v1", "schedules"]).await?;
        Ok(list.data)
    }

    pub async fn create_schedule(
        &self,
        schedule: NewScheduleBody,
    ) -> Result<ScheduleView, Problem> {
        self.post_and_parse(&["v1", "schedules"], &schedule).await
    }

    pub async fn delete_schedule(&self, name: &str) -> Result<ScheduleView, Problem> {
        self.connection.send_and_parse(&ApiRequest::delete(&["v1", "schedules", name])).await
    }

    /// Starts a run of a schedule now.
    pub async fn run_schedule(&self, name: &str) -> Result<RunView, Problem> {
        self.post_and_parse(&["v1", "schedules", name, "run"], &json!({})).await
    }

    /// Returns the agents that the server knows.
    pub async fn agents(&self) -> Result<Vec<AgentView>, Problem> {
        let list: List<AgentView> = self.get_and_parse(&["v1", "agents"]).await?;
        Ok(list.data)
    }

    /// Returns statistics of an agent's runs that were created within `window` before now.
    pub async fn agent_stats(
        &self,
        agent: &AgentName,
        window: Millis,
    ) -> Result<AgentStatsView, Problem> {
        let request = ApiRequest::get(&["v1", "agents", agent.as_str(), "stats"])
            .with_query_param("window", duration::format_duration(window));
        self.connection.send_and_parse(&request).await
    }

    /// Creates a one-time link that opens a browser session.
    pub async fn create_login_ticket(&self) -> Result<LoginTicketView, Problem> {
        self.post_and_parse(&["v1", "tickets"], &json!({})).await
    }

    /// Returns whether a worker drives the runs of the server.
    pub async fn has_process_driving_runs(&self) -> Result<bool, Problem> {
        let request = ApiRequest::get(&["readyz"]).without_retries();
        match self.connection.send_and_parse::<ReadinessResponse>(&request).await {
            Ok(readiness) => Ok(readiness.driven),
            // The server answers that it is not ready.
            Err(problem) if problem.code != "unreachable" => Ok(false),
            Err(problem) => Err(problem),
        }
    }

    async fn get_and_parse<T: DeserializeOwned>(&self, path: &[&str]) -> Result<T, Problem> {
        self.connection.send_and_parse(&ApiRequest::get(path)).await
    }

    async fn post_and_parse<T: DeserializeOwned>(
        &self,
        path: &[&str],
        body: &impl Serialize,
    ) -> Result<T, Problem> {
        self.connection.send_and_parse(&ApiRequest::post(path, body)).await
    }

    /// Requests a list page by page, up to the wanted number of items.
    async fn read_list_pages<T: DeserializeOwned>(
        &self,
        request: ApiRequest,
        limits: ListPaging,
    ) -> Result<Vec<T>, Problem> {
        let mut items: Vec<T> = Vec::new();
        let mut after = limits.after;
        while items.len() < limits.limit {
            let limit = limits.page_size.min(limits.limit - items.len());
            let page = request.clone().with_query_param("limit", limit);
            let page = page.with_optional_query_param("after", after.as_deref());
            let page: List<T> = self.connection.send_and_parse(&page).await?;
            after = page.next;
            let is_empty = page.data.is_empty();
            items.extend(page.data);
            if is_empty || after.is_none() {
                break;
            }
        }
        items.truncate(limits.limit);
        Ok(items)
    }
}

/// Returns the request for a list of the runs that match the filter, and the range of the list.
fn list_runs_request(filter: &RunFilter, page_size: usize) -> (ApiRequest, ListPaging) {
    let mut request = ApiRequest::get(&["v1", "runs"]);
    for status in &filter.statuses {
        request = request.with_query_param("status", status.as_str());
    }
    let request = request
        .with_optional_query_param("agent", filter.agent.as_ref())
        .with_optional_query_param("lane", filter.lane.as_ref())
        .with_optional_query_param("inbox", filter.inbox.as_ref())
        .with_optional_query_param("root", filter.root)
        .with_optional_query_param("parent", filter.parent);
    let limits = ListPaging {
        limit: filter.limit,
        page_size,
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
