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

use crate::auth::book::{Book, BookError, Facts, Hold, Record};
use crate::auth::error::{passes, secrets_of, told};
use crate::auth::issuer::{Issuer, Unfound};
use crate::auth::means::Login;
use crate::auth::pass::{Pass, Passed};
use crate::auth::refusal::{self, command};
use crate::auth::revoke::{Forgotten, take_back};
use crate::auth::tokens;
use crate::request_error::RequestError;

/// A token that ends within this is renewed before it is used.
const EARLY: Millis = Millis::from_secs(30);

/// So long renewing may take, with all its questions.
const RENEWS: Duration = Duration::from_secs(60);

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

/// Holds the login at a server.
#[derive(Debug, Clone)]
pub(crate) struct Keeper {
    server: String,
    url: Url,
    login: Login,
}

impl Keeper {
    pub(crate) fn new(server: &str, url: &Url, login: &Login) -> Self {
        Self {
            server: server.to_owned(),
            url: url.clone(),
            login: login.clone(),
        }
    }

    fn book(&self) -> Book {
        Book::of(&self.login.folder, &self.url, &self.server)
    }

    /// The login as it stands; none: there is none.
    fn read(&self, book: &Book) -> Result<Option<Record>, BookError> {
        let record = book.read()?;
        Ok(record.map(|kept| self.login.unkept.instead_of(kept)))
    }

    /// What a request is sent with; a token that was refused is not handed out
    /// again. The error says why that is not known.
    pub(crate) async fn pass(&self, refused: Option<&str>) -> Passed {
        if self.login.is_stranger {
            return Ok(Pass::default());
        }
        loop {
            let Some(record) = self.read(&self.book())? else {
                return Ok(Pass::default());
            };
            if let Some(pass) = self.usable(&record, refused) {
                return Ok(pass);
            }
            let (renewal, is_ours) = self.login.renewals.join(|| {
                let (keeper, refused) = (self.clone(), refused.map(str::to_owned));
                async move { keeper.renewal(refused.as_deref()).await }.boxed()
            });
            let pass = match (renewal.await, refused) {
                // It is early: what can't be renewed just now is good until it ends.
                (Err(error), None) => return self.lasting(&record).ok_or(error),
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

    async fn renewal(&self, refused: Option<&str>) -> Passed {
        let book = self.book();
        let hold = book.hold().await?;
        // Whoever held it before us may have renewed it.
        let Some(record) = self.read(&book)? else {
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
        let soon = self.login.clock.now().plus(EARLY);
        let lasts = until(record, &facts).is_none_or(|until| until > soon);
        let is_fresh = lasts && facts.is_usable();
        let is_refused = refused == Some(facts.access_token.as_str());
        if is_fresh && !is_refused {
            return Some(self.handed_out(record, facts));
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
    fn lasting(&self, record: &Record) -> Option<Pass> {
        let facts = record.facts().filter(Facts::is_usable)?;
        let end = until(record, &facts)?;
        (end > self.login.clock.now()).then(|| self.handed_out(record, facts))
    }

    fn handed_out(&self, record: &Record, facts: Facts) -> Pass {
        record.remember();
        // The project's own secret goes with every renewal.
        if let Some(secret) = self.secret(record) {
            tokens::remember(&secret);
        }
        Pass {
            token: Some(facts.access_token),
            over: None,
        }
    }

    async fn renewed(&self, book: &Book, hold: &Hold, record: Record) -> Passed {
        let secret = self.secret(&record);
        let refresh = record.facts().and_then(|facts| facts.refresh_token);
        let refresh = refresh.unwrap_or_default();
        // The SDK tells its log more than is anybody's business.
        let asked = Box::pin(self.renew(&record, secret.clone()));
        let asked = asked.with_subscriber(NoSubscriber::default());
        let mut secrets = secrets_of(&self.url);
        secrets.extend(secret.as_deref());
        secrets.push(&refresh);
        let failed = |why: &str, passes: bool| {
            let command = command(&self.server);
            let why =
                format!("its login could not be renewed: {why}; try it again, or run `{command}`");
            Err(RequestError::login(why, passes))
        };
        match timeout(RENEWS, asked).await {
            Err(_) => failed("nobody answered in time", true),
            // Nothing else says that the login is over: what passes must not end it.
            Ok(Err(Unfound::Sdk(AuthError::TokenRefreshRejected(_)))) => {
                let mut gone = record;
                gone.credentials.token_response = None;
                self.keep((book, hold), &refresh, &gone);
                Ok(Pass {
                    token: None,
                    over: Some("its login was taken back"),
                })
            }
            Ok(Err(Unfound::Sdk(error))) => failed(&told(&error, &secrets).0, passes(&error)),
            Ok(Err(Unfound::Elsewhere(why, passes))) => failed(why, passes),
            Ok(Ok(credentials)) => {
                let record = Record::new(&self.url, record.client_secret, credentials);
                // Kept whatever it is: what it was renewed with may be good no more.
                self.keep((book, hold), &refresh, &record);
                record.remember();
                match record.facts().filter(Facts::is_usable) {
                    Some(facts) => Ok(self.handed_out(&record, facts)),
                    None => failed("it gave a token that can't be sent", false),
                }
            }
        }
    }

    async fn renew(
        &self,
        record: &Record,
        secret: Option<String>,
    ) -> Result<StoredCredentials, Unfound> {
        let given = &record.credentials;
        let issuer = Issuer::of(&self.url, given).await?;
        // What is asked now may be answered when nobody is there to keep it.
        if self.login.renewals.is_ending() {
            return Err(Unfound::Elsewhere("this process is ending", true));
        }
        issuer.renew(given, secret).await
    }

    /// Writes down what came of a login. What can't be written is no less good, and
    /// whoever needs it here has it.
    fn keep(&self, (book, hold): (&Book, &Hold), used: &str, record: &Record) {
        match book.write(hold, record) {
            Ok(()) => self.login.unkept.clear(),
            Err(error) => {
                tracing::warn!(
                    server = self.server,
                    %error,
                    "a renewed login could not be kept: it is lost when this process ends"
                );
                self.login.unkept.put(used, record.clone());
            }
        }
    }

    fn secret(&self, record: &Record) -> Option<String> {
        let oauth = &self.login.oauth;
        match &oauth.client_id {
            Some(id) if *id == record.credentials.client_id => oauth.client_secret.clone(),
            Some(_) => None,
            None => record.client_secret.clone(),
        }
    }

    /// What it means that a server refused, in words that say what helps; and what
    /// it wants is remembered.
    pub(crate) fn refused(
        &self,
        status: StatusCode,
        challenge: &str,
        pass: &Pass,
    ) -> Option<String> {
        let params = WWWAuthenticateParams::parse(challenge, &self.url);
        // What else is forbidden says nothing of what a login should ask for.
        if status != StatusCode::FORBIDDEN || params.is_insufficient_scope() {
            self.login.hear(challenge);
        }
        refusal::words(&self.server, status, &params, pass)
    }

    /// How the login stands; none: nobody has logged in.
    pub(crate) fn standing(&self) -> Result<Option<Standing>, BookError> {
        let record = self.book().read()?;
        Ok(record.map(|record| standing(&record, self.login.clock.now())))
    }

    /// Forgets the login, and has it taken back where it came from if anybody may be
    /// asked. Whatever comes of that, it is forgotten here.
    pub(crate) async fn forget(&self, may_ask: bool) -> Result<Forgotten, BookError> {
        let book = self.book();
        let hold = book.hold().await?;
        let forgotten = match self.read(&book) {
            Ok(None) => Forgotten::Nothing,
            Ok(Some(_)) if !may_ask => Forgotten::Unasked,
            Ok(Some(record)) => {
                let secret = self.secret(&record);
                take_back(&self.url, &record, secret.as_deref()).await
            }
            Err(_) => Forgotten::here("what was kept can't be read"),
        };
        let was_there = book.forget(&hold)?;
        Ok(match was_there {
            true => forgotten,
            false => Forgotten::Nothing,
        })
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

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use longhaul_core::oauth::OAuth;

    #[derive(Debug)]
    struct Never;

    #[async_trait::async_trait]
    impl longhaul_core::time::Clock for Never {
        fn now(&self) -> Timestamp {
            Timestamp::from_micros(1_000_000_000)
        }

        async fn sleep(&self, _: Millis) {}
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
        let mut broken = tokens(None, Some("r"));
        broken["access_token"] = "a\r\n".into();
        assert_eq!(pass(&record(broken, 0), plain(), None), None);
        let gone = record(serde_json::Value::Null, 0);
        assert_eq!(
            pass(&gone, plain(), None),
            Some((false, "its login was taken back"))
        );
    }

    #[test]
    fn a_token_is_good_until_it_ends_where_it_can_not_be_renewed() {
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
            let pass = keeper(OAuth::default()).lasting(&record);
            assert_eq!(pass.is_some(), expect, "{token} {received} {expires:?}");
        }
    }

    #[test]
    fn a_secret_goes_only_with_the_client_it_belongs_to() {
        let mut record = record(serde_json::Value::Null, 0);
        record.client_secret = Some("registered".into());
        let known = |id: Option<&str>| OAuth {
            client_id: id.map(str::to_owned),
            client_secret: id.map(|_| "ours".to_owned()),
            ..OAuth::default()
        };
        for (id, expect) in [
            (None, Some("registered")),
            (Some("c"), Some("ours")),
            (Some("d"), None),
        ] {
            let secret = keeper(known(id)).secret(&record);
            assert_eq!(secret.as_deref(), expect, "{id:?}");
        }
    }
}
