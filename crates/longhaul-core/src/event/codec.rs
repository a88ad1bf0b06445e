//! Encodes and decodes events, and upcasts data of old versions to the current version.
//!
//! Invariant: unknown kinds and newer versions are errors. If an event were skipped, the state that
//! is computed from the journal would be wrong.

use serde_json::Value;

use crate::event::Event;

/// Reason why an event can't be encoded or decoded.
#[derive(Debug, thiserror::Error)]
pub enum EventCodecError {
    /// The event was written by a newer build.
    #[error("this build does not support version {version} of the event `{kind}`")]
    Unknown { kind: String, version: u16 },
    /// The data of the event is invalid for its kind.
    #[error("the data of a `{kind}` event can't be read")]
    Data {
        /// Kind of the event with the invalid data.
        kind: String,
        /// JSON error that explains why the data is invalid.
        #[source]
        source: serde_json::Error,
    },
}

/// Conversion (upcast) of the data of this event kind from this version to the next.
type EventUpcast = (&'static str, u16, fn(Value) -> Value);

/// Upcasts of all old event versions. There are none, because event format 1 is the first.
const UPCASTS: &[EventUpcast] = &[];

impl Event {
    /// Serializes the event's data to JSON, as stored in the journal.
    pub fn encode(&self) -> Result<String, EventCodecError> {
        self.encode_body()
            .map_err(|source| EventCodecError::Data { kind: self.kind().to_owned(), source })
    }

    /// Deserializes the data of an event, after upcasting it to the version of this build.
    pub fn decode(kind: &str, version: u16, body: &str) -> Result<Self, EventCodecError> {
        Self::decode_with_upcasts(UPCASTS, kind, version, body)
    }

    fn decode_with_upcasts(
        upcasts: &[EventUpcast],
        kind: &str,
        version: u16,
        body: &str,
    ) -> Result<Self, EventCodecError> {
        let unknown_event = || EventCodecError::Unknown { kind: kind.to_owned(), version };
        let invalid_data = |source| EventCodecError::Data { kind: kind.to_owned(), source };
        let mut kinds = Self::KINDS.iter();
        let current = kinds.find(|(known, _, _)| *known == kind).ok_or_else(unknown_event)?;
        if version > current.1 {
            return Err(unknown_event());
        }
        // Data of the current version is parsed from the original text, so that call arguments
        // keep their exact bytes.
        let upcast_body = if version == current.1 {
            None
        } else {
            let old = serde_json::from_str(body).map_err(invalid_data)?;
            let new = (version..current.1).try_fold(old, |data, from| {
                let step = upcasts.iter().find(|step| (step.0, step.1) == (kind, from))?;
                Some(step.2(data))
            });
            Some(new.ok_or_else(unknown_event)?.to_string())
        };
        let body = upcast_body.as_deref().unwrap_or(body);
        Self::decode_body_if_known_kind(kind, body).ok_or_else(unknown_event)?.map_err(invalid_data)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Conversion that simulates an earlier version of `progress.reported` with the fields `{done,
    /// text}`.
    const OLDER: &[EventUpcast] = &[(
        "progress.reported",
        0,
        |old| serde_json::json!({ "percent": old["done"], "message": old["text"] }),
    )];

    #[test]
    fn an_old_event_version_is_upcast() {
        let body = r#"{"done": 40, "text": "half way"}"#;
        let event = Event::decode_with_upcasts(OLDER, "progress.reported", 0, body).unwrap();
        assert_eq!(event.encode().unwrap(), r#"{"percent":40,"message":"half way"}"#);
    }

    #[test]
    fn an_event_version_without_an_upcast_is_rejected() {
        let error = Event::decode_with_upcasts(&[], "progress.reported", 0, "{}").unwrap_err();
        assert!(matches!(error, EventCodecError::Unknown { version: 0, .. }));
    }

    #[test]
    fn events_of_a_newer_build_are_rejected() {
        for (kind, version) in [("run.teleported", 1), ("run.created", 99)] {
            let error = Event::decode(kind, version, "{}").unwrap_err();
            assert!(matches!(error, EventCodecError::Unknown { .. }), "{kind}: {error}");
        }
    }

    #[test]
    fn the_error_about_invalid_event_data_names_the_event() {
        let error = Event::decode("run.claimed", 1, "{").unwrap_err();
        assert!(matches!(error, EventCodecError::Data { .. }));
    }

    #[test]
    fn event_format_is_the_highest_format_of_all_events() {
        let highest = Event::KINDS.iter().map(|(_, _, format)| *format).max();
        assert_eq!(highest, Some(crate::event::EVENT_FORMAT));
    }
}
