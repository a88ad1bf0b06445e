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
use rmcp::transport::streamable_http_client::{AuthRequiredError, StreamableHttpError};
use tokio::time::timeout;

use crate::auth::refresh::AccessToken;
use crate::auth::token_provider::TokenProvider;
use crate::request_error::{RequestError, RequiredCredentials};

/// Maximum time to wait for a token refresh.
pub(super) const LOGIN_TIMEOUT_MAX: Duration = Duration::from_secs(20);

pub(super) type HttpTransportError = StreamableHttpError<RequestError>;

pub(super) fn transport_error(error: reqwest::Error) -> HttpTransportError {
    StreamableHttpError::Client(error.into())
}

/// HTTP client that adds the access token to requests and limits how long it waits for the token.
#[derive(Debug, Clone)]
pub(super) struct AuthorizedClient {
    pub(super) client: Client,
    /// Source of access tokens. `None` means the headers hold a key, or no credentials are used.
    pub(super) token_provider: Option<Arc<TokenProvider>>,
    /// How long a request waits for an access token after the handshake, when calls may be in
    /// flight.
    pub(super) login_timeout: Duration,
    /// Whether a message was sent that is not part of the handshake. Clones share this flag.
    is_past_handshake: Arc<AtomicBool>,
}

impl AuthorizedClient {
    pub(super) fn with_token_provider(
        client: Client,
        provider: Option<Arc<TokenProvider>>,
        max_wait: Duration,
    ) -> Self {
        Self {
            client,
            token_provider: provider,
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
        let Some(provider) = &self.token_provider else {
            return request.send().await.map_err(transport_error);
        };
        let retry = request.try_clone();
        let mut current_token = access_token(provider, None, max_wait).await?;
        let mut response = add_bearer_token(request, current_token.token.as_deref()).send().await;
        if let (Ok(StatusCode::UNAUTHORIZED), Some(token), Some(retry)) =
            (response.as_ref().map(Response::status), current_token.token.as_deref(), retry)
        {
            let new_token = access_token(provider, Some(token), max_wait).await?;
            if new_token.token.is_some() {
                response = add_bearer_token(retry, new_token.token.as_deref()).send().await;
            }
            current_token = new_token;
        }
        let response = response.map_err(transport_error)?;
        let status = response.status();
        if !matches!(status, StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN) {
            return Ok(response);
        }
        match provider.explain_rejection(
            status,
            www_authenticate_header(response.headers()),
            &current_token,
        ) {
            Some(reason) => {
                let is_transient = false;
                Err(StreamableHttpError::Client(RequestError::login_required(reason, is_transient)))
            }
            None => Ok(response),
        }
    }
}

/// Returns the access token for a request. A refresh continues after this wait times out, and the
/// next request uses its result.
async fn access_token(
    provider: &TokenProvider,
    rejected_token: Option<&str>,
    max_wait: Duration,
) -> Result<AccessToken, HttpTransportError> {
    let result = match timeout(max_wait, provider.access_token(rejected_token)).await {
        Ok(result) => result,
        Err(_) => {
            let (reason, is_transient) = ("the login is still being refreshed; try again", true);
            Err(RequestError::login_required(reason, is_transient))
        }
    };
    result.map_err(StreamableHttpError::Client)
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
pub(super) fn permanent_login_error_to_auth_required(
    error: HttpTransportError,
) -> HttpTransportError {
    if let StreamableHttpError::Client(client_error) = &error
        && client_error.required_credentials == (RequiredCredentials::Login { is_transient: false })
    {
        return StreamableHttpError::AuthRequired(AuthRequiredError::new(
            client_error.reason.clone(),
        ));
    }
    error
}

/// Returns the `WWW-Authenticate` header of a response, or an empty string.
pub(super) fn www_authenticate_header(headers: &HeaderMap) -> &str {
    let header = headers.get(WWW_AUTHENTICATE);
    header.and_then(|header| header.to_str().ok()).unwrap_or_default()
}

fn add_bearer_token(request: RequestBuilder, token: Option<&str>) -> RequestBuilder {
    match token {
        Some(token) => request.bearer_auth(token),
        None => request,
    }
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
            let error = permanent_login_error_to_auth_required(StreamableHttpError::Client(error));
            let is_given_up = matches!(error, StreamableHttpError::AuthRequired(_));
            assert_eq!(is_given_up, expected, "{required_credentials:?}");
        }
    }
}
