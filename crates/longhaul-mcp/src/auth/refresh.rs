//! The access token of a request, and the single refresh that concurrent requests share.
//!
//! Invariant: a refresh continues when nobody waits for it, because only its response holds the
//! next refresh token.

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

/// How long a shutdown waits for a token refresh in flight: as long as its last request may take.
const SHUTDOWN_TIMEOUT: Duration = oauth_http::REQUEST_TIMEOUT;

/// The access token for a request, or why there is none.
#[derive(Clone, Default)]
pub(crate) struct AccessToken {
    /// The access token. `None` means the request is sent without a token.
    pub(crate) token: Option<String>,
    /// Why there is no access token although the user has logged in. `None` if there is a token or
    /// nobody has logged in.
    pub(crate) missing_reason: Option<&'static str>,
}

impl From<CredentialFileError> for RequestError {
    fn from(error: CredentialFileError) -> Self {
        let is_transient = matches!(error, CredentialFileError::Locked { .. });
        Self::login_required(error.to_string().trim_end_matches('.'), is_transient)
    }
}

pub(crate) type TokenResult = Result<AccessToken, RequestError>;

/// A token refresh that any number of requests can wait for.
type SharedRefresh = Shared<BoxFuture<'static, TokenResult>>;

/// Shares one token refresh in flight among all requests to a server. Cheap to clone; clones share
/// state.
#[derive(Clone, Default)]
pub(super) struct RefreshCoordinator(Arc<Mutex<RefreshState>>);

#[derive(Default)]
struct RefreshState {
    in_flight: Option<(SharedRefresh, AbortHandle)>,
    tasks: JoinSet<()>,
    /// Whether the process is shutting down, so that the tokens of a new refresh could not be
    /// saved.
    is_shutting_down: bool,
}

impl RefreshCoordinator {
    /// Joins the token refresh in flight or starts a new one. Also returns whether this call
    /// started it. The refresh continues when its waiters are dropped.
    pub(super) fn join_or_start_refresh(
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
        let (tell, receiver) = oneshot::channel();
        let renewal = new();
        let task = open.tasks.spawn(async move {
            // The waiters may be gone. The result is already saved then.
            _ = tell.send(renewal.await);
        });
        let waited = receiver.map(|ended| {
            ended.unwrap_or_else(|_| {
                let why = "the login could not be refreshed: this process is shutting down";
                let sent = false;
                Err(RequestError { may_have_been_sent: sent, ..RequestError::new(why) })
            })
        });
        let waited = waited.boxed().shared();
        open.in_flight = Some((waited.clone(), task));
        (waited, true)
    }

    /// Returns whether the process is shutting down. Then no new token refresh is requested.
    pub(super) fn is_shutting_down(&self) -> bool {
        let open = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        open.is_shutting_down
    }

    /// Starts the shutdown and waits a limited time for the token refresh in flight. A refresh that
    /// has not sent its token request yet does not send it.
    pub(super) async fn shut_down(&self) {
        let open = {
            let mut open = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            open.is_shutting_down = true;
            open.in_flight.clone()
        };
        if let Some((waited, task)) = open
            && !task.is_finished()
        {
            // A refresh that takes longer is lost with the process.
            _ = timeout(SHUTDOWN_TIMEOUT, waited).await;
        }
    }
}
