//! Runs that write side by side through the real store, each waiting for its own acknowledgement
//! before it writes again. What is measured is `Store::append`.

use std::path::Path;
use std::sync::Arc;

use anyhow::{Context as _, bail};
use longhaul_core::change::Batch;
use longhaul_core::event::tool::{ToolEnded, ToolOutput};
use longhaul_core::event::{EVENT_FORMAT, Event};
use longhaul_core::id::{AgentName, CallId, InboxName, RunId, WorkerId};
use longhaul_core::port::store::{
    AppendRequest, Appended, Author, Claim, ClaimRequest, Heartbeat, OpenRequest, Store,
};
use longhaul_core::raw::RawJson;
use longhaul_core::task::TaskSpec;
use longhaul_core::time::{Clock as _, Millis};
use longhaul_engine::clock::SystemClock;
use longhaul_run::submit::submit;
use longhaul_store::SqliteStore;
use longhaul_store::bench::{Durations, InsertRate};
use tokio::task::JoinSet;

use crate::bench::fixture::open_store;

/// What is written.
pub(crate) struct WriteLoad {
    /// Number of runs side by side.
    pub(crate) runs: u64,
    /// Number of events in all.
    pub(crate) events: u64,
    /// Length of each event's text.
    pub(crate) body_bytes: usize,
}

impl WriteLoad {
    /// Writes the load into a new store: how fast all of it was, and how long each append took.
    pub(crate) async fn measure(&self, file: &Path) -> anyhow::Result<(InsertRate, Durations)> {
        let store = Arc::new(open_store(file)?);
        let worker = WorkerId::from_bits(uuid::Uuid::now_v7().as_u128());
        let claimed = self.open_and_claim(&*store, worker).await?;
        let each = self.events / self.runs;
        let (commits_before, begun) = (store.commits(), SystemClock.monotonic_nanos());
        let mut writers = JoinSet::new();
        for run in claimed {
            let store = Arc::clone(&store);
            let body = "x".repeat(self.body_bytes);
            writers.spawn(async move { append_events(&store, (worker, run), each, &body).await });
        }
        let mut spans = Vec::new();
        while let Some(written) = writers.join_next().await {
            spans.extend(written.context("a writer was lost")??);
        }
        let rate = InsertRate {
            events: each * self.runs,
            commits: store.commits() - commits_before,
            nanos: SystemClock.monotonic_nanos() - begun,
        };
        Ok((rate, Durations::new(spans)))
    }

    async fn open_and_claim(
        &self,
        store: &dyn Store,
        worker: WorkerId,
    ) -> anyhow::Result<Vec<Claim>> {
        let inbox = InboxName::new("bench")?;
        let mut runs = Vec::new();
        for _ in 0..self.runs {
            let id = RunId::from_bits(uuid::Uuid::now_v7().as_u128());
            let task = TaskSpec::new(id, AgentName::new("bench")?, RawJson::null(), inbox.clone());
            runs.push(submit(id, task)?);
        }
        store.open_runs(OpenRequest { runs, blobs: Vec::new(), idempotency: None }).await?;
        let beat = Heartbeat {
            worker,
            host: "bench".into(),
            build: env!("CARGO_PKG_VERSION").into(),
            draining: false,
            ttl: Millis::from_secs(86_400),
        };
        store.heartbeat(beat).await?;
        let ask = ClaimRequest {
            worker,
            inboxes: vec![inbox],
            types: Vec::new(),
            limit: usize::try_from(self.runs)?,
            format: EVENT_FORMAT,
            host: None,
        };
        let claimed = store.claim(ask).await?;
        let (count, runs) = (claimed.len() as u64, self.runs);
        if count != runs {
            bail!("only {count} of {runs} runs could be claimed");
        }
        Ok(claimed)
    }
}

/// Writes so many events of one run, one after the other; how long each took.
async fn append_events(
    store: &SqliteStore,
    (worker, run): (WorkerId, Claim),
    events: u64,
    body: &str,
) -> anyhow::Result<Vec<u64>> {
    let mut after = run.last_seq;
    let mut spans = Vec::new();
    for _ in 0..events {
        let event = Event::ToolCompleted(ToolEnded {
            call: CallId { turn: 1, index: 1 },
            output: ToolOutput::text(body),
            active: Millis::ZERO,
        });
        let append = AppendRequest {
            run: run.run,
            author: Author::Driver { worker, epoch: run.epoch, after },
            batch: Batch { events: vec![event], changes: Vec::new() },
        };
        let begun = SystemClock.monotonic_nanos();
        let Appended::At { seq, .. } = store.append(append).await? else {
            bail!("an append was refused");
        };
        after = seq;
        spans.push(SystemClock.monotonic_nanos() - begun);
    }
    Ok(spans)
}
