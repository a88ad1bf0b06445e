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

use crate::cassette::mask::Mask;
use crate::cassette::tape::{Answer, Exchange, Header, Question};

/// Somebody who records one run.
#[derive(Debug)]
pub struct Recorder {
    mask: Mask,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    tape: Option<Writing>,
    written: usize,
    fault: Option<std::io::Error>,
}

#[derive(Debug)]
struct Writing {
    run: RunId,
    path: PathBuf,
    file: File,
    before: Option<Ask>,
}

impl Recorder {
    /// A recorder that lets none of these secrets through.
    pub fn new(mask: Mask) -> Self {
        Self {
            mask,
            state: Mutex::default(),
        }
    }

    /// Begins a tape for this run at this path, in the place of whatever was there.
    pub fn begin(&self, run: RunId, header: &Header, path: &Path) -> std::io::Result<()> {
        if let Some(folder) = path.parent() {
            std::fs::create_dir_all(folder)?;
        }
        let mut file = new_file(path)?;
        file.write_all(line(header, &self.mask)?.as_bytes())?;
        self.lock().tape = Some(Writing {
            run,
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
            line(&exchange, &self.mask).and_then(|line| tape.file.write_all(line.as_bytes()));
        tape.before = Some(ask.clone());
        match written {
            Ok(()) => state.written += 1,
            Err(fault) => _ = state.fault.get_or_insert(fault),
        }
    }

    /// Where the tape lies and how many exchanges are on it; none: nothing was begun.
    pub fn finish(&self) -> std::io::Result<Option<(PathBuf, usize)>> {
        let mut state = self.lock();
        if let Some(fault) = state.fault.take() {
            return Err(fault);
        }
        let written = state.written;
        let Some(tape) = state.tape.take() else {
            return Ok(None);
        };
        tape.file.sync_all()?;
        Ok(Some((tape.path, written)))
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A file that only its owner reads: a conversation is nobody else's business.
fn new_file(path: &Path) -> std::io::Result<File> {
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options.open(path)
}

fn line(value: &impl serde::Serialize, mask: &Mask) -> std::io::Result<String> {
    let mut line = mask.hide(serde_json::to_string(value)?);
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
