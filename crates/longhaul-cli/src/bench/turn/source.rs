//! Where the replies of a life come from: this process, or a mock behind a wire.
//!
//! Never: a model that decides anything. The same turns are asked of both.

use std::fmt;
use std::path::Path;
use std::sync::Arc;

use anyhow::Context as _;
use clap::ValueEnum;
use longhaul_core::port::model::Model;
use longhaul_core::time::Clock;
use longhaul_engine::clock::SystemClock;
use longhaul_model::chat::Quirks;
use longhaul_model::http::{Http, Limits};
use longhaul_model::scripted::{Script, ScriptedModel};
use longhaul_model::settings::Settings;
use longhaul_model::{anthropic, chat, responses};
use serde::Serialize;

/// Wide enough for every life: nothing is to be summed up.
const WINDOW_TOKENS: u64 = 1 << 40;

/// The provider, as failures name it.
const PROVIDER: &str = "mock";

/// The wire that a mock is asked over.
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

/// Who replies.
#[derive(Debug, Clone)]
pub(crate) enum Source {
    /// A scripted model, right here.
    Here,
    /// A mock at this address, by the real adapter.
    Wire { wire: Wire, url: String },
}

impl Source {
    /// A model that calls the tool so many times, and then ends. A mock must
    /// have the script for it.
    pub(crate) fn model(&self, turns: u32) -> anyhow::Result<Arc<dyn Model>> {
        let clock: Arc<dyn Clock> = Arc::new(SystemClock);
        let (wire, url) = match self {
            Self::Here => {
                let script = Script::parse("bench", &script(turns))?;
                return Ok(Arc::new(ScriptedModel::new("bench", script, clock)));
            }
            Self::Wire { wire, url } => (*wire, url),
        };
        let http = Http::new(&format!("{url}/v1"), Limits::default())?;
        let mut settings = Settings::new(PROVIDER, name(turns), None);
        settings.tariff.window_tokens = WINDOW_TOKENS;
        let made = match wire {
            Wire::Anthropic => anthropic::model(http, settings, clock),
            Wire::Responses => responses::model(http, settings, clock),
            Wire::Chat => chat::model(http, settings, Quirks::of(PROVIDER), clock),
        };
        Ok(made?)
    }
}

/// Writes the script of so many turns where a mock will look for it.
pub(crate) fn write_script(folder: &Path, turns: u32) -> anyhow::Result<()> {
    let file = folder.join(format!("{}.yaml", name(turns)));
    std::fs::write(&file, script(turns)).context("a script can't be written")
}

fn name(turns: u32) -> String {
    format!("turns-{turns}")
}

fn script(turns: u32) -> String {
    format!(
        "replies:\n  - text: \"Looking at the next one.\"\n    tools: [{{ name: echo, input: {{ n: 1 }} }}]\n    \
         usage: {{ input_tokens: 1000, output_tokens: 20 }}\n  - text: \"Done.\"\nloop: {{ from: 0, to: 1, times: {turns} }}\n"
    )
}
