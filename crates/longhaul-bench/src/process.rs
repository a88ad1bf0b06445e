//! The binary `longhaul` as a separate process: what is measured from outside, and the mock model,
//! whose CPU time must not count as that of the runs.
//!
//! Invariant: a process is killed and reaped when its handle is dropped.

use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use clap::ValueEnum;
use serde_json::Value;

use crate::http::ApiClient;

/// Timeout for a started server to print that it is ready.
const READY_TIMEOUT: Duration = Duration::from_secs(60);

/// The built binary.
#[derive(Debug, Clone)]
pub(crate) struct LonghaulBinary(PathBuf);

impl LonghaulBinary {
    /// Returns the given binary, or else the one beside this program.
    pub(crate) fn find(given: Option<PathBuf>) -> anyhow::Result<Self> {
        let file = match given {
            Some(file) => file,
            None => std::env::current_exe()?.with_file_name("longhaul"),
        };
        let file = std::path::absolute(file)?;
        let shown = file.display();
        ensure!(
            file.is_file(),
            "`{shown}` does not exist; build it with `cargo build --release -p longhaul-cli`, or name it with --longhaul"
        );
        Ok(Self(file))
    }

    /// Returns a command that runs in this folder, without the settings of the user.
    pub(crate) fn command(&self, folder: &Path, args: &[&str]) -> Command {
        let mut command = Command::new(&self.0);
        command.args(args).current_dir(folder).env_clear();
        command.env("HOME", folder).env("TMPDIR", folder).stdin(Stdio::null());
        if let Some(path) = std::env::var_os("PATH") {
            command.env("PATH", path);
        }
        command
    }

    /// Starts a server that ends with this process, and waits until it is ready.
    pub(crate) fn start_server(&self, folder: &Path, args: &[&str]) -> anyhow::Result<Server> {
        let (output, output_writer) = std::io::pipe()?;
        let mut command = self.command(folder, args);
        command.args(["--listen", "127.0.0.1:0", "--until-eof"]).stdin(Stdio::piped());
        command.stdout(output_writer.try_clone()?).stderr(output_writer);
        let mut server = Server { process: command.spawn()?, url: String::new() };
        // The command holds the pipe open.
        drop(command);
        let (sender, lines) = mpsc::channel();
        // Reads until the end, so that the server never blocks on its output.
        std::thread::spawn(move || {
            for line in BufReader::new(output).lines().map_while(Result::ok) {
                _ = sender.send(line);
            }
        });
        while server.url.is_empty() {
            let line = lines.recv_timeout(READY_TIMEOUT);
            let line =
                line.with_context(|| format!("`longhaul {}` is not ready", args.join(" ")))?;
            let line: Value = serde_json::from_str(&line).unwrap_or_default();
            if line["message"] == "ready" {
                server.url = line["url"].as_str().unwrap_or_default().to_owned();
            }
        }
        Ok(server)
    }
}

/// A running server.
#[derive(Debug)]
pub(crate) struct Server {
    process: Child,
    pub(crate) url: String,
}

impl Server {
    pub(crate) fn process_id(&self) -> u32 {
        self.process.id()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        _ = self.process.kill();
        _ = self.process.wait();
    }
}

/// API of a model provider.
#[derive(Debug, Clone, Copy, ValueEnum)]
pub(crate) enum ModelApi {
    /// Anthropic Messages API
    Anthropic,
    /// OpenAI Responses API
    Responses,
    /// OpenAI Chat Completions API
    Chat,
}

/// A server that plays scripts as the replies of a model provider.
#[derive(Debug)]
pub(crate) struct MockModel {
    _server: Option<Server>,
    api: ModelApi,
    url: String,
}

impl MockModel {
    /// Starts the server, which waits for `latency_ms` before each reply.
    pub(crate) fn start(
        binary: &LonghaulBinary,
        folder: &Path,
        (api, latency_ms): (ModelApi, u32),
        scripts: &[(String, String)],
    ) -> anyhow::Result<Self> {
        let script_folder = folder.join("scripts");
        std::fs::create_dir_all(&script_folder)?;
        for (name, script) in scripts {
            std::fs::write(script_folder.join(format!("{name}.yaml")), script)?;
        }
        let latency = format!("{latency_ms}ms");
        let args = ["mock-model", "--json", "--scripts", "scripts", "--latency", &latency];
        let server = binary.start_server(folder, &args)?;
        Ok(Self { url: server.url.clone(), _server: Some(server), api })
    }

    /// Uses a server that is running already.
    pub(crate) const fn at_url(api: ModelApi, url: String) -> Self {
        Self { _server: None, api, url }
    }

    /// Returns the project settings of a provider `mock` that is this server.
    pub(crate) fn provider_settings(&self) -> String {
        let (api, path) = match self.api {
            ModelApi::Anthropic => ("anthropic", ""),
            ModelApi::Responses => ("responses", "/v1"),
            ModelApi::Chat => ("chat", "/v1"),
        };
        format!("[providers.mock]\napi = \"{api}\"\nbase_url = \"{}{path}\"\n", self.url)
    }

    /// Returns the bytes that the server has received in requests, and its CPU time in
    /// microseconds.
    pub(crate) async fn received_bytes_and_cpu_us(&self) -> anyhow::Result<(f64, f64)> {
        let stats = ApiClient::new(&self.url, "")?.get("/stats").await?;
        let figure = |name: &str| stats[name].as_f64().context("the counters of the mock differ");
        Ok((figure("body_bytes")?, figure("cpu_us")?))
    }
}
