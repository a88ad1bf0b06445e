//! The login flow: discovery, authorization in a browser, code exchange, storing the tokens.
//!
//! Invariant: a callback is accepted only with the state of its own request. Neither the user nor a
//! secret is sent to an address that the address policy rejects.

use std::time::Duration;

use reqwest::Url;
use rmcp::transport::auth::{
    AuthError, AuthorizationCallback, AuthorizationManager, AuthorizationMetadata,
    CredentialStore as _, InMemoryCredentialStore, OAuthClientConfig,
};
use serde_json::Value;
use tokio::time::timeout;
use tracing::instrument::WithSubscriber as _;
use tracing::subscriber::NoSubscriber;

use crate::auth::credential_file::StoredLogin;
use crate::auth::error::{
    LoginError, REGISTER_CLIENT_HINT, login_command, reason_and_hint, sanitize_untrusted_text,
    secrets_in_url,
};
use crate::auth::server_login::{LoginStatus, ServerLogin, login_status};

/// Timeout of each of the two network phases of a login: discovery and code exchange.
const LOGIN_TIMEOUT: Duration = Duration::from_secs(90);

/// Maximum number of requested OAuth scopes.
const SCOPES_MAX: usize = 100;

/// Parameters of a login at an MCP server.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LoginRequest {
    /// URI to which the browser is redirected after the login.
    pub redirect_uri: String,
    /// OAuth scopes to request in addition to those the server requires.
    pub scopes: Vec<String>,
}

/// A login in progress: the user has to open its authorization URL in a browser.
pub struct PendingLogin {
    login: ServerLogin,
    manager: AuthorizationManager,
    /// Tokens that the SDK has received and that are not saved yet.
    credentials: InMemoryCredentialStore,
    authorization_url: String,
    state: String,
    /// Client secret of the OAuth client that was registered for this login. `None` if none was
    /// registered or it has no secret.
    client_secret: Option<String>,
}

impl std::fmt::Debug for PendingLogin {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("PendingLogin").field(&self.login.server).finish()
    }
}

impl ServerLogin {
    fn login_error(&self, reason: &str, hint: &str) -> LoginError {
        let server = &self.server;
        LoginError::Failed(format!(
            "The login at the MCP server `{server}` failed: {reason}. {hint}"
        ))
    }

    /// Converts an SDK error into a [`LoginError`]. The secrets that were sent in the request are
    /// redacted from its message.
    fn sdk_login_error(&self, error: &AuthError, sent_secrets: &[&str]) -> LoginError {
        let mut secrets = secrets_in_url(&self.url);
        secrets.extend(self.context.oauth.client_secret.as_deref());
        secrets.extend(sent_secrets);
        let (reason, hint) = reason_and_hint(error, &secrets);
        self.login_error(&reason, hint)
    }

    /// Converts the result of the SDK.
    fn checked<T>(&self, result: Result<T, AuthError>) -> Result<T, LoginError> {
        result.map_err(|error| self.sdk_login_error(&error, &[]))
    }

    /// Runs a network phase of a login: with a timeout, and without the log lines of the SDK, which
    /// contain secrets.
    async fn run_phase<T>(
        &self,
        max_wait: Duration,
        phase: impl Future<Output = Result<T, LoginError>>,
    ) -> Result<T, LoginError> {
        let phase = Box::pin(phase).with_subscriber(NoSubscriber::default());
        timeout(max_wait, phase).await.unwrap_or_else(|_| {
            let reason = format!("the server did not respond within {} s", max_wait.as_secs());
            Err(self.login_error(&reason, "Try again."))
        })
    }

    /// Returns whether the server publishes OAuth metadata. Such a server may also accept anonymous
    /// requests and require a login only for some tools.
    pub async fn is_advertised(&self) -> Result<bool, LoginError> {
        let discovery = async {
            let (http, manager) = self.checked(self.authorization_manager().await)?;
            // A login over this transport is not secure, whatever the metadata says.
            if http.check_url_allowed(&self.url).is_err() {
                return Ok(false);
            }
            let found = self.checked(manager.resolve_metadata().await)?;
            Ok(found.source.is_discovered())
        };
        self.run_phase(LOGIN_TIMEOUT, discovery).await
    }

    /// Starts a login: discovers the authorization server and creates the authorization URL.
    pub async fn start(&self, request: &LoginRequest) -> Result<PendingLogin, LoginError> {
        // Checked first, so that the user does not log in for nothing.
        self.credential_file().check_writable()?;
        self.run_phase(LOGIN_TIMEOUT, self.prepare(request)).await
    }

    async fn prepare(&self, request: &LoginRequest) -> Result<PendingLogin, LoginError> {
        let (http, mut manager) = self.checked(self.authorization_manager().await)?;
        http.check_url_allowed(&self.url).map_err(|_| {
            let reason = "the server's URL is not https://, so the login could be intercepted";
            self.login_error(reason, "Write its https:// URL as `url` in .mcp.json.")
        })?;
        let credentials = InMemoryCredentialStore::new();
        manager.set_credential_store(credentials.clone());
        let challenge = self.context.last_challenge();
        let found = manager.resolve_metadata_from_challenge(challenge.as_deref()).await;
        let found = self.checked(found)?;
        let result = http.check_endpoints(&found.metadata);
        result.map_err(|reason| self.login_error(reason, "Ask the operator of that server."))?;
        manager.set_metadata(found.metadata.clone());
        let scopes = self.select_scopes(request, &manager, &found.metadata).await?;
        let scopes: Vec<&str> = scopes.iter().map(String::as_str).collect();
        let client = self.configure_client(request, &mut manager, (&found.metadata, &scopes)).await;
        let is_discovered = found.source.is_discovered();
        let client_secret = client.map_err(|error| match is_discovered {
            true => error,
            false => self.login_error(
                "the server publishes no login metadata",
                "If it requires a key, write it as an Authorization header in .mcp.json.",
            ),
        })?;
        let authorization_url = self.checked(manager.get_authorization_url(&scopes).await)?;
        let state = authorization_url.parse().ok().and_then(|url| query_param(&url, "state"));
        Ok(PendingLogin {
            login: self.clone(),
            manager,
            credentials,
            state: state.unwrap_or_default(),
            authorization_url,
            client_secret,
        })
    }

    /// Returns the OAuth scopes to request: those of the project or of the server, those granted
    /// before, and those of this login request.
    async fn select_scopes(
        &self,
        request: &LoginRequest,
        manager: &AuthorizationManager,
        metadata: &AuthorizationMetadata,
    ) -> Result<Vec<String>, LoginError> {
        let mut scopes = self.context.oauth.scopes.clone();
        if scopes.is_empty() {
            scopes = manager.select_initial_scopes(&[]).await;
        } else {
            let supported = metadata.scopes_supported.iter().flatten();
            scopes.extend(supported.filter(|scope| *scope == "offline_access").cloned());
        }
        let previous = self.credential_file().load()?.map(|previous| previous.credentials);
        // Scopes that another authorization server granted do not apply.
        let previous = previous.filter(|previous| previous.issuer == metadata.issuer);
        let granted = previous.into_iter().flat_map(|previous| previous.granted_scopes);
        for scope in granted.chain(request.scopes.clone()) {
            if !scopes.contains(&scope) {
                scopes.push(scope);
            }
        }
        scopes.truncate(SCOPES_MAX);
        Ok(scopes)
    }

    /// Configures the OAuth client, registering a new client if necessary. Returns the client secret
    /// of a new registration.
    async fn configure_client(
        &self,
        request: &LoginRequest,
        manager: &mut AuthorizationManager,
        (metadata, scopes): (&AuthorizationMetadata, &[&str]),
    ) -> Result<Option<String>, LoginError> {
        let oauth = &self.context.oauth;
        let supports_document =
            metadata.additional_fields.get("client_id_metadata_document_supported")
                == Some(&Value::Bool(true));
        let document = oauth.client_metadata_url.as_ref().filter(|_| supports_document);
        if let Some(id) = oauth.client_id.as_ref().or(document) {
            let mut config = OAuthClientConfig::new(id, &request.redirect_uri);
            config.client_secret = oauth.client_id.as_ref().and(oauth.client_secret.clone());
            return self.checked(manager.configure_client(config).map(|()| None));
        }
        if metadata.registration_endpoint.is_none() {
            let reason = "the server can't register clients dynamically";
            return Err(self.login_error(reason, REGISTER_CLIENT_HINT));
        }
        let registration = manager.register_client("Longhaul", &request.redirect_uri, scopes);
        Ok(self.checked(registration.await)?.client_secret)
    }
}

fn query_param(url: &Url, name: &str) -> Option<String> {
    let found = url.query_pairs().find(|(key, _)| key == name);
    found.map(|(_, value)| value.into_owned())
}

impl PendingLogin {
    /// Returns the authorization URL that the user has to open.
    pub fn authorization_url(&self) -> &str {
        &self.authorization_url
    }

    /// Returns the OAuth `state` that the callback URL has to contain.
    pub fn oauth_state(&self) -> &str {
        &self.state
    }

    /// Returns whether this URL is the callback of this login, successful or not.
    pub fn matches_callback(&self, callback_url: &str) -> bool {
        let url = callback_url.trim().parse::<Url>().ok();
        let state = url.and_then(|url| query_param(&url, "state"));
        !self.state.is_empty() && state.as_deref() == Some(&self.state)
    }

    /// Finishes the login with the callback URL and saves the tokens.
    pub async fn finish_login(self, callback_url: &str) -> Result<LoginStatus, LoginError> {
        self.finish_with_timeout(callback_url, LOGIN_TIMEOUT).await
    }

    async fn finish_with_timeout(
        &self,
        callback_url: &str,
        max_wait: Duration,
    ) -> Result<LoginStatus, LoginError> {
        let stored = self.login.run_phase(max_wait, self.exchange_code(callback_url)).await?;
        stored.register_secrets_to_redact();
        // Another process may hold the lock for a while. The tokens must not be lost over that,
        // because the code can be used only once. So this wait is outside of the timeout.
        let file = self.login.credential_file();
        let lock = file.lock().await?;
        file.prepare_save(&lock)?.save(&stored)?;
        Ok(login_status(&stored, self.login.context.clock.now()))
    }

    /// Exchanges the authorization code in the callback URL for tokens.
    async fn exchange_code(&self, callback_url: &str) -> Result<StoredLogin, LoginError> {
        let hint = format!("Run `{}` again.", login_command(&self.login.server));
        let fail = |reason: &str| self.login.login_error(reason, &hint);
        let url: Url =
            callback_url.trim().parse().map_err(|_| fail("the callback is not a URL"))?;
        if !self.matches_callback(callback_url) {
            return Err(fail("the callback belongs to another login"));
        }
        if let Some(error) = query_param(&url, "error") {
            let description = query_param(&url, "error_description").unwrap_or_default();
            let reason = sanitize_untrusted_text(&format!("{error} {description}"), &[]);
            return Err(fail(&format!("the server rejected the login: {reason}")));
        }
        let AuthorizationCallback { code, csrf_token, issuer, .. } =
            AuthorizationCallback::from_redirect_url(url.as_str())
                .map_err(|_| fail("the callback has no code"))?;
        let exchange =
            self.manager.exchange_code_for_token_with_issuer(&code, &csrf_token, issuer.as_deref());
        exchange.await.map_err(|error| self.login.sdk_login_error(&error, &[&code]))?;
        let credentials = self.credentials.load().await.unwrap_or_default();
        let credentials = credentials.ok_or_else(|| fail("the server returned no tokens"))?;
        let secret = self.client_secret.clone();
        let stored = StoredLogin::from_credentials(&self.login.url, secret, credentials);
        let tokens = stored.login_tokens().unwrap_or_default();
        if !tokens.has_bearer_token() {
            let hint = "Ask its operator for a server that accepts bearer tokens.";
            return Err(self.login.login_error("the token has an unknown type", hint));
        }
        if !tokens.has_usable_access_token() {
            let hint = "Ask the operator of that server.";
            return Err(self.login.login_error("the token is not valid in a header", hint));
        }
        Ok(stored)
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;
    use rmcp::transport::auth::{OAuthHttpClient, OAuthHttpClientFuture, OAuthHttpRequest};

    use super::*;
    use std::sync::Arc;

    use crate::auth::context::LoginContext;
    use crate::auth::oauth_http::OAuthResponse;
    use longhaul_core::oauth::OAuthConfig;
    use longhaul_core::time::Timestamp;

    #[derive(Debug)]
    struct FixedClock;

    #[async_trait::async_trait]
    impl longhaul_core::time::Clock for FixedClock {
        fn now(&self) -> Timestamp {
            Timestamp::from_micros(0)
        }

        async fn sleep(&self, _: longhaul_core::time::Millis) {}
    }

    /// HTTP client that answers every request with this status and body.
    struct CannedHttpClient(u16, &'static str);

    impl OAuthHttpClient for CannedHttpClient {
        fn execute(&self, _: OAuthHttpRequest) -> OAuthHttpClientFuture<'_> {
            let mut response = OAuthResponse::new(self.1.as_bytes().to_vec());
            *response.status_mut() = self.0.try_into().unwrap();
            Box::pin(std::future::ready(Ok(response)))
        }
    }

    /// Returns a login that the user has authorized, and its callback URL.
    async fn authorized_login(
        folder: &std::path::Path,
        response: CannedHttpClient,
    ) -> (PendingLogin, String) {
        let url: Url = "https://u:p4ssw0rd@a.example/mcp?key=k3y".parse().unwrap();
        let metadata = serde_json::json!({
            "issuer": "https://a.example",
            "authorization_endpoint": "https://a.example/authorize",
            "token_endpoint": "https://a.example/token",
            "code_challenge_methods_supported": ["S256"],
            "response_types_supported": ["code"],
        });
        let manager =
            AuthorizationManager::new_with_oauth_http_client(url.clone(), Arc::new(response));
        let mut manager = manager.await.unwrap();
        let store = InMemoryCredentialStore::new();
        manager.set_credential_store(store.clone());
        manager.set_metadata(serde_json::from_value(metadata).unwrap());
        let client = OAuthClientConfig::new("us", "http://127.0.0.1/callback");
        manager.configure_client(client).unwrap();
        let address = manager.get_authorization_url(&[]).await.unwrap();
        let state = query_param(&address.parse().unwrap(), "state").unwrap();
        let callback_url = format!("http://127.0.0.1/callback?state={state}&code=c0de-7");
        let pending = PendingLogin {
            login: ServerLogin {
                server: "far".to_owned(),
                url,
                context: LoginContext::new(
                    folder.to_owned(),
                    OAuthConfig::default(),
                    Arc::new(FixedClock),
                ),
            },
            manager,
            credentials: store,
            authorization_url: address,
            state,
            client_secret: None,
        };
        (pending, callback_url)
    }

    const TOKEN_RESPONSE: CannedHttpClient =
        CannedHttpClient(200, r#"{"access_token":"a","token_type":"bearer"}"#);

    #[tokio::test]
    async fn new_credentials_are_saved_however_long_the_file_is_locked() {
        let temp_dir = tempfile::tempdir().unwrap();
        let (pending, callback_url) =
            authorized_login(&temp_dir.path().join("logins"), TOKEN_RESPONSE).await;
        let file = pending.login.credential_file();
        let lock = file.lock().await.unwrap();
        // The response is immediate, so a timeout of zero is enough for it.
        let mut finish = Box::pin(pending.finish_with_timeout(&callback_url, Duration::ZERO));
        assert!((&mut finish).now_or_never().is_none());
        drop(lock);
        finish.await.unwrap();
        assert!(file.load().unwrap().is_some());
    }

    #[tokio::test]
    async fn a_failed_login_error_has_no_secrets() {
        let temp_dir = tempfile::tempdir().unwrap();
        for (response, expected) in [
            (
                CannedHttpClient(
                    400,
                    r#"{"error":"invalid_grant","error_description":"c0de-7 by p4ssw0rd at key=k3y"}"#,
                ),
                "*** by *** at ***",
            ),
            (
                CannedHttpClient(200, r#"{"access_token":"a\r\n","token_type":"bearer"}"#),
                "not valid in a header",
            ),
            (
                CannedHttpClient(200, r#"{"access_token":"a","token_type":"mac"}"#),
                "has an unknown type",
            ),
        ] {
            let (pending, callback_url) =
                authorized_login(&temp_dir.path().join("logins"), response).await;
            let error = pending.finish_login(&callback_url).await.unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
            for secret in ["c0de", "p4ss", "k3y"] {
                assert!(!error.contains(secret), "{error}");
            }
        }
    }
}
