//! The context for OAuth logins at an MCP server: where logins are stored, the OAuth settings of the
//! project, and the token refresh in flight.
//!
//! Invariant: the `Debug` output of the context does not show the client secret.

use std::fmt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use longhaul_core::oauth::OAuthConfig;
use longhaul_core::time::Clock;
use tokio::time::timeout;

use crate::auth::{oauth_http, redaction};
use crate::http_client::RequestError;
use crate::shared_task::SharedTask;

/// Maximum length of a stored `WWW-Authenticate` challenge, in characters.
const CHALLENGE_CHARS_MAX: usize = 2_000;

/// The access token for a request, or why there is none.
#[derive(Clone, Default)]
pub(crate) struct AccessToken {
    /// The access token. `None` means the request is sent without a token.
    pub(crate) token: Option<String>,
    /// Why there is no access token although the user has logged in. `None` if there is a token or
    /// nobody has logged in.
    pub(crate) missing_reason: Option<&'static str>,
}

impl AccessToken {
    pub(super) const fn missing(reason: &'static str) -> Self {
        Self { token: None, missing_reason: Some(reason) }
    }
}

pub(crate) type TokenResult = Result<AccessToken, RequestError>;

/// Everything needed to log in at an MCP server with OAuth. Cheap to clone; clones share state.
#[derive(Clone)]
pub struct LoginContext {
    /// Directory of the stored logins. Only the current user can access it.
    pub(crate) dir: PathBuf,
    pub(crate) oauth: OAuthConfig,
    pub(crate) clock: Arc<dyn Clock>,
    pub(super) state: Arc<LoginState>,
    /// Whether requests are sent without the tokens of the stored login. The last challenge of the
    /// server is still shared with the other clones.
    pub(crate) is_anonymous: bool,
}

#[derive(Default)]
pub(super) struct LoginState {
    /// `WWW-Authenticate` header (challenge) of the last response with which the server rejected a
    /// request. `None` if there is none.
    last_challenge: Mutex<Option<String>>,
    /// The token refresh that all requests to the server share. It continues when nobody waits for
    /// it, because only its response holds the next refresh token.
    pub(super) refresh: SharedTask<TokenResult>,
    /// Whether the process is shutting down, so that the response to a token request could arrive
    /// too late to be saved.
    pub(super) is_shutting_down: AtomicBool,
}

impl LoginContext {
    /// Creates the context for logins that are stored in this directory.
    pub fn new(dir: PathBuf, oauth: OAuthConfig, clock: Arc<dyn Clock>) -> Self {
        if let Some(secret) = &oauth.client_secret {
            redaction::register_token(secret);
        }
        Self { dir, oauth, clock, state: Arc::default(), is_anonymous: false }
    }

    /// Starts the shutdown, and waits a limited time for the token refresh in flight. A refresh
    /// that has not sent its token request yet does not send it.
    pub(crate) async fn shut_down(&self) {
        self.state.is_shutting_down.store(true, Ordering::Release);
        if let Some(refresh) = self.state.refresh.in_flight() {
            // As long as its last request may take. A longer refresh is lost with the process.
            _ = timeout(oauth_http::REQUEST_TIMEOUT, refresh).await;
        }
    }

    pub(crate) fn set_last_challenge(&self, challenge: &str) {
        let challenge = challenge.chars().take(CHALLENGE_CHARS_MAX).collect();
        *self.state.last_challenge.lock().unwrap_or_else(PoisonError::into_inner) = Some(challenge);
    }

    pub(super) fn last_challenge(&self) -> Option<String> {
        self.state.last_challenge.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl fmt::Debug for LoginContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("LoginContext").field(&self.oauth).finish()
    }
}
