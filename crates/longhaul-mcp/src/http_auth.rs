//! Sends HTTP requests with the access token of a login, if there is one.
//!
//! Invariant: waiting for a token ends before the call's timeout. So a call that gives up here is
//! known to have had no effect.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use reqwest::header::{HeaderMap, WWW_AUTHENTICATE};
use reqwest::{Client, RequestBuilder, Response, StatusCode};
use rmcp::model::{ClientJsonRpcMessage, ClientNotification, ClientRequest, JsonRpcMessage};
use rmcp::transport::auth::WWWAuthenticateParams;
use rmcp::transport::streamable_http_client::{AuthRequiredError, StreamableHttpError};
use tokio::time::timeout;

use crate::auth::context::AccessToken;
use crate::auth::error::rejection_message;
use crate::auth::server_login::ServerLogin;
use crate::http_client::{RequestError, RequiredCredentials};

/// Maximum time to wait for a token refresh.
pub(super) const LOGIN_TIMEOUT_MAX: Duration = Duration::from_secs(20);

pub(super) type HttpTransportError = StreamableHttpError<RequestError>;

pub(super) fn transport_error(error: impl Into<RequestError>) -> HttpTransportError {
    StreamableHttpError::Client(error.into())
}

/// HTTP client that adds the access token to requests and limits how long it waits for the token.
#[derive(Debug, Clone)]
pub(super) struct AuthorizedClient {
    pub(super) client: Client,
    /// Source of access tokens. `None` means the headers hold a key, or no credentials are used.
    login: Option<Arc<ServerLogin>>,
    /// How long a request waits for an access token after the handshake, when calls may be in
    /// flight.
    pub(super) login_timeout: Duration,
    /// Whether a message was sent that is not part of the handshake. Clones share this flag.
    is_past_handshake: Arc<AtomicBool>,
}

impl AuthorizedClient {
    pub(super) fn new(client: Client, login: Option<ServerLogin>, max_wait: Duration) -> Self {
        Self {
            client,
            login: login.map(Arc::new),
            login_timeout: max_wait.min(LOGIN_TIMEOUT_MAX),
            is_past_handshake: Arc::default(),
        }
    }

    /// Returns how long to wait for an access token before this message is sent. Before the first
    /// handshake is finished, no call can be in doubt (sent, but with an unknown outcome), so the
    /// wait is longer. A later handshake is part of the call that needs it.
    pub(super) fn max_token_wait(&self, message: &ClientJsonRpcMessage) -> Duration {
        if !is_handshake(message) {
            self.is_past_handshake.store(true, Ordering::Release);
        }
        match self.is_past_handshake.load(Ordering::Acquire) {
            true => self.login_timeout,
            false => LOGIN_TIMEOUT_MAX,
        }
    }

    /// Sends a request with the access token, if there is one. After a 401 response the token is
    /// refreshed and the request is repeated once, which is safe because a rejected request has had
    /// no effect.
    pub(super) async fn send_with_token(
        &self,
        request: RequestBuilder,
        max_wait: Duration,
    ) -> Result<Response, HttpTransportError> {
        let Some(login) = &self.login else {
            return request.send().await.map_err(transport_error);
        };
        let retry = request.try_clone();
        let mut sent = access_token(login, None, max_wait).await?;
        let mut response = send_with_bearer(request, &sent).await?;
        if response.status() == StatusCode::UNAUTHORIZED
            && let (Some(token), Some(retry)) = (sent.token.as_deref(), retry)
        {
            sent = access_token(login, Some(token), max_wait).await?;
            if sent.token.is_some() {
                response = send_with_bearer(retry, &sent).await?;
            }
        }
        let status = response.status();
        if !matches!(status, StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN) {
            return Ok(response);
        }
        let challenge = www_authenticate_header(response.headers());
        let params = WWWAuthenticateParams::parse(challenge, &login.url);
        // The scopes of a challenge are requested at the next login.
        if status != StatusCode::FORBIDDEN || params.is_insufficient_scope() {
            login.context.set_last_challenge(challenge);
        }
        match rejection_message(&login.server, status, &params, &sent) {
            Some(reason) => Err(transport_error(RequestError::login_required(reason, false))),
            None => Ok(response),
        }
    }
}

/// Returns the access token for a request. A refresh continues after this wait times out, and the
/// next request uses its result.
async fn access_token(
    login: &ServerLogin,
    rejected: Option<&str>,
    max_wait: Duration,
) -> Result<AccessToken, HttpTransportError> {
    let result = timeout(max_wait, login.access_token(rejected)).await;
    let result = result.unwrap_or_else(|_| {
        let (reason, is_transient) = ("the login is still being refreshed; try again", true);
        Err(RequestError::login_required(reason, is_transient))
    });
    result.map_err(transport_error)
}

/// Returns whether this message belongs to the handshake.
fn is_handshake(message: &ClientJsonRpcMessage) -> bool {
    match message {
        JsonRpcMessage::Request(request) => matches!(
            request.request,
            ClientRequest::InitializeRequest(_) | ClientRequest::DiscoverRequest(_)
        ),
        JsonRpcMessage::Notification(notification) => {
            matches!(notification.notification, ClientNotification::InitializedNotification(_))
        }
        JsonRpcMessage::Response(_) | JsonRpcMessage::Error(_) => false,
    }
}

/// Maps a permanent login error to `AuthRequired`, so that the SDK stops reopening the event
/// stream. After a transient error the SDK tries again.
pub(super) fn permanent_to_auth_required(error: HttpTransportError) -> HttpTransportError {
    if let StreamableHttpError::Client(client_error) = &error
        && client_error.required_credentials == (RequiredCredentials::Login { is_transient: false })
    {
        let reason = client_error.reason.clone();
        return StreamableHttpError::AuthRequired(AuthRequiredError::new(reason));
    }
    error
}

/// Returns the `WWW-Authenticate` header of a response, or an empty string.
pub(super) fn www_authenticate_header(headers: &HeaderMap) -> &str {
    let header = headers.get(WWW_AUTHENTICATE);
    header.and_then(|header| header.to_str().ok()).unwrap_or_default()
}

async fn send_with_bearer(
    request: RequestBuilder,
    access_token: &AccessToken,
) -> Result<Response, HttpTransportError> {
    let request = match &access_token.token {
        Some(token) => request.bearer_auth(token),
        None => request,
    };
    request.send().await.map_err(transport_error)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_stream_is_abandoned_only_for_permanent_login_errors() {
        for (required_credentials, expected) in [
            (RequiredCredentials::Login { is_transient: false }, true),
            (RequiredCredentials::Login { is_transient: true }, false),
            (RequiredCredentials::None, false),
        ] {
            let error = RequestError { required_credentials, ..RequestError::new("why") };
            let error = permanent_to_auth_required(StreamableHttpError::Client(error));
            let is_given_up = matches!(error, StreamableHttpError::AuthRequired(_));
            assert_eq!(is_given_up, expected, "{required_credentials:?}");
        }
    }
}
