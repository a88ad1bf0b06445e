//! The client of every command: the same questions and the same answers, whether the store is
//! opened by this process or behind a server. Answers are views, which a server can send as well.

pub(crate) mod connect;
mod run_request;

use longhaul_api::client::{self, Client};
use longhaul_api::gate::{self, GateView};
use longhaul_api::key::{KeyBody, KeyView};
use longhaul_api::run::{RunBriefView, RunView};
use longhaul_api::steer::SteerView;
use longhaul_api::transcript::TranscriptView;
use longhaul_api::why::WhyView;
use longhaul_core::event::entry::Entry;
use longhaul_core::event::steer::Delivery;
use longhaul_core::id::{GateId, KeyName, RunId, Seq, SteerId};
use longhaul_core::policy::budget::BudgetRaise;
use longhaul_core::policy::gate::{Answer, GateStatus};
use longhaul_core::port::store::{GateFilter, RunFilter};
use longhaul_core::time::{Clock as _, Timestamp};
use longhaul_engine::clock::SystemClock;
use longhaul_engine::handle::{CreateKey, GateAnswerOutcome, IssuedKey, JournalStream};
use longhaul_engine::secret::Secret;
use longhaul_engine::view::gate_view;
use longhaul_engine::{Longhaul, Task};

use self::run_request::to_request;
use crate::caller_name::caller_name;
use crate::error::ResultExt as _;

/// Maximum number of open gates of one run that are read.
const OPEN_GATES_MAX: usize = 100;

/// The runs of a store. Errors name the run, gate, agent or key in the commands of their hints.
#[derive(Debug)]
pub(crate) enum RunClient {
    /// Of a store that this process has opened.
    Local(Box<Longhaul>),
    /// Of a server.
    Remote(Client),
}

/// The events of a run as they happen.
#[derive(Debug)]
pub(crate) enum EventStream {
    Local(Box<JournalStream>),
    Remote(client::events::EventStream),
}

/// The same call on either variant.
macro_rules! either {
    ($enum:ident::$of:expr, $inner:ident => $call:expr) => {
        match $of {
            $enum::Local($inner) => $call.await.map_err(anyhow::Error::from),
            $enum::Remote($inner) => $call.await.map_err(anyhow::Error::from),
        }
    };
}

impl EventStream {
    /// The next events, in order and each once; none: the run has ended and all of its events
    /// came. A caller that stops waiting in the middle loses nothing.
    pub(crate) async fn next(&mut self) -> anyhow::Result<Option<Vec<Entry>>> {
        either!(EventStream::self, stream => stream.next())
    }
}

impl RunClient {
    /// A client of this store.
    pub(crate) fn local(longhaul: &Longhaul) -> Self {
        Self::Local(Box::new(longhaul.clone()))
    }

    /// Submits a task; it is on disk when this returns.
    pub(crate) async fn submit(&self, mut task: Task) -> anyhow::Result<RunId> {
        let agent = task.agent.clone();
        let submitted: anyhow::Result<RunId> = match self {
            Self::Local(longhaul) => longhaul.submit(task).await.map_err(Into::into),
            Self::Remote(client) => {
                let key = task.idempotency_key.take();
                let submitted = client.submit(&to_request(task), key).await;
                submitted.map(|run| run.id).map_err(Into::into)
            }
        };
        submitted.fill_placeholder("AGENT", agent)
    }

    /// One run, whole.
    pub(crate) async fn show(&self, run: RunId) -> anyhow::Result<RunView> {
        either!(RunClient::self, client => client.show(run)).fill_placeholder("RUN", run)
    }

    /// Why a run is in its status, and what helps.
    pub(crate) async fn why(&self, run: RunId) -> anyhow::Result<WhyView> {
        match self {
            Self::Local(longhaul) => longhaul.why_view(run).await.fill_placeholder("RUN", run),
            Self::Remote(client) => client.why(run).await.fill_placeholder("RUN", run),
        }
    }

    /// The conversation of a run.
    pub(crate) async fn transcript(&self, run: RunId) -> anyhow::Result<TranscriptView> {
        either!(RunClient::self, client => client.transcript(run)).fill_placeholder("RUN", run)
    }

    /// One page of a run's journal.
    pub(crate) async fn events(
        &self,
        run: RunId,
        after: Seq,
        limit: usize,
    ) -> anyhow::Result<Vec<Entry>> {
        either!(RunClient::self, client => client.events(run, after, limit))
            .fill_placeholder("RUN", run)
    }

    /// Follows a run from after an event on.
    pub(crate) async fn follow(&self, run: RunId, after: Seq) -> anyhow::Result<EventStream> {
        Ok(match self {
            Self::Local(longhaul) => {
                EventStream::Local(Box::new(longhaul.watch(run, after).await?))
            }
            Self::Remote(client) => EventStream::Remote(client.follow(run, after).await?),
        })
    }

    /// Runs as lists show them, newest first.
    pub(crate) async fn list_runs(&self, ask: RunFilter) -> anyhow::Result<Vec<RunBriefView>> {
        Ok(match self {
            Self::Local(longhaul) => longhaul.list_brief(ask).await?,
            Self::Remote(client) => client.brief_runs(&ask).await?,
        })
    }

    /// The same runs, each of them whole.
    pub(crate) async fn list_full_runs(&self, ask: RunFilter) -> anyhow::Result<Vec<RunView>> {
        let longhaul = match self {
            Self::Local(longhaul) => longhaul,
            Self::Remote(client) => return Ok(client.runs(&ask).await?),
        };
        let mut whole = Vec::new();
        for run in longhaul.list_brief(ask).await? {
            whole.push(longhaul.show(run.id).await?);
        }
        Ok(whole)
    }

    /// Gates, newest first.
    pub(crate) async fn list_gates(&self, ask: GateFilter) -> anyhow::Result<Vec<GateView>> {
        Ok(match self {
            Self::Local(longhaul) => longhaul.gates(ask).await?.iter().map(gate_view).collect(),
            Self::Remote(client) => client.gates(&ask).await?,
        })
    }

    /// The gates that a run waits at, newest first.
    pub(crate) async fn open_gates(&self, run: RunId) -> anyhow::Result<Vec<GateView>> {
        let ask = GateFilter {
            run: Some(run),
            status: Some(GateStatus::Open),
            limit: OPEN_GATES_MAX,
            ..GateFilter::default()
        };
        self.list_gates(ask).await
    }

    /// One gate.
    pub(crate) async fn gate(&self, gate: GateId) -> anyhow::Result<GateView> {
        Ok(match self {
            Self::Local(longhaul) => gate_view(&longhaul.gate(gate).await?),
            Self::Remote(client) => client.gate(gate).await?,
        })
    }

    /// Answers a gate; what came of it, and the gate as it is then.
    pub(crate) async fn answer(
        &self,
        gate: &GateView,
        answer: Answer,
    ) -> anyhow::Result<(GateAnswerOutcome, GateView)> {
        let answered: anyhow::Result<_> = async {
            let client = match self {
                Self::Local(longhaul) => {
                    let verdict = longhaul.answer(gate.id, answer).await?;
                    return Ok((verdict, self.gate(gate.id).await?));
                }
                Self::Remote(client) => client,
            };
            let answered = client.answer(gate.id, answer).await?;
            let verdict = match answered.outcome {
                gate::AnswerOutcome::Closed => GateAnswerOutcome::Closed(answered.seq),
                gate::AnswerOutcome::Voted => GateAnswerOutcome::Voted(answered.seq),
            };
            Ok((verdict, answered.gate))
        }
        .await;
        answered.fill_placeholder("RUN", gate.run).fill_placeholder("GATE", gate.id)
    }

    /// Sends a message to a run; its id is the receipt.
    pub(crate) async fn steer(
        &self,
        run: RunId,
        text: String,
        delivery: Delivery,
    ) -> anyhow::Result<SteerId> {
        match self {
            Self::Local(longhaul) => longhaul
                .steer(run, text, delivery, &caller_name())
                .await
                .fill_placeholder("RUN", run),
            Self::Remote(client) => {
                let sent = client.steer(run, text, delivery).await;
                sent.map(|receipt| receipt.id).fill_placeholder("RUN", run)
            }
        }
    }

    /// The messages that were sent to a run, and what became of each.
    pub(crate) async fn list_steers(&self, run: RunId) -> anyhow::Result<Vec<SteerView>> {
        either!(RunClient::self, client => client.steers(run)).fill_placeholder("RUN", run)
    }

    /// Cancels a run; how it is then.
    pub(crate) async fn cancel(&self, run: RunId, reason: &str) -> anyhow::Result<RunView> {
        match self {
            Self::Local(longhaul) => {
                longhaul.cancel(run, &caller_name(), reason).await.fill_placeholder("RUN", run)?
            }
            Self::Remote(client) => {
                return client.cancel(run, reason).await.fill_placeholder("RUN", run);
            }
        };
        self.show(run).await
    }

    /// Pauses a run; how it is then.
    pub(crate) async fn pause(&self, run: RunId) -> anyhow::Result<RunView> {
        match self {
            Self::Local(longhaul) => {
                longhaul.pause(run, &caller_name()).await.fill_placeholder("RUN", run)?
            }
            Self::Remote(client) => return client.pause(run).await.fill_placeholder("RUN", run),
        };
        self.show(run).await
    }

    /// Resumes a run, maybe with a larger budget; how it is then.
    pub(crate) async fn resume(
        &self,
        run: RunId,
        raise: Option<BudgetRaise>,
    ) -> anyhow::Result<RunView> {
        match self {
            Self::Local(longhaul) => {
                longhaul.resume(run, raise, &caller_name()).await.fill_placeholder("RUN", run)?
            }
            Self::Remote(client) => {
                return client.resume(run, raise).await.fill_placeholder("RUN", run);
            }
        };
        self.show(run).await
    }

    /// Makes a key; its secret is in the answer and nowhere else.
    pub(crate) async fn create_key(&self, ask: CreateKey) -> anyhow::Result<IssuedKey> {
        let name = ask.name.to_string();
        match self {
            Self::Local(longhaul) => longhaul.create_key(ask).await.fill_placeholder("NAME", name),
            Self::Remote(client) => {
                let body = KeyBody {
                    name: name.clone(),
                    role: ask.role,
                    expires_in_ms: ask.ttl.map(|span| span.0),
                };
                let created = client.create_key(&body).await.fill_placeholder("NAME", name)?;
                let secret = Secret::from_text(created.secret);
                Ok(IssuedKey { secret, key: created.key })
            }
        }
    }

    /// All keys, the oldest first.
    pub(crate) async fn list_keys(&self) -> anyhow::Result<Vec<KeyView>> {
        either!(RunClient::self, client => client.keys())
    }

    /// Revokes a key and everything that it gave out.
    pub(crate) async fn revoke_key(&self, name: &KeyName) -> anyhow::Result<KeyView> {
        either!(RunClient::self, client => client.revoke_key(name)).fill_placeholder("NAME", name)
    }

    /// The time at the store. A server does not tell it: there ages may be off by the difference
    /// of the clocks.
    pub(crate) async fn store_time(&self) -> anyhow::Result<Timestamp> {
        match self {
            Self::Local(longhaul) => Ok(longhaul.store_time().await?),
            Self::Remote(_) => Ok(SystemClock.now()),
        }
    }

    /// Whether a worker drives the runs.
    pub(crate) async fn has_driver(&self) -> anyhow::Result<bool> {
        either!(RunClient::self, client => client.has_driver())
    }
}
