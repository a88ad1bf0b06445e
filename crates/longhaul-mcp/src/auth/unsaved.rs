//! A refreshed login that could not be saved, kept in memory for the lifetime of this process.
//!
//! Invariant: the unsaved login replaces only the stored login from which it was refreshed. After a
//! new login or a logout, the stored state applies.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::auth::credential_file::StoredLogin;

/// A refreshed login that could not be saved to its file. Cheap to clone; clones share state.
#[derive(Clone, Default)]
pub(super) struct UnsavedLogin(Arc<Mutex<Option<RefreshedLogin>>>);

struct RefreshedLogin {
    /// Refresh token of the outdated login in the credential file.
    saved_refresh_token: String,
    login: StoredLogin,
}

fn refresh_token_of_login(login: &StoredLogin) -> Option<String> {
    login.login_tokens()?.refresh_token
}

impl UnsavedLogin {
    fn lock(&self) -> MutexGuard<'_, Option<RefreshedLogin>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Stores the login that a refresh returned. `used_refresh_token` was sent in that refresh.
    pub(super) fn set_refreshed_login(&self, used_refresh_token: &str, login: StoredLogin) {
        let mut inner = self.lock();
        let previous = inner.take();
        // The login that was refreshed may itself be an unsaved one.
        let previous = previous.filter(|newer| {
            refresh_token_of_login(&newer.login).as_deref() == Some(used_refresh_token)
        });
        let saved_token = previous
            .map_or_else(|| used_refresh_token.to_owned(), |newer| newer.saved_refresh_token);
        *inner = Some(RefreshedLogin { saved_refresh_token: saved_token, login });
    }

    /// Removes the unsaved login after its file was written.
    pub(super) fn clear(&self) {
        *self.lock() = None;
    }

    /// Returns the unsaved login if it was refreshed from this stored one, else the stored login.
    pub(super) fn newest_login(&self, stored: StoredLogin) -> StoredLogin {
        let inner = self.lock();
        let newer = inner.as_ref().filter(|newer| {
            let stored = refresh_token_of_login(&stored);
            stored.as_ref() == Some(&newer.saved_refresh_token)
        });
        newer.map_or(stored, |newer| newer.login.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stored_login(refresh: &str) -> StoredLogin {
        let credentials = serde_json::json!({
            "client_id": "c",
            "token_response": {
                "access_token": format!("access-{refresh}"), "token_type": "bearer",
                "refresh_token": refresh,
            },
        });
        let url = "https://a.example/mcp".parse().unwrap();
        StoredLogin::from_credentials(&url, None, serde_json::from_value(credentials).unwrap())
    }

    #[test]
    fn unsaved_credentials_replace_only_those_they_were_refreshed_from() {
        let unsaved = UnsavedLogin::default();
        let newest_token = |stored: &str| {
            refresh_token_of_login(&unsaved.newest_login(stored_login(stored))).unwrap()
        };
        assert_eq!(newest_token("r0"), "r0");
        unsaved.set_refreshed_login("r0", stored_login("r1"));
        assert_eq!(newest_token("r0"), "r1");
        // Refreshed again while the disk is still full.
        unsaved.set_refreshed_login("r1", stored_login("r2"));
        assert_eq!(newest_token("r0"), "r2");
        // The user logged in again.
        assert_eq!(newest_token("s0"), "s0");
        unsaved.set_refreshed_login("s0", stored_login("s1"));
        assert_eq!(newest_token("s0"), "s1");
        unsaved.clear();
        assert_eq!(newest_token("s0"), "s0");
    }
}
