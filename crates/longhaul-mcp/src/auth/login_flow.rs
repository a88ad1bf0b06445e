//! One login, from finding out whom to ask to keeping what they gave.
//!
//! Never: takes an answer that is not to its own question, and never sends a person
//! or a secret to an address that the server has no business to name.

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

use crate::auth::address_policy::ServerZone;
use crate::auth::config::LoginContext;
use crate::auth::credential_file::{CredentialFile, StoredLogin};
use crate::auth::error::{LoginError, REGISTER_CLIENT_HINT, describe, sanitize, url_secrets};
use crate::auth::oauth_http::OAuthHttp;
use crate::auth::token_provider::{LoginStatus, login_status};

/// So long it may take to find out whom to ask, and to be given a token.
const LOGIN_TIMEOUT: Duration = Duration::from_secs(90);

/// So many scopes are asked for.
const SCOPES_MAX: usize = 100;

/// What a person is to open, and what is asked for.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LoginRequest {
    /// Where the browser is sent back to.
    pub redirect_uri: String,
    /// What is asked for besides what the server says it needs.
    pub scopes: Vec<String>,
}

/// A login that has begun: somebody has to open its address.
pub struct PendingLogin {
    server: String,
    url: Url,
    login: LoginContext,
    manager: AuthorizationManager,
    /// What the SDK was given, until it is written down.
    credentials: InMemoryCredentialStore,
    authorization_url: String,
    state: String,
    /// The secret of a client that was registered just now.
    client_secret: Option<String>,
}

impl std::fmt::Debug for PendingLogin {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("PendingLogin").field(&self.server).finish()
    }
}

/// The parts that make up a login at a server.
#[derive(Clone, Copy)]
pub(crate) struct LoginTarget<'a> {
    pub(crate) server: &'a str,
    pub(crate) url: &'a Url,
    pub(crate) login: &'a LoginContext,
}

impl LoginTarget<'_> {
    fn failure(&self, reason: &str, hint: &str) -> LoginError {
        LoginError::Failed {
            server: self.server.to_owned(),
            reason: reason.to_owned(),
            hint: hint.to_owned(),
        }
    }

    fn credential_file(&self) -> CredentialFile {
        CredentialFile::new(&self.login.dir, self.url, self.server)
    }

    fn sdk_error(&self, error: &AuthError) -> LoginError {
        self.sdk_error_redacting(error, &[])
    }

    /// What the SDK says, without what was sent.
    fn sdk_error_redacting(&self, error: &AuthError, sent: &[&str]) -> LoginError {
        let mut secrets = url_secrets(self.url);
        secrets.extend(self.login.oauth.client_secret.as_deref());
        secrets.extend(sent);
        let (why, helps) = describe(error, &secrets);
        self.failure(&why, helps)
    }

    fn timeout_error(&self) -> LoginError {
        let why = format!("nobody answered within {} s", LOGIN_TIMEOUT.as_secs());
        self.failure(&why, "Try it again.")
    }
}

/// Begins a login.
pub(crate) async fn start(
    at: LoginTarget<'_>,
    visit: &LoginRequest,
) -> Result<PendingLogin, LoginError> {
    // Nobody is sent to a browser for what could not be kept.
    at.credential_file().check_writable()?;
    // The SDK tells its log more than is anybody's business.
    let begun = Box::pin(prepare(at, visit)).with_subscriber(NoSubscriber::default());
    match timeout(LOGIN_TIMEOUT, begun).await {
        Ok(begun) => begun,
        Err(_) => Err(at.timeout_error()),
    }
}

/// Whether a server says how one logs in there; it may let strangers in as well, and
/// want a login only for some of what it has.
pub(crate) async fn is_advertised(at: LoginTarget<'_>) -> Result<bool, LoginError> {
    let asked = Box::pin(discover(at)).with_subscriber(NoSubscriber::default());
    match timeout(LOGIN_TIMEOUT, asked).await {
        Ok(found) => found,
        Err(_) => Err(at.timeout_error()),
    }
}

/// Where the server stands, and who asks on its behalf.
async fn manager(at: LoginTarget<'_>) -> Result<(ServerZone, AuthorizationManager), LoginError> {
    let asks = OAuthHttp::for_server(at.url).await;
    let asks = asks.map_err(|why| at.failure(&why, "Try it again."))?;
    let near = asks.zone();
    let url = at.url.clone();
    let manager = AuthorizationManager::new_with_oauth_http_client(url, Arc::new(asks));
    Ok((near, manager.await.map_err(|error| at.sdk_error(&error))?))
}

async fn discover(at: LoginTarget<'_>) -> Result<bool, LoginError> {
    let (near, manager) = manager(at).await?;
    // Over such a way nobody logs in, whatever it says.
    if near.check_url(at.url).is_err() {
        return Ok(false);
    }
    let found = manager.resolve_metadata().await;
    let found = found.map_err(|error| at.sdk_error(&error))?;
    Ok(found.source != AuthorizationMetadataSource::LegacyEndpointFallback)
}

async fn prepare(at: LoginTarget<'_>, visit: &LoginRequest) -> Result<PendingLogin, LoginError> {
    let sdk = |error: AuthError| at.sdk_error(&error);
    let (near, mut manager) = manager(at).await?;
    near.check_url(at.url).map_err(|_| {
        let why = "it is not asked over https://, so everybody on the way could take the login";
        at.failure(why, "Write its https:// address as `url` in .mcp.json.")
    })?;
    let given = InMemoryCredentialStore::new();
    manager.set_credential_store(given.clone());
    let heard = at.login.last_challenge();
    let found = manager.resolve_metadata_from_challenge(heard.as_deref());
    let found = found.await.map_err(sdk)?;
    let is_silent = found.source == AuthorizationMetadataSource::LegacyEndpointFallback;
    let metadata = found.metadata;
    check_endpoints(at, near, &metadata)?;
    manager.set_metadata(metadata.clone());
    let scopes = select_scopes(at, visit, &manager, &metadata).await?;
    let client = configure_client(at, visit, &mut manager, (&metadata, &scopes)).await;
    let client_secret = client.map_err(|error| match is_silent {
        true => at.failure(
            "it does not say how one logs in there",
            "If it wants a key, write it as an Authorization header in .mcp.json.",
        ),
        false => error,
    })?;
    let wanted: Vec<&str> = scopes.iter().map(String::as_str).collect();
    let address = manager.get_authorization_url(&wanted).await.map_err(sdk)?;
    let state = address.parse::<Url>().ok().and_then(|url| query_param(&url, "state"));
    Ok(PendingLogin {
        server: at.server.to_owned(),
        url: at.url.clone(),
        login: at.login.clone(),
        manager,
        credentials: given,
        state: state.unwrap_or_default(),
        authorization_url: address,
        client_secret,
    })
}

/// Whether the addresses of an authorization server may be gone to.
fn check_endpoints(
    at: LoginTarget<'_>,
    near: ServerZone,
    metadata: &AuthorizationMetadata,
) -> Result<(), LoginError> {
    let registers = metadata.registration_endpoint.as_ref();
    let named = [&metadata.authorization_endpoint, &metadata.token_endpoint];
    for named in named.into_iter().chain(registers) {
        let url = named.parse::<Url>().map_err(|_| "it names an address that is none");
        let may = url.and_then(|url| near.check_url(&url));
        may.map_err(|why| at.failure(why, "Ask whoever runs that server."))?;
    }
    Ok(())
}

/// What is asked for: what the project or the server says, and what was had before.
async fn select_scopes(
    at: LoginTarget<'_>,
    visit: &LoginRequest,
    manager: &AuthorizationManager,
    metadata: &AuthorizationMetadata,
) -> Result<Vec<String>, LoginError> {
    let mut scopes = match at.login.oauth.scopes.as_slice() {
        [] => manager.select_initial_scopes(&[]).await,
        said => {
            let offline = "offline_access".to_owned();
            let supported = metadata.scopes_supported.as_ref();
            let lasts = supported.is_some_and(|scopes| scopes.contains(&offline));
            said.iter().cloned().chain(lasts.then_some(offline)).collect()
        }
    };
    let before = at.credential_file().load()?;
    // What another authorization server gave means nothing here.
    let before = before.filter(|before| before.credentials.issuer == metadata.issuer);
    let before = before.map(|before| before.credentials.granted_scopes);
    let more = before.into_iter().flatten().chain(visit.scopes.clone());
    for scope in more {
        if !scopes.contains(&scope) {
            scopes.push(scope);
        }
    }
    scopes.truncate(SCOPES_MAX);
    Ok(scopes)
}

/// Says who we are, and is told so where nobody knows it yet. A secret is one that
/// was given just now.
async fn configure_client(
    at: LoginTarget<'_>,
    visit: &LoginRequest,
    manager: &mut AuthorizationManager,
    (metadata, scopes): (&AuthorizationMetadata, &[String]),
) -> Result<Option<String>, LoginError> {
    let oauth = &at.login.oauth;
    let sdk = |error: AuthError| at.sdk_error(&error);
    if let Some(id) = &oauth.client_id {
        let config = OAuthClientConfig::new(id, &visit.redirect_uri);
        let config = match &oauth.client_secret {
            Some(secret) => config.with_client_secret(secret),
            None => config,
        };
        manager.configure_client(config).map_err(sdk)?;
        return Ok(None);
    }
    let reads = metadata.additional_fields.get("client_id_metadata_document_supported");
    let reads = reads.and_then(serde_json::Value::as_bool) == Some(true);
    if let (Some(document), true) = (&oauth.client_metadata_url, reads) {
        let config = OAuthClientConfig::new(document, &visit.redirect_uri);
        manager.configure_client(config).map_err(sdk)?;
        return Ok(None);
    }
    if metadata.registration_endpoint.is_none() {
        return Err(at.failure("it takes no clients that it does not know", REGISTER_CLIENT_HINT));
    }
    let wanted: Vec<&str> = scopes.iter().map(String::as_str).collect();
    let registered = manager.register_client("Longhaul", &visit.redirect_uri, &wanted);
    Ok(registered.await.map_err(sdk)?.client_secret)
}

fn query_param(url: &Url, name: &str) -> Option<String> {
    let found = url.query_pairs().find(|(key, _)| key == name);
    found.map(|(_, value)| value.into_owned())
}

impl PendingLogin {
    /// What somebody is to open.
    pub fn authorization_url(&self) -> &str {
        &self.authorization_url
    }

    /// What the answer has to bring back.
    pub fn state(&self) -> &str {
        &self.state
    }

    /// Whether this address is the answer to this login, good or bad.
    pub fn matches_callback(&self, led_to: &str) -> bool {
        let url = led_to.trim().parse::<Url>().ok();
        let state = url.and_then(|url| query_param(&url, "state"));
        !self.state.is_empty() && state.as_deref() == Some(&self.state)
    }

    /// Ends the login with the address that the browser was sent back to, and keeps it.
    pub async fn finish(self, led_to: &str) -> Result<LoginStatus, LoginError> {
        self.finish_with_timeout(led_to, LOGIN_TIMEOUT).await
    }

    async fn finish_with_timeout(
        &self,
        led_to: &str,
        most: Duration,
    ) -> Result<LoginStatus, LoginError> {
        let given = Box::pin(self.exchange_code(led_to)).with_subscriber(NoSubscriber::default());
        let record = match timeout(most, given).await {
            Ok(given) => given?,
            Err(_) => return Err(self.target().timeout_error()),
        };
        record.register_secrets();
        // Another may hold the place for a while. What was given must not be lost over
        // that: the code is good for once.
        let book = self.target().credential_file();
        let hold = book.lock().await?;
        book.save(&hold, &record)?;
        let now: Timestamp = self.login.clock.now();
        Ok(login_status(&record, now))
    }

    fn target(&self) -> LoginTarget<'_> {
        LoginTarget { server: &self.server, url: &self.url, login: &self.login }
    }

    /// What the server gives for the answer.
    async fn exchange_code(&self, led_to: &str) -> Result<StoredLogin, LoginError> {
        let at = self.target();
        let again = format!("Run `longhaul mcp login {}` again.", self.server);
        let no = |why: &str| at.failure(why, &again);
        let Ok(url) = led_to.trim().parse::<Url>() else {
            return Err(no("what came back is no address"));
        };
        if !self.matches_callback(led_to) {
            return Err(no("the answer is not to the question that was asked"));
        }
        if let Some(error) = query_param(&url, "error") {
            let words = query_param(&url, "error_description").unwrap_or_default();
            let said = sanitize(&format!("{error} {words}"), &[]);
            return Err(no(&format!("the server said no: {said}")));
        }
        let Ok(back) = AuthorizationCallback::from_redirect_url(url.as_str()) else {
            return Err(no("the answer holds no code"));
        };
        let issuer = back.issuer.as_deref();
        let asked =
            self.manager.exchange_code_for_token_with_issuer(&back.code, &back.csrf_token, issuer);
        let sent = [back.code.as_str()];
        let asked = asked.await;
        asked.map_err(|error| at.sdk_error_redacting(&error, &sent))?;
        let Some(credentials) = self.credentials.load().await.unwrap_or_default() else {
            return Err(no("nothing came of it"));
        };
        let record = StoredLogin::new(&self.url, self.client_secret.clone(), credentials);
        let facts = record.token_info().unwrap_or_default();
        if !facts.is_bearer() {
            let helps = "Ask whoever runs that server for one that takes bearer tokens.";
            return Err(at.failure("it gave a token of a kind that is not known here", helps));
        }
        if !facts.is_usable() {
            let helps = "Ask whoever runs that server.";
            return Err(at.failure("it gave a token that can't be sent", helps));
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

    /// Answers at once, with this status and these words.
    struct CannedResponse(u16, &'static str);

    impl OAuthHttpClient for CannedResponse {
        fn execute(&self, _: OAuthHttpRequest) -> OAuthHttpClientFuture<'_> {
            let mut answer = OAuthResponse::new(self.1.as_bytes().to_vec());
            *answer.status_mut() = self.0.try_into().unwrap();
            Box::pin(std::future::ready(Ok(answer)))
        }
    }

    /// A login that somebody has agreed to, and where the browser was sent.
    async fn authorized_login(
        folder: &std::path::Path,
        says: CannedResponse,
    ) -> (PendingLogin, String) {
        let url: Url = "https://u:p4ssw0rd@a.example/mcp?key=k3y".parse().unwrap();
        let metadata = serde_json::json!({
            "issuer": "https://a.example",
            "authorization_endpoint": "https://a.example/authorize",
            "token_endpoint": "https://a.example/token",
            "code_challenge_methods_supported": ["S256"],
            "response_types_supported": ["code"],
        });
        let manager = AuthorizationManager::new_with_oauth_http_client(url.clone(), Arc::new(says));
        let mut manager = manager.await.unwrap();
        let given = InMemoryCredentialStore::new();
        manager.set_credential_store(given.clone());
        manager.set_metadata(serde_json::from_value(metadata).unwrap());
        let client = OAuthClientConfig::new("us", "http://127.0.0.1/callback");
        manager.configure_client(client).unwrap();
        let address = manager.get_authorization_url(&[]).await.unwrap();
        let state = query_param(&address.parse().unwrap(), "state").unwrap();
        let led_to = format!("http://127.0.0.1/callback?state={state}&code=c0de-7");
        let began = PendingLogin {
            server: "far".to_owned(),
            url,
            login: LoginContext::new(
                folder.to_owned(),
                OAuthConfig::default(),
                Arc::new(FixedClock),
            ),
            manager,
            credentials: given,
            authorization_url: address,
            state,
            client_secret: None,
        };
        (began, led_to)
    }

    const TOKEN_RESPONSE: CannedResponse =
        CannedResponse(200, r#"{"access_token":"a","token_type":"bearer"}"#);

    #[tokio::test]
    async fn new_credentials_are_saved_however_long_the_file_is_locked() {
        let home = tempfile::tempdir().unwrap();
        let (began, led_to) = authorized_login(&home.path().join("logins"), TOKEN_RESPONSE).await;
        let book = began.target().credential_file();
        let hold = book.lock().await.unwrap();
        // The answer is there at once, and no time is left beyond it.
        let mut finished = Box::pin(began.finish_with_timeout(&led_to, Duration::ZERO));
        assert!((&mut finished).now_or_never().is_none());
        drop(hold);
        finished.await.unwrap();
        assert!(book.load().unwrap().is_some());
    }

    #[tokio::test]
    async fn a_failed_login_error_has_no_secrets() {
        let home = tempfile::tempdir().unwrap();
        for (says, why) in [
            (
                CannedResponse(
                    400,
                    r#"{"error":"invalid_grant","error_description":"c0de-7 by p4ssw0rd at key=k3y"}"#,
                ),
                "*** by *** at ***",
            ),
            (
                CannedResponse(200, r#"{"access_token":"a\r\n","token_type":"bearer"}"#),
                "that can't be sent",
            ),
            (CannedResponse(200, r#"{"access_token":"a","token_type":"mac"}"#), "not known here"),
        ] {
            let (began, led_to) = authorized_login(&home.path().join("logins"), says).await;
            let error = began.finish(&led_to).await.unwrap_err().to_string();
            assert!(error.contains(why), "{error}");
            for secret in ["c0de", "p4ss", "k3y"] {
                assert!(!error.contains(secret), "{error}");
            }
        }
    }
}
