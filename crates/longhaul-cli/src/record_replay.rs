//! `--record` and `--replay`: a run on a cassette.
//!
//! Never: records what another process drives, for it is not heard here.

use std::path::PathBuf;
use std::sync::Arc;

use anyhow::Context as _;
use clap::Args;
use longhaul::assemble::redactor::build_redactor;
use longhaul::assemble::{ProjectRuntime, cassette_file, cassette_folder, replay_model_name};
use longhaul::config::process_env::ProcessEnv;
use longhaul_core::id::RunId;
use longhaul_model::cassette::{Header, Recorder};

use crate::error::CliError;
use crate::{environment, output, store_access};

/// What is done with a cassette.
#[derive(Debug, Args)]
pub(crate) struct CassetteArgs {
    /// Write every exchange with the model to .longhaul/cassettes/NAME.jsonl, without secrets, as
    /// long as this command drives; without a name the run's id is taken
    #[arg(long, value_name = "NAME", num_args = 0..=1, default_missing_value = "", require_equals = true, conflicts_with = "replay")]
    record: Option<String>,
    /// Ask no model: answer from this cassette, a name or a file. Another question than was
    /// recorded ends the run with the first difference
    #[arg(long, value_name = "CASSETTE", conflicts_with = "model")]
    replay: Option<String>,
    /// Replay whatever is asked: the turn alone says what is answered
    #[arg(long, requires = "replay")]
    loose: bool,
}

impl CassetteArgs {
    /// The model that a replay asks, if there is to be one.
    pub(crate) fn replay_model(&self, here: &ProcessEnv) -> anyhow::Result<Option<String>> {
        let Some(said) = &self.replay else {
            return Ok(None);
        };
        let config = environment::load_config_quietly(here)?;
        let model = replay_model_name(&config, said, self.loose);
        model.map(Some).map_err(|why| CliError::usage(why).into())
    }

    /// Whether the run is to be recorded.
    pub(crate) const fn is_recording(&self) -> bool {
        self.record.is_some()
    }

    /// Opens the store, listening; nobody else may drive it.
    pub(crate) fn start_recording(&self, here: &ProcessEnv) -> anyhow::Result<RecordingSession> {
        let config = environment::load_config_quietly(here)?;
        // A name that is none is told before anything is made.
        if let Some(name) = self.record.as_deref().filter(|name| !name.is_empty()) {
            cassette_file(&config, name).map_err(CliError::usage)?;
        }
        let recorder = Arc::new(Recorder::new(build_redactor(&config)));
        let folder = cassette_folder(&config);
        let opened = recorder.open(&folder);
        opened.with_context(|| format!("no cassette can be written to {}", folder.display()))?;
        let house = store_access::open_recording(here, Arc::clone(&recorder))?;
        Ok(RecordingSession {
            runtime: house,
            recorder,
            name: self.record.clone().unwrap_or_default(),
        })
    }
}

/// That somebody else drives, so that nothing is heard here.
pub(crate) fn not_driving_error() -> CliError {
    CliError::usage("--record needs to drive the run itself, and another process does")
        .hint("record it when it has ended", "longhaul export RUN --cassette")
}

/// A store that is driven here, and listened to.
#[derive(Debug)]
pub(crate) struct RecordingSession {
    pub(crate) runtime: ProjectRuntime,
    recorder: Arc<Recorder>,
    name: String,
}

impl RecordingSession {
    /// Begins the tape of a run, before anybody is asked anything.
    pub(crate) async fn begin_run(&self, run: RunId, agent: &str) -> anyhow::Result<()> {
        let now = self.runtime.longhaul.store_time().await?;
        let header = Header::new(run.to_string(), agent.to_owned(), now.to_string());
        let path = self.path(run)?;
        let begun = self.recorder.begin(run, &header, &path);
        begun.with_context(|| format!("{} can't be written", path.display()))
    }

    /// Says where the tape lies.
    pub(crate) fn finish(&self, silent: bool) -> anyhow::Result<()> {
        let written = self.recorder.finish().context("the cassette is not whole")?;
        if silent {
            return Ok(());
        }
        output::stderr_line(&match written {
            Some((path, exchanges)) => {
                format!("recorded {exchanges} exchanges: {}", path.display())
            }
            None => "nothing was asked, so nothing is recorded".to_owned(),
        });
        Ok(())
    }

    fn path(&self, run: RunId) -> anyhow::Result<PathBuf> {
        let name = match self.name.as_str() {
            "" => run.to_string(),
            name => name.to_owned(),
        };
        Ok(cassette_file(&self.runtime.config, &name).map_err(CliError::usage)?)
    }
}
