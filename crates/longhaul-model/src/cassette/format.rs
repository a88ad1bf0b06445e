//! What is on a cassette: a line for the label, and a line for each exchange.
//!
//! Never: a question twice. Each one says how much of the one before it keeps.

use std::io::{BufRead as _, BufReader, Read as _, Take};
use std::path::Path;

use longhaul_core::failure::Failure;
use longhaul_core::port::model::{ModelRequest, ModelResponse};
use longhaul_core::raw::{RawJson, StoredText};
use serde::{Deserialize, Serialize};

/// The format that is written and read.
const FORMAT_VERSION: u32 = 1;

/// The longest tape that is read.
const BYTES_MAX: u64 = 128 * 1024 * 1024;

/// The label of a tape.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Header {
    cassette: u32,
    /// The run that was recorded.
    pub run: String,
    /// Its agent.
    pub agent: String,
    /// When the recording began.
    pub recorded_at: String,
}

impl Header {
    /// The label of a recording of this run of this agent.
    pub const fn new(run: String, agent: String, recorded: String) -> Self {
        Self { cassette: FORMAT_VERSION, run, agent, recorded_at: recorded }
    }
}

/// A question and what came of it.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Exchange {
    pub(super) turn: u32,
    pub(super) attempt: u32,
    /// The model that was asked, as `provider/model`.
    pub(super) model: String,
    /// None: it is not known any more, and nothing is compared.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) request: Option<RecordedRequest>,
    pub(super) response: RecordedResponse,
}

/// What was asked, as far as it is new.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct RecordedRequest {
    /// None: the same as before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) system: Option<String>,
    /// None: the same as before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) tools: Option<RawJson>,
    /// So many messages are those of the question before.
    pub(super) reused_messages: usize,
    /// The messages behind them.
    pub(super) new_messages: Vec<RawJson>,
}

/// What came of a question.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum RecordedResponse {
    Reply(ModelResponse),
    Failure(Failure),
    /// A person did not let the model end.
    Interrupted,
}

impl RecordedResponse {
    /// What is put on a tape for this; none: nobody answered.
    pub(super) fn from_result(heard: &Result<ModelResponse, Failure>) -> Option<Self> {
        match heard {
            Ok(answered) => Some(Self::Reply(answered.clone())),
            Err(failure) => {
                let failure = Some(failure).filter(|failure| failure.class.counts_as_attempt());
                failure.cloned().map(Self::Failure)
            }
        }
    }
}

impl RecordedRequest {
    /// What is new in this question after that one.
    pub(super) fn from_request(ask: &ModelRequest, before: Option<&ModelRequest>) -> Self {
        let new = |body: &StoredText, old: Option<&StoredText>| match body {
            StoredText::Inline(text) if old != Some(body) => Some(text.to_string()),
            StoredText::Inline(_) | StoredText::Blob(_) => None,
        };
        let tools = new(&ask.tools, before.map(|before| &before.tools));
        let same = before.map_or(0, |before| {
            let pairs = before.messages.iter().zip(ask.messages.iter());
            pairs.take_while(|(old, new)| old == new).count()
        });
        Self {
            system: new(&ask.system, before.map(|before| &before.system)),
            tools: tools.and_then(|tools| RawJson::parse(tools).ok()),
            reused_messages: same,
            new_messages: ask.messages[same..].iter().map(RawJson::from_serialize).collect(),
        }
    }
}

/// Why a tape can't be read.
#[derive(Debug, thiserror::Error)]
pub enum CassetteError {
    /// The file can't be read.
    #[error("{path} can't be read: {reason}")]
    Unreadable {
        /// Which file.
        path: String,
        /// What the system says.
        reason: std::io::Error,
    },
    /// It is no cassette, or not one that we know.
    #[error("{path}, line {line}: {reason}")]
    Invalid {
        /// Which file.
        path: String,
        /// Which line, from 1.
        line: usize,
        /// What is wrong.
        reason: String,
    },
}

/// A tape that was read.
#[derive(Debug)]
pub struct Cassette {
    header: Header,
    exchanges: Vec<Exchange>,
}

impl Cassette {
    /// Reads a tape. A last line that was cut off is left out: whoever recorded may
    /// have died while writing it.
    pub fn load(path: &Path) -> Result<Self, CassetteError> {
        let mut reading = LineReader::open(path)?;
        let label = reading.next_line()?.unwrap_or_default();
        let header: Header = serde_json::from_slice(&label)
            .map_err(|bad| reading.invalid(format!("this is no label of a cassette: {bad}")))?;
        if header.cassette != FORMAT_VERSION {
            let format = header.cassette;
            return Err(reading
                .invalid(format!("its format is {format}, this build knows {FORMAT_VERSION}")));
        }
        let mut exchanges: Vec<Exchange> = Vec::new();
        let mut messages = 0;
        while let Some(line) = reading.next_line()? {
            let exchange: Exchange = match serde_json::from_slice(&line) {
                Ok(exchange) => exchange,
                Err(_) if !line.ends_with(b"\n") => break,
                Err(bad) => return Err(reading.invalid(format!("this is no exchange: {bad}"))),
            };
            if let Some(question) = &exchange.request {
                if question.reused_messages > messages {
                    return Err(reading.invalid(format!(
                        "it keeps {} messages where there are {messages}",
                        question.reused_messages
                    )));
                }
                messages = question.reused_messages + question.new_messages.len();
            }
            exchanges.push(exchange);
        }
        exchanges.sort_by_key(|exchange| (exchange.turn, exchange.attempt));
        Ok(Self { header, exchanges })
    }

    /// Its label.
    pub const fn header(&self) -> &Header {
        &self.header
    }

    /// The last turn that is on it.
    pub fn last_turn(&self) -> u32 {
        self.exchanges.last().map_or(0, |last| last.turn)
    }

    /// The exchanges of a turn, in the order of its tries.
    pub(super) fn exchanges_of(&self, turn: u32) -> &[Exchange] {
        let from = self.exchanges.partition_point(|one| one.turn < turn);
        let to = self.exchanges.partition_point(|one| one.turn <= turn);
        &self.exchanges[from..to]
    }
}

impl CassetteError {
    fn unreadable(path: &Path, reason: std::io::Error) -> Self {
        let path = path.display().to_string();
        Self::Unreadable { path, reason }
    }

    fn invalid(path: &Path, line: usize, reason: String) -> Self {
        let path = path.display().to_string();
        Self::Invalid { path, line, reason }
    }
}

/// A file that is read line by line.
struct LineReader<'a> {
    path: &'a Path,
    lines: BufReader<Take<std::fs::File>>,
    line_number: usize,
}

impl<'a> LineReader<'a> {
    fn open(path: &'a Path) -> Result<Self, CassetteError> {
        let unreadable = |why| CassetteError::unreadable(path, why);
        let strange = |why| CassetteError::invalid(path, 1, why);
        // Whoever opens a pipe waits for its other end.
        let about = std::fs::metadata(path).map_err(unreadable)?;
        if !about.is_file() {
            return Err(strange("this is no file".to_owned()));
        }
        if about.len() > BYTES_MAX {
            let length = about.len();
            return Err(strange(format!("it has {length} bytes, {BYTES_MAX} are read")));
        }
        let file = std::fs::File::open(path).map_err(unreadable)?;
        Ok(Self { path, lines: BufReader::new(file.take(BYTES_MAX)), line_number: 0 })
    }

    /// The next line with its end, if there is one.
    fn next_line(&mut self) -> Result<Option<Vec<u8>>, CassetteError> {
        let mut line = Vec::new();
        let read = self.lines.read_until(b'\n', &mut line);
        let read = read.map_err(|why| CassetteError::unreadable(self.path, why))?;
        self.line_number += 1;
        Ok((read > 0).then_some(line))
    }

    fn invalid(&self, why: String) -> CassetteError {
        CassetteError::invalid(self.path, self.line_number, why)
    }
}
