//! The context for OAuth logins at an MCP server: where logins are stored, and the OAuth settings
//! of the project.
//!
//! Invariant: the `Debug` output of the context does not show the client secret.

use std::fmt;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use longhaul_core::oauth::OAuthConfig;
use longhaul_core::time::Clock;

use crate::auth::redaction;
use crate::auth::refresh::RefreshCoordinator;
use crate::auth::unsaved::UnsavedLogin;

/// Maximum length of a stored `WWW-Authenticate` challenge, in characters.
const CHALLENGE_CHARS_MAX: usize = 2_000;

/// Everything needed to log in at an MCP server with OAuth. Cheap to clone; clones share state.
#[derive(Clone)]
pub struct LoginContext {
    /// Directory of the stored logins. Only the current user can access it.
    pub(crate) dir: PathBuf,
    pub(crate) oauth: OAuthConfig,
    pub(crate) clock: Arc<dyn Clock>,
    /// `WWW-Authenticate` header (challenge) of the last response with which the server rejected a
    /// request. `None` if there is none.
    last_challenge: Arc<Mutex<Option<String>>>,
    pub(super) refreshes: RefreshCoordinator,
    pub(super) unsaved: UnsavedLogin,
    /// Whether requests are sent without the tokens of the stored login.
    pub(super) is_anonymous: bool,
}

impl LoginContext {
    /// Creates the context for logins that are stored in this directory.
    pub fn new(dir: PathBuf, oauth: OAuthConfig, clock: Arc<dyn Clock>) -> Self {
        if let Some(secret) = &oauth.client_secret {
            redaction::register_token(secret);
        }
        Self {
            dir,
            oauth,
            clock,
            last_challenge: Arc::default(),
            refreshes: RefreshCoordinator::default(),
            unsaved: UnsavedLogin::default(),
            is_anonymous: false,
        }
    }

    /// Returns the same context for requests without the stored login. Both contexts share the last
    /// `WWW-Authenticate` challenge of the server.
    pub(crate) fn without_login(&self) -> Self {
        Self { is_anonymous: true, ..self.clone() }
    }

    /// Waits a limited time for token refreshes in flight, when the process shuts down.
    pub(crate) async fn wait_for_token_refresh(&self) {
        self.refreshes.shut_down().await;
    }

    pub(super) fn set_last_auth_challenge(&self, challenge: &str) {
        let challenge = challenge.chars().take(CHALLENGE_CHARS_MAX).collect();
        *self.last_challenge.lock().unwrap_or_else(PoisonError::into_inner) = Some(challenge);
    }

    pub(super) fn last_auth_challenge(&self) -> Option<String> {
        let challenge = self.last_challenge.lock().unwrap_or_else(PoisonError::into_inner);
        challenge.clone()
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
