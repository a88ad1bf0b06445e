//! The mock that is asked over HTTP: this very binary, in a process of its own, so
//! that only the asking is counted here.
//!
//! Never: left behind. Whatever happens to whoever holds it, it is killed and reaped.

use std::path::Path;
use std::process::Stdio;

use anyhow::Context as _;
use longhaul_core::time::Millis;

use crate::bench::client::Client;
use crate::bench::process::OwnProcess;

/// A mock under way.
#[derive(Debug)]
pub(crate) struct StandIn {
    _process: OwnProcess,
    pub(crate) url: String,
}

/// What a mock has counted.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Counted {
    pub(crate) body_bytes: u64,
    pub(crate) cpu_us: f64,
}

impl StandIn {
    /// Starts a mock that plays the scripts of a folder after so long, and waits
    /// until it is ready.
    pub(crate) fn start(scripts: &Path, latency: Millis) -> anyhow::Result<Self> {
        let mut command = OwnProcess::command()?;
        command
            .args(["mock-model", "--listen", "127.0.0.1:0", "--json"])
            .args(["--latency", &format!("{}ms", latency.0), "--until-eof"])
            .arg("--scripts")
            .arg(scripts)
            .stdout(Stdio::piped())
            .stderr(Stdio::null());
        let (process, url) = OwnProcess::start(&mut command, |line| line["url"].as_str())?;
        Ok(Self {
            _process: process,
            url,
        })
    }

    /// What it has counted so far.
    pub(crate) async fn counted(&self) -> anyhow::Result<Counted> {
        counted(&self.url).await
    }
}

/// What the mock at this address has counted so far, over a connection of its own.
pub(crate) async fn counted(url: &str) -> anyhow::Result<Counted> {
    let mut client = Client::connect(url.trim_start_matches("http://"), "").await?;
    let (_, stats) = client.ask("GET", "/stats", "").await?;
    let count = |name: &str| stats[name].as_u64();
    Ok(Counted {
        body_bytes: count("body_bytes").context("the mock has counted no bytes")?,
        cpu_us: count("cpu_us").context("the mock has counted no CPU time")? as f64,
    })
}
