//! `longhaul export`: a run in a form that others can use: as a cassette.
//!
//! Never: a secret in it, or a run that is still under way.

use anyhow::Context as _;
use clap::Args;
use longhaul::assemble::redactor::build_redactor;
use longhaul::assemble::{cassette_file, cassette_folder};
use longhaul_core::id::RunId;
use longhaul_engine::handle::ModelCallOutcome;
use longhaul_model::cassette::{Header, Recorder};
use serde_json::json;

use crate::client::RunClient;
use crate::error::CliError;
use crate::{environment, output, resolve, runtime, store_access};

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
    pub(crate) fn run(&self) -> anyhow::Result<()> {
        let house = store_access::observe_if_exists()?.ok_or_else(store_access::no_runs_error)?;
        // The secrets that are left out may stand in the project's `.env`.
        let secrets = environment::load_config_quietly(&environment::with_dotenv(
            environment::process_env()?,
        )?)?;
        let client = RunClient::local(&house.longhaul);
        runtime::current_thread()?.block_on(async {
            let run = resolve::resolve_run(&client, &self.run).await?;
            let view = client.show(run).await?;
            if !view.status.is_terminal() {
                let words = format!("{run} has not ended, so its conversation is not whole");
                return Err(CliError::usage(words)
                    .hint("follow it", format!("longhaul watch {run}"))
                    .into());
            }
            let path = self.path(&house.config, run)?;
            let folder = cassette_folder(&house.config);
            let recorder = Recorder::new(build_redactor(&secrets));
            let unwritten = || format!("no cassette can be written to {}", folder.display());
            recorder.open(&folder).with_context(unwritten)?;
            let now = house.longhaul.store_time().await?;
            let header = Header::new(run.to_string(), view.agent, now.to_string());
            let unwritten = || format!("{} can't be written", path.display());
            recorder.begin(run, &header, &path).with_context(unwritten)?;
            let exchanges = house.longhaul.for_each_model_call(run, |ask, came| match came {
                ModelCallOutcome::Reply(answered) => recorder.record(ask, &Ok(answered)),
                ModelCallOutcome::Failure(failure) => recorder.record(ask, &Err(failure)),
                ModelCallOutcome::Interrupted => recorder.record_interrupted(ask),
            });
            exchanges.await?;
            let written = recorder.finish().with_context(unwritten)?;
            let Some((path, exchanges)) = written else {
                let words = format!("{run} has asked no model, so there is nothing to export");
                return Err(CliError::usage(words).into());
            };
            if self.json {
                return output::stdout_json(
                    &json!({ "run": run, "cassette": path, "exchanges": exchanges }),
                );
            }
            output::stdout_line(&path.display().to_string())?;
            output::stderr_line(&format!("{exchanges} exchanges of {run}"));
            Ok(())
        })
    }

    fn path(
        &self,
        config: &longhaul::config::settings::Config,
        run: RunId,
    ) -> anyhow::Result<std::path::PathBuf> {
        let name = self.cassette.as_deref().filter(|name| !name.is_empty());
        let name = name.map_or_else(|| run.to_string(), str::to_owned);
        cassette_file(config, &name).map_err(|why| CliError::usage(why).into())
    }
}
