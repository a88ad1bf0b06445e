//! The mock that is asked over HTTP: this very binary, in a process of its own, so
//! that only the asking is counted here.
//!
//! Never: left behind. Whatever happens to whoever holds it, it is killed and reaped.

use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::time::Duration;

use anyhow::Context as _;
use longhaul_core::time::Millis;
use serde_json::Value;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

/// A mock that says nothing for so long has failed.
const PATIENCE: Duration = Duration::from_secs(60);

/// A mock under way.
#[derive(Debug)]
pub(crate) struct StandIn {
    child: Child,
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
        let binary = std::env::current_exe().context("this program can't find its own file")?;
        let mut child = Command::new(binary)
            .args(["mock-model", "--listen", "127.0.0.1:0", "--json"])
            .args(["--latency", &format!("{}ms", latency.0), "--until-eof"])
            .arg("--scripts")
            .arg(scripts)
            // Held open while we live: however we die, it ends.
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .context("a mock can't be started")?;
        let stdout = child.stdout.take();
        let mut mock = Self {
            child,
            url: String::new(),
        };
        let stdout = stdout.context("its words can't be read")?;
        let (said, heard) = mpsc::channel();
        std::thread::spawn(move || {
            let line = BufReader::new(stdout).lines().next();
            _ = said.send(line.and_then(Result::ok));
        });
        let line = heard.recv_timeout(PATIENCE).ok().flatten();
        let line = line.context("the mock did not become ready")?;
        let said: Value = serde_json::from_str(&line).context("the mock said no JSON")?;
        let url = said["url"].as_str();
        mock.url = url.context("the mock did not say where it is")?.to_owned();
        Ok(mock)
    }

    /// What it has counted so far.
    pub(crate) async fn counted(&self) -> anyhow::Result<Counted> {
        counted(&self.url).await
    }
}

impl Drop for StandIn {
    fn drop(&mut self) {
        _ = self.child.kill();
        _ = self.child.wait();
    }
}

/// What the mock at this address has counted so far, over a connection of its own.
pub(crate) async fn counted(url: &str) -> anyhow::Result<Counted> {
    let host = url.trim_start_matches("http://");
    let mut stream = TcpStream::connect(host).await?;
    let asked = format!("GET /stats HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\n\r\n");
    stream.write_all(asked.as_bytes()).await?;
    let mut said = String::new();
    stream.read_to_string(&mut said).await?;
    let body = said.split("\r\n\r\n").nth(1).unwrap_or_default();
    let body: Value = serde_json::from_str(body).context("the mock's counts can't be read")?;
    let count = |name: &str| body[name].as_u64();
    Ok(Counted {
        body_bytes: count("body_bytes").context("the mock has counted no bytes")?,
        cpu_us: count("cpu_us").context("the mock has counted no CPU time")? as f64,
    })
}
