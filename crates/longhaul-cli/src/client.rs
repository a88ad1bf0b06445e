//! The client that every command uses: the same methods and results for a store opened by this
//! process and for a store behind a server. Results are the view types of the HTTP API.

mod close;
pub(crate) mod connect;
mod rules;
mod run_request;
mod schedules;
mod spend;
mod threads;

use std::collections::BTreeMap;

use longhaul_api::batch::{BatchView, NewBatchBody};
use longhaul_api::client::{self, Client};
use longhaul_api::gate::{self, GateView};
use longhaul_api::inbox::{InboxDetailView, InboxView, NewTaskBody};
use longhaul_api::key::{KeyView, NewKeyBody};
use longhaul_api::lane::LaneView;
use longhaul_api::run::{RunBriefView, RunView};
use longhaul_api::steer::{SteerChange, SteerReceipt, SteerView};
use longhaul_api::submit::NewRunBody;
use longhaul_api::transcript::TranscriptView;
use longhaul_api::why::RunExplanation;
use longhaul_core::event::entry::JournalEntry;
use longhaul_core::event::steer::{SteerDelivery, SteerMessage};
use longhaul_core::id::{ApiKeyName, BatchId, GateId, InboxName, LaneKey, RunId, Seq, SteerId};
use longhaul_core::policy::budget::BudgetRaise;
use longhaul_core::policy::gate::{Answer, GateStatus};
use longhaul_core::port::store::{GateFilter, RunFilter};
use longhaul_core::task::RunBatchMode;
use longhaul_core::time::{Clock as _, Timestamp};
use longhaul_engine::clock::SystemClock;
use longhaul_engine::handle::{
    GateAnswerOutcome, IssuedApiKey, JournalStream, NewKeyRequest, build_inbox_task,
};
use longhaul_engine::secret::Secret;
use longhaul_engine::view::gate_view;
use longhaul_engine::{Longhaul, Task};

use self::run_request::{batch_task_from_body, task_to_request_body};
use crate::caller_name::caller_name;
use crate::environment;
use crate::error::{CliError, HintResultExt as _};
use crate::output;

/// Maximum number of open gates that are read for one run.
const OPEN_GATES_MAX: usize = 100;

fn print_note_if_task_added(run: &RunView) {
    if run.added {
        let note = format!("note: the task was added to {}, because its lane is busy", run.id);
        output::eprint_line(&note);
    }
}

/// Returns the default agent of each inbox, from the project's settings.
pub(crate) fn default_agent_by_inbox() -> anyhow::Result<BTreeMap<String, String>> {
    let process_env = environment::current_process_env()?;
    Ok(environment::load_config_quietly(&process_env)?.default_agents_by_inbox())
}

/// Access to the runs of a store, directly or through a server. The commands in the hints of its
/// errors contain the run, gate, agent or key of the request.
#[derive(Debug)]
pub(crate) enum RunClient {
    /// A store that this process has opened.
    Local(Box<Longhaul>),
    /// A store behind a server.
    Remote(Client),
}

/// Live stream of a run's events, from the local store or from a server.
#[derive(Debug)]
pub(crate) enum RunEventStream {
    Local(Box<JournalStream>),
    Remote(client::events::EventStream),
}

/// Makes the same call on the value of either variant, `Local` or `Remote`.
macro_rules! either {
    ($enum:ident::$of:expr, $inner:ident => $call:expr) => {
        match $of {
            $enum::Local($inner) => $call.await.map_err(anyhow::Error::from),
            $enum::Remote($inner) => $call.await.map_err(anyhow::Error::from),
        }
    };
}

impl RunEventStream {
    /// Returns the next events, in order and each once. `None` means that the run has ended and all
    /// its events were returned. Cancel safe: no event is lost if the future is dropped.
    pub(crate) async fn next_entries(&mut self) -> anyhow::Result<Option<Vec<JournalEntry>>> {
        either!(RunEventStream::self, stream => stream.next())
    }
}

impl RunClient {
    /// Creates a client of a store that this process has opened.
    pub(crate) fn for_local_store(longhaul: &Longhaul) -> Self {
        Self::Local(Box::new(longhaul.clone()))
    }

    /// Submits a task. The task is on disk when this function returns. Prints a note if the task
    /// was added to an existing run because the lane is busy.
    pub(crate) async fn submit_task(&self, mut task: Task) -> anyhow::Result<RunId> {
        let agent = task.agent.clone();
        let result: anyhow::Result<RunView> = match self {
            Self::Local(longhaul) => longhaul.submit_and_view_run(task).await.map_err(Into::into),
            Self::Remote(client) => {
                let key = task.idempotency_key.take();
                client.submit_run(&task_to_request_body(task), key).await.map_err(Into::into)
            }
        };
        let run = result.fill_hint_placeholder("AGENT", agent)?;
        print_note_if_task_added(&run);
        Ok(run.id)
    }

    /// Submits tasks as a batch: all of them or none. All of them are on disk when this function
    /// returns.
    pub(crate) async fn submit_batch(
        &self,
        runs: Vec<NewRunBody>,
        mode: RunBatchMode,
        idempotency_key: Option<String>,
    ) -> anyhow::Result<BatchView> {
        let longhaul = match self {
            Self::Local(longhaul) => longhaul,
            Self::Remote(client) => {
                let body = NewBatchBody { runs, mode };
                return Ok(client.submit_batch(&body, idempotency_key).await?);
            }
        };
        let tasks = (1..).zip(runs).map(|(number, run)| {
            batch_task_from_body(longhaul, run).map_err(|error| {
                CliError::usage_error(format!("task {number}: {error}"))
                    .with_hint("all agents", "longhaul agents")
            })
        });
        let mut tasks = tasks.collect::<Result<Vec<Task>, _>>()?;
        if let Some(first) = tasks.first_mut() {
            first.idempotency_key = idempotency_key;
        }
        Ok(longhaul.submit_batch(tasks, mode).await?)
    }

    pub(crate) async fn get_batch(&self, batch: BatchId) -> anyhow::Result<BatchView> {
        either!(RunClient::self, client => client.batch(batch))
    }

    /// Returns a run with all its details.
    pub(crate) async fn get_run(&self, run: RunId) -> anyhow::Result<RunView> {
        either!(RunClient::self, client => client.get_run(run)).fill_hint_placeholder("RUN", run)
    }

    /// Returns an explanation of the run's status, with a command to run next.
    pub(crate) async fn explain_run(&self, run: RunId) -> anyhow::Result<RunExplanation> {
        match self {
            Self::Local(longhaul) => {
                longhaul.explain_run(run).await.fill_hint_placeholder("RUN", run)
            }
            Self::Remote(client) => client.explain_run(run).await.fill_hint_placeholder("RUN", run),
        }
    }

    /// Returns the conversation of a run.
    pub(crate) async fn transcript(&self, run: RunId) -> anyhow::Result<TranscriptView> {
        either!(RunClient::self, client => client.transcript(run)).fill_hint_placeholder("RUN", run)
    }

    /// Returns up to `limit` events of a run's journal that follow sequence number `after`.
    pub(crate) async fn read_events(
        &self,
        run: RunId,
        after: Seq,
        limit: usize,
    ) -> anyhow::Result<Vec<JournalEntry>> {
        either!(RunClient::self, client => client.read_run_journal(run, after, limit))
            .fill_hint_placeholder("RUN", run)
    }

    /// Streams the events of a run that follow this sequence number.
    pub(crate) async fn follow_events(
        &self,
        run: RunId,
        after: Seq,
    ) -> anyhow::Result<RunEventStream> {
        Ok(match self {
            Self::Local(longhaul) => {
                RunEventStream::Local(Box::new(longhaul.watch_run_journal(run, after).await?))
            }
            Self::Remote(client) => RunEventStream::Remote(client.follow_events(run, after).await?),
        })
    }

    /// Returns summaries of the runs that match the filter, newest first.
    pub(crate) async fn list_runs(&self, filter: RunFilter) -> anyhow::Result<Vec<RunBriefView>> {
        Ok(match self {
            Self::Local(longhaul) => longhaul.list_brief_runs(filter).await?,
            Self::Remote(client) => client.list_brief_runs(&filter).await?,
        })
    }

    /// Returns all details of the runs that match the filter, newest first.
    pub(crate) async fn list_run_views(&self, filter: RunFilter) -> anyhow::Result<Vec<RunView>> {
        let longhaul = match self {
            Self::Local(longhaul) => longhaul,
            Self::Remote(client) => return Ok(client.list_runs(&filter).await?),
        };
        let mut views = Vec::new();
        for run in longhaul.list_brief_runs(filter).await? {
            views.push(longhaul.get_run(run.id).await?);
        }
        Ok(views)
    }

    /// Returns the gates that match the filter, newest first.
    pub(crate) async fn list_gates(&self, filter: GateFilter) -> anyhow::Result<Vec<GateView>> {
        Ok(match self {
            Self::Local(longhaul) => {
                longhaul.list_gates(filter).await?.iter().map(gate_view).collect()
            }
            Self::Remote(client) => client.list_gates(&filter).await?,
        })
    }

    /// Returns the open gates of a run, newest first.
    pub(crate) async fn list_open_gates(&self, run: RunId) -> anyhow::Result<Vec<GateView>> {
        let filter = GateFilter {
            run: Some(run),
            status: Some(GateStatus::Open),
            limit: OPEN_GATES_MAX,
            ..GateFilter::default()
        };
        self.list_gates(filter).await
    }

    pub(crate) async fn get_gate(&self, gate: GateId) -> anyhow::Result<GateView> {
        Ok(match self {
            Self::Local(longhaul) => gate_view(&longhaul.get_gate(gate).await?),
            Self::Remote(client) => client.get_gate(gate).await?,
        })
    }

    /// Answers a gate. Returns the outcome of the answer and the updated gate.
    pub(crate) async fn answer_gate(
        &self,
        gate: &GateView,
        answer: Answer,
    ) -> anyhow::Result<(GateAnswerOutcome, GateView)> {
        let response: anyhow::Result<_> = async {
            let client = match self {
                Self::Local(longhaul) => {
                    let outcome = longhaul.answer_gate(gate.id, answer).await?;
                    return Ok((outcome, self.get_gate(gate.id).await?));
                }
                Self::Remote(client) => client,
            };
            let response = client.answer_gate(gate.id, answer).await?;
            let outcome = match response.outcome {
                gate::AnswerOutcomeKind::Closed => GateAnswerOutcome::Closed(response.seq),
                gate::AnswerOutcomeKind::Voted => GateAnswerOutcome::Voted(response.seq),
            };
            Ok((outcome, response.gate))
        }
        .await;
        response.fill_hint_placeholder("RUN", gate.run).fill_hint_placeholder("GATE", gate.id)
    }

    /// Sends a message to a run. Returns the id and status of the message, and when the run reads
    /// it.
    pub(crate) async fn steer_run(
        &self,
        run: RunId,
        text: String,
        delivery: SteerDelivery,
    ) -> anyhow::Result<SteerReceipt> {
        match self {
            Self::Local(longhaul) => {
                let sent = longhaul.steer(run, text.clone(), delivery, &caller_name()).await;
                let sent = sent.fill_hint_placeholder("RUN", run)?;
                Ok(longhaul.receipt_for_steer_message(sent, (&text, delivery)).await?)
            }
            Self::Remote(client) => {
                client.steer_run(run, text, delivery).await.fill_hint_placeholder("RUN", run)
            }
        }
    }

    /// Returns the messages that were sent to a run, with their delivery status.
    pub(crate) async fn list_steers(&self, run: RunId) -> anyhow::Result<Vec<SteerView>> {
        either!(RunClient::self, client => client.list_steers(run))
            .fill_hint_placeholder("RUN", run)
    }

    /// Replaces the text of a message that the run has not read yet and, if `delivery` is given,
    /// when the run reads the message.
    pub(crate) async fn update_steer(
        &self,
        run: RunId,
        steer: &SteerView,
        (text, delivery): (String, Option<SteerDelivery>),
    ) -> anyhow::Result<()> {
        match self {
            Self::Local(longhaul) => {
                let delivery = delivery.unwrap_or(steer.delivery);
                let (steer, by) = (steer.id, caller_name());
                let message = SteerMessage { steer, text, delivery, by, is_task: false };
                longhaul.update_steer(run, message).await.fill_hint_placeholder("RUN", run)
            }
            Self::Remote(client) => {
                let change = SteerChange { text: Some(text), delivery };
                let result = client.update_steer(run, steer.id, &change).await;
                result.map(drop).fill_hint_placeholder("RUN", run)
            }
        }
    }

    /// Withdraws a message that the run has not read yet.
    pub(crate) async fn withdraw_steer(&self, run: RunId, steer: SteerId) -> anyhow::Result<()> {
        match self {
            Self::Local(longhaul) => longhaul
                .withdraw_steer(run, steer, &caller_name())
                .await
                .fill_hint_placeholder("RUN", run),
            Self::Remote(client) => {
                let result = client.withdraw_steer(run, steer).await;
                result.map(drop).fill_hint_placeholder("RUN", run)
            }
        }
    }

    /// Cancels a run and returns it. If the run has ended and belongs to a chain, cancels and
    /// returns the newest run of the chain.
    pub(crate) async fn cancel_run(&self, run: RunId, reason: &str) -> anyhow::Result<RunView> {
        let changed_run = match self {
            Self::Local(longhaul) => longhaul
                .cancel_run(run, &caller_name(), reason)
                .await
                .fill_hint_placeholder("RUN", run)?,
            Self::Remote(client) => {
                return client.cancel_run(run, reason).await.fill_hint_placeholder("RUN", run);
            }
        };
        self.get_run(changed_run).await
    }

    /// Pauses a run and returns it. If the run has ended and belongs to a chain, pauses and returns
    /// the newest run of the chain.
    pub(crate) async fn pause_run(&self, run: RunId) -> anyhow::Result<RunView> {
        let changed_run = match self {
            Self::Local(longhaul) => {
                longhaul.pause_run(run, &caller_name()).await.fill_hint_placeholder("RUN", run)?
            }
            Self::Remote(client) => {
                return client.pause_run(run).await.fill_hint_placeholder("RUN", run);
            }
        };
        self.get_run(changed_run).await
    }

    /// Resumes a run, optionally with a larger budget, and returns it. If the run has ended and
    /// belongs to a chain, resumes and returns the newest run of the chain.
    pub(crate) async fn resume_run(
        &self,
        run: RunId,
        raise: Option<BudgetRaise>,
    ) -> anyhow::Result<RunView> {
        let changed_run = match self {
            Self::Local(longhaul) => longhaul
                .resume_run(run, raise, &caller_name())
                .await
                .fill_hint_placeholder("RUN", run)?,
            Self::Remote(client) => {
                return client.resume_run(run, raise).await.fill_hint_placeholder("RUN", run);
            }
        };
        self.get_run(changed_run).await
    }

    /// Returns the lanes that contain runs or are paused, ordered by name.
    pub(crate) async fn list_lanes(&self, limit: usize) -> anyhow::Result<Vec<LaneView>> {
        Ok(match self {
            Self::Local(longhaul) => longhaul.list_lanes(None, limit).await?,
            Self::Remote(client) => client.lanes(limit).await?,
        })
    }

    /// Returns the state of a lane.
    pub(crate) async fn get_lane(&self, lane: &LaneKey) -> anyhow::Result<LaneView> {
        either!(RunClient::self, client => client.lane(lane))
    }

    /// Pauses a lane and returns its new state.
    pub(crate) async fn pause_lane(&self, lane: &LaneKey) -> anyhow::Result<LaneView> {
        either!(RunClient::self, client => client.pause_lane(lane))
    }

    /// Resumes a lane and returns its new state.
    pub(crate) async fn resume_lane(&self, lane: &LaneKey) -> anyhow::Result<LaneView> {
        either!(RunClient::self, client => client.resume_lane(lane))
    }

    /// Creates a new run that retries a failed run, and returns the new run.
    pub(crate) async fn retry_run(&self, run: RunId) -> anyhow::Result<RunView> {
        let longhaul = match self {
            Self::Local(longhaul) => longhaul,
            Self::Remote(client) => {
                return client.retry(run).await.fill_hint_placeholder("RUN", run);
            }
        };
        let outcome =
            longhaul.retry(run, &caller_name()).await.fill_hint_placeholder("RUN", run)?;
        self.get_run(outcome.run_ids().first().copied().unwrap_or(run)).await
    }

    /// Returns the inboxes with the number of their tasks.
    pub(crate) async fn list_inboxes(&self) -> anyhow::Result<Vec<InboxView>> {
        Ok(match self {
            Self::Local(longhaul) => longhaul.inboxes(&default_agent_by_inbox()?).await?,
            Self::Remote(client) => client.inboxes().await?,
        })
    }

    /// Returns an inbox with its newest tasks and its failed tasks that nobody has retried.
    pub(crate) async fn get_inbox(&self, name: &InboxName) -> anyhow::Result<InboxDetailView> {
        Ok(match self {
            Self::Local(longhaul) => longhaul.inbox(name, &default_agent_by_inbox()?).await?,
            Self::Remote(client) => client.inbox(name).await?,
        })
    }

    /// Submits a task to an inbox and returns its run. Prints a note if the task was added to an
    /// existing run because the lane is busy.
    pub(crate) async fn post_task(
        &self,
        inbox: InboxName,
        task: NewTaskBody,
    ) -> anyhow::Result<RunView> {
        let run = match self {
            Self::Local(longhaul) => {
                let mut task = build_inbox_task(inbox, task, &default_agent_by_inbox()?)?;
                task.submitter = Some(caller_name());
                let agent = task.agent.clone();
                longhaul.submit_and_view_run(task).await.fill_hint_placeholder("AGENT", agent)?
            }
            Self::Remote(client) => client.post_task(&inbox, &task).await?,
        };
        print_note_if_task_added(&run);
        Ok(run)
    }

    /// Creates an API key. Only this result contains the secret of the key.
    pub(crate) async fn create_key(&self, request: NewKeyRequest) -> anyhow::Result<IssuedApiKey> {
        let name = request.name.to_string();
        match self {
            Self::Local(longhaul) => {
                longhaul.create_key(request).await.fill_hint_placeholder("NAME", name)
            }
            Self::Remote(client) => {
                let body = NewKeyBody {
                    name: name.clone(),
                    role: request.role,
                    expires_in_ms: request.ttl.map(|ttl| ttl.0),
                };
                let created = client.create_key(&body).await.fill_hint_placeholder("NAME", name)?;
                let secret = Secret::from_text(created.secret);
                Ok(IssuedApiKey { secret, key: created.key })
            }
        }
    }

    /// Returns all API keys without their secrets, oldest first.
    pub(crate) async fn list_api_keys(&self) -> anyhow::Result<Vec<KeyView>> {
        either!(RunClient::self, client => client.list_api_keys())
    }

    /// Revokes an API key and all tokens issued for it.
    pub(crate) async fn revoke_api_key(&self, name: &ApiKeyName) -> anyhow::Result<KeyView> {
        either!(RunClient::self, client => client.revoke_api_key(name))
            .fill_hint_placeholder("NAME", name)
    }

    /// Returns the current time of the store. A server does not report its time, so the local clock
    /// is used, and ages of runs may be off by the difference between the clocks.
    pub(crate) async fn current_store_time(&self) -> anyhow::Result<Timestamp> {
        match self {
            Self::Local(longhaul) => Ok(longhaul.current_store_time().await?),
            Self::Remote(_) => Ok(SystemClock.now()),
        }
    }

    /// Returns whether a worker drives the runs of the store.
    pub(crate) async fn has_process_driving_runs(&self) -> anyhow::Result<bool> {
        either!(RunClient::self, client => client.has_process_driving_runs())
    }
}
