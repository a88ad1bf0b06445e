//! Authenticates requests by API key or by browser session.
//!
//! Invariant: every route needs a credential unless it is listed in `PUBLIC_ROUTES`.

use std::sync::Arc;

use axum::extract::{MatchedPath, Request, State};
use axum::http::header::{AUTHORIZATION, COOKIE, HeaderName, WWW_AUTHENTICATE};
use axum::http::{HeaderMap, HeaderValue, StatusCode, Uri};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use longhaul_core::access::{Principal, Role};
use longhaul_core::port::auth::ApiKeyRef;
use longhaul_engine::handle::CallerIdentity;
use longhaul_engine::secret::Secret;

use crate::app::App;
use crate::connections::Connection;
use crate::peer::PeerAddress;
use crate::problem::Problem;

/// Routes that need no key, because they reveal nothing or check a token of their own.
const PUBLIC_ROUTES: [&str; 7] =
    ["/livez", "/readyz", "/version", "/openapi.json", "/a/{token}", "/", "/style.css"];

/// Public routes without a rate limit, for health probes.
const HEALTH_ROUTES: [&str; 3] = ["/livez", "/readyz", "/version"];

/// Header in which a caller with the local machine key gives the name of the person to act as.
const ACT_AS: HeaderName = HeaderName::from_static("x-longhaul-as");

/// Maximum length in bytes of the name in the `x-longhaul-as` header.
const ACT_AS_BYTES_MAX: usize = 80;

/// Credential of a request, kept so that an event stream can check it again while it is open.
#[derive(Debug, Clone)]
pub(crate) enum Credential {
    /// Secret of an API key.
    Key(Secret),
    /// Secret of a browser session.
    Session(Secret),
    /// No credential is needed: `open_loopback` is on and the caller is on this machine.
    Loopback,
    /// No credential is needed: the caller is in this process. Never the credential of a request from
    /// a socket.
    InProcess,
}

/// Response extension with the name of the request's caller, for the log.
#[derive(Debug, Clone)]
pub(crate) struct CallerName(pub(crate) String);

/// Middleware that authenticates the caller and stores the identity in the request.
pub(crate) async fn authentication_middleware(
    State(app): State<App>,
    mut request: Request,
    next: Next,
) -> Response {
    let peer = request.extensions().get::<PeerAddress>().copied();
    let route = request.extensions().get::<MatchedPath>();
    if let Some(route) = route.filter(|route| PUBLIC_ROUTES.contains(&route.as_str())) {
        // Anonymous callers behind a proxy must not use up the rate of health probes.
        if !HEALTH_ROUTES.contains(&route.as_str()) {
            match limit_public_request_rate(&app, peer, request.uri(), request.headers()).await {
                Ok(true) => mark_connection_authenticated(&request),
                Ok(false) => {}
                Err(problem) => return problem.into_response(),
            }
        }
        return next.run(request).await;
    }
    match authenticate_request(&app, peer, request.headers()).await {
        Ok((credential, identity)) => {
            mark_connection_authenticated(&request);
            let name = identity.principal.name.clone();
            request.extensions_mut().insert(credential);
            request.extensions_mut().insert(identity);
            let mut response = next.run(request).await;
            response.extensions_mut().insert(CallerName(name));
            response
        }
        Err(problem) => {
            let is_unauthorized = problem.status == StatusCode::UNAUTHORIZED;
            let mut response = problem.into_response();
            if is_unauthorized {
                let challenge = HeaderValue::from_static("Bearer realm=\"longhaul\"");
                response.headers_mut().insert(WWW_AUTHENTICATE, challenge);
            }
            response
        }
    }
}

/// Counts a request to a public route and returns whether it has a valid link or session. A valid
/// link or session has a rate limit of its own, so that other callers at the same address can't use
/// it up; all other requests count for their address. Lookups in the store are rate limited per
/// address too.
async fn limit_public_request_rate(
    app: &App,
    peer: Option<PeerAddress>,
    uri: &Uri,
    headers: &HeaderMap,
) -> Result<bool, Problem> {
    let address = peer.map(|peer| peer.0.ip());
    let rate_check =
        address.map_or(Ok(()), |address| app.state.rates().check_anonymous_rate(address));
    if rate_check.is_err()
        && !address.is_some_and(|address| app.state.rates().may_look_up_credential(address))
    {
        return rate_check.map(|()| false);
    }
    let name = match uri.path().strip_prefix("/a/").map(Secret::from_text) {
        Some(link) if app.longhaul().has_gate_link(&link).await? => {
            Some(format!("link:{}", link.hash()))
        }
        Some(_) => None,
        None => find_caller(app, None, headers).await?.map(|(_, caller)| caller.principal.name),
    };
    match name {
        Some(name) => app.state.rates().check_api_key_rate(&name).map(|()| true),
        None => rate_check.map(|()| false),
    }
}

/// Marks the request's connection as authenticated, so that it is not evicted as an anonymous one.
fn mark_connection_authenticated(request: &Request) {
    if let Some(connection) = request.extensions().get::<Arc<Connection>>() {
        connection.mark_authenticated();
    }
}

async fn authenticate_request(
    app: &App,
    peer: Option<PeerAddress>,
    headers: &HeaderMap,
) -> Result<(Credential, CallerIdentity), Problem> {
    let Some((credential, mut identity)) = find_caller(app, peer, headers).await? else {
        if let Some(peer) = peer {
            app.state.rates().check_anonymous_rate(peer.0.ip())?;
        }
        let message = "a valid key is required";
        return Err(Problem::new(StatusCode::UNAUTHORIZED, "unauthorized", message).with_hint(
            "send `Authorization: Bearer lh_...`; create a key with: longhaul keys new NAME",
        ));
    };
    match (&credential, &identity.key) {
        // The holder of the local machine key could write any name to the store directly, so a
        // name in the header is accepted.
        (Credential::Key(_), ApiKeyRef::Local) => {
            if let Some(name) = act_as_header_value(headers) {
                identity.principal.name = name;
            }
        }
        // A browser session acts only for its own user, so the header is ignored.
        (Credential::Session(_) | Credential::InProcess, ApiKeyRef::Local) => {}
        (Credential::Loopback, _) | (_, ApiKeyRef::Key(_)) => {
            app.state.rates().check_api_key_rate(&identity.principal.name)?;
        }
    }
    Ok((credential, identity))
}

/// Returns the credential in a request's headers with its identity. `None` means that the request
/// has no valid credential.
pub(crate) async fn find_caller(
    app: &App,
    peer: Option<PeerAddress>,
    headers: &HeaderMap,
) -> Result<Option<(Credential, CallerIdentity)>, Problem> {
    let Some(credential) = credential_of(app, peer, headers) else {
        return Ok(None);
    };
    Ok(identify_caller(app, &credential).await?.map(|identity| (credential, identity)))
}

/// Returns the identity that a credential belongs to. `None` means that the credential is not valid
/// now.
pub(crate) async fn identify_caller(
    app: &App,
    credential: &Credential,
) -> Result<Option<CallerIdentity>, Problem> {
    let longhaul = app.longhaul();
    Ok(match credential {
        Credential::Key(secret) if secret.hash() == app.state.local_key => {
            Some(CallerIdentity::local_key_holder())
        }
        Credential::Key(secret) => longhaul.authenticate_api_key(secret).await?,
        Credential::Session(secret) => {
            longhaul.authenticate_session(secret, app.state.local_key).await?
        }
        Credential::InProcess => Some(CallerIdentity::local_key_holder()),
        Credential::Loopback => Some(CallerIdentity {
            principal: Principal { name: "loopback".to_owned(), role: Role::Operator },
            key: ApiKeyRef::Local,
        }),
    })
}

/// Returns the credential in a request's headers. `None` means that the request has none.
fn credential_of(app: &App, peer: Option<PeerAddress>, headers: &HeaderMap) -> Option<Credential> {
    if let Some(header) = headers.get(AUTHORIZATION) {
        let header = header.to_str().ok()?;
        let (scheme, secret) = header.split_once(' ')?;
        let secret = secret.trim();
        let is_bearer = scheme.eq_ignore_ascii_case("bearer") && !secret.is_empty();
        return is_bearer.then(|| Credential::Key(Secret::from_text(secret)));
    }
    if let Some(session) = session_cookie(headers, &session_cookie_name(app)) {
        return Some(Credential::Session(session));
    }
    let is_local = peer.is_some_and(|peer| peer.is_direct_loopback(headers));
    (is_local && app.state.options.open_loopback).then_some(Credential::Loopback)
}

/// Returns the name of the session cookie. It contains the server's port, because browsers send
/// cookies to all ports of a host.
pub(crate) fn session_cookie_name(app: &App) -> String {
    format!("longhaul_{}", app.state.address.port())
}

fn session_cookie(headers: &HeaderMap, cookie_name: &str) -> Option<Secret> {
    headers
        .get_all(COOKIE)
        .iter()
        .filter_map(|line| line.to_str().ok())
        .flat_map(|line| line.split(';'))
        .filter_map(|pair| pair.trim().split_once('='))
        .find(|(name_in_request, _)| *name_in_request == cookie_name)
        .map(|(_, value)| Secret::from_text(value))
}

fn act_as_header_value(headers: &HeaderMap) -> Option<String> {
    let header = headers.get(ACT_AS)?;
    // Names may contain non-ASCII characters.
    let name = std::str::from_utf8(header.as_bytes()).ok()?;
    let is_cli = name == "cli" || name.starts_with("cli:");
    let is_printable = name.len() <= ACT_AS_BYTES_MAX && !name.chars().any(char::is_control);
    (is_cli && is_printable).then(|| name.to_owned())
}
