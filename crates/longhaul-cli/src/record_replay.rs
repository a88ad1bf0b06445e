//! `--record` and `--replay`: records the model calls of a run to a file called cassette, and
//! replays them. Only runs that this process drives can be recorded.

use std::sync::Arc;

use anyhow::Context as _;
use clap::Args;
use longhaul::project::{ProjectOpenOptions, ProjectRuntime, open_runtime};
use longhaul_core::id::RunId;
use longhaul_model::cassette::{CassetteHeader, CassetteRecorder};
use longhaul_project::assemble::redactor::build_redactor;
use longhaul_project::assemble::{
    cassette_file_path, cassette_folder, prepare_cassette_replay_model,
};
use longhaul_project::config::process_env::ProcessEnv;
use longhaul_project::config::settings::Config;
use longhaul_store::OpenMode;

use crate::error::CliError;
use crate::format::count_with_noun;
use crate::store_access::store_open_options;
use crate::{environment, output};

/// Command-line options for recording and replaying model calls.
#[derive(Debug, Args)]
pub(crate) struct CassetteArgs {
    /// Record every model call to .longhaul/cassettes/NAME.jsonl, with secrets redacted, while this
    /// command drives the run; without a name the run's id is used
    #[arg(long, value_name = "NAME", num_args = 0..=1, default_missing_value = "", require_equals = true, conflicts_with = "replay")]
    pub(crate) record: Option<String>,
    /// Call no model, but replay the replies of this cassette, given as a name or a file. A request
    /// that differs from the recorded one fails the run and shows the first difference
    #[arg(long, value_name = "CASSETTE", conflicts_with = "model")]
    pub(crate) replay: Option<String>,
    /// Replay replies by turn number only, even if the requests differ
    #[arg(long, requires = "replay")]
    loose: bool,
}

impl CassetteArgs {
    /// Returns the name of the model that replays the cassette in `--replay`, if the option is
    /// given.
    pub(crate) fn replay_model_from_args(
        &self,
        process_env: &ProcessEnv,
    ) -> anyhow::Result<Option<String>> {
        let Some(cassette) = &self.replay else {
            return Ok(None);
        };
        let config = environment::load_config_quietly(process_env)?;
        let model = prepare_cassette_replay_model(&config, cassette, self.loose);
        model.map(Some).map_err(|reason| CliError::usage_error(reason).into())
    }

    /// Opens the store to drive (execute) the run and record its model calls. Fails if another
    /// process executes the runs of the store.
    pub(crate) fn open_store_for_recording(
        &self,
        process_env: &ProcessEnv,
    ) -> anyhow::Result<RecordingSession> {
        let config = environment::load_config_quietly(process_env)?;
        // An invalid name is reported before anything is created.
        if let Some(name) = self.record.as_deref().filter(|name| !name.is_empty()) {
            cassette_file_path(&config, name).map_err(CliError::usage_error)?;
        }
        let recorder = create_recorder(&config)?;
        let options = ProjectOpenOptions {
            recorder: Some(Arc::clone(&recorder)),
            ..store_open_options(OpenMode::Driver)
        };
        let runtime = open_runtime(environment::load_config(process_env)?, options)?;
        Ok(RecordingSession { runtime, recorder, name: self.record.clone().unwrap_or_default() })
    }
}

/// Creates a recorder of model calls, which redacts the secrets of these settings.
pub(crate) fn create_recorder(config: &Config) -> anyhow::Result<Arc<CassetteRecorder>> {
    let recorder = Arc::new(CassetteRecorder::new(build_redactor(config)));
    let folder = cassette_folder(config);
    let result = recorder.create_temp_file(&folder);
    result.with_context(|| format!("cassettes can't be written to {}", folder.display()))?;
    Ok(recorder)
}

/// A project whose runs this process drives (executes), and the recorder of their model calls.
#[derive(Debug)]
pub(crate) struct RecordingSession {
    pub(crate) runtime: ProjectRuntime,
    pub(crate) recorder: Arc<CassetteRecorder>,
    /// Name of the cassette. Empty if it has the name of the run.
    pub(crate) name: String,
}

impl RecordingSession {
    /// Starts the cassette (the file in which model calls are recorded) for a run, before the first
    /// model call of the run.
    pub(crate) async fn begin_cassette(&self, run: RunId, agent: &str) -> anyhow::Result<()> {
        let now = self.runtime.longhaul.store_time().await?;
        let header = CassetteHeader::new(run.to_string(), agent.to_owned(), now.to_string());
        let name = if self.name.is_empty() { run.to_string() } else { self.name.clone() };
        let path =
            cassette_file_path(&self.runtime.config, &name).map_err(CliError::usage_error)?;
        let result = self.recorder.start_recording(run, &header, &path);
        result.with_context(|| format!("{} can't be written", path.display()))
    }

    /// Finishes the cassette (the file in which model calls are recorded) and prints its path,
    /// unless `silent`.
    pub(crate) fn finish_cassette(&self, silent: bool) -> anyhow::Result<()> {
        let cassette_file =
            self.recorder.finish_and_count_exchanges().context("the cassette is incomplete")?;
        let text = match cassette_file {
            Some((path, exchanges)) => {
                let count = count_with_noun(exchanges, "model exchange");
                format!("recorded {count} in {}", path.display())
            }
            None => "no model was called, so nothing was recorded".to_owned(),
        };
        if !silent {
            output::eprint_line(&text);
        }
        Ok(())
    }
}
