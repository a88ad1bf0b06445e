//! The handle of a run or of a batch of runs, and the result of a run that has ended. Dropping a
//! handle does not affect the runs.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use futures_util::stream::{self, BoxStream};
use futures_util::{Stream, StreamExt as _, TryStreamExt as _};
use longhaul_api::fork::{ForkBody, RunDiffView};
use longhaul_api::run::{OutputView, RunView, UsageView};
use longhaul_core::event::entry::JournalEntry;
use longhaul_core::event::steer::SteerDelivery;
use longhaul_core::id::{BatchId, RunId, Seq, SteerId};
use longhaul_core::status::{RunError, Status};
use longhaul_engine::Longhaul;
use longhaul_engine::handle::JournalStream;
use serde::de::DeserializeOwned;

use crate::error::Error;
use crate::gates::DEFAULT_ACTOR;
use crate::runtime_state::RuntimeState;

/// Handle of a submitted run. Cheap to clone; dropping all handles does not stop the run. A run of a
/// chain that has ended stands for the newest run of the chain: messages, cancels, closes, pauses and resumes
/// go to that run.
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
    pub(crate) was_added: bool,
}

impl RunHandle {
    pub(crate) const fn new(state: Arc<RuntimeState>, id: RunId) -> Self {
        Self { state, id, was_added: false }
    }

    fn longhaul(&self) -> &Longhaul {
        &self.state.longhaul
    }

    /// Returns the id of the run, with which [`Runtime::run`](crate::Runtime::run) finds it again.
    pub const fn id(&self) -> RunId {
        self.id
    }

    /// Returns whether the submitted task was added to this run as a message, because its lane is
    /// busy and the agent's `lane_busy` is `steer` or `collect`.
    pub const fn was_added(&self) -> bool {
        self.was_added
    }

    /// Waits until the run has ended, with any status. That may take days if the run waits for a
    /// person, and forever if no worker is started. For a run of a chain, waits until the chain has
    /// ended and returns its last run.
    ///
    /// # Errors
    /// The run no longer exists, the last worker has failed, or the store failed.
    pub async fn wait(&self) -> Result<FinishedRun, Error> {
        let mut run = self.clone();
        loop {
            let mut journal = JournalFollower::start_following(run.clone()).await?;
            while journal.next_entries().await?.is_some() {}
            let view = run.view().await?;
            match view.chain.as_ref().map(|chain| chain.current).filter(|newest| *newest != run.id)
            {
                Some(newest) => run = Self::new(Arc::clone(&run.state), newest),
                None => return Ok(FinishedRun::from(view)),
            }
        }
    }

    /// Returns the current state of the run.
    ///
    /// # Errors
    /// The run no longer exists, or the store failed.
    pub async fn view(&self) -> Result<RunView, Error> {
        Ok(self.longhaul().get_run(self.id).await?)
    }

    /// Streams all journal entries of the run, past and future, in order, until the run ends. An
    /// error ends the stream.
    pub fn events(&self) -> RunEvents {
        let follower = stream::once(JournalFollower::start_following(self.clone()));
        RunEvents(follower.map_ok(into_entry_stream).try_flatten().boxed())
    }

    /// Sends a message to the run, which the agent reads before its next turn. Returns the id of
    /// the message.
    ///
    /// # Errors
    /// The run has ended, too many messages are waiting already, or the store failed.
    pub async fn steer(&self, text: impl Into<String>) -> Result<SteerId, Error> {
        let delivery = SteerDelivery::default();
        let message = self.longhaul().steer(self.id, text, delivery, DEFAULT_ACTOR);
        Ok(message.await?.id)
    }

    /// Cancels the run. After this method returns, the run starts no more calls.
    ///
    /// # Errors
    /// The run has already ended, or the store failed.
    pub async fn cancel(&self, reason: &str) -> Result<(), Error> {
        self.longhaul().cancel_run(self.id, DEFAULT_ACTOR, reason).await?;
        Ok(())
    }

    /// Completes the run, which has its result and stays open for messages (`keep_open`), with this
    /// result.
    ///
    /// # Errors
    /// The run has ended, it is not open for messages, or the store failed.
    pub async fn close(&self) -> Result<(), Error> {
        self.longhaul().close_run(self.id, DEFAULT_ACTOR).await?;
        Ok(())
    }

    /// Retries the failed run, as a new run with the same agent version and the same budget. The
    /// new run continues from the last good event, so completed tool calls are not
    /// repeated. A handler is called again. A failed run has at most one retry: a second call
    /// returns the same run.
    ///
    /// # Errors
    /// The run has not failed, its lane is full, or the store failed.
    pub async fn retry(&self) -> Result<Self, Error> {
        let outcome = self.longhaul().retry(self.id, DEFAULT_ACTOR).await?;
        let id = outcome.run_ids().first().copied().unwrap_or(self.id);
        Ok(Self { id, ..self.clone() })
    }

    /// Creates a run that goes on from the start of a turn of this run: that of the event
    /// `fork.before`. Nothing before the turn is repeated or paid again, and both runs draw on one
    /// budget.
    ///
    /// # Errors
    /// The run has no such event, the edit fits nothing in the conversation, the files of the run's
    /// sandbox are not kept, the agent does not exist, or the store failed.
    pub async fn fork(&self, fork: ForkBody) -> Result<Self, Error> {
        let outcome = self.longhaul().fork(self.id, fork, DEFAULT_ACTOR, None).await?;
        let id = outcome.run_ids().first().copied().unwrap_or(self.id);
        Ok(Self { id, ..self.clone() })
    }

    /// Compares this run with another run, turn by turn.
    ///
    /// # Errors
    /// The other run does not exist, or the store failed.
    pub async fn diff(&self, other: RunId) -> Result<RunDiffView, Error> {
        Ok(self.longhaul().diff_runs(self.id, other).await?)
    }

    /// Pauses the run until [`resume`](Self::resume) is called.
    ///
    /// # Errors
    /// The run has ended or is already paused, or the store failed.
    pub async fn pause(&self) -> Result<(), Error> {
        self.longhaul().pause_run(self.id, DEFAULT_ACTOR).await?;
        Ok(())
    }

    /// Resumes a run that is paused or blocked, or tries again now if it waits before it calls the
    /// model again. Changes nothing if it waits for something else.
    ///
    /// # Errors
    /// The run has ended, it runs or is queued and nobody has paused it, or the store failed.
    pub async fn resume(&self) -> Result<(), Error> {
        self.longhaul().resume_run(self.id, None, DEFAULT_ACTOR).await?;
        Ok(())
    }
}

/// Reads the journal of a run as it grows.
struct JournalFollower {
    run: RunHandle,
    stream: JournalStream,
    last_seq: Seq,
}

impl JournalFollower {
    async fn start_following(run: RunHandle) -> Result<Self, Error> {
        let stream = run.longhaul().watch_run_journal(run.id, Seq::START).await?;
        let last_seq = Seq::START;
        Ok(Self { run, stream, last_seq })
    }

    /// Waits for the next journal entries and returns them in order. `None` means that the run has
    /// ended.
    async fn next_entries(&mut self) -> Result<Option<Vec<JournalEntry>>, Error> {
        let page = tokio::select! {
            biased;
            page = self.stream.next() => page?,
            failed = self.run.state.wait_for_worker_failure() => {
                // Entries that were written before the worker failed are returned first.
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

/// Converts a journal follower to a stream of single entries.
fn into_entry_stream(journal: JournalFollower) -> impl Stream<Item = Result<JournalEntry, Error>> {
    let pages = stream::try_unfold(journal, |mut journal| async move {
        let page = journal.next_entries().await;
        page.map(|page| page.map(|page| (stream::iter(page.into_iter().map(Ok)), journal)))
    });
    pages.try_flatten()
}

/// Stream of all journal entries of a run, from the first to the last.
///
/// ```
/// # async fn example(run: longhaul::RunHandle) -> Result<(), longhaul::Error> {
/// let mut events = run.events();
/// while let Some(entry) = events.next().await {
///     let entry = entry?;
///     println!("{} {}", entry.seq, entry.event.kind());
/// }
/// # Ok(())
/// # }
/// ```
pub struct RunEvents(BoxStream<'static, Result<JournalEntry, Error>>);

impl RunEvents {
    /// Returns the next journal entry. `None` means that the run has ended. Same as
    /// `StreamExt::next`.
    ///
    /// # Errors
    /// The run no longer exists, the last worker has failed, or the store failed.
    pub async fn next(&mut self) -> Option<Result<JournalEntry, Error>> {
        self.0.next().await
    }
}

impl Stream for RunEvents {
    type Item = Result<JournalEntry, Error>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.0.poll_next_unpin(cx)
    }
}

impl fmt::Debug for RunEvents {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("RunEvents")
    }
}

/// Result of a run that has ended.
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
    /// Id of the run, as commands and the HTTP API take it.
    pub id: RunId,
    /// Final status of the run: completed, failed or cancelled.
    pub status: Status,
    /// Output of the run. `None` means that the run failed or was cancelled before it had a result.
    pub output: Option<OutputView>,
    /// Reason why the run failed or was cancelled. `None` means that it completed.
    pub error: Option<RunError>,
    /// Names of the called tools in the order of the calls. A tool that was called twice occurs
    /// twice.
    pub tools_called: Vec<String>,
    /// Token usage of the run.
    pub usage: UsageView,
    /// Cost of the run in US dollars. `None` means that a price is unknown.
    pub cost_usd: Option<f64>,
}

impl From<RunView> for FinishedRun {
    fn from(run: RunView) -> Self {
        let RunView { id, status, output, error, tools_called, usage, cost_usd, .. } = run;
        Self { id, status, output, error, tools_called, usage, cost_usd }
    }
}

impl FinishedRun {
    /// Returns the final text of the run.
    ///
    /// # Errors
    /// The run did not complete.
    pub fn text(&self) -> Result<&str, Error> {
        Ok(&self.require_output()?.text)
    }

    /// Deserializes the structured output: the result of a handler, or the data that the agent's
    /// output schema describes. If there is no structured output, `T` can be `String`, and the
    /// final text is returned.
    ///
    /// # Errors
    /// The run did not complete, or its output does not have this type.
    pub fn data<T: DeserializeOwned>(&self) -> Result<T, Error> {
        let output = self.require_output()?;
        let data = match &output.data {
            Some(data) => data.to_value(),
            None => output.text.as_str().into(),
        };
        serde_json::from_value(data)
            .map_err(|error| Error::OutputType { run: self.id, reason: error })
    }

    fn require_output(&self) -> Result<&OutputView, Error> {
        let output = self.output.as_ref().filter(|_| self.status == Status::Completed);
        output.ok_or_else(|| Error::NoOutput {
            run: self.id,
            status: self.status,
            error: self.error.clone().unwrap_or_else(|| {
                RunError::new(self.status.as_str(), "the run has no output", "")
            }),
        })
    }
}

/// Runs that were submitted together with [`Runtime::submit_all`](crate::Runtime::submit_all).
///
/// ```no_run
/// # async fn example(runtime: longhaul::Runtime) -> Result<(), longhaul::Error> {
/// use longhaul::{Mode, Task};
///
/// let tasks = ["a.txt", "b.txt"].map(|file| Task::new("reader").input(file));
/// for done in runtime.submit_all(tasks, Mode::Sequential).await?.wait().await? {
///     println!("{}", done.status.as_str());
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct Batch {
    pub(crate) id: BatchId,
    pub(crate) runs: Vec<RunHandle>,
}

impl Batch {
    /// Returns the id of the batch, which `longhaul batch show` accepts.
    pub const fn id(&self) -> BatchId {
        self.id
    }

    /// The runs of the batch, in the order of their tasks.
    pub fn runs(&self) -> &[RunHandle] {
        &self.runs
    }

    /// Waits until all runs have ended, with any status. The results are in the order of the tasks.
    ///
    /// # Errors
    /// A run no longer exists, the last worker has failed, or the store failed.
    pub async fn wait(&self) -> Result<Vec<FinishedRun>, Error> {
        let mut finished = Vec::with_capacity(self.runs.len());
        for run in &self.runs {
            finished.push(run.wait().await?);
        }
        Ok(finished)
    }
}
