//! `longhaul export`: exports an ended run as a cassette, a recording that can be replayed, with
//! secrets redacted.

use anyhow::Context as _;
use clap::Args;
use longhaul_engine::handle::ModelCallOutcome;
use longhaul_project::assemble::cassette_file_path;
use serde_json::json;

use crate::client::Client;
use crate::error::{CliError, fail};
use crate::format::count_with_noun;
use crate::record_replay::{RecordingSession, create_recorder};
use crate::{environment, output, resolve, runtime, store_access};

const EXAMPLES: &str = "Examples:
  longhaul export @last --cassette             to .longhaul/cassettes/RUN.jsonl
  longhaul export @last --cassette tidy        to .longhaul/cassettes/tidy.jsonl
  longhaul run writer \"...\" --replay tidy     replay it without calling a model

Values of `[secrets] names` and of provider keys are redacted. Messages that people sent to
the run are not on a cassette: a replay reports the difference at that turn.";

/// Arguments of `longhaul export`.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct ExportRunCommand {
    /// Run to export: its id, four or more of its first or last characters, or @last
    run: String,
    /// Name of the cassette, i.e. of the recording; without a name the run's id is used
    #[arg(long, value_name = "NAME", num_args = 0..=1, default_missing_value = "", required = true)]
    cassette: Option<String>,
    /// Print the result as one JSON object
    #[arg(long)]
    json: bool,
}

impl ExportRunCommand {
    pub(crate) fn run(&self) -> anyhow::Result<()> {
        let runtime = store_access::open_existing_store_as_observer()?
            .ok_or_else(store_access::no_runs_error)?;
        // The secrets to redact may be in the project's `.env`.
        let config_with_dotenv = environment::load_config_quietly(
            &environment::add_dotenv_variables(environment::current_process_env()?)?,
        )?;
        let client = Client::for_store(&runtime)?;
        let name = self.cassette.clone().unwrap_or_default();
        if !name.is_empty() {
            cassette_file_path(&runtime.config, &name).map_err(CliError::usage_error)?;
        }
        runtime::block_on(async {
            let run = resolve::resolve_run_id(&client, &self.run).await?;
            let view = client.get_run(run).await?;
            if !view.status.is_terminal() {
                let message = format!("{run} has not ended, so its conversation is incomplete");
                return fail(message, "follow the run", format!("longhaul watch {run}"));
            }
            let recorder = create_recorder(&config_with_dotenv)?;
            let session = RecordingSession { runtime, recorder, name };
            session.begin_cassette(run, &view.agent).await?;
            let (longhaul, recorder) = (&session.runtime.longhaul, &session.recorder);
            let recording = longhaul.for_each_model_call(run, |request, outcome| match outcome {
                ModelCallOutcome::Reply(reply) => recorder.record_exchange(request, &Ok(reply)),
                ModelCallOutcome::Failure(error) => recorder.record_exchange(request, &Err(error)),
                ModelCallOutcome::Interrupted => recorder.record_interruption(request),
            });
            recording.await?;
            let file = recorder
                .finish_and_count_exchanges()
                .with_context(|| format!("the cassette of {run} can't be written"))?;
            let Some((path, exchanges)) = file else {
                let message = format!("{run} has called no model, so there is nothing to export");
                return Err(CliError::usage_error(message).into());
            };
            let data = json!({ "run": run, "cassette": path, "exchanges": exchanges });
            output::show(self.json, &data, |_| {
                output::print_line(&path.display().to_string())?;
                let count = count_with_noun(exchanges, "model exchange");
                output::eprint_line(&format!("exported {count} of {run}"));
                Ok(())
            })
        })
    }
}
