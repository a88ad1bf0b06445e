//! Records the requests to a model and its responses.
//!
//! Invariant: an error while recording never affects the run. The error is returned when the
//! recording is finished.

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

use crate::cassette::format::{
    CassetteHeader, RecordedExchange, RecordedRequest, RecordedResponse,
};

/// Recorder that writes the model requests and responses of one run to a cassette file.
#[derive(Debug)]
pub struct CassetteRecorder {
    redactor: Redactor,
    state: Mutex<RecorderState>,
}

#[derive(Debug, Default)]
struct RecorderState {
    /// Temporary file for the recording of the run, created before the run, with its path. `None`
    /// if it was not created, or if the recording has begun.
    pending_file: Option<(PathBuf, File)>,
    recording: Option<ActiveRecording>,
    exchange_count: usize,
    error: Option<std::io::Error>,
}

#[derive(Debug)]
struct ActiveRecording {
    run: RunId,
    /// Path of the temporary file that the recording is written to.
    temp_path: PathBuf,
    /// Path that the finished cassette is moved to.
    path: PathBuf,
    file: File,
    previous: Option<ModelRequest>,
}

impl CassetteRecorder {
    /// Creates a recorder. `redactor` removes secrets from everything that is recorded.
    pub fn new(redactor: Redactor) -> Self {
        Self { redactor, state: Mutex::default() }
    }

    /// Creates the temporary file for a recording in the given folder. Called before the run
    /// starts, so that a folder that can't be written to is reported early.
    pub fn create_temp_file(&self, folder: &Path) -> std::io::Result<()> {
        let mut builder = std::fs::DirBuilder::new();
        #[cfg(unix)]
        std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
        builder.recursive(true).create(folder)?;
        let temp_path = folder.join(format!("recording-{}.part", std::process::id()));
        let file = create_private_file(&temp_path)?;
        self.lock().pending_file = Some((temp_path, file));
        Ok(())
    }

    /// Starts recording the given run. A file at `path` is replaced only when the recording is
    /// complete.
    pub fn start_recording(
        &self,
        run: RunId,
        header: &CassetteHeader,
        path: &Path,
    ) -> std::io::Result<()> {
        let mut state = self.lock();
        let (temp_path, mut file) =
            state.pending_file.take().ok_or(std::io::ErrorKind::NotFound)?;
        file.write_all(json_line(header, &self.redactor)?.as_bytes())?;
        state.recording =
            Some(ActiveRecording { run, temp_path, path: path.to_owned(), file, previous: None });
        Ok(())
    }

    /// Wraps a model so that its requests and responses are recorded.
    pub fn wrap_model(self: &Arc<Self>, model: Arc<dyn Model>) -> RecordingModel {
        RecordingModel { model, recorder: Arc::clone(self) }
    }

    /// Records a request and its result if the request belongs to the recorded run.
    pub fn record_exchange(&self, request: &ModelRequest, result: &Result<ModelResponse, Failure>) {
        let response = match result {
            Ok(response) => RecordedResponse::Reply(response.clone()),
            Err(failure) if failure.class.counts_as_attempt() => {
                RecordedResponse::Failure(failure.clone())
            }
            Err(_) => return,
        };
        self.append_exchange(request, response);
    }

    /// Records that a person interrupted the model during this request.
    pub fn record_interruption(&self, request: &ModelRequest) {
        self.append_exchange(request, RecordedResponse::Interrupted);
    }

    fn append_exchange(&self, request: &ModelRequest, response: RecordedResponse) {
        let mut state = self.lock();
        let Some(recording) =
            state.recording.as_mut().filter(|recording| recording.run == request.run)
        else {
            return;
        };
        let exchange = RecordedExchange {
            turn: request.turn,
            attempt: request.attempt,
            model: request.model.clone(),
            request: Some(RecordedRequest::from_request(request, recording.previous.as_ref())),
            response,
        };
        let write_result = json_line(&exchange, &self.redactor)
            .and_then(|line| recording.file.write_all(line.as_bytes()));
        recording.previous = Some(request.clone());
        match write_result {
            Ok(()) => state.exchange_count += 1,
            Err(error) => _ = state.error.get_or_insert(error),
        }
    }

    /// Ends the recording and moves the file to its final path. Returns that path and the number of
    /// recorded exchanges. `None` means that no exchange was recorded; a file that exists at the
    /// path is then unchanged.
    pub fn finish_and_count_exchanges(&self) -> std::io::Result<Option<(PathBuf, usize)>> {
        let mut state = self.lock();
        let exchange_count = state.exchange_count;
        let Some(recording) = state.recording.take() else {
            return Ok(None);
        };
        let error = state.error.take();
        drop(state);
        if exchange_count == 0 || error.is_some() {
            _ = std::fs::remove_file(&recording.temp_path);
            return error.map_or(Ok(None), Err);
        }
        recording.file.sync_all()?;
        std::fs::rename(&recording.temp_path, &recording.path)?;
        Ok(Some((recording.path, exchange_count)))
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, RecorderState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for CassetteRecorder {
    /// Removes the temporary file if no recording was begun. The temporary file of an unfinished
    /// recording is left in place.
    fn drop(&mut self) {
        if let Some((temp_path, _)) = self.lock().pending_file.take() {
            _ = std::fs::remove_file(temp_path);
        }
    }
}

/// Creates a file that only its owner can read, because conversations are private.
fn create_private_file(path: &Path) -> std::io::Result<File> {
    // A file left by a killed process with the same ID, or a symbolic link placed here by somebody
    // else.
    _ = std::fs::remove_file(path);
    let mut options = OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options.open(path)
}

fn json_line(value: &impl serde::Serialize, redactor: &Redactor) -> std::io::Result<String> {
    let mut line = redactor.redact_json_strings(&serde_json::to_string(value)?);
    line.push('\n');
    Ok(line)
}

/// A wrapper around a model that records all requests and responses.
#[derive(Debug)]
pub struct RecordingModel {
    model: Arc<dyn Model>,
    recorder: Arc<CassetteRecorder>,
}

#[async_trait]
impl Model for RecordingModel {
    fn estimate(&self, request: &ModelRequest) -> CostEstimate {
        self.model.estimate(request)
    }

    async fn generate(
        &self,
        request: &ModelRequest,
        sink: &dyn DeltaSink,
    ) -> Result<ModelResponse, Failure> {
        let result = self.model.generate(request, sink).await;
        self.recorder.record_exchange(request, &result);
        result
    }
}
