//! Concurrent runs that append events to the real store. Each run waits until its event is
//! acknowledged before it appends the next one.

use std::path::Path;
use std::sync::Arc;

use anyhow::{Context as _, bail};
use longhaul_core::change::JournalBatch;
use longhaul_core::event::tool::{ToolEnded, ToolOutput};
use longhaul_core::event::{EVENT_FORMAT, Event};
use longhaul_core::id::{AgentName, CallId, InboxName, RunId, WorkerId};
use longhaul_core::port::store::{
    AppendRequest, AppendResult, Claim, CreateRunsRequest, Heartbeat, JournalAuthor,
    RunClaimRequest, Store,
};
use longhaul_core::raw::RawJson;
use longhaul_core::task::TaskSpec;
use longhaul_core::time::{Clock as _, Millis};
use longhaul_engine::clock::SystemClock;
use longhaul_run::submit::new_run_from_task;
use longhaul_store::SqliteStore;
use longhaul_store::bench::{InsertRate, SortedDurations};
use tokio::task::JoinSet;

use crate::bench::fixture::open_bench_store;

/// Parameters of concurrent writes to a store.
pub(crate) struct WriteLoad {
    /// Number of runs that write concurrently.
    pub(crate) runs: u64,
    /// Total number of events of all runs.
    pub(crate) events: u64,
    /// Length of each event's text, in bytes.
    pub(crate) body_bytes: usize,
}

impl WriteLoad {
    /// Writes the events to a new store. Returns the total event rate and the duration of each
    /// append.
    pub(crate) async fn measure_appends(
        &self,
        file: &Path,
    ) -> anyhow::Result<(InsertRate, SortedDurations)> {
        let store = Arc::new(open_bench_store(file)?);
        let worker = WorkerId::from_bits(uuid::Uuid::now_v7().as_u128());
        let claims = self.create_and_claim_runs(&*store, worker).await?;
        let events_per_run = self.events / self.runs;
        let (commits_before, start) = (store.commit_count(), SystemClock.monotonic_nanos());
        let mut writers = JoinSet::new();
        for run in claims {
            let store = Arc::clone(&store);
            let body = "x".repeat(self.body_bytes);
            writers.spawn(async move {
                append_events(&store, (worker, run), events_per_run, &body).await
            });
        }
        let mut durations = Vec::new();
        while let Some(result) = writers.join_next().await {
            durations.extend(result.context("a writer task panicked")??);
        }
        let rate = InsertRate {
            events: events_per_run * self.runs,
            commits: store.commit_count() - commits_before,
            nanos: SystemClock.monotonic_nanos() - start,
        };
        Ok((rate, SortedDurations::new(durations)))
    }

    async fn create_and_claim_runs(
        &self,
        store: &dyn Store,
        worker: WorkerId,
    ) -> anyhow::Result<Vec<Claim>> {
        let inbox = InboxName::new("bench")?;
        let mut runs = Vec::new();
        for _ in 0..self.runs {
            let id = RunId::from_bits(uuid::Uuid::now_v7().as_u128());
            let task = TaskSpec::new(id, AgentName::new("bench")?, RawJson::null(), inbox.clone());
            runs.push(new_run_from_task(id, task)?);
        }
        store.create_runs(CreateRunsRequest { runs, blobs: Vec::new(), idempotency: None }).await?;
        let heartbeat = Heartbeat {
            worker,
            host: "bench".into(),
            build: env!("CARGO_PKG_VERSION").into(),
            inboxes: vec![inbox.clone()],
            types: Vec::new(),
            draining: false,
            ttl: Millis::from_secs(86_400),
        };
        store.heartbeat(heartbeat).await?;
        let request = RunClaimRequest {
            worker,
            inboxes: vec![inbox],
            types: Vec::new(),
            only: None,
            limit: usize::try_from(self.runs)?,
            format: EVENT_FORMAT,
            host: None,
        };
        let claims = store.claim_runs(request).await?;
        let (count, runs) = (claims.len() as u64, self.runs);
        if count != runs {
            bail!("only {count} of {runs} runs could be claimed");
        }
        Ok(claims)
    }
}

/// Appends this many events of one run, one after another, and returns the duration of each append
/// in nanoseconds.
async fn append_events(
    store: &SqliteStore,
    (worker, run): (WorkerId, Claim),
    events: u64,
    body: &str,
) -> anyhow::Result<Vec<u64>> {
    let mut after = run.last_seq;
    let mut durations = Vec::new();
    for _ in 0..events {
        let event = Event::ToolCompleted(ToolEnded {
            call: CallId { turn: 1, index: 1 },
            output: ToolOutput::text(body),
            active: Millis::ZERO,
        });
        let append = AppendRequest {
            run: run.run,
            author: JournalAuthor::Driver { worker, epoch: run.epoch, after },
            batch: JournalBatch { events: vec![event], changes: Vec::new() },
        };
        let start = SystemClock.monotonic_nanos();
        let AppendResult::Committed { seq, .. } = store.append_to_journal(append).await? else {
            bail!("an append was refused");
        };
        after = seq;
        durations.push(SystemClock.monotonic_nanos() - start);
    }
    Ok(durations)
}
