//! A renewed login that could not be written down, for as long as this process lives.
//!
//! Never: in the place of another login. One that was made anew, or forgotten, counts
//! as it is kept.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::auth::book::Record;

/// What came of a login that is kept as it was before. Clones are the same.
#[derive(Clone, Default)]
pub(super) struct Unkept(Arc<Mutex<Option<Newer>>>);

struct Newer {
    /// The refresh token of the login as it is kept.
    of: String,
    record: Record,
}

fn refresh(record: &Record) -> Option<String> {
    record.facts()?.refresh_token
}

impl Unkept {
    fn inner(&self) -> MutexGuard<'_, Option<Newer>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// This came of a login when it was renewed with this refresh token.
    pub(super) fn put(&self, used: &str, record: Record) {
        let mut inner = self.inner();
        let before = inner.take();
        // That one may itself be of a login that is kept as it was before.
        let before = before.filter(|newer| refresh(&newer.record).as_deref() == Some(used));
        let of = before.map_or_else(|| used.to_owned(), |newer| newer.of);
        *inner = Some(Newer { of, record });
    }

    /// All is written down.
    pub(super) fn clear(&self) {
        *self.inner() = None;
    }

    /// What a login as it is kept stands for.
    pub(super) fn instead_of(&self, kept: Record) -> Record {
        let inner = self.inner();
        let newer = inner.as_ref().filter(|newer| {
            let kept = refresh(&kept);
            kept.as_ref() == Some(&newer.of)
        });
        newer.map_or(kept, |newer| newer.record.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(refresh: &str) -> Record {
        let credentials = serde_json::json!({
            "client_id": "c",
            "token_response": {
                "access_token": format!("access-{refresh}"), "token_type": "bearer",
                "refresh_token": refresh,
            },
        });
        let url = "https://a.example/mcp".parse().unwrap();
        Record::new(&url, None, serde_json::from_value(credentials).unwrap())
    }

    #[test]
    fn what_was_not_written_stands_for_what_it_came_from_and_for_nothing_else() {
        let unkept = Unkept::default();
        let stands = |kept: &str| refresh(&unkept.instead_of(record(kept))).unwrap();
        assert_eq!(stands("r0"), "r0");
        unkept.put("r0", record("r1"));
        assert_eq!(stands("r0"), "r1");
        // It was renewed once more, and the disk is still full.
        unkept.put("r1", record("r2"));
        assert_eq!(stands("r0"), "r2");
        // Somebody logged in anew.
        assert_eq!(stands("s0"), "s0");
        unkept.put("s0", record("s1"));
        assert_eq!(stands("s0"), "s1");
        unkept.clear();
        assert_eq!(stands("s0"), "s0");
    }
}
