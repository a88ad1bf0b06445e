//! Who holds the login at a server: hands its token to requests, renews it when it
//! has run out, and says what is wanted where there is none.
//!
//! Never: renews a login twice because two need it at once, or in two processes, and
//! never forgets one but when its authorization server says that it is over.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use futures_util::FutureExt as _;
use longhaul_core::time::{Millis, Timestamp};
use reqwest::{StatusCode, Url};
use rmcp::transport::auth::{
    AuthError, AuthorizationManager, AuthorizationMetadataSource, CredentialStore,
    OAuthClientConfig, StoredCredentials, WWWAuthenticateParams,
};
use tokio::time::timeout;
use tracing::instrument::WithSubscriber as _;
use tracing::subscriber::NoSubscriber;

use crate::mcp::auth::asks::Asks;
use crate::mcp::auth::book::{Book, BookError, Facts, Hold, Record};
use crate::mcp::auth::error::{passes, said, told};
use crate::mcp::auth::means::Login;
use crate::mcp::auth::pass::{Pass, Passed, Stuck};

/// A token that ends within this is renewed before it is used.
const EARLY: Millis = Millis::from_secs(30);

/// So long renewing may take, with all its questions.
const RENEWS: Duration = Duration::from_secs(60);

/// So many scopes are named in a message.
const SCOPES_MAX: usize = 10;

/// The command that helps.
pub(in crate::mcp) fn command(server: &str) -> String {
    format!("longhaul mcp login {server}")
}

/// How a login stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Standing {
    /// What it allows.
    pub scopes: Vec<String>,
    /// When its token ends; none: nobody said.
    pub until: Option<Timestamp>,
    /// It is renewed by itself.
    pub renews: bool,
    /// It has ended, and only a person can begin it anew.
    pub over: bool,
}

/// Why a login is not renewed.
enum Unrenewed {
    /// As the SDK tells it.
    Sdk(AuthError),
    /// It was not asked for: nobody is there whom its refresh token is for. And
    /// whether there may be somebody the next time.
    Elsewhere(&'static str, bool),
}

impl From<AuthError> for Unrenewed {
    fn from(error: AuthError) -> Self {
        Self::Sdk(error)
    }
}

/// Holds the login at a server.
#[derive(Debug, Clone)]
pub(in crate::mcp) struct Keeper {
    server: String,
    url: Url,
    login: Login,
}

/// What the SDK may keep: here, until it is written down.
#[derive(Clone, Default)]
pub(super) struct Shelf(Arc<Mutex<Option<StoredCredentials>>>);

impl Shelf {
    fn put(&self, credentials: Option<StoredCredentials>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = credentials;
    }

    pub(super) fn take(&self) -> Option<StoredCredentials> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

#[async_trait]
impl CredentialStore for Shelf {
    async fn load(&self) -> Result<Option<StoredCredentials>, AuthError> {
        Ok(self
            .0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone())
    }

    async fn save(&self, credentials: StoredCredentials) -> Result<(), AuthError> {
        self.put(Some(credentials));
        Ok(())
    }

    async fn clear(&self) -> Result<(), AuthError> {
        self.put(None);
        Ok(())
    }
}

impl Keeper {
    pub(in crate::mcp) fn new(server: &str, url: &Url, login: &Login) -> Self {
        Self {
            server: server.to_owned(),
            url: url.clone(),
            login: login.clone(),
        }
    }

    fn book(&self) -> Book {
        Book::of(&self.login.folder, &self.url, &self.server)
    }

    /// What a request is sent with; a token that was refused is not handed out
    /// again. The error says why that is not known.
    pub(in crate::mcp) async fn pass(&self, refused: Option<&str>) -> Passed {
        if self.login.is_stranger {
            return Ok(Pass::default());
        }
        loop {
            let Some(record) = self.book().read()? else {
                return Ok(Pass::default());
            };
            if let Some(pass) = self.usable(&record, refused) {
                return Ok(pass);
            }
            let (renewal, is_ours) = self.login.renewals.join(&self.url, || {
                let (keeper, refused) = (self.clone(), refused.map(str::to_owned));
                async move { keeper.renewal(refused.as_deref()).await }.boxed()
            });
            let pass = renewal.await;
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

    async fn renewal(&self, refused: Option<&str>) -> Passed {
        let book = self.book();
        let hold = book.hold().await?;
        // Whoever held it before us may have renewed it.
        let Some(record) = book.read()? else {
            return Ok(Pass::default());
        };
        match self.usable(&record, refused) {
            Some(pass) => Ok(pass),
            None => self.renewed(&book, &hold, record).await,
        }
    }

    /// What is had without asking anybody; none: it is to be renewed.
    fn usable(&self, record: &Record, refused: Option<&str>) -> Option<Pass> {
        let over = |why| {
            Some(Pass {
                token: None,
                over: Some(why),
            })
        };
        let Some(facts) = record.facts() else {
            return over("its login was taken back");
        };
        let is_fresh =
            until(record, &facts).is_none_or(|until| until > self.login.clock.now().plus(EARLY));
        let is_refused = refused == Some(facts.access_token.as_str());
        if is_fresh && !is_refused {
            record.remember();
            return Some(Pass {
                token: Some(facts.access_token),
                over: None,
            });
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

    async fn renewed(&self, book: &Book, hold: &Hold, record: Record) -> Passed {
        let shelf = Shelf::default();
        shelf.put(Some(record.credentials.clone()));
        let secret = self.secret(&record);
        // The SDK tells its log more than is anybody's business.
        let asked = self.renew(&shelf, &record, secret.clone());
        let asked = asked.with_subscriber(NoSubscriber::default());
        let refresh = record.facts().and_then(|facts| facts.refresh_token);
        let secrets = [secret.as_deref(), refresh.as_deref(), self.url.query()];
        let secrets: Vec<&str> = secrets.into_iter().flatten().collect();
        let failed = |why: &str, passes: bool| {
            let command = command(&self.server);
            Err(Stuck {
                why: format!(
                    "its login could not be renewed: {why}; try it again, or run `{command}`"
                ),
                wants_login: true,
                passes,
            })
        };
        match timeout(RENEWS, Box::pin(asked)).await {
            Err(_) => failed("nobody answered in time", true),
            // Nothing else says that the login is over: what passes must not end it.
            Ok(Err(Unrenewed::Sdk(AuthError::TokenRefreshRejected(_)))) => {
                let mut gone = record;
                gone.credentials.token_response = None;
                book.write(hold, &gone)?;
                Ok(Pass {
                    token: None,
                    over: Some("its login was taken back"),
                })
            }
            Ok(Err(Unrenewed::Sdk(error))) => failed(&told(&error, &secrets).0, passes(&error)),
            Ok(Err(Unrenewed::Elsewhere(why, passes))) => failed(why, passes),
            Ok(Ok(())) => {
                let Some(credentials) = shelf.take() else {
                    return failed("nothing came of it", false);
                };
                let record = Record::new(&self.url, record.client_secret, credentials);
                book.write(hold, &record)?;
                record.remember();
                let token = record.facts().map(|facts| facts.access_token);
                Ok(Pass { token, over: None })
            }
        }
    }

    async fn renew(
        &self,
        shelf: &Shelf,
        record: &Record,
        secret: Option<String>,
    ) -> Result<(), Unrenewed> {
        let asks = Asks::of(&self.url)
            .await
            .map_err(AuthError::InternalError)?;
        let url = self.url.clone();
        let mut manager =
            AuthorizationManager::new_with_oauth_http_client(url, Arc::new(asks)).await?;
        manager.set_credential_store(shelf.clone());
        let found = manager.resolve_metadata().await?;
        // What one authorization server gave is none of another's business. And one
        // that can't be asked for a while looks to the SDK like one that says nothing.
        if found.metadata.issuer != record.credentials.issuer {
            let is_silent = found.source == AuthorizationMetadataSource::LegacyEndpointFallback;
            let why = match is_silent {
                true => "it does not say now who renews it",
                false => "it names another authorization server than the one that gave it",
            };
            return Err(Unrenewed::Elsewhere(why, is_silent));
        }
        manager.set_metadata(found.metadata);
        let client = OAuthClientConfig::new(&record.credentials.client_id, self.url.as_str());
        manager.configure_client(match secret {
            Some(secret) => client.with_client_secret(secret),
            None => client,
        })?;
        manager.refresh_token().await?;
        Ok(())
    }

    fn secret(&self, record: &Record) -> Option<String> {
        let oauth = &self.login.oauth;
        match &oauth.client_id {
            Some(_) => oauth.client_secret.clone(),
            None => record.client_secret.clone(),
        }
    }

    /// What it means that a server refused, in words that say what helps; and what
    /// it wants is remembered.
    pub(in crate::mcp) fn refused(
        &self,
        status: StatusCode,
        challenge: &str,
        pass: &Pass,
    ) -> Option<String> {
        let params = WWWAuthenticateParams::parse(challenge, &self.url);
        let command = command(&self.server);
        let scopes = shown(params.scope.as_deref().unwrap_or_default());
        if status == StatusCode::FORBIDDEN {
            if !params.is_insufficient_scope() {
                return None;
            }
            self.login.hear(challenge);
            return Some(match scopes.is_empty() {
                true => format!("it wants more than its login allows; run `{command}`"),
                false => format!(
                    "it wants more than its login allows: {scopes}; \
                     run `{command} --scope \"{scopes}\"`"
                ),
            });
        }
        self.login.hear(challenge);
        Some(match (&pass.over, &pass.token) {
            (Some(over), _) => format!("{over}; run `{command}`"),
            (None, Some(_)) => format!("it takes its login no more; run `{command}`"),
            (None, None) => format!(
                "it wants a login; run `{command}`, or give it an Authorization header in .mcp.json"
            ),
        })
    }

    /// How the login stands; none: nobody has logged in.
    pub(in crate::mcp) fn standing(&self) -> Result<Option<Standing>, BookError> {
        let record = self.book().read()?;
        Ok(record.map(|record| standing(&record, self.login.clock.now())))
    }

    /// Forgets the login; says whether there was one.
    pub(in crate::mcp) async fn forget(&self) -> Result<bool, BookError> {
        let book = self.book();
        let hold = book.hold().await?;
        book.forget(&hold)
    }
}

/// How a login stands at this time.
pub(super) fn standing(record: &Record, now: Timestamp) -> Standing {
    let facts = record.facts();
    let end = facts.as_ref().and_then(|facts| until(record, facts));
    let renews = facts
        .as_ref()
        .is_some_and(|facts| facts.refresh_token.is_some());
    let has_ended = end.is_some_and(|end| end <= now);
    Standing {
        scopes: record.credentials.granted_scopes.clone(),
        until: end,
        renews,
        over: facts.is_none() || (has_ended && !renews),
    }
}

/// When a token ends.
fn until(record: &Record, facts: &Facts) -> Option<Timestamp> {
    let received = record.credentials.token_received_at?;
    let end = received.saturating_add(facts.expires_in?);
    let micros = i64::try_from(end)
        .unwrap_or(i64::MAX)
        .saturating_mul(1_000_000);
    Some(Timestamp::from_micros(micros))
}

/// Scopes that can stand in a command which somebody copies: a server's word is
/// none that a shell should read.
fn shown(scopes: &str) -> String {
    let plain = |letter: char| letter.is_ascii_alphanumeric() || ":._/-".contains(letter);
    let fits =
        |scope: &&str| scope.len() <= 100 && !scope.starts_with('-') && scope.chars().all(plain);
    let scopes: Vec<&str> = scopes.split_whitespace().take(SCOPES_MAX).collect();
    match scopes.iter().all(fits) {
        true => said(&scopes.join(" "), &[]),
        false => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mcp::auth::means::OAuth;

    #[derive(Debug)]
    struct Never;

    #[async_trait]
    impl longhaul_core::time::Clock for Never {
        fn now(&self) -> Timestamp {
            Timestamp::from_micros(1_000_000_000)
        }

        async fn sleep_until(&self, _: Timestamp) {}
    }

    fn keeper(oauth: OAuth) -> Keeper {
        let login = Login::new("/nowhere".into(), oauth, Arc::new(Never));
        let url = "https://a.example/mcp".parse().unwrap();
        Keeper::new("far", &url, &login)
    }

    fn record(tokens: serde_json::Value, received: u64) -> Record {
        let credentials = serde_json::json!({
            "client_id": "c",
            "token_response": tokens,
            "token_received_at": received,
        });
        let url = "https://a.example/mcp".parse().unwrap();
        Record::new(&url, None, serde_json::from_value(credentials).unwrap())
    }

    #[test]
    fn what_is_handed_out_is_what_can_still_be_used() {
        let tokens = |expires: Option<u64>, refresh: Option<&str>| {
            serde_json::json!({
                "access_token": "a", "token_type": "bearer",
                "expires_in": expires, "refresh_token": refresh,
            })
        };
        let pass = |record: &Record, oauth: OAuth, refused| {
            let pass = keeper(oauth).usable(record, refused)?;
            Some((pass.token.is_some(), pass.over.unwrap_or_default()))
        };
        let plain = OAuth::default;
        // It is 1000 s past the beginning.
        let fresh = record(tokens(Some(100), Some("r")), 950);
        assert_eq!(pass(&fresh, plain(), None), Some((true, "")));
        assert_eq!(pass(&fresh, plain(), Some("b")), Some((true, "")));
        assert_eq!(pass(&fresh, plain(), Some("a")), None);
        let other = OAuth {
            client_id: Some("d".into()),
            ..plain()
        };
        let why = "its login belongs to another `clientId`";
        assert_eq!(pass(&fresh, other, Some("a")), Some((false, why)));
        let soon = record(tokens(Some(100), Some("r")), 925);
        assert_eq!(pass(&soon, plain(), None), None);
        let ended = record(tokens(Some(100), None), 800);
        assert_eq!(
            pass(&ended, plain(), None),
            Some((false, "its login has run out"))
        );
        let lasting = record(tokens(None, None), 0);
        assert_eq!(pass(&lasting, plain(), None), Some((true, "")));
        let why = "it takes its login no more";
        assert_eq!(pass(&lasting, plain(), Some("a")), Some((false, why)));
        let gone = record(serde_json::Value::Null, 0);
        assert_eq!(
            pass(&gone, plain(), None),
            Some((false, "its login was taken back"))
        );
    }

    #[test]
    fn refusals_say_which_command_helps_and_no_shell_reads_a_strangers_word() {
        let (unauthorized, forbidden) = (StatusCode::UNAUTHORIZED, StatusCode::FORBIDDEN);
        let scoped =
            |scope: &str| format!("Bearer error=\"insufficient_scope\", scope=\"{scope}\"");
        for (status, challenge, expect) in [
            (
                unauthorized,
                String::new(),
                Some("`longhaul mcp login far`"),
            ),
            (forbidden, String::new(), None),
            (
                forbidden,
                scoped("a:b c"),
                Some("`longhaul mcp login far --scope \"a:b c\"`"),
            ),
            (
                forbidden,
                scoped("$(reboot)"),
                Some("run `longhaul mcp login far`"),
            ),
            (
                forbidden,
                scoped("--json"),
                Some("run `longhaul mcp login far`"),
            ),
        ] {
            let said = keeper(OAuth::default()).refused(status, &challenge, &Pass::default());
            match (&said, expect) {
                (Some(said), Some(expect)) => assert!(said.contains(expect), "{said}"),
                (None, None) => {}
                (Some(_), None) | (None, Some(_)) => panic!("{said:?} {expect:?}"),
            }
        }
    }
}
