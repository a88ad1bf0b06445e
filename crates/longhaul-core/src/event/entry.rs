//! A fact in its place: the envelope that journal, stream and export share.
//!
//! Never: a fact without a run, a sequence and a time.

use serde::{Deserialize, Serialize};

use crate::event::Event;
use crate::event::codec::EventCodecError;
use crate::id::{Epoch, RunId, Seq};
use crate::raw::RawJson;
use crate::time::Timestamp;

/// One line of a journal.
#[derive(Debug, Clone, PartialEq)]
pub struct Entry {
    /// Whose journal.
    pub run: RunId,
    /// Which place in it.
    pub seq: Seq,
    /// When the store took it in.
    pub at: Timestamp,
    /// The run's fence at that moment.
    pub epoch: Epoch,
    /// The fact.
    pub event: Event,
}

/// A line of a journal as text: what exports, streams and recordings hold.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Envelope {
    /// Whose journal.
    pub run: RunId,
    /// Which place in it.
    pub seq: Seq,
    /// When.
    pub at: Timestamp,
    /// The kind of fact.
    #[serde(rename = "type")]
    pub kind: String,
    /// The version of its data.
    pub v: u16,
    /// The turn it belongs to, where it belongs to one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub turn: Option<u32>,
    /// The fence.
    #[serde(default)]
    pub epoch: Epoch,
    /// The fact's data.
    pub data: RawJson,
}

impl Entry {
    /// The entry as text.
    pub fn to_envelope(&self) -> Result<Envelope, EventCodecError> {
        let kind = self.event.kind().to_owned();
        let data = RawJson::parse(self.event.encode()?)
            .map_err(|source| EventCodecError::Data { kind: kind.clone(), source })?;
        Ok(Envelope {
            run: self.run,
            seq: self.seq,
            at: self.at,
            v: self.event.version(),
            turn: self.event.turn(),
            epoch: self.epoch,
            kind,
            data,
        })
    }
}

impl TryFrom<&Envelope> for Entry {
    type Error = EventCodecError;

    fn try_from(envelope: &Envelope) -> Result<Self, EventCodecError> {
        Ok(Self {
            run: envelope.run,
            seq: envelope.seq,
            at: envelope.at,
            epoch: envelope.epoch,
            event: Event::decode(&envelope.kind, envelope.v, envelope.data.as_str())?,
        })
    }
}

impl Event {
    /// The turn a fact belongs to, where it belongs to one.
    pub const fn turn(&self) -> Option<u32> {
        #[expect(
            clippy::wildcard_enum_match_arm,
            reason = "a new kind belongs to no turn until somebody says so here"
        )]
        match self {
            Self::TurnStarted(data) => Some(data.turn),
            Self::TurnCompleted(data) => Some(data.turn),
            Self::TurnFailed(data) => Some(data.turn),
            Self::TurnInterrupted(data) => Some(data.turn),
            Self::ToolStarted(data) => Some(data.call.turn),
            Self::ToolProgress(data) => Some(data.call.turn),
            Self::ToolCompleted(data) | Self::ToolFailed(data) | Self::ToolInterrupted(data) => {
                Some(data.call.turn)
            }
            Self::ToolInDoubt(data) => Some(data.call.turn),
            Self::ToolVerified(data) => Some(data.call.turn),
            Self::ToolSurfaced(data) => Some(data.call.turn),
            _ => None,
        }
    }
}
