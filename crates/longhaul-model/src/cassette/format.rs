//! File format of a cassette: a header, then one JSON record per exchange. Longhaul writes each on
//! a line of its own.
//!
//! A request is stored as its difference from the previous request.

use std::io::Read as _;
use std::path::Path;

use longhaul_core::failure::Failure;
use longhaul_core::port::model::{ModelRequest, ModelResponse};
use longhaul_core::raw::{RawJson, StoredText};
use serde::{Deserialize, Serialize};
use serde_json::Deserializer;

/// Version of the cassette file format, stored in the header.
const FORMAT_VERSION: u32 = 1;

/// Maximum size of a cassette in bytes.
const BYTES_MAX: u64 = 128 * 1024 * 1024;

/// First record of a cassette file: the format version, the run, its agent and the start of the
/// recording.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CassetteHeader {
    cassette: u32,
    /// ID of the recorded run.
    pub run: String,
    /// Name of the agent of the recorded run.
    pub agent: String,
    /// Time at which the recording started.
    pub recorded_at: String,
}

impl CassetteHeader {
    /// Creates the header for a recording of the given run, started at the time `recorded`.
    pub const fn new(run: String, agent: String, recorded: String) -> Self {
        Self { cassette: FORMAT_VERSION, run, agent, recorded_at: recorded }
    }
}

/// A recorded exchange: one request to a model and its response.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct RecordedExchange {
    pub(super) turn: u32,
    pub(super) attempt: u32,
    /// Model that the request was sent to, as `provider/model`.
    pub(super) model: String,
    /// The recorded request. `None` means that the request is unknown, so a replayed request is not
    /// compared with it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) request: Option<RecordedRequest>,
    pub(super) response: RecordedResponse,
}

/// A recorded request, stored as its difference from the previous request.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct RecordedRequest {
    /// System prompt of the request. `None` means the same system prompt as in the previous
    /// request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) system: Option<String>,
    /// Tool table (list of tool definitions) of the request. `None` means the same tool table as in
    /// the previous request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) tools: Option<RawJson>,
    /// Number of messages at the start of the conversation that are the same as in the previous
    /// request.
    pub(super) reused_messages: usize,
    /// Messages that follow the reused messages.
    pub(super) new_messages: Vec<RawJson>,
}

/// Recorded response to a request: a reply, a failure or an interruption.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum RecordedResponse {
    Reply(ModelResponse),
    Failure(Failure),
    /// A person interrupted the model before it had replied.
    Interrupted,
}

impl RecordedRequest {
    /// Returns the difference between a request and the previous request of the run.
    pub(super) fn from_request(request: &ModelRequest, previous: Option<&ModelRequest>) -> Self {
        let text_if_changed = |body: &StoredText, old: Option<&StoredText>| match body {
            StoredText::Inline(text) if old != Some(body) => Some(text.to_string()),
            StoredText::Inline(_) | StoredText::Blob(_) => None,
        };
        let tools = text_if_changed(&request.tools, previous.map(|previous| &previous.tools));
        let reused_count = previous.map_or(0, |previous| {
            let pairs = previous.messages.iter().zip(request.messages.iter());
            pairs.take_while(|(old, new)| old == new).count()
        });
        Self {
            system: text_if_changed(&request.system, previous.map(|previous| &previous.system)),
            tools: tools.and_then(|tools| RawJson::parse(tools).ok()),
            reused_messages: reused_count,
            new_messages: request.messages[reused_count..]
                .iter()
                .map(RawJson::from_serialize)
                .collect(),
        }
    }
}

/// Error while loading a cassette file: its path, and why it can't be read or on which line an
/// invalid record starts.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct CassetteError(String);

/// A cassette loaded from a file: its header and all recorded exchanges.
#[derive(Debug)]
pub struct Cassette {
    header: CassetteHeader,
    exchanges: Vec<RecordedExchange>,
}

impl Cassette {
    /// Loads a cassette from a file. A record may have line breaks, as after an edit by hand. An
    /// incomplete last record is ignored, because the recording process may have died while writing
    /// it.
    pub fn load(path: &Path) -> Result<Self, CassetteError> {
        let bytes = read_cassette_file(path)?;
        let mut records = Deserializer::from_slice(&bytes);
        let header = CassetteHeader::deserialize(&mut records).map_err(|error| {
            CassetteError::invalid(path, 1, &format!("this is not a cassette header: {error}"))
        })?;
        if header.cassette != FORMAT_VERSION {
            let format = header.cassette;
            let reason = format!(
                "the file has format {format}, but this build supports format {FORMAT_VERSION}"
            );
            return Err(CassetteError::invalid(path, 1, &reason));
        }
        let last_line = next_line(&bytes, bytes.len());
        let mut records = records.into_iter::<RecordedExchange>();
        let mut exchanges: Vec<RecordedExchange> = Vec::new();
        let mut messages = 0;
        loop {
            let start = records.byte_offset();
            let invalid = |reason: String| {
                Err(CassetteError::invalid(path, next_line(&bytes, start), &reason))
            };
            let exchange = match records.next() {
                Some(Ok(exchange)) => exchange,
                // The file ends within this record.
                Some(Err(error))
                    if error.line() == last_line || error.is_eof() && !bytes.ends_with(b"\n") =>
                {
                    break;
                }
                Some(Err(error)) => {
                    return invalid(format!("this is not a recorded exchange: {error}"));
                }
                None => break,
            };
            if let Some(request) = &exchange.request {
                let reused = request.reused_messages;
                if reused > messages {
                    return invalid(format!(
                        "the request reuses {reused} messages, but the previous request has {messages}"
                    ));
                }
                messages = reused + request.new_messages.len();
            }
            exchanges.push(exchange);
        }
        exchanges.sort_by_key(|exchange| (exchange.turn, exchange.attempt));
        Ok(Self { header, exchanges })
    }

    /// Returns the header of the cassette file.
    pub const fn header(&self) -> &CassetteHeader {
        &self.header
    }

    /// Returns the number of the last recorded turn, or 0 if the cassette has no exchanges.
    pub fn last_recorded_turn(&self) -> u32 {
        self.exchanges.last().map_or(0, |last| last.turn)
    }

    /// Returns the exchanges that were recorded in the given turn, ordered by attempt.
    pub(super) fn exchanges_in_turn(&self, turn: u32) -> &[RecordedExchange] {
        let from = self.exchanges.partition_point(|one| one.turn < turn);
        let to = self.exchanges.partition_point(|one| one.turn <= turn);
        &self.exchanges[from..to]
    }
}

impl CassetteError {
    fn invalid(path: &Path, line: usize, reason: &str) -> Self {
        Self(format!("{}, line {line}: {reason}", path.display()))
    }
}

/// Returns the number, from 1, of the line on which the first text after this position starts.
fn next_line(bytes: &[u8], position: usize) -> usize {
    let blank = bytes[position..].iter().take_while(|byte| byte.is_ascii_whitespace()).count();
    1 + bytes[..position + blank].iter().filter(|byte| **byte == b'\n').count()
}

/// Reads a cassette file of limited size.
fn read_cassette_file(path: &Path) -> Result<Vec<u8>, CassetteError> {
    let unreadable =
        |error: std::io::Error| CassetteError(format!("{} can't be read: {error}", path.display()));
    // Opening a pipe would block until its other end is opened.
    let metadata = std::fs::metadata(path).map_err(unreadable)?;
    if !metadata.is_file() {
        return Err(CassetteError::invalid(path, 1, "the path is not a regular file"));
    }
    let length = metadata.len();
    if length > BYTES_MAX {
        let reason = format!("the file has {length} bytes, but at most {BYTES_MAX} are allowed");
        return Err(CassetteError::invalid(path, 1, &reason));
    }
    let mut bytes = Vec::new();
    let file = std::fs::File::open(path).map_err(unreadable)?;
    file.take(BYTES_MAX).read_to_end(&mut bytes).map_err(unreadable)?;
    Ok(bytes)
}
