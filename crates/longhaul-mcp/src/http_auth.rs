//! How a request over HTTP goes out: with the token of a login, where there is one.
//!
//! Never: waits for a login until the time of a call is over. Who gives up before
//! anything was sent knows that nothing has happened.

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
use crate::request_error::{AuthNeed, RequestError};

/// A login that is being renewed is waited for so long at most.
pub(super) const LOGIN_TIMEOUT_MAX: Duration = Duration::from_secs(20);

pub(super) type HttpError = StreamableHttpError<RequestError>;

pub(super) fn transport_error(error: reqwest::Error) -> HttpError {
    StreamableHttpError::Client(error.into())
}

/// Makes requests within bounds.
#[derive(Debug, Clone)]
pub(super) struct AuthorizedClient {
    pub(super) client: Client,
    /// Who has the login; none: there is a key in the headers, or nothing.
    pub(super) token_provider: Option<Arc<TokenProvider>>,
    /// So long a login is waited for where a call may wait too.
    pub(super) login_timeout: Duration,
    /// Something else than a greeting was asked. Clones share it.
    is_past_handshake: Arc<AtomicBool>,
}

impl AuthorizedClient {
    pub(super) fn new(
        client: Client,
        keeper: Option<Arc<TokenProvider>>,
        patience: Duration,
    ) -> Self {
        Self {
            client,
            token_provider: keeper,
            login_timeout: patience.min(LOGIN_TIMEOUT_MAX),
            is_past_handshake: Arc::default(),
        }
    }

    /// How long a login is waited for before this is sent. Nothing can be in doubt before
    /// a server is greeted; a greeting in between is part of whatever needs it.
    pub(super) fn timeout_for(&self, message: &ClientJsonRpcMessage) -> Duration {
        if !is_handshake(message) {
            self.is_past_handshake.store(true, Ordering::Release);
        }
        match self.is_past_handshake.load(Ordering::Acquire) {
            true => self.login_timeout,
            false => LOGIN_TIMEOUT_MAX,
        }
    }

    /// Sends a request with the token of a login, where there is one. A token that
    /// is refused is renewed once: whoever is refused has done nothing yet.
    pub(super) async fn send(
        &self,
        request: RequestBuilder,
        patience: Duration,
    ) -> Result<Response, HttpError> {
        let Some(keeper) = &self.token_provider else {
            return request.send().await.map_err(transport_error);
        };
        let again = request.try_clone();
        let mut pass = access_token(keeper, None, patience).await?;
        let mut response = with_bearer(request, pass.token.as_deref()).send().await;
        if let (Ok(StatusCode::UNAUTHORIZED), Some(token), Some(again)) =
            (response.as_ref().map(Response::status), pass.token.as_deref(), again)
        {
            let newer = access_token(keeper, Some(token), patience).await?;
            if newer.token.is_some() {
                response = with_bearer(again, newer.token.as_deref()).send().await;
            }
            pass = newer;
        }
        let response = response.map_err(transport_error)?;
        let status = response.status();
        if !matches!(status, StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN) {
            return Ok(response);
        }
        match keeper.explain_rejection(status, challenge(response.headers()), &pass) {
            Some(why) => {
                let passes = false;
                Err(StreamableHttpError::Client(RequestError::login_required(why, passes)))
            }
            None => Ok(response),
        }
    }
}

/// What a request is sent with. A renewal goes on when nobody waits for it, so the next
/// request finds what came of it.
async fn access_token(
    keeper: &TokenProvider,
    refused: Option<&str>,
    patience: Duration,
) -> Result<AccessToken, HttpError> {
    let passed = match timeout(patience, keeper.access_token(refused)).await {
        Ok(passed) => passed,
        Err(_) => {
            let (why, passes) = ("its login is still being renewed; try it again", true);
            Err(RequestError::login_required(why, passes))
        }
    };
    passed.map_err(StreamableHttpError::Client)
}

/// Whether this belongs to a greeting.
fn is_handshake(message: &ClientJsonRpcMessage) -> bool {
    match message {
        JsonRpcMessage::Request(asked) => matches!(
            asked.request,
            ClientRequest::InitializeRequest(_) | ClientRequest::DiscoverRequest(_)
        ),
        JsonRpcMessage::Notification(told) => {
            matches!(told.notification, ClientNotification::InitializedNotification(_))
        }
        JsonRpcMessage::Response(_) | JsonRpcMessage::Error(_) => false,
    }
}

/// A stream that nobody is let in to is not asked for again and again; one for which
/// a login is missing only for a while is.
pub(super) fn as_auth_required(error: HttpError) -> HttpError {
    if let StreamableHttpError::Client(failed) = &error
        && failed.auth_need == (AuthNeed::Login { is_transient: false })
    {
        return StreamableHttpError::AuthRequired(AuthRequiredError::new(failed.reason.clone()));
    }
    error
}

/// What a server says about how it wants to be asked.
pub(super) fn challenge(headers: &HeaderMap) -> &str {
    let said = headers.get(WWW_AUTHENTICATE);
    said.and_then(|said| said.to_str().ok()).unwrap_or_default()
}

fn with_bearer(request: RequestBuilder, token: Option<&str>) -> RequestBuilder {
    match token {
        Some(token) => request.bearer_auth(token),
        None => request,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stream_is_abandoned_only_for_permanent_login_errors() {
        for (wants, is_given_up) in [
            (AuthNeed::Login { is_transient: false }, true),
            (AuthNeed::Login { is_transient: true }, false),
            (AuthNeed::None, false),
        ] {
            let error = RequestError { auth_need: wants, ..RequestError::new("why") };
            let error = as_auth_required(StreamableHttpError::Client(error));
            let given_up = matches!(error, StreamableHttpError::AuthRequired(_));
            assert_eq!(given_up, is_given_up, "{wants:?}");
        }
    }
}
