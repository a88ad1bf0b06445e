//! A renewed login that could not be written down, for as long as this process lives.
//!
//! Never: in the place of another login. One that was made anew, or forgotten, counts
//! as it is kept.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::auth::credential_file::StoredLogin;

/// What came of a login that is kept as it was before. Clones are the same.
#[derive(Clone, Default)]
pub(super) struct UnsavedLogin(Arc<Mutex<Option<RefreshedLogin>>>);

struct RefreshedLogin {
    /// The refresh token of the login as it is kept.
    saved_refresh_token: String,
    login: StoredLogin,
}

fn refresh_token(record: &StoredLogin) -> Option<String> {
    record.token_info()?.refresh_token
}

impl UnsavedLogin {
    fn lock(&self) -> MutexGuard<'_, Option<RefreshedLogin>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// This came of a login when it was renewed with this refresh token.
    pub(super) fn set(&self, used: &str, record: StoredLogin) {
        let mut inner = self.lock();
        let before = inner.take();
        // That one may itself be of a login that is kept as it was before.
        let before = before.filter(|newer| refresh_token(&newer.login).as_deref() == Some(used));
        let of = before.map_or_else(|| used.to_owned(), |newer| newer.saved_refresh_token);
        *inner = Some(RefreshedLogin { saved_refresh_token: of, login: record });
    }

    /// All is written down.
    pub(super) fn clear(&self) {
        *self.lock() = None;
    }

    /// What a login as it is kept stands for.
    pub(super) fn newest(&self, kept: StoredLogin) -> StoredLogin {
        let inner = self.lock();
        let newer = inner.as_ref().filter(|newer| {
            let kept = refresh_token(&kept);
            kept.as_ref() == Some(&newer.saved_refresh_token)
        });
        newer.map_or(kept, |newer| newer.login.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(refresh: &str) -> StoredLogin {
        let credentials = serde_json::json!({
            "client_id": "c",
            "token_response": {
                "access_token": format!("access-{refresh}"), "token_type": "bearer",
                "refresh_token": refresh,
            },
        });
        let url = "https://a.example/mcp".parse().unwrap();
        StoredLogin::new(&url, None, serde_json::from_value(credentials).unwrap())
    }

    #[test]
    fn unsaved_credentials_replace_only_those_they_were_refreshed_from() {
        let unkept = UnsavedLogin::default();
        let stands = |kept: &str| refresh_token(&unkept.newest(record(kept))).unwrap();
        assert_eq!(stands("r0"), "r0");
        unkept.set("r0", record("r1"));
        assert_eq!(stands("r0"), "r1");
        // It was renewed once more, and the disk is still full.
        unkept.set("r1", record("r2"));
        assert_eq!(stands("r0"), "r2");
        // Somebody logged in anew.
        assert_eq!(stands("s0"), "s0");
        unkept.set("s0", record("s1"));
        assert_eq!(stands("s0"), "s1");
        unkept.clear();
        assert_eq!(stands("s0"), "s0");
    }
}
