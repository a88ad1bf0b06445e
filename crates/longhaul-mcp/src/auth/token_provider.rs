//! Who holds the login at a server: hands its token to requests, renews it when it
//! has run out, and says what is wanted where there is none.
//!
//! Never: renews a login twice because two need it at once, or in two processes, and
//! never forgets one but when its authorization server says that it is over, or
//! somebody logs out.

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
    CredentialFile, CredentialFileError, FileLock, StoredLogin, TokenInfo,
};
use crate::auth::error::{describe, is_transient, url_secrets};
use crate::auth::issuer::{Issuer, IssuerError};
use crate::auth::redaction;
use crate::auth::refresh::{AccessToken, TokenResult};
use crate::auth::rejection::{self, login_command};
use crate::auth::revoke::{LogoutOutcome, revoke};
use crate::request_error::RequestError;

/// A token that ends within this is renewed before it is used.
const REFRESH_MARGIN: Millis = Millis::from_secs(30);

/// So long renewing may take, with all its questions.
const REFRESH_TIMEOUT: Duration = Duration::from_secs(60);

/// How a login stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LoginStatus {
    /// What it allows.
    pub scopes: Vec<String>,
    /// When its token ends; none: nobody said.
    pub expires_at: Option<Timestamp>,
    /// It is renewed by itself.
    pub is_renewable: bool,
    /// It has ended, and only a person can begin it anew.
    pub is_expired: bool,
}

/// Holds the login at a server.
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

    /// The login as it stands; none: there is none.
    fn load_login(
        &self,
        book: &CredentialFile,
    ) -> Result<Option<StoredLogin>, CredentialFileError> {
        let record = book.load()?;
        Ok(record.map(|kept| self.login.unsaved.newest(kept)))
    }

    /// What a request is sent with; a token that was refused is not handed out
    /// again. The error says why that is not known.
    pub(crate) async fn access_token(&self, refused: Option<&str>) -> TokenResult {
        if self.login.is_anonymous {
            return Ok(AccessToken::default());
        }
        loop {
            let Some(record) = self.load_login(&self.credential_file())? else {
                return Ok(AccessToken::default());
            };
            if let Some(pass) = self.usable_token(&record, refused) {
                return Ok(pass);
            }
            let (renewal, is_ours) = self.login.refreshes.join_or_start(|| {
                let (keeper, refused) = (self.clone(), refused.map(str::to_owned));
                async move { keeper.refresh(refused.as_deref()).await }.boxed()
            });
            let pass = match (renewal.await, refused) {
                // It is early: what can't be renewed just now is good until it ends.
                (Err(error), None) => return self.unexpired_token(&record).ok_or(error),
                (pass, _) => pass,
            };
            // Another may have waited for the very token that we were refused with.
            let is_refused = pass.as_ref().is_ok_and(|pass| {
                let token = pass.token.as_deref();
                token.is_some() && token == refused
            });
            if is_ours || !is_refused {
                return pass;
            }
        }
    }

    async fn refresh(&self, refused: Option<&str>) -> TokenResult {
        let book = self.credential_file();
        let hold = book.lock().await?;
        // Whoever held it before us may have renewed it.
        let Some(record) = self.load_login(&book)? else {
            return Ok(AccessToken::default());
        };
        match self.usable_token(&record, refused) {
            Some(pass) => Ok(pass),
            None => self.refresh_locked(&book, &hold, record).await,
        }
    }

    /// What is had without asking anybody; none: it is to be renewed.
    fn usable_token(&self, record: &StoredLogin, refused: Option<&str>) -> Option<AccessToken> {
        let over = |why| Some(AccessToken { token: None, missing_reason: Some(why) });
        let Some(facts) = record.token_info() else {
            return over("its login was taken back");
        };
        let soon = self.login.clock.now().plus(REFRESH_MARGIN);
        let lasts = expires_at(record, &facts).is_none_or(|until| until > soon);
        let is_fresh = lasts && facts.is_usable();
        let is_refused = refused == Some(facts.access_token.as_str());
        if is_fresh && !is_refused {
            return Some(self.issue_token(record, facts));
        }
        let client = self.login.oauth.client_id.as_ref();
        if client.is_some_and(|client| *client != record.credentials.client_id) {
            return over("its login belongs to another `clientId`");
        }
        match facts.refresh_token {
            Some(_) => None,
            None if is_refused => over("it takes its login no more"),
            None => over("its login has run out"),
        }
    }

    /// A token that ends soon, and has not ended yet.
    fn unexpired_token(&self, record: &StoredLogin) -> Option<AccessToken> {
        let facts = record.token_info().filter(TokenInfo::is_usable)?;
        let end = expires_at(record, &facts)?;
        (end > self.login.clock.now()).then(|| self.issue_token(record, facts))
    }

    fn issue_token(&self, record: &StoredLogin, facts: TokenInfo) -> AccessToken {
        record.register_secrets();
        // The project's own secret goes with every renewal.
        if let Some(secret) = self.client_secret(record) {
            redaction::register(&secret);
        }
        AccessToken { token: Some(facts.access_token), missing_reason: None }
    }

    async fn refresh_locked(
        &self,
        book: &CredentialFile,
        hold: &FileLock,
        record: StoredLogin,
    ) -> TokenResult {
        let secret = self.client_secret(&record);
        let refresh = record.token_info().and_then(|facts| facts.refresh_token);
        let refresh = refresh.unwrap_or_default();
        // The SDK tells its log more than is anybody's business.
        let asked = Box::pin(self.request_refresh(&record, secret.clone()));
        let asked = asked.with_subscriber(NoSubscriber::default());
        let mut secrets = url_secrets(&self.url);
        secrets.extend(secret.as_deref());
        secrets.push(&refresh);
        let failed = |why: &str, passes: bool| {
            let command = login_command(&self.server);
            let why =
                format!("its login could not be renewed: {why}; try it again, or run `{command}`");
            Err(RequestError::login_required(why, passes))
        };
        match timeout(REFRESH_TIMEOUT, asked).await {
            Err(_) => failed("nobody answered in time", true),
            // Nothing else says that the login is over: what passes must not end it.
            Ok(Err(IssuerError::Sdk(AuthError::TokenRefreshRejected(_)))) => {
                let mut gone = record;
                gone.credentials.token_response = None;
                self.save((book, hold), &refresh, &gone);
                Ok(AccessToken { token: None, missing_reason: Some("its login was taken back") })
            }
            Ok(Err(IssuerError::Sdk(error))) => {
                failed(&describe(&error, &secrets).0, is_transient(&error))
            }
            Ok(Err(IssuerError::Unusable(why, passes))) => failed(why, passes),
            Ok(Ok(credentials)) => {
                let record = StoredLogin::new(&self.url, record.client_secret, credentials);
                // Kept whatever it is: what it was renewed with may be good no more.
                self.save((book, hold), &refresh, &record);
                record.register_secrets();
                match record.token_info().filter(TokenInfo::is_usable) {
                    Some(facts) => Ok(self.issue_token(&record, facts)),
                    None => failed("it gave a token that can't be sent", false),
                }
            }
        }
    }

    async fn request_refresh(
        &self,
        record: &StoredLogin,
        secret: Option<String>,
    ) -> Result<StoredCredentials, IssuerError> {
        let given = &record.credentials;
        let issuer = Issuer::discover(&self.url, given).await?;
        // What is asked now may be answered when nobody is there to keep it.
        if self.login.refreshes.is_shutting_down() {
            return Err(IssuerError::Unusable("this process is ending", true));
        }
        issuer.refresh(given, secret).await
    }

    /// Writes down what came of a login. What can't be written is no less good, and
    /// whoever needs it here has it.
    fn save(&self, (book, hold): (&CredentialFile, &FileLock), used: &str, record: &StoredLogin) {
        match book.save(hold, record) {
            Ok(()) => self.login.unsaved.clear(),
            Err(error) => {
                tracing::warn!(
                    server = self.server,
                    %error,
                    "a renewed login could not be kept: it is lost when this process ends"
                );
                self.login.unsaved.set(used, record.clone());
            }
        }
    }

    fn client_secret(&self, record: &StoredLogin) -> Option<String> {
        let oauth = &self.login.oauth;
        match &oauth.client_id {
            Some(id) if *id == record.credentials.client_id => oauth.client_secret.clone(),
            Some(_) => None,
            None => record.client_secret.clone(),
        }
    }

    /// What it means that a server refused, in words that say what helps; and what
    /// it wants is remembered.
    pub(crate) fn explain_rejection(
        &self,
        status: StatusCode,
        challenge: &str,
        pass: &AccessToken,
    ) -> Option<String> {
        let params = WWWAuthenticateParams::parse(challenge, &self.url);
        // What else is forbidden says nothing of what a login should ask for.
        if status != StatusCode::FORBIDDEN || params.is_insufficient_scope() {
            self.login.set_challenge(challenge);
        }
        rejection::rejection_message(&self.server, status, &params, pass)
    }

    /// How the login stands; none: nobody has logged in.
    pub(crate) fn status(&self) -> Result<Option<LoginStatus>, CredentialFileError> {
        let record = self.credential_file().load()?;
        Ok(record.map(|record| login_status(&record, self.login.clock.now())))
    }

    /// Forgets the login, and has it taken back where it came from if anybody may be
    /// asked. Whatever comes of that, it is forgotten here.
    pub(crate) async fn log_out(
        &self,
        may_ask: bool,
    ) -> Result<LogoutOutcome, CredentialFileError> {
        let book = self.credential_file();
        let hold = book.lock().await?;
        let forgotten = match self.load_login(&book) {
            Ok(None) => LogoutOutcome::NotLoggedIn,
            Ok(Some(_)) if !may_ask => LogoutOutcome::RevocationSkipped,
            Ok(Some(record)) => {
                let secret = self.client_secret(&record);
                revoke(&self.url, &record, secret.as_deref()).await
            }
            Err(_) => LogoutOutcome::revocation_failed("what was kept can't be read"),
        };
        let was_there = book.delete(&hold)?;
        Ok(match was_there {
            true => forgotten,
            false => LogoutOutcome::NotLoggedIn,
        })
    }
}

/// How a login stands at this time.
pub(super) fn login_status(record: &StoredLogin, now: Timestamp) -> LoginStatus {
    let facts = record.token_info();
    let end = facts.as_ref().and_then(|facts| expires_at(record, facts));
    let renews = facts.as_ref().is_some_and(|facts| facts.refresh_token.is_some());
    let has_ended = end.is_some_and(|end| end <= now);
    LoginStatus {
        scopes: record.credentials.granted_scopes.clone(),
        expires_at: end,
        is_renewable: renews,
        is_expired: facts.is_none() || (has_ended && !renews),
    }
}

/// When a token ends.
fn expires_at(record: &StoredLogin, facts: &TokenInfo) -> Option<Timestamp> {
    let received = record.credentials.token_received_at?;
    let end = received.saturating_add(facts.expires_in?);
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

    fn record(tokens: serde_json::Value, received: u64) -> StoredLogin {
        let credentials = serde_json::json!({
            "client_id": "c",
            "token_response": tokens,
            "token_received_at": received,
        });
        let url = "https://a.example/mcp".parse().unwrap();
        StoredLogin::new(&url, None, serde_json::from_value(credentials).unwrap())
    }

    #[test]
    fn only_usable_tokens_are_returned() {
        let tokens = |expires: Option<u64>, refresh: Option<&str>| {
            serde_json::json!({
                "access_token": "a", "token_type": "bearer",
                "expires_in": expires, "refresh_token": refresh,
            })
        };
        let pass = |record: &StoredLogin, oauth: OAuthConfig, refused| {
            let pass = token_provider(oauth).usable_token(record, refused)?;
            Some((pass.token.is_some(), pass.missing_reason.unwrap_or_default()))
        };
        let plain = OAuthConfig::default;
        // It is 1000 s past the beginning.
        let fresh = record(tokens(Some(100), Some("r")), 950);
        assert_eq!(pass(&fresh, plain(), None), Some((true, "")));
        assert_eq!(pass(&fresh, plain(), Some("b")), Some((true, "")));
        assert_eq!(pass(&fresh, plain(), Some("a")), None);
        let other = OAuthConfig { client_id: Some("d".into()), ..plain() };
        let why = "its login belongs to another `clientId`";
        assert_eq!(pass(&fresh, other, Some("a")), Some((false, why)));
        let soon = record(tokens(Some(100), Some("r")), 925);
        assert_eq!(pass(&soon, plain(), None), None);
        let ended = record(tokens(Some(100), None), 800);
        assert_eq!(pass(&ended, plain(), None), Some((false, "its login has run out")));
        let lasting = record(tokens(None, None), 0);
        assert_eq!(pass(&lasting, plain(), None), Some((true, "")));
        let why = "it takes its login no more";
        assert_eq!(pass(&lasting, plain(), Some("a")), Some((false, why)));
        let mut broken = tokens(None, Some("r"));
        broken["access_token"] = "a\r\n".into();
        assert_eq!(pass(&record(broken, 0), plain(), None), None);
        let gone = record(serde_json::Value::Null, 0);
        assert_eq!(pass(&gone, plain(), None), Some((false, "its login was taken back")));
    }

    #[test]
    fn a_token_without_refresh_is_used_until_it_expires() {
        // It is 1000 s past the beginning.
        for (token, received, expires, expect) in [
            ("a", 925, Some(100), true),
            ("a", 899, Some(100), false),
            ("a b", 925, Some(100), false),
            ("a", 925, None, false),
        ] {
            let tokens = serde_json::json!({
                "access_token": token, "token_type": "bearer", "expires_in": expires,
            });
            let record = record(tokens, received);
            let pass = token_provider(OAuthConfig::default()).unexpired_token(&record);
            assert_eq!(pass.is_some(), expect, "{token} {received} {expires:?}");
        }
    }

    #[test]
    fn a_client_secret_is_sent_only_with_its_client_id() {
        let mut record = record(serde_json::Value::Null, 0);
        record.client_secret = Some("registered".into());
        let known = |id: Option<&str>| OAuthConfig {
            client_id: id.map(str::to_owned),
            client_secret: id.map(|_| "ours".to_owned()),
            ..OAuthConfig::default()
        };
        for (id, expect) in
            [(None, Some("registered")), (Some("c"), Some("ours")), (Some("d"), None)]
        {
            let secret = token_provider(known(id)).client_secret(&record);
            assert_eq!(secret.as_deref(), expect, "{id:?}");
        }
    }
}
