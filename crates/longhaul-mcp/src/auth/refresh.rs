//! What a request is sent with, and the one renewal that all wait for who need it.
//!
//! Never: ends a renewal because nobody waits for it any more. Its answer may be the
//! only one that holds the next token.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::future::{BoxFuture, Shared};
use tokio::sync::oneshot;
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::timeout;

use crate::auth::credential_file::CredentialFileError;
use crate::auth::oauth_http;
use crate::request_error::RequestError;

/// So long a renewal that is under way is waited for at the end: as long as its last
/// question may take.
const SHUTDOWN_TIMEOUT: Duration = oauth_http::REQUEST_TIMEOUT;

/// What a request is sent with.
#[derive(Clone, Default)]
pub(crate) struct AccessToken {
    /// The token.
    pub(crate) token: Option<String>,
    /// Why there is none though somebody has logged in.
    pub(crate) missing_reason: Option<&'static str>,
}

impl From<CredentialFileError> for RequestError {
    fn from(error: CredentialFileError) -> Self {
        let passes = matches!(error, CredentialFileError::Locked { .. });
        Self::login_required(error.to_string().trim_end_matches('.'), passes)
    }
}

pub(crate) type TokenResult = Result<AccessToken, RequestError>;

/// A renewal that any number wait for.
type SharedRefresh = Shared<BoxFuture<'static, TokenResult>>;

/// The renewal under way at one server. Clones share it.
#[derive(Clone, Default)]
pub(super) struct RefreshCoordinator(Arc<Mutex<RefreshState>>);

#[derive(Default)]
struct RefreshState {
    in_flight: Option<(SharedRefresh, AbortHandle)>,
    tasks: JoinSet<()>,
    /// Nobody will be there for what is begun now.
    is_shutting_down: bool,
}

impl RefreshCoordinator {
    /// The renewal that is under way, or this one; and whether it is this one. It goes
    /// on when whoever waits for it does not.
    pub(super) fn join_or_start(
        &self,
        new: impl FnOnce() -> BoxFuture<'static, TokenResult>,
    ) -> (SharedRefresh, bool) {
        let mut open = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((waited, task)) = &open.in_flight
            && !task.is_finished()
        {
            return (waited.clone(), false);
        }
        while open.tasks.try_join_next().is_some() {}
        let (tell, told) = oneshot::channel();
        let renewal = new();
        let task = open.tasks.spawn(async move {
            // Nobody may wait for it any more; what counts is written by then.
            _ = tell.send(renewal.await);
        });
        let waited = told.map(|ended| {
            ended.unwrap_or_else(|_| {
                let why = "its login could not be renewed: this process is ending";
                let sent = false;
                Err(RequestError { may_have_been_sent: sent, ..RequestError::new(why) })
            })
        });
        let waited = waited.boxed().shared();
        open.in_flight = Some((waited.clone(), task));
        (waited, true)
    }

    /// Whether everything ends: no token is asked for any more.
    pub(super) fn is_shutting_down(&self) -> bool {
        let open = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        open.is_shutting_down
    }

    /// Waits until none is under way, but not for long. One that has not come to its
    /// last question does not ask it.
    pub(super) async fn shut_down(&self) {
        let open = {
            let mut open = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            open.is_shutting_down = true;
            open.in_flight.clone()
        };
        if let Some((waited, task)) = open
            && !task.is_finished()
        {
            // What takes longer is lost with the process.
            _ = timeout(SHUTDOWN_TIMEOUT, waited).await;
        }
    }
}
