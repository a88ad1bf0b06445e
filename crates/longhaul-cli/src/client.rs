//! The client that every command uses. It calls the API of a server, or the API in this process on a
//! store that this process has opened.

pub(crate) mod connect;

use std::path::PathBuf;
use std::sync::Arc;

use futures_util::future::BoxFuture;
use longhaul::project::ProjectRuntime;
use longhaul_api::client::events::EventStream;
use longhaul_api::client::{self, InProcess, Request, reqwest};
use longhaul_api::gate::{AnswerBody, AnswerResponse, GateView};
use longhaul_api::list::List;
use longhaul_api::operation::Operation;
use longhaul_api::operations::{
    ANSWER_GATE, LIST_BRIEF_RUNS, LIST_GATES, LIST_STEERS, SHOW_RUN, STEER, SUBMIT_RUN, WHY,
};
use longhaul_api::problem::Problem;
use longhaul_api::query::{GatesQuery, PagedQuery, RunsQuery};
use longhaul_api::run::RunView;
use longhaul_api::run_list::RunBriefView;
use longhaul_api::steer::{SteerBody, SteerReceipt, SteerView};
use longhaul_api::task::Task;
use longhaul_api::transcript::RunExplanation;
use longhaul_core::event::entry::JournalEntry;
use longhaul_core::event::steer::SteerDelivery;
use longhaul_core::id::{RunId, Seq};
use longhaul_core::policy::gate::{Answer, GateStatus};
use longhaul_core::time::{Clock as _, Timestamp};
use longhaul_engine::Longhaul;
use longhaul_engine::clock::SystemClock;
use longhaul_server::InProcessApi;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::environment::caller_name;
use crate::error::fill_hint;
use crate::output;

/// Maximum number of open gates that are read for one run.
const OPEN_GATES_MAX: usize = 100;

/// Prints a note if the task was added to an existing run because its lane is busy.
pub(crate) fn print_note_if_task_added(run: &RunView) {
    if run.added {
        let note = format!("note: the task was added to {}, because its lane is busy", run.id);
        output::eprint_line(&note);
    }
}

/// Client of a server, or of a store that this process has opened. The commands in the hints of its
/// errors contain the run, gate, approval or key of the request.
#[derive(Debug)]
pub(crate) struct Client {
    api: client::Client,
    /// Engine of the store. `None` means that the client calls a server.
    longhaul: Option<Longhaul>,
    /// The store of this folder, if the client calls the server that drives it.
    pub(crate) served_store: Option<PathBuf>,
}

impl Client {
    /// Creates a client of a server.
    pub(crate) const fn for_server(api: client::Client, served_store: Option<PathBuf>) -> Self {
        Self { api, longhaul: None, served_store }
    }

    /// Creates a client of a store that this process has opened.
    pub(crate) fn for_store(runtime: &ProjectRuntime) -> anyhow::Result<Self> {
        let longhaul = runtime.longhaul.clone();
        let inboxes = runtime.config.default_agents_by_inbox();
        let api = InProcessApi::new(longhaul.clone(), caller_name(), inboxes);
        let api = client::Client::in_process(Arc::new(StoreApi(api)))?;
        Ok(Self { api, longhaul: Some(longhaul), served_store: None })
    }

    /// Returns whether the client calls a server.
    pub(crate) const fn is_remote(&self) -> bool {
        self.longhaul.is_none()
    }

    /// Sends a request and returns its answer.
    pub(crate) async fn send<Q, B, A: DeserializeOwned>(
        &self,
        request: Request<Q, B, A>,
    ) -> anyhow::Result<A> {
        let resources = request.resources().to_vec();
        let result = self.api.send(request).await.map_err(anyhow::Error::from);
        resources.iter().fold(result, |result, resource| match resource.noun {
            "run" => fill_hint(result, "RUN", &resource.text),
            "gate" => fill_hint(result, "GATE", &resource.text),
            "rule" => fill_hint(result, "RULE", &resource.text),
            "key" => fill_hint(result, "NAME", &resource.text),
            _ => result,
        })
    }

    /// Returns up to `limit` items of a list.
    pub(crate) async fn list<Q: PagedQuery + Serialize, A: DeserializeOwned>(
        &self,
        operation: Operation<(), Q, (), List<A>>,
        query: Q,
        limit: usize,
    ) -> anyhow::Result<Vec<A>> {
        Ok(self.api.list(operation, &query, limit).await?)
    }

    /// Submits a task. The task is on disk when this function returns. Prints a note if the task
    /// was added to an existing run because the lane is busy.
    pub(crate) async fn submit_task(&self, task: Task) -> anyhow::Result<RunId> {
        let agent = task.agent.clone().unwrap_or_default();
        let request = SUBMIT_RUN.at(()).body(&task).idempotency_key(task.idempotency_key);
        let run = fill_hint(self.send(request).await, "AGENT", agent)?;
        print_note_if_task_added(&run);
        Ok(run.id)
    }

    /// Returns a run with all its details.
    pub(crate) async fn get_run(&self, run: RunId) -> anyhow::Result<RunView> {
        self.send(SHOW_RUN.at(run)).await
    }

    /// Returns the newest run of the chain (a sequence of runs) of this run, or the run itself if
    /// its chain has not continued.
    pub(crate) async fn newest_run_in_chain(&self, run: RunView) -> anyhow::Result<RunView> {
        match run.newest_run_in_chain() {
            newest if newest == run.id => Ok(run),
            newest => self.get_run(newest).await,
        }
    }

    /// Returns an explanation of the run's status, with a command to run next.
    pub(crate) async fn explain_run(&self, run: RunId) -> anyhow::Result<RunExplanation> {
        self.send(WHY.at(run)).await
    }

    /// Returns up to `limit` events of a run's journal that follow sequence number `after`.
    pub(crate) async fn read_events(
        &self,
        run: RunId,
        after: Seq,
        limit: usize,
    ) -> anyhow::Result<Vec<JournalEntry>> {
        fill_hint(self.api.read_run_journal(run, after, limit).await, "RUN", run)
    }

    /// Streams the events of a run that follow this sequence number.
    pub(crate) async fn follow_events(
        &self,
        run: RunId,
        after: Seq,
    ) -> anyhow::Result<EventStream> {
        Ok(self.api.follow_events(run, after).await?)
    }

    /// Returns summaries of the runs that match the query, newest first.
    pub(crate) async fn list_runs(
        &self,
        query: RunsQuery,
        limit: usize,
    ) -> anyhow::Result<Vec<RunBriefView>> {
        self.list(LIST_BRIEF_RUNS, RunsQuery { brief: true, ..query }, limit).await
    }

    /// Returns the open gates of a run, newest first.
    pub(crate) async fn list_open_gates(&self, run: RunId) -> anyhow::Result<Vec<GateView>> {
        let status = Some(GateStatus::Open);
        let query = GatesQuery { run: Some(run), status, ..GatesQuery::default() };
        self.list(LIST_GATES, query, OPEN_GATES_MAX).await
    }

    /// Answers a gate. Returns the outcome of the answer and the updated gate.
    pub(crate) async fn answer_gate(
        &self,
        gate: &GateView,
        answer: Answer,
    ) -> anyhow::Result<AnswerResponse> {
        let response = self.send(ANSWER_GATE.at(gate.id).body(&AnswerBody::from(answer))).await;
        fill_hint(response, "RUN", gate.run)
    }

    /// Sends a message to a run. Returns the id and status of the message, and when the run reads
    /// it.
    pub(crate) async fn steer_run(
        &self,
        run: RunId,
        text: String,
        delivery: SteerDelivery,
    ) -> anyhow::Result<SteerReceipt> {
        self.send(STEER.at(run).body(&SteerBody { text, delivery })).await
    }

    /// Returns the messages that were sent to a run, with their delivery status.
    pub(crate) async fn list_steers(&self, run: RunId) -> anyhow::Result<Vec<SteerView>> {
        Ok(self.send(LIST_STEERS.at(run)).await?.data)
    }

    /// Returns the current time of the store. A server does not report its time, so the local clock
    /// is used, and ages of runs may be off by the difference between the clocks.
    pub(crate) async fn store_time(&self) -> anyhow::Result<Timestamp> {
        match &self.longhaul {
            Some(longhaul) => Ok(longhaul.store_time().await?),
            None => Ok(SystemClock.now()),
        }
    }

    /// Returns whether a worker drives the runs of the store.
    pub(crate) async fn has_process_driving_runs(&self) -> anyhow::Result<bool> {
        Ok(self.api.has_process_driving_runs().await?)
    }
}

/// The API on a store that this process has opened, called without a socket, for the person who runs
/// the command.
#[derive(Debug)]
struct StoreApi(InProcessApi);

impl InProcess for StoreApi {
    fn call(&self, request: reqwest::Request) -> BoxFuture<'_, Result<reqwest::Response, Problem>> {
        let invalid = |error: reqwest::Error| Problem::new("internal", error.to_string());
        Box::pin(async move {
            let response = self.0.call(request.try_into().map_err(invalid)?).await?;
            Ok(response.map(|body| reqwest::Body::wrap_stream(body.into_data_stream())).into())
        })
    }
}
