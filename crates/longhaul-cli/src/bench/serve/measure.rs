//! Measures a server: at rest, then with runs in flight.
//!
//! Never: waits for a time to pass where a fact can be waited for.

use anyhow::{Context as _, bail};
use longhaul_core::time::{Clock as _, Millis};
use longhaul_engine::clock::{Stopwatch, SystemClock};
use longhaul_store::bench::Spans;
use serde::Serialize;
use serde_json::json;
use tokio::task::JoinSet;

use crate::bench::client::Client;
use crate::bench::cost::{Percentiles, micros};
use crate::bench::load::Load;
use crate::bench::serve::ask::Ask;
use crate::bench::serve::house::{Project, Server};
use crate::say;

/// An idle server is looked at after it has rested for so long.
const REST: Millis = Millis::from_secs(2);

/// So long runs may take until all of them are in flight.
const LOOKS_MAX: u32 = 600;
const LOOK_EVERY: Millis = Millis(50);

/// Everything that was measured.
#[derive(Debug, Serialize)]
pub(crate) struct Figures {
    pub(crate) store_mb: u64,
    pub(crate) ready_ms: f64,
    pub(crate) idle_mb: f64,
    pub(crate) busy_mb: f64,
    pub(crate) streams_mb: f64,
    pub(crate) group_commit: Timed,
    pub(crate) submit: Timed,
    pub(crate) show: Timed,
    /// The slowest submits against the slowest group commits.
    pub(crate) submit_ratio: f64,
}

/// Requests, how many a second and how long each.
#[derive(Debug, Serialize)]
pub(crate) struct Timed {
    pub(crate) per_second: f64,
    pub(crate) p50_ms: f64,
    pub(crate) p99_ms: f64,
}

impl Timed {
    fn new(per_second: f64, spans: &Spans) -> Self {
        let us = Percentiles::in_micros(spans);
        Self {
            per_second,
            p50_ms: us.p50 / 1e3,
            p99_ms: us.p99 / 1e3,
        }
    }
}

/// Measures everything, one after another.
pub(crate) async fn measure(ask: &Ask, watch: Stopwatch) -> anyhow::Result<Figures> {
    let project = Project::new(ask.dir.as_deref())?;
    say::talk(&format!("filling a store with {} MB ...", ask.store_mb));
    let store_mb = project.fill(ask.store_mb).await?;
    say::talk("starting the server ...");
    // The first start makes the key and warms the disk's cache for nobody else.
    drop(Server::start(&project, watch)?);
    let server = Server::start(&project, watch)?;
    rest(REST).await;
    let idle_mb = server.resident_mb()?;
    say::talk(&format!("opening {} streams ...", ask.streams));
    let streams_mb = streams(&server, ask.streams).await?;
    say::talk(&format!("bringing {} runs into flight ...", ask.runs));
    let runs = in_flight(&server, ask.runs).await?;
    say::talk("measuring group commits, submits and looks ...");
    let load = Load {
        runs: u64::from(ask.connections),
        events: u64::from(ask.requests),
        body_bytes: 900,
    };
    let file = project.root().join("bare.db");
    let bare = tokio::task::spawn_blocking(move || load.measure(&file, watch)).await??;
    let group_commit = Timed::new(bare.rate.per_second(), &bare.spans);
    let crowd = Crowd {
        server: &server,
        connections: ask.connections,
        requests: ask.requests,
        watch,
    };
    let body = json!({ "agent": "busy", "inbox": "aside", "input": "x".repeat(200) }).to_string();
    let submit = crowd
        .time("POST", vec!["/v1/runs".to_owned()], &body)
        .await?;
    let busy_mb = server.resident_mb()?;
    let shows = runs.iter().map(|run| format!("/v1/runs/{run}")).collect();
    let show = crowd.time("GET", shows, "").await?;
    Ok(Figures {
        store_mb,
        ready_ms: micros(server.ready_nanos) / 1e3,
        idle_mb,
        busy_mb,
        streams_mb,
        submit_ratio: submit.p99_ms / group_commit.p99_ms.max(f64::MIN_POSITIVE),
        group_commit,
        submit,
        show,
    })
}

async fn rest(span: Millis) {
    SystemClock.sleep(span).await;
}

/// What streams on which nothing happens cost, in MB.
async fn streams(server: &Server, count: u32) -> anyhow::Result<f64> {
    let mut client = server.connect().await?;
    let body = json!({ "agent": "waiter", "input": "x" }).to_string();
    let (status, run) = client.ask("POST", "/v1/runs", &body).await?;
    if status != 201 {
        bail!("a submit was answered {status}: {run}");
    }
    let id = run["id"].as_str().unwrap_or_default().to_owned();
    until(&mut client, "/v1/gates?status=open", |gates| {
        gates["data"]
            .as_array()
            .is_some_and(|data| !data.is_empty())
    })
    .await?;
    let before = server.resident_mb()?;
    let mut open = Vec::new();
    for _ in 0..count {
        let mut client = server.connect().await?;
        client.listen(&format!("/v1/runs/{id}/events")).await?;
        open.push(client);
    }
    let after = server.resident_mb()?;
    Ok(after - before)
}

/// Submits runs and waits until all of them are at work.
async fn in_flight(server: &Server, count: u32) -> anyhow::Result<Vec<String>> {
    let mut client = server.connect().await?;
    let body = json!({ "agent": "busy", "input": "look" }).to_string();
    let mut runs = Vec::new();
    for _ in 0..count {
        let (status, run) = client.ask("POST", "/v1/runs", &body).await?;
        if status != 201 {
            bail!("a submit was answered {status}: {run}");
        }
        runs.push(run["id"].as_str().unwrap_or_default().to_owned());
    }
    let last = format!("/v1/runs/{}", runs.last().context("no run")?);
    until(&mut client, &last, |run| run["status"] == "running").await?;
    Ok(runs)
}

async fn until(
    client: &mut Client,
    path: &str,
    fits: impl Fn(&serde_json::Value) -> bool,
) -> anyhow::Result<()> {
    for _ in 0..LOOKS_MAX {
        if fits(&client.ask("GET", path, "").await?.1) {
            return Ok(());
        }
        rest(LOOK_EVERY).await;
    }
    bail!("{path} did not become what was waited for")
}

/// Clients that ask at once.
struct Crowd<'a> {
    server: &'a Server,
    connections: u32,
    requests: u32,
    watch: Stopwatch,
}

impl Crowd<'_> {
    /// Asks these paths in turn; how long each answer took.
    async fn time(
        &self,
        method: &'static str,
        paths: Vec<String>,
        body: &str,
    ) -> anyhow::Result<Timed> {
        let each = self.requests / self.connections;
        let watch = self.watch;
        let mut crowd = JoinSet::new();
        let begun = watch.nanos();
        for first in 0..self.connections as usize {
            let mut client = self.server.connect().await?;
            let (paths, body) = (paths.clone(), body.to_owned());
            crowd.spawn(async move {
                let mut spans = Vec::new();
                for place in 0..each as usize {
                    let path = &paths[(first * each as usize + place) % paths.len()];
                    let begun = watch.nanos();
                    let (status, said) = client.ask(method, path, &body).await?;
                    spans.push(watch.nanos() - begun);
                    if status >= 300 {
                        bail!("{method} {path} was answered {status}: {said}");
                    }
                }
                Ok(spans)
            });
        }
        let mut spans = Vec::new();
        while let Some(done) = crowd.join_next().await {
            spans.extend(done.context("a client was lost")??);
        }
        let took = (watch.nanos() - begun) as f64 / 1e9;
        Ok(Timed::new(spans.len() as f64 / took, &Spans::new(spans)))
    }
}
