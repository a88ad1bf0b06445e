//! The model of a measured run: scripted in this process, or a mock behind HTTP. The mock is a
//! separate process, so that its CPU time is not counted as part of the run.

use std::fmt;
use std::path::Path;
use std::process::Stdio;
use std::sync::Arc;

use anyhow::Context as _;
use clap::ValueEnum;
use longhaul_core::port::model::Model;
use longhaul_core::time::{Clock, Millis};
use longhaul_engine::clock::SystemClock;
use longhaul_model::chat::ServerQuirks;
use longhaul_model::http::{HttpClient, HttpLimits};
use longhaul_model::scripted::{Script, ScriptedModel};
use longhaul_model::settings::ModelSettings;
use longhaul_model::{anthropic, chat, responses};
use serde::{Deserialize, Serialize};

use crate::bench::client::BenchClient;
use crate::child_process::ChildProcess;

/// Size of the model's context window. No run reaches that size, so no conversation is compacted.
const WINDOW_TOKENS: u64 = 1 << 40;

/// Name of the mock as a provider, used in error messages.
const PROVIDER: &str = "mock";

/// Provider API that the mock model is called with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum MockModelApi {
    /// Anthropic Messages API
    Anthropic,
    /// OpenAI Responses API
    Responses,
    /// OpenAI Chat Completions API
    Chat,
}

impl fmt::Display for MockModelApi {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Anthropic => "anthropic",
            Self::Responses => "responses",
            Self::Chat => "chat",
        })
    }
}

/// Source of the model replies in a benchmark.
#[derive(Debug, Clone)]
pub(crate) enum ModelSource {
    /// A scripted model in this process that makes `calls` tool calls per turn.
    Scripted { calls: u32 },
    /// A mock model server at `url`, called through the real adapter of the API `wire`.
    Mock { wire: MockModelApi, url: String },
}

impl ModelSource {
    /// Creates a model that calls the benchmark's tool for `turns` turns and then ends the run. A
    /// mock must have been started with a script of that length.
    pub(crate) fn create_model(&self, turns: u32) -> anyhow::Result<Arc<dyn Model>> {
        let clock: Arc<dyn Clock> = Arc::new(SystemClock);
        let (wire, url) = match self {
            Self::Scripted { calls } => {
                let script = Script::parse_yaml("bench", &bench_script_text(turns, *calls))?;
                return Ok(Arc::new(ScriptedModel::new("bench", script, clock)));
            }
            Self::Mock { wire, url } => (*wire, url),
        };
        let http = HttpClient::new(&format!("{url}/v1"), HttpLimits::default())?;
        let mut settings = ModelSettings::new(PROVIDER, bench_script_name(turns), None);
        settings.pricing.window_tokens = WINDOW_TOKENS;
        Ok(match wire {
            MockModelApi::Anthropic => anthropic::new_model(http, settings, clock),
            MockModelApi::Responses => responses::new_model(http, settings, clock),
            MockModelApi::Chat => {
                chat::new_model(http, settings, ServerQuirks::for_provider(PROVIDER), clock)
            }
        }?)
    }
}

fn bench_script_name(turns: u32) -> String {
    format!("turns-{turns}")
}

fn bench_script_text(turns: u32, calls_per_turn: u32) -> String {
    // Each call has another input, because calls with the same rule match text run sequentially.
    let calls = (1..=calls_per_turn).map(|n| format!("{{ name: echo, input: {{ n: {n} }} }}"));
    let calls = calls.collect::<Vec<_>>().join(", ");
    format!(
        "replies:\n  - text: \"Looking at the next one.\"\n    tools: [{calls}]\n    \
         usage: {{ input_tokens: 1000, output_tokens: 20 }}\n  - text: \"Done.\"\n\
         loop: {{ from: 0, to: 1, times: {turns} }}\n"
    )
}

/// A running mock model server. The server's process ends when this value is dropped.
#[derive(Debug)]
pub(crate) struct MockModelProcess {
    _process: ChildProcess,
    pub(crate) url: String,
}

/// Counters that a mock model server reports: bytes received and CPU time used.
#[derive(Debug, Clone, Copy, Deserialize)]
pub(crate) struct MockModelStats {
    pub(crate) body_bytes: u64,
    pub(crate) cpu_us: f64,
}

impl MockModelProcess {
    /// Starts a mock model server in this folder, with this latency and one script for each number
    /// of turns.
    pub(crate) fn start(folder: &Path, latency: Millis, turns: &[u32]) -> anyhow::Result<Self> {
        let scripts = folder.join("scripts");
        std::fs::create_dir_all(&scripts)?;
        for turns in turns {
            let file = scripts.join(format!("{}.yaml", bench_script_name(*turns)));
            std::fs::write(file, bench_script_text(*turns, 1))
                .context("the script can't be written")?;
        }
        let latency = format!("{}ms", latency.0);
        let args = ["mock-model", "--listen", "127.0.0.1:0", "--json", "--until-eof"];
        let args = [&args[..], &["--scripts", "scripts", "--latency", &latency]].concat();
        let mut command = ChildProcess::build_longhaul_command(&args, folder, std::env::vars_os())?;
        let (process, url) =
            ChildProcess::start_server_and_get_url(command.stdout(Stdio::piped()))?;
        Ok(Self { _process: process, url })
    }

    /// Returns a model source that calls this mock with the given API.
    pub(crate) fn model_source(&self, api: MockModelApi) -> ModelSource {
        let url = self.url.clone();
        ModelSource::Mock { wire: api, url }
    }
}

/// Reads the counters of the mock at this URL, over a separate connection.
pub(crate) async fn fetch_mock_model_stats(url: &str) -> anyhow::Result<MockModelStats> {
    let mut client = BenchClient::connect(url, "").await?;
    let (_, stats) = client.send_and_read_response("GET", "/stats", "").await?;
    serde_json::from_value(stats).context("the counters of the mock can't be read")
}
