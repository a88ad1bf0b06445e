//! Provides the access token of a login to requests, refreshes the token when it expires, and
//! explains what to do if there is none.
//!
//! Invariant: concurrent requests and processes share one refresh. A login is deleted only when the
//! authorization server rejects its refresh token or the user logs out.

use std::time::Duration;

use futures_util::FutureExt as _;
use longhaul_core::time::{Millis, Timestamp};
use reqwest::{StatusCode, Url};
use rmcp::transport::auth::{AuthError, StoredCredentials, WWWAuthenticateParams};
use tokio::time::timeout;
use tracing::instrument::WithSubscriber as _;
use tracing::subscriber::NoSubscriber;

use crate::auth::config::LoginContext;
use crate::auth::credential_file::{
    CredentialFile, CredentialFileError, CredentialFileLock, LoginTokens, StoredLogin,
};
use crate::auth::error::{auth_error_reason_and_hint, is_transient_auth_error, secrets_in_url};
use crate::auth::issuer::{IssuerError, LoginIssuer};
use crate::auth::redaction;
use crate::auth::refresh::{AccessToken, TokenResult};
use crate::auth::rejection::{self, login_command};
use crate::auth::revoke::{LogoutOutcome, revoke_login};
use crate::request_error::RequestError;

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

/// Provides the access token of the login at a server.
#[derive(Debug, Clone)]
pub(crate) struct TokenProvider {
    server: String,
    url: Url,
    login: LoginContext,
}

impl TokenProvider {
    pub(crate) fn new(server: &str, url: &Url, login: &LoginContext) -> Self {
        Self { server: server.to_owned(), url: url.clone(), login: login.clone() }
    }

    fn credential_file(&self) -> CredentialFile {
        CredentialFile::new(&self.login.dir, &self.url, &self.server)
    }

    /// Loads the newest state of the login. `None` means nobody is logged in.
    fn load_login(
        &self,
        file: &CredentialFile,
    ) -> Result<Option<StoredLogin>, CredentialFileError> {
        let record = file.load()?;
        Ok(record.map(|stored| self.login.unsaved.newest_login(stored)))
    }

    /// Returns the access token for a request, but never `rejected_token`, which the server has
    /// rejected before. The error says why the login can't be used.
    pub(crate) async fn access_token(&self, rejected_token: Option<&str>) -> TokenResult {
        if self.login.is_anonymous {
            return Ok(AccessToken::default());
        }
        loop {
            let Some(record) = self.load_login(&self.credential_file())? else {
                return Ok(AccessToken::default());
            };
            if let Some(access_token) = self.usable_token(&record, rejected_token) {
                return Ok(access_token);
            }
            let (refresh, is_ours) = self.login.refreshes.join_or_start_refresh(|| {
                let (provider, rejected_token) = (self.clone(), rejected_token.map(str::to_owned));
                async move { provider.refresh_access_token(rejected_token.as_deref()).await }
                    .boxed()
            });
            let access_token = match (refresh.await, rejected_token) {
                // The refresh was early: the old token stays valid until it expires.
                (Err(error), None) => return self.unexpired_token(&record).ok_or(error),
                (access_token, _) => access_token,
            };
            // The refresh we joined may have returned the very token that was rejected.
            let is_refused = access_token.as_ref().is_ok_and(|access_token| {
                let token = access_token.token.as_deref();
                token.is_some() && token == rejected_token
            });
            if is_ours || !is_refused {
                return access_token;
            }
        }
    }

    async fn refresh_access_token(&self, rejected_token: Option<&str>) -> TokenResult {
        let file = self.credential_file();
        let lock = file.lock().await?;
        // Another process may have refreshed the login before we got the lock.
        let Some(record) = self.load_login(&file)? else {
            return Ok(AccessToken::default());
        };
        match self.usable_token(&record, rejected_token) {
            Some(access_token) => Ok(access_token),
            None => self.refresh_under_lock(&file, &lock, record).await,
        }
    }

    /// Returns the stored access token if it can be used, or the reason why the login has none.
    /// `None` means the token has to be refreshed.
    fn usable_token(
        &self,
        login: &StoredLogin,
        rejected_token: Option<&str>,
    ) -> Option<AccessToken> {
        let without_token =
            |reason| Some(AccessToken { token: None, missing_reason: Some(reason) });
        let Some(tokens) = login.login_tokens() else {
            return without_token("the login was revoked");
        };
        let min_expiry = self.login.clock.now().plus(REFRESH_MARGIN);
        let is_unexpired =
            access_token_expiry(login, &tokens).is_none_or(|expiry| expiry > min_expiry);
        let is_fresh = is_unexpired && tokens.has_usable_access_token();
        let is_refused = rejected_token == Some(tokens.access_token.as_str());
        if is_fresh && !is_refused {
            return Some(self.build_access_token(login, tokens));
        }
        let client = self.login.oauth.client_id.as_ref();
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
        (end > self.login.clock.now()).then(|| self.build_access_token(login, tokens))
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

    async fn refresh_under_lock(
        &self,
        file: &CredentialFile,
        lock: &CredentialFileLock,
        record: StoredLogin,
    ) -> TokenResult {
        let secret = self.client_secret(&record);
        let refresh = record.login_tokens().and_then(|tokens| tokens.refresh_token);
        let refresh = refresh.unwrap_or_default();
        // The SDK would log secrets.
        let request = Box::pin(self.request_refresh(&record, secret.clone()));
        let request = request.with_subscriber(NoSubscriber::default());
        let mut secrets = secrets_in_url(&self.url);
        secrets.extend(secret.as_deref());
        secrets.push(&refresh);
        let refresh_error = |reason: &str, is_transient: bool| {
            let command = login_command(&self.server);
            let reason = format!(
                "the login could not be refreshed: {reason}; try again, or run `{command}`"
            );
            Err(RequestError::login_required(reason, is_transient))
        };
        match timeout(REFRESH_TIMEOUT, request).await {
            Err(_) => refresh_error("the request timed out", true),
            // Only this error means that the login is over. A transient error must not end it.
            Ok(Err(IssuerError::Sdk(AuthError::TokenRefreshRejected(_)))) => {
                let mut revoked = record;
                revoked.credentials.token_response = None;
                self.save_login((file, lock), &refresh, &revoked);
                Ok(AccessToken { token: None, missing_reason: Some("the login was revoked") })
            }
            Ok(Err(IssuerError::Sdk(error))) => refresh_error(
                &auth_error_reason_and_hint(&error, &secrets).0,
                is_transient_auth_error(&error),
            ),
            Ok(Err(IssuerError::Unusable(reason, is_transient))) => {
                refresh_error(reason, is_transient)
            }
            Ok(Ok(credentials)) => {
                let record =
                    StoredLogin::from_credentials(&self.url, record.client_secret, credentials);
                // Saved in any case, because the old refresh token may be invalid now.
                self.save_login((file, lock), &refresh, &record);
                record.register_secrets_to_redact();
                match record.login_tokens().filter(LoginTokens::has_usable_access_token) {
                    Some(tokens) => Ok(self.build_access_token(&record, tokens)),
                    None => refresh_error("the token is not valid in a header", false),
                }
            }
        }
    }

    async fn request_refresh(
        &self,
        record: &StoredLogin,
        secret: Option<String>,
    ) -> Result<StoredCredentials, IssuerError> {
        let credentials = &record.credentials;
        let issuer = LoginIssuer::discover(&self.url, credentials).await?;
        // During shutdown the response could arrive too late to be saved.
        if self.login.refreshes.is_shutting_down() {
            return Err(IssuerError::Unusable("this process is shutting down", true));
        }
        issuer.refresh_tokens(credentials, secret).await
    }

    /// Saves a refreshed login. If saving fails, the login is kept in memory for this process.
    /// `used_refresh_token` is the refresh token with which the login was refreshed.
    fn save_login(
        &self,
        (file, lock): (&CredentialFile, &CredentialFileLock),
        used_refresh_token: &str,
        login: &StoredLogin,
    ) {
        match file.save(lock, login) {
            Ok(()) => self.login.unsaved.clear(),
            Err(error) => {
                tracing::warn!(
                    server = self.server,
                    %error,
                    "could not save the refreshed login; it is lost when this process ends"
                );
                self.login.unsaved.set_refreshed_login(used_refresh_token, login.clone());
            }
        }
    }

    fn client_secret(&self, login: &StoredLogin) -> Option<String> {
        let oauth = &self.login.oauth;
        match &oauth.client_id {
            Some(id) if *id == login.credentials.client_id => oauth.client_secret.clone(),
            Some(_) => None,
            None => login.client_secret.clone(),
        }
    }

    /// Explains why a server rejected a request and what the user can do. Stores the server's
    /// `WWW-Authenticate` challenge for the next login. `None` if the rejection has nothing to do
    /// with the login.
    pub(crate) fn explain_rejection(
        &self,
        status: StatusCode,
        challenge: &str,
        access_token: &AccessToken,
    ) -> Option<String> {
        let params = WWWAuthenticateParams::parse(challenge, &self.url);
        // Other 403 responses say nothing about the scopes a login should request.
        if status != StatusCode::FORBIDDEN || params.is_insufficient_scope() {
            self.login.set_last_auth_challenge(challenge);
        }
        rejection::rejection_message(&self.server, status, &params, access_token)
    }

    /// Returns the status of the login. `None` means nobody is logged in.
    pub(crate) fn stored_login_status(&self) -> Result<Option<LoginStatus>, CredentialFileError> {
        let record = self.credential_file().load()?;
        Ok(record.map(|record| login_status(&record, self.login.clock.now())))
    }

    /// Deletes the login. If the authorization server may be contacted, the login is revoked there
    /// first. The login is deleted here even if the revocation fails.
    pub(crate) async fn log_out(
        &self,
        may_contact_server: bool,
    ) -> Result<LogoutOutcome, CredentialFileError> {
        let file = self.credential_file();
        let lock = file.lock().await?;
        let outcome = match self.load_login(&file) {
            Ok(None) => LogoutOutcome::NotLoggedIn,
            Ok(Some(_)) if !may_contact_server => LogoutOutcome::RevocationSkipped,
            Ok(Some(record)) => {
                let secret = self.client_secret(&record);
                revoke_login(&self.url, &record, secret.as_deref()).await
            }
            Err(_) => LogoutOutcome::revocation_failed("the stored login can't be read"),
        };
        let existed = file.delete(&lock)?;
        Ok(match existed {
            true => outcome,
            false => LogoutOutcome::NotLoggedIn,
        })
    }
}

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
    use std::sync::Arc;

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

    fn token_provider(oauth: OAuthConfig) -> TokenProvider {
        let login = LoginContext::new("/nowhere".into(), oauth, Arc::new(FixedClock));
        let url = "https://a.example/mcp".parse().unwrap();
        TokenProvider::new("far", &url, &login)
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
        let find_token = |record: &StoredLogin, oauth: OAuthConfig, rejected_token| {
            let access_token = token_provider(oauth).usable_token(record, rejected_token)?;
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
            let access_token = token_provider(OAuthConfig::default()).unexpired_token(&record);
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
            let secret = token_provider(config_with(id)).client_secret(&record);
            assert_eq!(secret.as_deref(), expected, "{id:?}");
        }
    }
}
