//! Journal entries: events with their run, sequence number and time.
//!
//! Journals, streams and exports share the [`JournalEntryEnvelope`] format.

use serde::{Deserialize, Serialize};

use crate::event::Event;
use crate::event::codec::EventCodecError;
use crate::id::{Epoch, RunId, Seq};
use crate::raw::RawJson;
use crate::time::Timestamp;

/// One entry of a run's journal: an event with its sequence number and time.
#[derive(Debug, Clone, PartialEq)]
pub struct JournalEntry {
    /// Run whose journal contains the entry.
    pub run: RunId,
    /// Sequence number of the entry in the run's journal.
    pub seq: Seq,
    /// Time at which the store committed the entry's event.
    pub at: Timestamp,
    /// Epoch (fencing token) of the run when the event was committed.
    pub epoch: Epoch,
    /// Event that the entry records.
    pub event: Event,
}

/// A journal entry in the text format of exports, streams and recordings.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct JournalEntryEnvelope {
    /// Run whose journal contains the entry.
    pub run: RunId,
    /// Sequence number of the entry in the run's journal.
    pub seq: Seq,
    /// Time at which the store committed the entry's event.
    pub at: Timestamp,
    /// Kind of the event, such as `run.created`.
    #[serde(rename = "type")]
    pub kind: String,
    /// Version of the event's data.
    pub v: u16,
    /// Turn that the event belongs to. `None` if it belongs to no turn.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub turn: Option<u32>,
    /// Epoch (fencing token) of the run when the event was committed.
    #[serde(default)]
    pub epoch: Epoch,
    /// Data of the event as JSON.
    pub data: RawJson,
}

impl JournalEntry {
    /// Converts the entry to the text format of exports, streams and recordings.
    pub fn to_envelope(&self) -> Result<JournalEntryEnvelope, EventCodecError> {
        let kind = self.event.kind().to_owned();
        let data = RawJson::parse(self.event.encode()?)
            .map_err(|source| EventCodecError::Data { kind: kind.clone(), source })?;
        Ok(JournalEntryEnvelope {
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

impl TryFrom<&JournalEntryEnvelope> for JournalEntry {
    type Error = EventCodecError;

    fn try_from(envelope: &JournalEntryEnvelope) -> Result<Self, EventCodecError> {
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
    /// Returns the turn that the event belongs to. `None` if it belongs to no turn.
    pub const fn turn(&self) -> Option<u32> {
        #[expect(
            clippy::wildcard_enum_match_arm,
            reason = "a new kind belongs to no turn unless it is listed here"
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
            Self::ToolInputRequired(data) => Some(data.call.turn),
            Self::ToolPending(data) => Some(data.call.turn),
            Self::ToolResumed(data) => Some(data.call.turn),
            Self::ToolInDoubt(data) => Some(data.call.turn),
            Self::ToolVerified(data) => Some(data.call.turn),
            Self::ToolSurfaced(data) => Some(data.call.turn),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::event::run::RunCreated;
    use crate::id::{AgentName, InboxName};
    use crate::raw::tests::json_with_whitespace;
    use crate::task::TaskSpec;

    proptest! {
        /// A journal may contain events with line breaks, which earlier builds have stored.
        #[test]
        fn an_envelope_is_one_line((text, compact) in json_with_whitespace()) {
            let run = RunId::from_bytes([1; 16]);
            let agent = AgentName::new("writer").unwrap();
            let inbox = InboxName::new("default").unwrap();
            let task = TaskSpec::new(run, agent, RawJson::from_serialize(&"MARK"), inbox);
            let created = Event::RunCreated(Box::new(RunCreated { task }));
            let stored = created.encode().unwrap().replace(r#""MARK""#, &text);
            let event = Event::decode(created.kind(), created.version(), &stored).unwrap();
            let at = Timestamp::from_micros(0);
            let entry = JournalEntry { run, seq: Seq(1), at, epoch: Epoch(0), event };
            let line = serde_json::to_string(&entry.to_envelope().unwrap()).unwrap();
            prop_assert!(!line.contains(['\n', '\r']), "{}", line);
            let is_kept = line.contains(&text) || line.contains(&compact);
            prop_assert!(is_kept, "{}", line);
        }
    }
}
