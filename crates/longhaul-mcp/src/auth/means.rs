//! What logging in at a server needs: where logins are kept, and what the project
//! says of it.
//!
//! Never: shows the secret of a client.

use std::fmt;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use longhaul_core::oauth::OAuth;
use longhaul_core::time::Clock;

use crate::auth::pass::Renewals;
use crate::auth::tokens;
use crate::auth::unkept::Unkept;

/// So much of what a server says about a login is kept.
const CHALLENGE_CHARS_MAX: usize = 2_000;

/// How one logs in at a server. Clones hear the same.
#[derive(Clone)]
pub struct Login {
    /// Where logins are kept; nobody else may look there.
    pub(crate) folder: PathBuf,
    pub(crate) oauth: OAuth,
    pub(crate) clock: Arc<dyn Clock>,
    /// What the server said when it last refused.
    heard: Arc<Mutex<Option<String>>>,
    pub(super) renewals: Renewals,
    pub(super) unkept: Unkept,
    /// Asks as somebody who has no login.
    pub(super) is_stranger: bool,
}

impl Login {
    /// Logins in this folder.
    pub fn new(folder: PathBuf, oauth: OAuth, clock: Arc<dyn Clock>) -> Self {
        if let Some(secret) = &oauth.client_secret {
            tokens::remember(secret);
        }
        Self {
            folder,
            oauth,
            clock,
            heard: Arc::default(),
            renewals: Renewals::default(),
            unkept: Unkept::default(),
            is_stranger: false,
        }
    }

    /// The same for somebody who has not logged in: what they hear is heard here too.
    pub(crate) fn as_stranger(&self) -> Self {
        Self {
            is_stranger: true,
            ..self.clone()
        }
    }

    /// Waits for renewals that are under way, but not for long.
    pub(crate) async fn settle(&self) {
        self.renewals.settle().await;
    }

    pub(super) fn hear(&self, challenge: &str) {
        let challenge = challenge.chars().take(CHALLENGE_CHARS_MAX).collect();
        *self.heard.lock().unwrap_or_else(PoisonError::into_inner) = Some(challenge);
    }

    pub(super) fn heard(&self) -> Option<String> {
        let heard = self.heard.lock().unwrap_or_else(PoisonError::into_inner);
        heard.clone()
    }
}

impl fmt::Debug for Login {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Login").field(&self.oauth).finish()
    }
}

impl PartialEq for Login {
    fn eq(&self, other: &Self) -> bool {
        self.folder == other.folder && self.oauth == other.oauth
    }
}

impl Eq for Login {}
