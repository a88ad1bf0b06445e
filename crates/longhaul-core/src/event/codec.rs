//! Events to and from the rows of a journal, and old versions to the current one.
//!
//! Never: skips what it does not know. An unknown kind or a newer version is
//! refused, because a fold without it would be a lie.

use serde_json::Value;

use crate::event::Event;

/// Why a row of a journal can't be read.
#[derive(Debug, thiserror::Error)]
pub enum EventCodecError {
    /// A newer build wrote it.
    #[error("this build does not know the event `{kind}` in version {version}")]
    Unknown {
        /// The kind.
        kind: String,
        /// Its version.
        version: u16,
    },
    /// The data is not what the kind's data is.
    #[error("the data of a `{kind}` event can't be read")]
    Data {
        /// The kind.
        kind: String,
        /// What is wrong.
        #[source]
        source: serde_json::Error,
    },
}

/// A step from one version of a kind's data to the next.
pub struct Upcast {
    /// Of this kind.
    pub kind: &'static str,
    /// From this version to the next one.
    pub from: u16,
    /// What changes.
    pub change: fn(Value) -> Value,
}

impl std::fmt::Debug for Upcast {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} v{} -> v{}", self.kind, self.from, self.from + 1)
    }
}

/// Every step that this build knows. Format 1 is the first: nothing is older.
const UPCASTS: &[Upcast] = &[];

impl Event {
    /// The event's data as the journal keeps it.
    pub fn encode(&self) -> Result<String, EventCodecError> {
        self.write_body()
            .map_err(|source| EventCodecError::Data { kind: self.kind().to_owned(), source })
    }

    /// The event of a row, upcast to the version of this build.
    pub fn decode(kind: &str, version: u16, body: &str) -> Result<Self, EventCodecError> {
        Self::decode_with(UPCASTS, kind, version, body)
    }

    fn decode_with(
        upcasts: &[Upcast],
        kind: &str,
        version: u16,
        body: &str,
    ) -> Result<Self, EventCodecError> {
        let unknown = || EventCodecError::Unknown { kind: kind.to_owned(), version };
        let bad_data = |source| EventCodecError::Data { kind: kind.to_owned(), source };
        let current =
            Self::KINDS.iter().find(|(known, _, _)| *known == kind).ok_or_else(unknown)?;
        if version > current.1 {
            return Err(unknown());
        }
        // The common case reads the text itself, so that arguments keep their bytes.
        let lifted = if version == current.1 {
            None
        } else {
            let old = serde_json::from_str(body).map_err(bad_data)?;
            let new = upcast(upcasts, kind, version..current.1, old).ok_or_else(unknown)?;
            Some(new.to_string())
        };
        let body = lifted.as_deref().unwrap_or(body);
        Self::read_body(kind, body).ok_or_else(unknown)?.map_err(bad_data)
    }
}

/// Takes data through every version between; none where a step is missing.
fn upcast(
    upcasts: &[Upcast],
    kind: &str,
    versions: std::ops::Range<u16>,
    data: Value,
) -> Option<Value> {
    versions.into_iter().try_fold(data, |data, from| {
        let step = upcasts.iter().find(|step| step.kind == kind && step.from == from)?;
        Some((step.change)(data))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As if `progress.reported` had said `{done, text}` in version 0.
    const OLDER: &[Upcast] = &[Upcast {
        kind: "progress.reported",
        from: 0,
        change: |old| serde_json::json!({ "percent": old["done"], "message": old["text"] }),
    }];

    #[test]
    fn an_old_event_version_is_upcast() {
        let body = r#"{"done": 40, "text": "half way"}"#;
        let event = Event::decode_with(OLDER, "progress.reported", 0, body).unwrap();
        assert_eq!(event.encode().unwrap(), r#"{"percent":40,"message":"half way"}"#);
    }

    #[test]
    fn an_event_version_without_an_upcast_is_rejected() {
        let refused = Event::decode_with(&[], "progress.reported", 0, "{}").unwrap_err();
        assert!(matches!(refused, EventCodecError::Unknown { version: 0, .. }));
    }

    #[test]
    fn events_of_a_newer_build_are_rejected() {
        for (kind, version) in [("run.teleported", 1), ("run.created", 99)] {
            let refused = Event::decode(kind, version, "{}").unwrap_err();
            assert!(matches!(refused, EventCodecError::Unknown { .. }), "{kind}: {refused}");
        }
    }

    #[test]
    fn invalid_event_data_names_the_event() {
        let refused = Event::decode("run.claimed", 1, "{").unwrap_err();
        assert!(matches!(refused, EventCodecError::Data { .. }));
    }

    #[test]
    fn event_format_is_the_highest_format_of_all_events() {
        let highest = Event::KINDS.iter().map(|(_, _, format)| *format).max();
        assert_eq!(highest, Some(crate::event::EVENT_FORMAT));
    }
}
