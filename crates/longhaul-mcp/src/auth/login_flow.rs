//! The login flow: discovery, authorization in a browser, code exchange, storing the tokens.
//!
//! Invariant: a callback is accepted only with the state of its own request. Neither the user nor a
//! secret is sent to an address that the address policy rejects.

use std::sync::Arc;
use std::time::Duration;

use longhaul_core::time::Timestamp;
use reqwest::Url;
use rmcp::transport::auth::{
    AuthError, AuthorizationCallback, AuthorizationManager, AuthorizationMetadata,
    AuthorizationMetadataSource, CredentialStore as _, InMemoryCredentialStore, OAuthClientConfig,
};
use tokio::time::timeout;
use tracing::instrument::WithSubscriber as _;
use tracing::subscriber::NoSubscriber;

use crate::auth::address_policy::ServerNetworkZone;
use crate::auth::config::LoginContext;
use crate::auth::credential_file::{CredentialFile, StoredLogin};
use crate::auth::error::{
    LoginError, REGISTER_CLIENT_HINT, auth_error_reason_and_hint, sanitize_untrusted_text,
    secrets_in_url,
};
use crate::auth::oauth_http::OAuthHttp;
use crate::auth::token_provider::{LoginStatus, login_status};

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
    server: String,
    url: Url,
    login: LoginContext,
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
        f.debug_tuple("PendingLogin").field(&self.server).finish()
    }
}

/// The MCP server to log in at, with its URL and login context.
#[derive(Clone, Copy)]
pub(crate) struct LoginTarget<'a> {
    pub(crate) server: &'a str,
    pub(crate) url: &'a Url,
    pub(crate) login: &'a LoginContext,
}

impl LoginTarget<'_> {
    fn login_error(&self, reason: &str, hint: &str) -> LoginError {
        LoginError::Failed {
            server: self.server.to_owned(),
            reason: reason.to_owned(),
            hint: hint.to_owned(),
        }
    }

    fn credential_file(&self) -> CredentialFile {
        CredentialFile::new(&self.login.dir, self.url, self.server)
    }

    fn login_error_from(&self, error: &AuthError) -> LoginError {
        self.redacted_login_error_from(error, &[])
    }

    /// Converts an SDK error into a [`LoginError`]. The secrets that were sent in the request are
    /// redacted from its message.
    fn redacted_login_error_from(&self, error: &AuthError, sent_secrets: &[&str]) -> LoginError {
        let mut secrets = secrets_in_url(self.url);
        secrets.extend(self.login.oauth.client_secret.as_deref());
        secrets.extend(sent_secrets);
        let (reason, hint) = auth_error_reason_and_hint(error, &secrets);
        self.login_error(&reason, hint)
    }

    fn timeout_error(&self) -> LoginError {
        let reason = format!("the server did not respond within {} s", LOGIN_TIMEOUT.as_secs());
        self.login_error(&reason, "Try again.")
    }
}

/// Starts a login: discovers the authorization server and creates the authorization URL.
pub(crate) async fn start_login(
    target: LoginTarget<'_>,
    request: &LoginRequest,
) -> Result<PendingLogin, LoginError> {
    // Checked first, so that the user does not log in for nothing.
    target.credential_file().check_writable()?;
    // The SDK would log secrets.
    let pending = Box::pin(prepare_login(target, request)).with_subscriber(NoSubscriber::default());
    match timeout(LOGIN_TIMEOUT, pending).await {
        Ok(pending) => pending,
        Err(_) => Err(target.timeout_error()),
    }
}

/// Returns whether a server publishes OAuth metadata. Such a server may also accept anonymous
/// requests and require a login only for some tools.
pub(crate) async fn advertises_login(target: LoginTarget<'_>) -> Result<bool, LoginError> {
    let discovery = Box::pin(has_oauth_metadata(target)).with_subscriber(NoSubscriber::default());
    match timeout(LOGIN_TIMEOUT, discovery).await {
        Ok(found) => found,
        Err(_) => Err(target.timeout_error()),
    }
}

/// Creates the SDK's authorization manager for a server, and returns the server's network zone.
async fn new_authorization_manager(
    target: LoginTarget<'_>,
) -> Result<(ServerNetworkZone, AuthorizationManager), LoginError> {
    let http = OAuthHttp::new_for_server(target.url).await;
    let http = http.map_err(|reason| target.login_error(&reason, "Try again."))?;
    let zone = http.zone();
    let url = target.url.clone();
    let manager = AuthorizationManager::new_with_oauth_http_client(url, Arc::new(http));
    Ok((zone, manager.await.map_err(|error| target.login_error_from(&error))?))
}

async fn has_oauth_metadata(target: LoginTarget<'_>) -> Result<bool, LoginError> {
    let (zone, manager) = new_authorization_manager(target).await?;
    // A login over this transport is not secure, whatever the metadata says.
    if zone.check_url_allowed(target.url).is_err() {
        return Ok(false);
    }
    let found = manager.resolve_metadata().await;
    let found = found.map_err(|error| target.login_error_from(&error))?;
    Ok(found.source != AuthorizationMetadataSource::LegacyEndpointFallback)
}

async fn prepare_login(
    target: LoginTarget<'_>,
    request: &LoginRequest,
) -> Result<PendingLogin, LoginError> {
    let to_error = |error: AuthError| target.login_error_from(&error);
    let (zone, mut manager) = new_authorization_manager(target).await?;
    zone.check_url_allowed(target.url).map_err(|_| {
        let reason = "the server's URL is not https://, so the login could be intercepted";
        target.login_error(reason, "Write its https:// URL as `url` in .mcp.json.")
    })?;
    let store = InMemoryCredentialStore::new();
    manager.set_credential_store(store.clone());
    let challenge = target.login.last_auth_challenge();
    let found = manager.resolve_metadata_from_challenge(challenge.as_deref());
    let found = found.await.map_err(to_error)?;
    let is_fallback = found.source == AuthorizationMetadataSource::LegacyEndpointFallback;
    let metadata = found.metadata;
    check_oauth_endpoints_allowed(target, zone, &metadata)?;
    manager.set_metadata(metadata.clone());
    let scopes = select_scopes(target, request, &manager, &metadata).await?;
    let client = configure_oauth_client(target, request, &mut manager, (&metadata, &scopes)).await;
    let client_secret = client.map_err(|error| match is_fallback {
        true => target.login_error(
            "the server publishes no login metadata",
            "If it requires a key, write it as an Authorization header in .mcp.json.",
        ),
        false => error,
    })?;
    let scope_names: Vec<&str> = scopes.iter().map(String::as_str).collect();
    let address = manager.get_authorization_url(&scope_names).await.map_err(to_error)?;
    let state = address.parse::<Url>().ok().and_then(|url| query_param(&url, "state"));
    Ok(PendingLogin {
        server: target.server.to_owned(),
        url: target.url.clone(),
        login: target.login.clone(),
        manager,
        credentials: store,
        state: state.unwrap_or_default(),
        authorization_url: address,
        client_secret,
    })
}

/// Checks whether the address policy allows requests to the endpoints of an authorization server.
fn check_oauth_endpoints_allowed(
    target: LoginTarget<'_>,
    zone: ServerNetworkZone,
    metadata: &AuthorizationMetadata,
) -> Result<(), LoginError> {
    let registration = metadata.registration_endpoint.as_ref();
    let endpoints = [&metadata.authorization_endpoint, &metadata.token_endpoint];
    for endpoint in endpoints.into_iter().chain(registration) {
        let url = endpoint.parse::<Url>().map_err(|_| "an OAuth endpoint is not a valid URL");
        let result = url.and_then(|url| zone.check_url_allowed(&url));
        result.map_err(|reason| target.login_error(reason, "Ask the operator of that server."))?;
    }
    Ok(())
}

/// Returns the OAuth scopes to request: those of the project or of the server, those granted
/// before, and those of this login request.
async fn select_scopes(
    target: LoginTarget<'_>,
    request: &LoginRequest,
    manager: &AuthorizationManager,
    metadata: &AuthorizationMetadata,
) -> Result<Vec<String>, LoginError> {
    let mut scopes = match target.login.oauth.scopes.as_slice() {
        [] => manager.select_initial_scopes(&[]).await,
        configured => {
            let offline_scope = "offline_access".to_owned();
            let supported = metadata.scopes_supported.as_ref();
            let is_supported = supported.is_some_and(|scopes| scopes.contains(&offline_scope));
            configured.iter().cloned().chain(is_supported.then_some(offline_scope)).collect()
        }
    };
    let previous = target.credential_file().load()?;
    // Scopes that another authorization server granted do not apply.
    let previous = previous.filter(|previous| previous.credentials.issuer == metadata.issuer);
    let previous = previous.map(|previous| previous.credentials.granted_scopes);
    let extra_scopes = previous.into_iter().flatten().chain(request.scopes.clone());
    for scope in extra_scopes {
        if !scopes.contains(&scope) {
            scopes.push(scope);
        }
    }
    scopes.truncate(SCOPES_MAX);
    Ok(scopes)
}

/// Configures the OAuth client, registering a new client if necessary. Returns the client secret of
/// a new registration.
async fn configure_oauth_client(
    target: LoginTarget<'_>,
    request: &LoginRequest,
    manager: &mut AuthorizationManager,
    (metadata, scopes): (&AuthorizationMetadata, &[String]),
) -> Result<Option<String>, LoginError> {
    let oauth = &target.login.oauth;
    let to_error = |error: AuthError| target.login_error_from(&error);
    if let Some(id) = &oauth.client_id {
        let config = OAuthClientConfig::new(id, &request.redirect_uri);
        let config = match &oauth.client_secret {
            Some(secret) => config.with_client_secret(secret),
            None => config,
        };
        manager.configure_client(config).map_err(to_error)?;
        return Ok(None);
    }
    let supported = metadata.additional_fields.get("client_id_metadata_document_supported");
    let is_supported = supported.and_then(serde_json::Value::as_bool) == Some(true);
    if let (Some(document), true) = (&oauth.client_metadata_url, is_supported) {
        let config = OAuthClientConfig::new(document, &request.redirect_uri);
        manager.configure_client(config).map_err(to_error)?;
        return Ok(None);
    }
    if metadata.registration_endpoint.is_none() {
        return Err(target
            .login_error("the server can't register clients dynamically", REGISTER_CLIENT_HINT));
    }
    let scope_names: Vec<&str> = scopes.iter().map(String::as_str).collect();
    let registration = manager.register_client("Longhaul", &request.redirect_uri, &scope_names);
    Ok(registration.await.map_err(to_error)?.client_secret)
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
        let exchange = Box::pin(self.exchange_code_for_tokens(callback_url))
            .with_subscriber(NoSubscriber::default());
        let record = match timeout(max_wait, exchange).await {
            Ok(result) => result?,
            Err(_) => return Err(self.login_target().timeout_error()),
        };
        record.register_secrets_to_redact();
        // Another process may hold the lock for a while. The tokens must not be lost over that,
        // because the code can be used only once. So this wait is outside of the timeout.
        let file = self.login_target().credential_file();
        let lock = file.lock().await?;
        file.save(&lock, &record)?;
        let now: Timestamp = self.login.clock.now();
        Ok(login_status(&record, now))
    }

    fn login_target(&self) -> LoginTarget<'_> {
        LoginTarget { server: &self.server, url: &self.url, login: &self.login }
    }

    /// Exchanges the authorization code in the callback URL for tokens.
    async fn exchange_code_for_tokens(
        &self,
        callback_url: &str,
    ) -> Result<StoredLogin, LoginError> {
        let target = self.login_target();
        let hint = format!("Run `longhaul mcp login {}` again.", self.server);
        let fail = |reason: &str| target.login_error(reason, &hint);
        let Ok(url) = callback_url.trim().parse::<Url>() else {
            return Err(fail("the callback is not a URL"));
        };
        if !self.matches_callback(callback_url) {
            return Err(fail("the callback belongs to another login"));
        }
        if let Some(error) = query_param(&url, "error") {
            let description = query_param(&url, "error_description").unwrap_or_default();
            let reason = sanitize_untrusted_text(&format!("{error} {description}"), &[]);
            return Err(fail(&format!("the server rejected the login: {reason}")));
        }
        let Ok(callback) = AuthorizationCallback::from_redirect_url(url.as_str()) else {
            return Err(fail("the callback has no code"));
        };
        let (code, token) = (callback.code.as_str(), callback.csrf_token.as_str());
        let issuer = callback.issuer.as_deref();
        let exchange = self.manager.exchange_code_for_token_with_issuer(code, token, issuer).await;
        exchange.map_err(|error| target.redacted_login_error_from(&error, &[code]))?;
        let Some(credentials) = self.credentials.load().await.unwrap_or_default() else {
            return Err(fail("the server returned no tokens"));
        };
        let record =
            StoredLogin::from_credentials(&self.url, self.client_secret.clone(), credentials);
        let tokens = record.login_tokens().unwrap_or_default();
        if !tokens.has_bearer_token() {
            let hint = "Ask its operator for a server that accepts bearer tokens.";
            return Err(target.login_error("the token has an unknown type", hint));
        }
        if !tokens.has_usable_access_token() {
            let hint = "Ask the operator of that server.";
            return Err(target.login_error("the token is not valid in a header", hint));
        }
        Ok(record)
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;
    use rmcp::transport::auth::{OAuthHttpClient, OAuthHttpClientFuture, OAuthHttpRequest};

    use super::*;
    use crate::auth::oauth_http::OAuthResponse;
    use longhaul_core::oauth::OAuthConfig;

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
            server: "far".to_owned(),
            url,
            login: LoginContext::new(
                folder.to_owned(),
                OAuthConfig::default(),
                Arc::new(FixedClock),
            ),
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
        let file = pending.login_target().credential_file();
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
