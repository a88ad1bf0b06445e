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
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((shared_refresh, task)) = &state.in_flight
            && !task.is_finished()
        {
            return (shared_refresh.clone(), false);
        }
        while state.tasks.try_join_next().is_some() {}
        let (sender, receiver) = oneshot::channel();
        let refresh = new();
        let task = state.tasks.spawn(async move {
            // The waiters may be gone. The result is already saved then.
            _ = sender.send(refresh.await);
        });
        let shared_refresh = receiver.map(|result| {
            result.unwrap_or_else(|_| {
                let reason = "the login could not be refreshed: this process is shutting down";
                let was_sent = false;
                Err(RequestError { may_have_been_sent: was_sent, ..RequestError::new(reason) })
            })
        });
        let shared_refresh = shared_refresh.boxed().shared();
        state.in_flight = Some((shared_refresh.clone(), task));
        (shared_refresh, true)
    }

    /// Returns whether the process is shutting down. Then no new token refresh is requested.
    pub(super) fn is_shutting_down(&self) -> bool {
        let state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        state.is_shutting_down
    }

    /// Starts the shutdown and waits a limited time for the token refresh in flight. A refresh that
    /// has not sent its token request yet does not send it.
    pub(super) async fn shut_down(&self) {
        let in_flight = {
            let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            state.is_shutting_down = true;
            state.in_flight.clone()
        };
        if let Some((shared_refresh, task)) = in_flight
            && !task.is_finished()
        {
            // A refresh that takes longer is lost with the process.
            _ = timeout(SHUTDOWN_TIMEOUT, shared_refresh).await;
        }
    }
}
