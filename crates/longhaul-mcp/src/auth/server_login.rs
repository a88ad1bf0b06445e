//! The login at one MCP server: provides its access token to requests, refreshes the token when it
//! expires, and explains what to do if there is none.
//!
//! Invariant: concurrent requests and processes share one refresh. A login is deleted only when the
//! authorization server rejects its refresh token or the user logs out. A token is sent only to the
//! authorization server that issued it.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use longhaul_core::time::{Millis, Timestamp};
use reqwest::Url;
use rmcp::transport::auth::{
    AuthError, AuthorizationManager, CredentialStore as _, InMemoryCredentialStore,
    OAuthClientConfig, OAuthHttpClient, StoredCredentials,
};
use tokio::time::timeout;
use tracing::instrument::WithSubscriber as _;
use tracing::subscriber::NoSubscriber;

use crate::auth::address_policy::ServerNetworkZone;
use crate::auth::context::{AccessToken, LoginContext, TokenResult};
use crate::auth::credential_file::{
    CredentialFile, CredentialFileError, FileLock, LoginTokens, PreparedSave, StoredLogin,
};
use crate::auth::error::{
    LoginError, is_transient_auth_error, login_command, reason_and_hint, secrets_in_url,
};
use crate::auth::oauth_http::OAuthHttp;
use crate::auth::redaction;
use crate::http_client::RequestError;
use crate::spec::{ServerSpec, ServerTransport};

/// An access token that expires within this time is refreshed before use.
const REFRESH_MARGIN: Millis = Millis::from_secs(30);

/// Timeout of a token refresh, including discovery of the authorization server.
const REFRESH_TIMEOUT: Duration = Duration::from_secs(60);

/// Status of a login at an MCP server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LoginStatus {
    /// OAuth scopes that the authorization server granted.
    pub scopes: Vec<String>,
    /// When the access token expires. `None` means the authorization server did not say.
    pub expires_at: Option<Timestamp>,
    /// Whether the access token is refreshed automatically.
    pub is_renewable: bool,
    /// Whether the login has expired and the user has to log in again.
    pub is_expired: bool,
}

/// The login at an MCP server, whether the user is logged in or not. Cheap to clone.
#[derive(Debug, Clone)]
pub struct ServerLogin {
    /// Name of the server in the project.
    pub(crate) server: String,
    pub(crate) url: Url,
    pub(crate) context: LoginContext,
}

/// Why a token refresh has failed.
enum RefreshError {
    Sdk(AuthError),
    /// The authorization server can't be used, so no token was sent. Holds the reason, and whether
    /// the problem is transient.
    Unusable(&'static str, bool),
}

impl From<AuthError> for RefreshError {
    fn from(error: AuthError) -> Self {
        Self::Sdk(error)
    }
}

impl From<CredentialFileError> for RequestError {
    fn from(error: CredentialFileError) -> Self {
        Self::login_required(error.to_string().trim_end_matches('.'), error.is_transient)
    }
}

impl ServerLogin {
    /// Returns the login at a server. `None` if it is no HTTP server with a valid URL, or the project
    /// sends an Authorization header of its own.
    pub(crate) fn from_spec(spec: &ServerSpec) -> Option<Self> {
        let ServerTransport::Http { url, .. } = &spec.transport else {
            return None;
        };
        let context = spec.transport.login_context()?.clone();
        Some(Self { server: spec.name.clone(), url: url.parse().ok()?, context })
    }

    pub(super) fn credential_file(&self) -> CredentialFile {
        CredentialFile::new(&self.context.dir, &self.url, &self.server)
    }

    /// Returns the access token for a request, but never `rejected`, which the server has
    /// rejected before. The error says why the login can't be used.
    pub(crate) async fn access_token(&self, rejected: Option<&str>) -> TokenResult {
        if self.context.is_anonymous {
            return Ok(AccessToken::default());
        }
        loop {
            let Some(login) = self.credential_file().load()? else {
                return Ok(AccessToken::default());
            };
            if let Some(access_token) = self.usable_token(&login, rejected) {
                return Ok(access_token);
            }
            let (refresh, is_ours) = self.context.state.refresh.join_or_start(|| {
                let (login, rejected) = (self.clone(), rejected.map(str::to_owned));
                async move { login.refresh_access_token(rejected.as_deref()).await }
            });
            let access_token = refresh.await.unwrap_or_else(|| {
                let reason = "the login could not be refreshed: this process is shutting down";
                Err(RequestError { may_have_been_sent: false, ..RequestError::new(reason) })
            });
            // The refresh we joined may have returned the very token that was rejected.
            let is_refused = access_token.as_ref().is_ok_and(|access_token| {
                access_token.token.is_some() && access_token.token.as_deref() == rejected
            });
            match access_token {
                // The refresh was early: the old token stays valid until it expires.
                Err(error) if rejected.is_none() => {
                    return self.unexpired_token(&login).ok_or(error);
                }
                Ok(_) if is_refused && !is_ours => {}
                access_token => return access_token,
            }
        }
    }

    async fn refresh_access_token(&self, rejected: Option<&str>) -> TokenResult {
        let file = self.credential_file();
        let lock = file.lock().await?;
        // Another process may have refreshed the login before we got the lock.
        let Some(login) = file.load()? else {
            return Ok(AccessToken::default());
        };
        match self.usable_token(&login, rejected) {
            Some(access_token) => Ok(access_token),
            None => self.refresh_under_lock(&file, &lock, login).await,
        }
    }

    /// Returns the stored access token if it can be used, or the reason why the login has none.
    /// `None` means the token has to be refreshed.
    fn usable_token(&self, login: &StoredLogin, rejected: Option<&str>) -> Option<AccessToken> {
        let without_token = |reason| Some(AccessToken::missing(reason));
        let Some(tokens) = login.login_tokens() else {
            return without_token(REVOKED);
        };
        let min_expiry = self.context.clock.now().plus(REFRESH_MARGIN);
        let is_unexpired =
            access_token_expiry(login, &tokens).is_none_or(|expiry| expiry > min_expiry);
        let is_fresh = is_unexpired && tokens.has_usable_access_token();
        let is_refused = rejected == Some(tokens.access_token.as_str());
        if is_fresh && !is_refused {
            return Some(self.build_access_token(login, tokens));
        }
        let client = self.context.oauth.client_id.as_ref();
        if client.is_some_and(|client| *client != login.credentials.client_id) {
            return without_token("the login belongs to another `clientId`");
        }
        match tokens.refresh_token {
            Some(_) => None,
            None if is_refused => without_token("the server no longer accepts the login"),
            None => without_token("the login has expired"),
        }
    }

    /// Returns the stored access token if it is still valid, even if it expires soon. `None` if it
    /// has expired or its expiry is unknown.
    fn unexpired_token(&self, login: &StoredLogin) -> Option<AccessToken> {
        let tokens = login.login_tokens().filter(LoginTokens::has_usable_access_token)?;
        let end = access_token_expiry(login, &tokens)?;
        (end > self.context.clock.now()).then(|| self.build_access_token(login, tokens))
    }

    /// Returns the access token of the login, and registers the secrets of the login for redaction.
    fn build_access_token(&self, login: &StoredLogin, tokens: LoginTokens) -> AccessToken {
        login.register_secrets_to_redact();
        // The project's own client secret is sent with every refresh.
        if let Some(secret) = self.client_secret(login) {
            redaction::register_token(&secret);
        }
        AccessToken { token: Some(tokens.access_token), missing_reason: None }
    }

    /// Saves the answer of the authorization server. If that fails, the answer is used all the same:
    /// a new access token is valid, and the server may have revoked the old refresh token.
    fn save_or_warn(&self, save: PreparedSave<'_>, login: &StoredLogin) {
        if let Err(error) = save.save(login) {
            let (server, command) = (&self.server, login_command(&self.server));
            tracing::warn!(
                "the refreshed login of the MCP server `{server}` is not saved: {error}; if the \
                 server refuses it later, run `{command}`"
            );
        }
    }

    async fn refresh_under_lock(
        &self,
        file: &CredentialFile,
        lock: &FileLock,
        mut login: StoredLogin,
    ) -> TokenResult {
        // No token is requested that could not be saved: the old refresh token may be invalid
        // after the request.
        let save = file.prepare_save(lock)?;
        let secret = self.client_secret(&login);
        let refresh_token = login.login_tokens().and_then(|tokens| tokens.refresh_token);
        // The SDK would log secrets.
        let request = Box::pin(self.request_refresh(&login, secret.clone()))
            .with_subscriber(NoSubscriber::default());
        let (reason, is_transient) = match timeout(REFRESH_TIMEOUT, request).await {
            Ok(Ok(credentials)) => {
                let login =
                    StoredLogin::from_credentials(&self.url, login.client_secret, credentials);
                login.register_secrets_to_redact();
                self.save_or_warn(save, &login);
                match login.login_tokens().filter(LoginTokens::has_usable_access_token) {
                    Some(tokens) => return Ok(self.build_access_token(&login, tokens)),
                    None => ("the token is not valid in a header".to_owned(), false),
                }
            }
            // Only this error means that the login is over. A transient error must not end it.
            Ok(Err(RefreshError::Sdk(AuthError::TokenRefreshRejected(_)))) => {
                login.credentials.token_response = None;
                self.save_or_warn(save, &login);
                return Ok(AccessToken::missing(REVOKED));
            }
            Ok(Err(RefreshError::Sdk(error))) => {
                let mut secrets = secrets_in_url(&self.url);
                secrets.extend(secret.as_deref().into_iter().chain(refresh_token.as_deref()));
                let (reason, _) = reason_and_hint(&error, &secrets);
                (reason, is_transient_auth_error(&error))
            }
            Ok(Err(RefreshError::Unusable(reason, is_transient))) => {
                (reason.to_owned(), is_transient)
            }
            Err(_) => ("the request timed out".to_owned(), true),
        };
        let command = login_command(&self.server);
        let reason =
            format!("the login could not be refreshed: {reason}; try again, or run `{command}`");
        Err(RequestError::login_required(reason, is_transient))
    }

    /// Requests new tokens from the authorization server that issued the login. It is discovered
    /// again each time. The result is not saved yet.
    async fn request_refresh(
        &self,
        login: &StoredLogin,
        secret: Option<String>,
    ) -> Result<StoredCredentials, RefreshError> {
        let credentials = &login.credentials;
        let (http, mut manager) = self.authorization_manager().await?;
        let found = manager.resolve_metadata().await?;
        // An authorization server that is temporarily unreachable looks to the SDK like one without
        // metadata.
        if found.metadata.issuer != credentials.issuer {
            let is_transient = !found.source.is_discovered();
            let reason = match is_transient {
                true => "the server currently names no authorization server",
                false => "the login was issued by another authorization server",
            };
            return Err(RefreshError::Unusable(reason, is_transient));
        }
        // Waiting does not help against an endpoint that is not allowed.
        let result = http.check_endpoints(&found.metadata);
        result.map_err(|reason| RefreshError::Unusable(reason, false))?;
        manager.set_metadata(found.metadata);
        let store = InMemoryCredentialStore::new();
        store.save(credentials.clone()).await?;
        manager.set_credential_store(store.clone());
        let mut client = OAuthClientConfig::new(&credentials.client_id, self.url.as_str());
        client.client_secret = secret;
        manager.configure_client(client)?;
        // During shutdown the response could arrive too late to be saved.
        if self.context.state.is_shutting_down.load(Ordering::Acquire) {
            return Err(RefreshError::Unusable("this process is shutting down", true));
        }
        manager.refresh_token().await?;
        store.load().await?.ok_or(RefreshError::Unusable("the server returned no tokens", false))
    }

    /// Creates the SDK's authorization manager for the server, and the HTTP client that it uses.
    pub(super) async fn authorization_manager(
        &self,
    ) -> Result<(Arc<OAuthHttp>, AuthorizationManager), AuthError> {
        let zone = ServerNetworkZone::zone_of_url(&self.url).await;
        let http = Arc::new(OAuthHttp::new(&self.url, zone).map_err(AuthError::InternalError)?);
        let client: Arc<dyn OAuthHttpClient> = Arc::<OAuthHttp>::clone(&http);
        let manager =
            AuthorizationManager::new_with_oauth_http_client(self.url.clone(), client).await?;
        Ok((http, manager))
    }

    fn client_secret(&self, login: &StoredLogin) -> Option<String> {
        let oauth = &self.context.oauth;
        match &oauth.client_id {
            Some(id) if *id == login.credentials.client_id => oauth.client_secret.clone(),
            Some(_) => None,
            None => login.client_secret.clone(),
        }
    }

    /// Returns the status of the login. `None` means nobody is logged in.
    pub fn status(&self) -> Result<Option<LoginStatus>, LoginError> {
        let login = self.credential_file().load()?;
        Ok(login.map(|login| login_status(&login, self.context.clock.now())))
    }

    /// Deletes the login. Returns whether the user was logged in.
    pub async fn log_out(&self) -> Result<bool, LoginError> {
        let file = self.credential_file();
        let lock = file.lock().await?;
        Ok(file.delete(&lock)?)
    }
}

/// Why there is no access token after the authorization server has rejected the refresh token.
const REVOKED: &str = "the login was revoked";

pub(super) fn login_status(login: &StoredLogin, now: Timestamp) -> LoginStatus {
    let tokens = login.login_tokens();
    let end = tokens.as_ref().and_then(|tokens| access_token_expiry(login, tokens));
    let is_renewable = tokens.as_ref().is_some_and(|tokens| tokens.refresh_token.is_some());
    let has_ended = end.is_some_and(|end| end <= now);
    LoginStatus {
        scopes: login.credentials.granted_scopes.clone(),
        expires_at: end,
        is_renewable,
        is_expired: tokens.is_none() || (has_ended && !is_renewable),
    }
}

/// Returns when the access token of a login expires. `None` if that is not known.
fn access_token_expiry(login: &StoredLogin, tokens: &LoginTokens) -> Option<Timestamp> {
    let received = login.credentials.token_received_at?;
    let end = received.saturating_add(tokens.expires_in?);
    let micros = i64::try_from(end).unwrap_or(i64::MAX).saturating_mul(1_000_000);
    Some(Timestamp::from_micros(micros))
}

#[cfg(test)]
mod tests {
    use super::*;
    use longhaul_core::oauth::OAuthConfig;

    #[derive(Debug)]
    struct FixedClock;

    #[async_trait::async_trait]
    impl longhaul_core::time::Clock for FixedClock {
        fn now(&self) -> Timestamp {
            Timestamp::from_micros(1_000_000_000)
        }

        async fn sleep(&self, _: Millis) {}
    }

    fn server_login(oauth: OAuthConfig) -> ServerLogin {
        let context = LoginContext::new("/nowhere".into(), oauth, Arc::new(FixedClock));
        let url = "https://a.example/mcp".parse().unwrap();
        ServerLogin { server: "far".to_owned(), url, context }
    }

    fn stored_login(tokens: serde_json::Value, received: u64) -> StoredLogin {
        let credentials = serde_json::json!({
            "client_id": "c",
            "token_response": tokens,
            "token_received_at": received,
        });
        let url = "https://a.example/mcp".parse().unwrap();
        StoredLogin::from_credentials(&url, None, serde_json::from_value(credentials).unwrap())
    }

    #[test]
    fn only_usable_tokens_are_returned() {
        let tokens = |expires: Option<u64>, refresh: Option<&str>| {
            serde_json::json!({
                "access_token": "a", "token_type": "bearer",
                "expires_in": expires, "refresh_token": refresh,
            })
        };
        let find_token = |record: &StoredLogin, oauth: OAuthConfig, rejected| {
            let access_token = server_login(oauth).usable_token(record, rejected)?;
            Some((access_token.token.is_some(), access_token.missing_reason.unwrap_or_default()))
        };
        let default_config = OAuthConfig::default;
        // The clock is at 1000 s.
        let fresh = stored_login(tokens(Some(100), Some("r")), 950);
        assert_eq!(find_token(&fresh, default_config(), None), Some((true, "")));
        assert_eq!(find_token(&fresh, default_config(), Some("b")), Some((true, "")));
        assert_eq!(find_token(&fresh, default_config(), Some("a")), None);
        let other = OAuthConfig { client_id: Some("d".into()), ..default_config() };
        let reason = "the login belongs to another `clientId`";
        assert_eq!(find_token(&fresh, other, Some("a")), Some((false, reason)));
        let expiring = stored_login(tokens(Some(100), Some("r")), 925);
        assert_eq!(find_token(&expiring, default_config(), None), None);
        let expired = stored_login(tokens(Some(100), None), 800);
        assert_eq!(
            find_token(&expired, default_config(), None),
            Some((false, "the login has expired"))
        );
        let permanent = stored_login(tokens(None, None), 0);
        assert_eq!(find_token(&permanent, default_config(), None), Some((true, "")));
        let reason = "the server no longer accepts the login";
        assert_eq!(find_token(&permanent, default_config(), Some("a")), Some((false, reason)));
        let mut invalid = tokens(None, Some("r"));
        invalid["access_token"] = "a\r\n".into();
        assert_eq!(find_token(&stored_login(invalid, 0), default_config(), None), None);
        let revoked = stored_login(serde_json::Value::Null, 0);
        assert_eq!(
            find_token(&revoked, default_config(), None),
            Some((false, "the login was revoked"))
        );
    }

    #[test]
    fn a_token_without_refresh_is_used_until_it_expires() {
        // The clock is at 1000 s.
        for (token, received, expires, expected) in [
            ("a", 925, Some(100), true),
            ("a", 899, Some(100), false),
            ("a b", 925, Some(100), false),
            ("a", 925, None, false),
        ] {
            let tokens = serde_json::json!({
                "access_token": token, "token_type": "bearer", "expires_in": expires,
            });
            let record = stored_login(tokens, received);
            let access_token = server_login(OAuthConfig::default()).unexpired_token(&record);
            assert_eq!(access_token.is_some(), expected, "{token} {received} {expires:?}");
        }
    }

    #[test]
    fn a_client_secret_is_sent_only_with_its_client_id() {
        let mut record = stored_login(serde_json::Value::Null, 0);
        record.client_secret = Some("registered".into());
        let config_with = |id: Option<&str>| OAuthConfig {
            client_id: id.map(str::to_owned),
            client_secret: id.map(|_| "ours".to_owned()),
            ..OAuthConfig::default()
        };
        for (id, expected) in
            [(None, Some("registered")), (Some("c"), Some("ours")), (Some("d"), None)]
        {
            let secret = server_login(config_with(id)).client_secret(&record);
            assert_eq!(secret.as_deref(), expected, "{id:?}");
        }
    }
}
