//! `longhaul export`: exports an ended run as a cassette, a recording that can be replayed, with
//! secrets redacted.

use anyhow::Context as _;
use clap::Args;
use longhaul_core::id::RunId;
use longhaul_engine::handle::ModelCallOutcome;
use longhaul_model::cassette::{CassetteHeader, CassetteRecorder};
use longhaul_project::assemble::redactor::build_redactor;
use longhaul_project::assemble::{cassette_file_path, cassette_folder};
use serde_json::json;

use crate::client::Client;
use crate::error::CliError;
use crate::format::format_model_exchange_count;
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
    /// Run to export: its id, the last six characters of the id, or @last
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
        runtime::build_single_thread_tokio()?.block_on(async {
            let run = resolve::resolve_run_id(&client, &self.run).await?;
            let view = client.get_run(run).await?;
            if !view.status.is_terminal() {
                let message = format!("{run} has not ended, so its conversation is incomplete");
                return Err(CliError::usage_error(message)
                    .with_hint("follow the run", format!("longhaul watch {run}"))
                    .into());
            }
            let path = self.cassette_path(&runtime.config, run)?;
            let folder = cassette_folder(&runtime.config);
            let recorder = CassetteRecorder::new(build_redactor(&config_with_dotenv));
            let folder_message = || format!("cassettes can't be written to {}", folder.display());
            recorder.create_temp_file(&folder).with_context(folder_message)?;
            let now = runtime.longhaul.store_time().await?;
            let header = CassetteHeader::new(run.to_string(), view.agent, now.to_string());
            let file_message = || format!("{} can't be written", path.display());
            recorder.start_recording(run, &header, &path).with_context(file_message)?;
            let recording =
                runtime.longhaul.for_each_model_call(run, |request, outcome| match outcome {
                    ModelCallOutcome::Reply(response) => {
                        recorder.record_exchange(request, &Ok(response))
                    }
                    ModelCallOutcome::Failure(failure) => {
                        recorder.record_exchange(request, &Err(failure))
                    }
                    ModelCallOutcome::Interrupted => recorder.record_interruption(request),
                });
            recording.await?;
            let cassette_file = recorder.finish_and_count_exchanges().with_context(file_message)?;
            let Some((path, exchanges)) = cassette_file else {
                let message = format!("{run} has called no model, so there is nothing to export");
                return Err(CliError::usage_error(message).into());
            };
            if self.json {
                return output::print_json(
                    &json!({ "run": run, "cassette": path, "exchanges": exchanges }),
                );
            }
            output::print_line(&path.display().to_string())?;
            output::eprint_line(&format!(
                "exported {} of {run}",
                format_model_exchange_count(exchanges)
            ));
            Ok(())
        })
    }

    fn cassette_path(
        &self,
        config: &longhaul_project::config::settings::Config,
        run: RunId,
    ) -> anyhow::Result<std::path::PathBuf> {
        let name = self.cassette.as_deref().filter(|name| !name.is_empty());
        let name = name.map_or_else(|| run.to_string(), str::to_owned);
        cassette_file_path(config, &name).map_err(|reason| CliError::usage_error(reason).into())
    }
}
