//! Runs that write side by side through the real store, each waiting for its
//! own acknowledgement before it writes again.
//!
//! Never: a shortcut past the port. What is measured is `Store::append`.

use std::path::Path;
use std::sync::Arc;

use anyhow::{Context as _, bail};
use longhaul_core::change::Batch;
use longhaul_core::event::tool::{ToolEnded, ToolOutput};
use longhaul_core::event::{EVENT_FORMAT, Event};
use longhaul_core::id::{AgentName, CallId, InboxName, RunId, WorkerId};
use longhaul_core::port::store::{
    Append, Appended, Author, Beat, ClaimAsk, Claimed, OpenAsk, Store,
};
use longhaul_core::raw::RawJson;
use longhaul_core::task::TaskSpec;
use longhaul_core::time::Millis;
use longhaul_engine::clock::{Stopwatch, SystemClock};
use longhaul_run::submit::submit;
use longhaul_store::bench::{Rate, Spans};
use longhaul_store::{Options, Role, SqliteStore, open};
use tokio::task::JoinSet;

/// What is written.
pub(crate) struct Load {
    /// So many runs side by side.
    pub(crate) runs: u64,
    /// So many events in all.
    pub(crate) events: u64,
    /// The text of each.
    pub(crate) body_bytes: usize,
}

/// How fast it went.
pub(crate) struct Measured {
    pub(crate) rate: Rate,
    pub(crate) spans: Spans,
}

impl Load {
    /// Writes the load into a new store.
    pub(crate) fn measure(&self, file: &Path, watch: Stopwatch) -> anyhow::Result<Measured> {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .enable_all()
            .build()
            .context("no threads to measure with")?;
        runtime.block_on(self.write(file, watch))
    }

    async fn write(&self, file: &Path, watch: Stopwatch) -> anyhow::Result<Measured> {
        let file = file.to_str();
        let file = file.context("the folder's name is not UTF-8; name another with --dir")?;
        let url = format!("sqlite:{file}");
        let options = Options::new(url, Role::Driver, Arc::new(SystemClock));
        let store = Arc::new(open(options)?);
        let worker = WorkerId::from_bits(uuid::Uuid::now_v7().as_u128());
        let claimed = self.claim_all(&*store, worker).await?;
        let each = self.events / self.runs;
        let commits_before = store.commits();
        let begun = watch.nanos();
        let mut writers = JoinSet::new();
        for run in claimed {
            let writer = Writer {
                store: store.clone(),
                worker,
                run,
                watch,
            };
            let body = "x".repeat(self.body_bytes);
            writers.spawn(async move { writer.write(each, &body).await });
        }
        let mut spans = Vec::new();
        while let Some(written) = writers.join_next().await {
            spans.extend(written.context("a writer was lost")??);
        }
        let rate = Rate {
            events: each * self.runs,
            commits: store.commits() - commits_before,
            nanos: watch.nanos() - begun,
        };
        Ok(Measured {
            rate,
            spans: Spans::new(spans),
        })
    }

    async fn claim_all(&self, store: &dyn Store, worker: WorkerId) -> anyhow::Result<Vec<Claimed>> {
        let inbox = InboxName::new("bench")?;
        let mut runs = Vec::new();
        for _ in 0..self.runs {
            let id = RunId::from_bits(uuid::Uuid::now_v7().as_u128());
            let task = TaskSpec::new(id, AgentName::new("bench")?, RawJson::null(), inbox.clone());
            runs.push(submit(id, task)?);
        }
        store
            .open(OpenAsk {
                runs,
                blobs: Vec::new(),
                idempotency: None,
            })
            .await?;
        let beat = Beat {
            worker,
            host: "bench".into(),
            build: env!("CARGO_PKG_VERSION").into(),
            draining: false,
            ttl: Millis::from_secs(86_400),
        };
        store.renew(beat).await?;
        let ask = ClaimAsk {
            worker,
            inboxes: vec![inbox],
            types: Vec::new(),
            limit: usize::try_from(self.runs)?,
            format: EVENT_FORMAT,
            host: None,
        };
        let claimed = store.claim(ask).await?;
        if claimed.len() as u64 != self.runs {
            bail!(
                "only {} of {} runs could be claimed",
                claimed.len(),
                self.runs
            );
        }
        Ok(claimed)
    }
}

/// One run's driver.
struct Writer {
    store: Arc<SqliteStore>,
    worker: WorkerId,
    run: Claimed,
    watch: Stopwatch,
}

impl Writer {
    /// Writes so many events, one after the other; how long each took.
    async fn write(self, events: u64, body: &str) -> anyhow::Result<Vec<u64>> {
        let mut after = self.run.last;
        let mut spans = Vec::new();
        for _ in 0..events {
            let event = Event::ToolCompleted(ToolEnded {
                call: CallId { turn: 1, index: 1 },
                output: ToolOutput::text(body),
                active: Millis::ZERO,
            });
            let append = Append {
                run: self.run.run,
                author: Author::Driver {
                    worker: self.worker,
                    epoch: self.run.epoch,
                    after,
                },
                batch: Batch {
                    events: vec![event],
                    changes: Vec::new(),
                },
            };
            let begun = self.watch.nanos();
            match self.store.append(append).await? {
                Appended::At { seq, .. } => after = seq,
                other @ (Appended::MovedOn
                | Appended::Fenced
                | Appended::RunEnded
                | Appended::NoRun
                | Appended::Refused(_)) => bail!("an append was answered {other:?}"),
            }
            spans.push(self.watch.nanos() - begun);
        }
        Ok(spans)
    }
}
