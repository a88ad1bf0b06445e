//! A run that a program follows, and what came of it.
//!
//! Never: ends with its handle. A run goes on whoever follows it.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use futures_util::stream::{self, BoxStream};
use futures_util::{Stream, StreamExt as _, TryStreamExt as _};
use longhaul_api::run::{OutputView, RunView, UsageView};
use longhaul_core::event::entry::Entry;
use longhaul_core::event::steer::Delivery;
use longhaul_core::id::{RunId, Seq, SteerId};
use longhaul_core::status::{RunError, Status};
use longhaul_engine::Longhaul;
use longhaul_engine::handle::JournalStream;
use serde::de::DeserializeOwned;

use crate::error::Error;
use crate::gates::DEFAULT_ACTOR;
use crate::runtime_state::RuntimeState;

/// A run that was submitted. Clones are the same; the run goes on without them.
///
/// ```no_run
/// # async fn example(runtime: longhaul::Runtime) -> Result<(), longhaul::Error> {
/// use longhaul::Task;
///
/// let run = runtime.submit(Task::new("helper").input("Tidy the shop.")).await?;
/// println!("{} is {}", run.id(), run.view().await?.status.as_str());
/// run.steer("The window too.").await?;
/// println!("{}", run.wait().await?.text()?);
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct RunHandle {
    state: Arc<RuntimeState>,
    id: RunId,
}

impl RunHandle {
    pub(crate) const fn new(state: Arc<RuntimeState>, id: RunId) -> Self {
        Self { state, id }
    }

    fn longhaul(&self) -> &Longhaul {
        &self.state.runtime.longhaul
    }

    /// The run's id.
    pub const fn id(&self) -> RunId {
        self.id
    }

    /// Waits until the run has ended, however it ends. That may take days if it waits for a
    /// person, and for ever if no worker was started.
    ///
    /// # Errors
    /// There is no such run any more, the last worker has failed, or the store has.
    pub async fn wait(&self) -> Result<FinishedRun, Error> {
        let mut journal = JournalFollower::follow(self.clone()).await?;
        while journal.next().await?.is_some() {}
        Ok(FinishedRun::from(self.view().await?))
    }

    /// The run as it stands now.
    ///
    /// # Errors
    /// There is no such run any more, or the store failed.
    pub async fn view(&self) -> Result<RunView, Error> {
        Ok(self.longhaul().show(self.id).await?)
    }

    /// Everything that has happened to the run and happens from now on, in order, to its end.
    /// An error ends the stream.
    pub fn events(&self) -> RunEvents {
        let followed = stream::once(JournalFollower::follow(self.clone()));
        RunEvents(followed.map_ok(entry_stream).try_flatten().boxed())
    }

    /// Writes a message to the run, which the agent reads before its next turn. The id is the
    /// receipt.
    ///
    /// # Errors
    /// The run has ended, too many messages wait already, or the store failed.
    pub async fn steer(&self, text: impl Into<String>) -> Result<SteerId, Error> {
        let delivery = Delivery::default();
        let sent = self.longhaul().steer(self.id, text, delivery, DEFAULT_ACTOR);
        Ok(sent.await?)
    }

    /// Ends the run. When this returns nothing more of it can start.
    ///
    /// # Errors
    /// The run has ended already, or the store failed.
    pub async fn cancel(&self, reason: &str) -> Result<(), Error> {
        Ok(self.longhaul().cancel(self.id, DEFAULT_ACTOR, reason).await?)
    }

    /// Stops the run until `resume`.
    ///
    /// # Errors
    /// The run has ended or is paused already, or the store failed.
    pub async fn pause(&self) -> Result<(), Error> {
        Ok(self.longhaul().pause(self.id, DEFAULT_ACTOR).await?)
    }

    /// Lets a paused run go on.
    ///
    /// # Errors
    /// The run has ended or is not paused, or the store failed.
    pub async fn resume(&self) -> Result<(), Error> {
        Ok(self.longhaul().resume(self.id, None, DEFAULT_ACTOR).await?)
    }
}

/// A journal that is followed as it grows.
struct JournalFollower {
    run: RunHandle,
    stream: JournalStream,
    last_seq: Seq,
}

impl JournalFollower {
    async fn follow(run: RunHandle) -> Result<Self, Error> {
        let watching = run.longhaul().watch(run.id, Seq::START).await?;
        let last = Seq::START;
        Ok(Self { run, stream: watching, last_seq: last })
    }

    /// What comes next, in order; none after the end of the run.
    async fn next(&mut self) -> Result<Option<Vec<Entry>>, Error> {
        let page = tokio::select! {
            biased;
            page = self.stream.next() => page?,
            failed = self.run.state.wait_for_worker_failure() => {
                // What was written before the worker failed is read first.
                let row = self.run.longhaul().run_row(self.run.id).await?;
                if row.last_seq <= self.last_seq {
                    return Err(failed);
                }
                self.stream.next().await?
            }
        };
        if let Some(last) = page.as_ref().and_then(|entries| entries.last()) {
            self.last_seq = last.seq;
        }
        Ok(page)
    }
}

/// The entries of a journal, one after the other.
fn entry_stream(journal: JournalFollower) -> impl Stream<Item = Result<Entry, Error>> {
    let pages = stream::try_unfold(journal, |mut journal| async move {
        let page = journal.next().await;
        page.map(|page| page.map(|page| (stream::iter(page.into_iter().map(Ok)), journal)))
    });
    pages.try_flatten()
}

/// The journal of a run as a stream, from its first entry to its last.
pub struct RunEvents(BoxStream<'static, Result<Entry, Error>>);

impl RunEvents {
    /// The next entry, or none after the last; the same as `StreamExt::next`.
    ///
    /// # Errors
    /// There is no such run any more, the last worker has failed, or the store has.
    pub async fn next(&mut self) -> Option<Result<Entry, Error>> {
        self.0.next().await
    }
}

impl Stream for RunEvents {
    type Item = Result<Entry, Error>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.0.poll_next_unpin(cx)
    }
}

impl fmt::Debug for RunEvents {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("RunEvents")
    }
}

/// A run that has ended.
///
/// ```no_run
/// # async fn example(run: longhaul::RunHandle) -> Result<(), longhaul::Error> {
/// let done = run.wait().await?;
/// match &done.error {
///     Some(fault) => println!("{}: {} ({})", done.status.as_str(), fault.message, fault.code),
///     None => println!("{} for {:?} dollars", done.text()?, done.cost_usd),
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct FinishedRun {
    /// The run's id.
    pub id: RunId,
    /// How it ended: completed, failed or cancelled.
    pub status: Status,
    /// What it gave; none unless it completed.
    pub output: Option<OutputView>,
    /// Why it failed or was cancelled.
    pub error: Option<RunError>,
    /// The tools that were called, in order and with repeats.
    pub tools_called: Vec<String>,
    /// Tokens.
    pub usage: UsageView,
    /// What it cost in dollars; none: not known.
    pub cost_usd: Option<f64>,
}

impl From<RunView> for FinishedRun {
    fn from(run: RunView) -> Self {
        Self {
            id: run.id,
            status: run.status,
            output: run.output,
            error: run.error,
            tools_called: run.tools_called,
            usage: run.usage,
            cost_usd: run.cost_usd,
        }
    }
}

impl FinishedRun {
    /// The final text.
    ///
    /// # Errors
    /// The run did not complete.
    pub fn text(&self) -> Result<&str, Error> {
        Ok(&self.require_output()?.text)
    }

    /// The structured output as a type: what a handler returned, or what the agent's output
    /// schema describes. An agent that only spoke gives its text as a `String`.
    ///
    /// # Errors
    /// The run did not complete, or its output is not of this type.
    pub fn data<T: DeserializeOwned>(&self) -> Result<T, Error> {
        let output = self.require_output()?;
        let data = match &output.data {
            Some(data) => data.to_value(),
            None => output.text.as_str().into(),
        };
        serde_json::from_value(data).map_err(|why| Error::OutputType { run: self.id, why })
    }

    fn require_output(&self) -> Result<&OutputView, Error> {
        self.output.as_ref().ok_or_else(|| Error::NoOutput {
            run: self.id,
            status: self.status,
            error: self
                .error
                .clone()
                .unwrap_or_else(|| RunError::new(self.status.as_str(), "it has no output", "")),
        })
    }
}
