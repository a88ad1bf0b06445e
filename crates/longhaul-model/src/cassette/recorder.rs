//! Writes down what is asked and answered, beside a model that is really asked.
//!
//! Never: stands in the way. A tape that can't be written is told of at the end,
//! and the run goes on.

use std::fs::{File, OpenOptions};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use longhaul_core::failure::Failure;
use longhaul_core::id::RunId;
use longhaul_core::port::model::{CostEstimate, DeltaSink, Model, ModelRequest, ModelResponse};
use longhaul_core::port::redact::Redact as _;
use longhaul_core::redact::Redactor;

use crate::cassette::format::{Exchange, Header, RecordedRequest, RecordedResponse};

/// Somebody who records one run.
#[derive(Debug)]
pub struct Recorder {
    redactor: Redactor,
    state: Mutex<RecorderState>,
}

#[derive(Debug, Default)]
struct RecorderState {
    /// A file that waits for a run.
    pending_file: Option<(PathBuf, File)>,
    recording: Option<ActiveRecording>,
    exchange_count: usize,
    error: Option<std::io::Error>,
}

#[derive(Debug)]
struct ActiveRecording {
    run: RunId,
    /// Where it is written.
    temp_path: PathBuf,
    /// Where it lies when it is whole.
    path: PathBuf,
    file: File,
    previous: Option<ModelRequest>,
}

impl Recorder {
    /// A recorder that lets none of these secrets through.
    pub fn new(redactor: Redactor) -> Self {
        Self { redactor, state: Mutex::default() }
    }

    /// Makes sure that a tape can be written in this folder, before anything is
    /// begun that is to be on it.
    pub fn open(&self, folder: &Path) -> std::io::Result<()> {
        let mut builder = std::fs::DirBuilder::new();
        #[cfg(unix)]
        std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
        builder.recursive(true).create(folder)?;
        let draft = folder.join(format!("recording-{}.part", std::process::id()));
        let file = new_file(&draft)?;
        self.lock().pending_file = Some((draft, file));
        Ok(())
    }

    /// Begins the tape of this run, which takes the place of whatever lies at this
    /// path when it is whole, and not before.
    pub fn begin(&self, run: RunId, header: &Header, path: &Path) -> std::io::Result<()> {
        let mut state = self.lock();
        let (draft, mut file) = state.pending_file.take().ok_or(std::io::ErrorKind::NotFound)?;
        file.write_all(redacted_line(header, &self.redactor)?.as_bytes())?;
        state.recording = Some(ActiveRecording {
            run,
            temp_path: draft,
            path: path.to_owned(),
            file,
            previous: None,
        });
        Ok(())
    }

    /// The same model, listened to.
    pub fn wrap(self: &Arc<Self>, model: Arc<dyn Model>) -> RecordingModel {
        RecordingModel { model, recorder: Arc::clone(self) }
    }

    /// Puts an exchange on the tape, if it is of the run that is recorded.
    pub fn record(&self, ask: &ModelRequest, heard: &Result<ModelResponse, Failure>) {
        let Some(answer) = RecordedResponse::from_result(heard) else {
            return;
        };
        self.append(ask, answer);
    }

    /// Notes that a person cut the model off.
    pub fn record_interrupted(&self, ask: &ModelRequest) {
        self.append(ask, RecordedResponse::Interrupted);
    }

    fn append(&self, ask: &ModelRequest, answer: RecordedResponse) {
        let mut state = self.lock();
        let Some(tape) = state.recording.as_mut().filter(|tape| tape.run == ask.run) else {
            return;
        };
        let exchange = Exchange {
            turn: ask.turn,
            attempt: ask.attempt,
            model: ask.model.clone(),
            request: Some(RecordedRequest::from_request(ask, tape.previous.as_ref())),
            response: answer,
        };
        let written = redacted_line(&exchange, &self.redactor)
            .and_then(|line| tape.file.write_all(line.as_bytes()));
        tape.previous = Some(ask.clone());
        match written {
            Ok(()) => state.exchange_count += 1,
            Err(fault) => _ = state.error.get_or_insert(fault),
        }
    }

    /// Where the tape lies and how many exchanges are on it; none: there were none,
    /// and whatever was there before is still there.
    pub fn finish(&self) -> std::io::Result<Option<(PathBuf, usize)>> {
        let mut state = self.lock();
        let written = state.exchange_count;
        let Some(tape) = state.recording.take() else {
            return Ok(None);
        };
        let fault = state.error.take();
        drop(state);
        if written == 0 || fault.is_some() {
            _ = std::fs::remove_file(&tape.temp_path);
            return fault.map_or(Ok(None), Err);
        }
        tape.file.sync_all()?;
        std::fs::rename(&tape.temp_path, &tape.path)?;
        Ok(Some((tape.path, written)))
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, RecorderState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Recorder {
    /// A tape that was never ended stays a draft; a file that never became one goes.
    fn drop(&mut self) {
        if let Some((draft, _)) = self.lock().pending_file.take() {
            _ = std::fs::remove_file(draft);
        }
    }
}

/// A file that only its owner reads: a conversation is nobody else's business.
fn new_file(path: &Path) -> std::io::Result<File> {
    // What a killed process of the same number left, or a link that waits for us.
    _ = std::fs::remove_file(path);
    let mut options = OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options.open(path)
}

fn redacted_line(value: &impl serde::Serialize, redactor: &Redactor) -> std::io::Result<String> {
    let mut line = redactor.redact_json_strings(&serde_json::to_string(value)?);
    line.push('\n');
    Ok(line)
}

/// A model that is listened to.
#[derive(Debug)]
pub struct RecordingModel {
    model: Arc<dyn Model>,
    recorder: Arc<Recorder>,
}

#[async_trait]
impl Model for RecordingModel {
    fn estimate(&self, ask: &ModelRequest) -> CostEstimate {
        self.model.estimate(ask)
    }

    async fn generate(
        &self,
        ask: &ModelRequest,
        ear: &dyn DeltaSink,
    ) -> Result<ModelResponse, Failure> {
        let heard = self.model.generate(ask, ear).await;
        self.recorder.record(ask, &heard);
        heard
    }
}
