//! The model of a run that is measured: scripted in this process, or behind HTTP in a mock, which
//! is this program in a process of its own, so that only the asking is counted here.

use std::fmt;
use std::path::Path;
use std::process::Stdio;
use std::sync::Arc;

use anyhow::Context as _;
use clap::ValueEnum;
use longhaul_core::port::model::Model;
use longhaul_core::time::{Clock, Millis};
use longhaul_engine::clock::SystemClock;
use longhaul_model::chat::Quirks;
use longhaul_model::http::{Http, Limits};
use longhaul_model::scripted::{Script, ScriptedModel};
use longhaul_model::settings::Settings;
use longhaul_model::{anthropic, chat, responses};
use serde::{Deserialize, Serialize};

use crate::bench::client::BenchClient;
use crate::child_process::ChildProcess;

/// Wide enough for every run: nothing is to be summed up.
const WINDOW_TOKENS: u64 = 1 << 40;

/// The provider, as failures name it.
const PROVIDER: &str = "mock";

/// The API that a mock is asked over.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Wire {
    /// Anthropic Messages
    Anthropic,
    /// OpenAI Responses
    Responses,
    /// OpenAI Chat Completions
    Chat,
}

impl fmt::Display for Wire {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Anthropic => "anthropic",
            Self::Responses => "responses",
            Self::Chat => "chat",
        })
    }
}

/// Where the replies come from.
#[derive(Debug, Clone)]
pub(crate) enum ModelSource {
    /// A scripted model with so many calls a turn.
    Scripted { calls: u32 },
    /// A mock at this address, by the real adapter.
    Mock { wire: Wire, url: String },
}

impl ModelSource {
    /// A model that calls the tool for so many turns, and then ends. A mock must have the script.
    pub(crate) fn model(&self, turns: u32) -> anyhow::Result<Arc<dyn Model>> {
        let clock: Arc<dyn Clock> = Arc::new(SystemClock);
        let (wire, url) = match self {
            Self::Scripted { calls } => {
                let script = Script::parse("bench", &script_text(turns, *calls))?;
                return Ok(Arc::new(ScriptedModel::new("bench", script, clock)));
            }
            Self::Mock { wire, url } => (*wire, url),
        };
        let http = Http::new(&format!("{url}/v1"), Limits::default())?;
        let mut settings = Settings::new(PROVIDER, script_name(turns), None);
        settings.pricing.window_tokens = WINDOW_TOKENS;
        Ok(match wire {
            Wire::Anthropic => anthropic::model(http, settings, clock),
            Wire::Responses => responses::model(http, settings, clock),
            Wire::Chat => chat::model(http, settings, Quirks::for_provider(PROVIDER), clock),
        }?)
    }
}

fn script_name(turns: u32) -> String {
    format!("turns-{turns}")
}

fn script_text(turns: u32, calls: u32) -> String {
    // Each about something else: calls about the same thing go one after another.
    let calls = (1..=calls).map(|n| format!("{{ name: echo, input: {{ n: {n} }} }}"));
    let calls = calls.collect::<Vec<_>>().join(", ");
    format!(
        "replies:\n  - text: \"Looking at the next one.\"\n    tools: [{calls}]\n    \
         usage: {{ input_tokens: 1000, output_tokens: 20 }}\n  - text: \"Done.\"\n\
         loop: {{ from: 0, to: 1, times: {turns} }}\n"
    )
}

/// A mock under way.
#[derive(Debug)]
pub(crate) struct MockProcess {
    _process: ChildProcess,
    pub(crate) url: String,
}

/// What a mock has counted.
#[derive(Debug, Clone, Copy, Deserialize)]
pub(crate) struct MockStats {
    pub(crate) body_bytes: u64,
    pub(crate) cpu_us: f64,
}

impl MockProcess {
    /// Starts a mock in this folder that answers after so long, with scripts of so many turns.
    pub(crate) fn start(folder: &Path, latency: Millis, turns: &[u32]) -> anyhow::Result<Self> {
        let scripts = folder.join("scripts");
        std::fs::create_dir_all(&scripts)?;
        for turns in turns {
            let file = scripts.join(format!("{}.yaml", script_name(*turns)));
            std::fs::write(file, script_text(*turns, 1)).context("a script can't be written")?;
        }
        let latency = format!("{}ms", latency.0);
        let args = ["mock-model", "--listen", "127.0.0.1:0", "--json", "--until-eof"];
        let args = [&args[..], &["--scripts", "scripts", "--latency", &latency]].concat();
        let mut command = ChildProcess::command(&args, folder, std::env::vars_os())?;
        let (process, url) = ChildProcess::start_server(command.stdout(Stdio::piped()))?;
        Ok(Self { _process: process, url })
    }

    /// The model source that this mock is.
    pub(crate) fn source(&self, wire: Wire) -> ModelSource {
        let url = self.url.clone();
        ModelSource::Mock { wire, url }
    }
}

/// What the mock at this address has counted so far, over a connection of its own.
pub(crate) async fn fetch_mock_stats(url: &str) -> anyhow::Result<MockStats> {
    let mut client = BenchClient::connect(url, "").await?;
    let (_, stats) = client.send("GET", "/stats", "").await?;
    serde_json::from_value(stats).context("the mock has counted nothing")
}
