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
use longhaul_core::port::model::{Answered, Ask, Ear, Model, Quote};
use longhaul_core::port::redact::Redact as _;
use longhaul_core::redact::Redactor;

use crate::cassette::tape::{Answer, Exchange, Header, Question};

/// Somebody who records one run.
#[derive(Debug)]
pub struct Recorder {
    redactor: Redactor,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// A file that waits for a run.
    open: Option<(PathBuf, File)>,
    tape: Option<Writing>,
    written: usize,
    fault: Option<std::io::Error>,
}

#[derive(Debug)]
struct Writing {
    run: RunId,
    /// Where it is written.
    draft: PathBuf,
    /// Where it lies when it is whole.
    path: PathBuf,
    file: File,
    before: Option<Ask>,
}

impl Recorder {
    /// A recorder that lets none of these secrets through.
    pub fn new(redactor: Redactor) -> Self {
        Self {
            redactor,
            state: Mutex::default(),
        }
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
        self.lock().open = Some((draft, file));
        Ok(())
    }

    /// Begins the tape of this run, which takes the place of whatever lies at this
    /// path when it is whole, and not before.
    pub fn begin(&self, run: RunId, header: &Header, path: &Path) -> std::io::Result<()> {
        let mut state = self.lock();
        let (draft, mut file) = state.open.take().ok_or(std::io::ErrorKind::NotFound)?;
        file.write_all(line(header, &self.redactor)?.as_bytes())?;
        state.tape = Some(Writing {
            run,
            draft,
            path: path.to_owned(),
            file,
            before: None,
        });
        Ok(())
    }

    /// The same model, listened to.
    pub fn listen(self: &Arc<Self>, model: Arc<dyn Model>) -> Recording {
        Recording {
            model,
            recorder: Arc::clone(self),
        }
    }

    /// Puts an exchange on the tape, if it is of the run that is recorded.
    pub fn note(&self, ask: &Ask, heard: &Result<Answered, Failure>) {
        let Some(answer) = Answer::of(heard) else {
            return;
        };
        self.put(ask, answer);
    }

    /// Notes that a person cut the model off.
    pub fn note_cut_off(&self, ask: &Ask) {
        self.put(ask, Answer::CutOff);
    }

    fn put(&self, ask: &Ask, answer: Answer) {
        let mut state = self.lock();
        let Some(tape) = state.tape.as_mut().filter(|tape| tape.run == ask.run) else {
            return;
        };
        let exchange = Exchange {
            turn: ask.turn,
            attempt: ask.attempt,
            model: ask.model.clone(),
            question: Some(Question::of(ask, tape.before.as_ref())),
            answer,
        };
        let written =
            line(&exchange, &self.redactor).and_then(|line| tape.file.write_all(line.as_bytes()));
        tape.before = Some(ask.clone());
        match written {
            Ok(()) => state.written += 1,
            Err(fault) => _ = state.fault.get_or_insert(fault),
        }
    }

    /// Where the tape lies and how many exchanges are on it; none: there were none,
    /// and whatever was there before is still there.
    pub fn finish(&self) -> std::io::Result<Option<(PathBuf, usize)>> {
        let mut state = self.lock();
        let written = state.written;
        let Some(tape) = state.tape.take() else {
            return Ok(None);
        };
        let fault = state.fault.take();
        drop(state);
        if written == 0 || fault.is_some() {
            _ = std::fs::remove_file(&tape.draft);
            return fault.map_or(Ok(None), Err);
        }
        tape.file.sync_all()?;
        std::fs::rename(&tape.draft, &tape.path)?;
        Ok(Some((tape.path, written)))
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Recorder {
    /// A tape that was never ended stays a draft; a file that never became one goes.
    fn drop(&mut self) {
        if let Some((draft, _)) = self.lock().open.take() {
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

fn line(value: &impl serde::Serialize, redactor: &Redactor) -> std::io::Result<String> {
    let mut line = redactor.redact_json_texts(&serde_json::to_string(value)?);
    line.push('\n');
    Ok(line)
}

/// A model that is listened to.
#[derive(Debug)]
pub struct Recording {
    model: Arc<dyn Model>,
    recorder: Arc<Recorder>,
}

#[async_trait]
impl Model for Recording {
    fn quote(&self, ask: &Ask) -> Quote {
        self.model.quote(ask)
    }

    async fn reply(&self, ask: &Ask, ear: &dyn Ear) -> Result<Answered, Failure> {
        let heard = self.model.reply(ask, ear).await;
        self.recorder.note(ask, &heard);
        heard
    }
}
