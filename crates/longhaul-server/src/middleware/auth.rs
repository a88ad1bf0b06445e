//! Asks for the key: a bearer's, or the session that a key gave out.
//!
//! Never: a route that is open because somebody forgot it. What needs no key is
//! listed here, everything else does.

use std::sync::Arc;

use axum::extract::{MatchedPath, Request, State};
use axum::http::header::{AUTHORIZATION, COOKIE, HeaderName, WWW_AUTHENTICATE};
use axum::http::{HeaderMap, HeaderValue, StatusCode, Uri};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use longhaul_core::access::{Principal, Role};
use longhaul_core::port::auth::KeyRef;
use longhaul_engine::handle::Identity;
use longhaul_engine::secret::Secret;

use crate::app::App;
use crate::connections::Connection;
use crate::peer::Peer;
use crate::problem::Problem;

/// Routes that need no key: they tell nothing, or bring a key of their own.
const PUBLIC_ROUTES: [&str; 6] = ["/livez", "/readyz", "/version", "/a/{token}", "/", "/style.css"];

/// Those of them that tell nothing and may be asked as often as one likes.
const HEALTH_ROUTES: [&str; 3] = ["/livez", "/readyz", "/version"];

/// Who the bearer of the machine's own key says they are.
const ACT_AS: HeaderName = HeaderName::from_static("x-longhaul-as");

/// So long may that name be.
const ACT_AS_BYTES_MAX: usize = 80;

/// What a request showed, so that a stream can show it again.
#[derive(Debug, Clone)]
pub(crate) enum Credential {
    /// A key.
    Key(Secret),
    /// A session.
    Session(Secret),
    /// Nothing: loopback is open.
    Loopback,
}

/// The caller's name, for the log.
#[derive(Debug, Clone)]
pub(crate) struct CallerName(pub(crate) String);

/// Lets a request pass whose caller is known, and says who it is.
pub(crate) async fn authenticate(
    State(app): State<App>,
    mut request: Request,
    next: Next,
) -> Response {
    let peer = request.extensions().get::<Peer>().copied();
    let route = request.extensions().get::<MatchedPath>();
    if let Some(route) = route.filter(|route| PUBLIC_ROUTES.contains(&route.as_str())) {
        // Strangers behind a proxy must not starve those who look whether we live.
        if !HEALTH_ROUTES.contains(&route.as_str()) {
            match limit_public_request(&app, peer, request.uri(), request.headers()).await {
                Ok(true) => mark_authenticated(&request),
                Ok(false) => {}
                Err(problem) => return problem.into_response(),
            }
        }
        return next.run(request).await;
    }
    match authenticate_request(&app, peer, request.headers()).await {
        Ok((shown, known)) => {
            mark_authenticated(&request);
            let name = known.principal.name.clone();
            request.extensions_mut().insert(shown);
            request.extensions_mut().insert(known);
            let mut response = next.run(request).await;
            response.extensions_mut().insert(CallerName(name));
            response
        }
        Err(problem) => {
            let no_key = problem.status == StatusCode::UNAUTHORIZED;
            let mut response = problem.into_response();
            if no_key {
                let how = HeaderValue::from_static("Bearer realm=\"longhaul\"");
                response.headers_mut().insert(WWW_AUTHENTICATE, how);
            }
            response
        }
    }
}

/// Counts a request of a route without a key: by its link or session if that is valid,
/// so that others at its address can't use up its rate, else by its address. Whether
/// it has shown anything valid. The store is asked only as often as addresses have a
/// rate for that.
async fn limit_public_request(
    app: &App,
    peer: Option<Peer>,
    uri: &Uri,
    headers: &HeaderMap,
) -> Result<bool, Problem> {
    let address = peer.map(|peer| peer.0.ip());
    let counted = address.map_or(Ok(()), |address| app.rates().check_anonymous(address));
    if counted.is_err() && !address.is_some_and(|address| app.rates().may_look_up(address)) {
        return counted.map(|()| false);
    }
    let name = match uri.path().strip_prefix("/a/").map(Secret::from_text) {
        Some(link) if app.longhaul().has_link(&link).await? => {
            Some(format!("link:{}", link.hash()))
        }
        Some(_) => None,
        None => match find_credential(app, None, headers) {
            Some(shown) => identify(app, &shown).await?.map(|known| known.principal.name),
            None => None,
        },
    };
    match name {
        Some(name) => app.rates().check_key(&name).map(|()| true),
        None => counted.map(|()| false),
    }
}

/// Tells the connection of a request that it has shown something valid.
fn mark_authenticated(request: &Request) {
    if let Some(connection) = request.extensions().get::<Arc<Connection>>() {
        connection.authenticate();
    }
}

async fn authenticate_request(
    app: &App,
    peer: Option<Peer>,
    headers: &HeaderMap,
) -> Result<(Credential, Identity), Problem> {
    let shown = find_credential(app, peer, headers);
    let known = match &shown {
        Some(shown) => identify(app, shown).await?,
        None => None,
    };
    let Some((shown, mut known)) = shown.zip(known) else {
        if let Some(peer) = peer {
            app.rates().check_anonymous(peer.0.ip())?;
        }
        let words = "a key is needed, and none was shown that counts";
        return Err(Problem::new(StatusCode::UNAUTHORIZED, "unauthorized", words)
            .hint("send `Authorization: Bearer lh_...`; make a key with: longhaul keys new NAME"));
    };
    match (&shown, &known.key) {
        // Whoever may read that file may write the store as well, under any name.
        (Credential::Key(_), KeyRef::Local) => {
            if let Some(name) = act_as_name(headers) {
                known.principal.name = name;
            }
        }
        // A browser speaks for whoever sits before it, and for nobody else.
        (Credential::Session(_), KeyRef::Local) => {}
        (Credential::Loopback, _) | (_, KeyRef::Key(_)) => {
            app.rates().check_key(&known.principal.name)?;
        }
    }
    Ok((shown, known))
}

/// Whose key or session it is, if it counts now.
pub(crate) async fn identify(app: &App, shown: &Credential) -> Result<Option<Identity>, Problem> {
    let longhaul = app.longhaul();
    Ok(match shown {
        Credential::Key(secret) if app.is_local_key(secret.hash()) => Some(Identity::local()),
        Credential::Key(secret) => longhaul.authenticate_key(secret).await?,
        Credential::Session(secret) => {
            longhaul.authenticate_session(secret, app.local_key_hash()).await?
        }
        Credential::Loopback => Some(Identity {
            principal: Principal { name: "loopback".to_owned(), role: Role::Operator },
            key: KeyRef::Local,
        }),
    })
}

/// What a request shows; none: nothing that could count.
pub(crate) fn find_credential(
    app: &App,
    peer: Option<Peer>,
    headers: &HeaderMap,
) -> Option<Credential> {
    if let Some(said) = headers.get(AUTHORIZATION) {
        let said = said.to_str().ok()?;
        let (how, secret) = said.split_once(' ')?;
        let secret = secret.trim();
        let bearer = how.eq_ignore_ascii_case("bearer") && !secret.is_empty();
        return bearer.then(|| Credential::Key(Secret::from_text(secret)));
    }
    if let Some(session) = session_cookie(headers, &cookie_name(app)) {
        return Some(Credential::Session(session));
    }
    let own = peer.is_some_and(|peer| peer.is_local(headers));
    (own && app.options().open_loopback).then_some(Credential::Loopback)
}

/// The session's cookie. Its name carries the port, since cookies ignore ports.
pub(crate) fn cookie_name(app: &App) -> String {
    format!("longhaul_{}", app.address().port())
}

fn session_cookie(headers: &HeaderMap, name: &str) -> Option<Secret> {
    headers
        .get_all(COOKIE)
        .iter()
        .filter_map(|line| line.to_str().ok())
        .flat_map(|line| line.split(';'))
        .filter_map(|pair| pair.trim().split_once('='))
        .find(|(known, _)| *known == name)
        .map(|(_, value)| Secret::from_text(value))
}

fn act_as_name(headers: &HeaderMap) -> Option<String> {
    let said = headers.get(ACT_AS)?;
    // Names may hold letters beyond ASCII, as whoever types has them.
    let name = std::str::from_utf8(said.as_bytes()).ok()?;
    let fits = name == "cli" || name.starts_with("cli:");
    let plain = name.len() <= ACT_AS_BYTES_MAX && !name.chars().any(char::is_control);
    (fits && plain).then(|| name.to_owned())
}
