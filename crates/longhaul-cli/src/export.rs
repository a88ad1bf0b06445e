//! `longhaul export`: a run in a form that others can use: as a cassette.
//!
//! Never: a secret in it, or a run that is still under way.

use anyhow::Context as _;
use clap::Args;
use longhaul::assemble::redactor::known_secrets;
use longhaul::assemble::{cassette_file, cassette_folder};
use longhaul_core::id::RunId;
use longhaul_engine::handle::Came;
use longhaul_model::cassette::{Header, Recorder};
use serde_json::json;

use crate::desk::Desk as _;
use crate::desk::here::Here;
use crate::exit::Exit;
use crate::fail::{self, Failure};
use crate::{here, name, open, runtime, say};

const EXAMPLES: &str = "Examples:
  longhaul export @last --cassette             to .longhaul/cassettes/RUN.jsonl
  longhaul export @last --cassette tidy        to .longhaul/cassettes/tidy.jsonl
  longhaul run writer \"...\" --replay tidy     the same conversation again, asking nobody

Values of `[secrets] names` and of providers' keys are left out. What a person wrote to
the run is not on a cassette: a replay that lacks it says so at that turn.";

/// Writes a run down for others.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Export {
    /// The run: its id, the last six letters of it, or @last
    run: String,
    /// As a cassette of this name; without a name the run's id is taken
    #[arg(long, value_name = "NAME", num_args = 0..=1, default_missing_value = "", required = true)]
    cassette: Option<String>,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

impl Export {
    pub(crate) fn run(&self) -> anyhow::Result<Exit> {
        let house = open::look_if_there()?.ok_or_else(open::nothing_here)?;
        // The secrets that are left out may stand in the project's `.env`.
        let secrets = here::quiet_config(&here::with_env_file(here::surroundings()?)?)?;
        let desk = Here::new(&house.longhaul);
        runtime::small()?.block_on(async {
            let run = name::run(&desk, &self.run).await?;
            let view = desk.show(run).await.map_err(fail::about_run(run))?;
            if !view.status.is_terminal() {
                let words = format!("{run} has not ended, so its conversation is not whole");
                return Err(Failure::usage(words)
                    .hint("follow it", format!("longhaul watch {run}"))
                    .into());
            }
            let path = self.path(&house.config, run)?;
            let folder = cassette_folder(&house.config);
            let recorder = Recorder::new(known_secrets(&secrets));
            let opened = recorder.open(&folder);
            opened
                .with_context(|| format!("no cassette can be written to {}", folder.display()))?;
            let now = house.longhaul.now().await.map_err(fail::engine)?;
            let header = Header::new(run.to_string(), view.agent, now.to_string());
            recorder
                .begin(run, &header, &path)
                .with_context(|| format!("{} can't be written", path.display()))?;
            let told = house.longhaul.exchanges(run, |ask, came| match came {
                Came::Reply(answered) => recorder.note(ask, &Ok(answered)),
                Came::Failure(failure) => recorder.note(ask, &Err(failure)),
                Came::CutOff => recorder.note_cut_off(ask),
            });
            told.await.map_err(fail::engine)?;
            let written = recorder.finish();
            let written =
                written.with_context(|| format!("{} can't be written", path.display()))?;
            let Some((path, exchanges)) = written else {
                let words = format!("{run} has asked no model, so there is nothing to export");
                return Err(Failure::usage(words).into());
            };
            match self.json {
                true => say::json(
                    &json!({ "run": run, "cassette": path, "exchanges": exchanges }).to_string(),
                )?,
                false => {
                    say::data(&path.display().to_string())?;
                    say::talk(&format!("{exchanges} exchanges of {run}"));
                }
            }
            Ok(Exit::Done)
        })
    }

    fn path(
        &self,
        config: &longhaul::config::settings::Config,
        run: RunId,
    ) -> anyhow::Result<std::path::PathBuf> {
        let name = self.cassette.as_deref().filter(|name| !name.is_empty());
        let name = name.map_or_else(|| run.to_string(), str::to_owned);
        cassette_file(config, &name).map_err(|why| Failure::usage(why).into())
    }
}
