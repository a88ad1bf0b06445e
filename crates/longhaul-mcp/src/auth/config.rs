//! What logging in at a server needs: where logins are kept, and what the project
//! says of it.
//!
//! Never: shows the secret of a client.

use std::fmt;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use longhaul_core::oauth::OAuthConfig;
use longhaul_core::time::Clock;

use crate::auth::redaction;
use crate::auth::refresh::RefreshCoordinator;
use crate::auth::unsaved::UnsavedLogin;

/// So much of what a server says about a login is kept.
const CHALLENGE_CHARS_MAX: usize = 2_000;

/// How one logs in at a server. Clones hear the same.
#[derive(Clone)]
pub struct LoginContext {
    /// Where logins are kept; nobody else may look there.
    pub(crate) dir: PathBuf,
    pub(crate) oauth: OAuthConfig,
    pub(crate) clock: Arc<dyn Clock>,
    /// What the server said when it last refused.
    last_challenge: Arc<Mutex<Option<String>>>,
    pub(super) refreshes: RefreshCoordinator,
    pub(super) unsaved: UnsavedLogin,
    /// Asks as somebody who has no login.
    pub(super) is_anonymous: bool,
}

impl LoginContext {
    /// Logins in this folder.
    pub fn new(folder: PathBuf, oauth: OAuthConfig, clock: Arc<dyn Clock>) -> Self {
        if let Some(secret) = &oauth.client_secret {
            redaction::register(secret);
        }
        Self {
            dir: folder,
            oauth,
            clock,
            last_challenge: Arc::default(),
            refreshes: RefreshCoordinator::default(),
            unsaved: UnsavedLogin::default(),
            is_anonymous: false,
        }
    }

    /// The same for somebody who has not logged in: what they hear is heard here too.
    pub(crate) fn as_anonymous(&self) -> Self {
        Self { is_anonymous: true, ..self.clone() }
    }

    /// Waits for renewals that are under way, but not for long.
    pub(crate) async fn finish_refresh(&self) {
        self.refreshes.shut_down().await;
    }

    pub(super) fn set_challenge(&self, challenge: &str) {
        let challenge = challenge.chars().take(CHALLENGE_CHARS_MAX).collect();
        *self.last_challenge.lock().unwrap_or_else(PoisonError::into_inner) = Some(challenge);
    }

    pub(super) fn last_challenge(&self) -> Option<String> {
        let heard = self.last_challenge.lock().unwrap_or_else(PoisonError::into_inner);
        heard.clone()
    }
}

impl fmt::Debug for LoginContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("LoginContext").field(&self.oauth).finish()
    }
}

impl PartialEq for LoginContext {
    fn eq(&self, other: &Self) -> bool {
        self.dir == other.dir && self.oauth == other.oauth
    }
}

impl Eq for LoginContext {}
