//! The first page: trades a ticket for a session, and says what this is.
//!
//! Never: tells a stranger more than that a key is needed.

use axum::extract::State;
use axum::http::header::{LOCATION, SET_COOKIE};
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode};
use axum::response::{IntoResponse as _, Response};
use longhaul_core::policy::gate::GateStatus;
use longhaul_core::port::store::{GateFilter, RunFilter};
use longhaul_core::status::Status;
use longhaul_engine::secret::Secret;

use crate::app::App;
use crate::middleware::auth::{cookie_name, find_credential, identify};
use crate::page::{MessagePage, message_page, render_page};
use crate::params::Query;
use crate::peer::base_url;
use crate::problem::Problem;

/// So many are counted.
const COUNTED_MAX: usize = 1_000;

/// The page at `/`.
pub(crate) async fn index(
    State(app): State<App>,
    method: Method,
    query: Query,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    // Programs look with HEAD whether a link leads somewhere; that is no use of it.
    let ticket = query.value("t")?.filter(|_| method != Method::HEAD);
    if let Some(ticket) = ticket {
        return exchange_ticket(&app, &Secret::from_text(ticket), &headers).await;
    }
    // Only what is shown counts here, not where it comes from.
    let known = match find_credential(&app, None, &headers) {
        Some(shown) => identify(&app, &shown).await?,
        None => None,
    };
    match known {
        Some(known) => home(&app, &known.principal.name, &headers).await,
        None => {
            let lines = [
                "This page needs a session. The link that `longhaul dev` and `longhaul serve` \
                 print opens one, once, within ten minutes."
                    .to_owned(),
                "A new link: longhaul keys link".to_owned(),
            ];
            message_page(&app, StatusCode::UNAUTHORIZED, "A key is needed", &lines)
        }
    }
}

async fn exchange_ticket(
    app: &App,
    ticket: &Secret,
    headers: &HeaderMap,
) -> Result<Response, Problem> {
    let Some(session) = app.longhaul().exchange_ticket(ticket, app.local_key_hash()).await? else {
        let lines = [
            "It works once, within ten minutes, and dies with its key.".to_owned(),
            "A new link: longhaul keys link".to_owned(),
        ];
        return message_page(app, StatusCode::GONE, "This link is used up", &lines);
    };
    let secure = match base_url(headers).starts_with("https:") {
        true => "; Secure",
        false => "",
    };
    let name = cookie_name(app);
    let value = session.reveal();
    let line = format!("{name}={value}; Path=/; HttpOnly; SameSite=Strict; Max-Age=43200{secure}");
    let mut response = StatusCode::SEE_OTHER.into_response();
    let kept = response.headers_mut();
    kept.insert(LOCATION, HeaderValue::from_static("/"));
    if let Ok(line) = HeaderValue::from_str(&line) {
        kept.insert(SET_COOKIE, line);
    }
    Ok(response)
}

/// A count with its words.
fn count_text(count: usize, one: &str, many: &str) -> String {
    match count {
        1 => format!("1 {one}"),
        COUNTED_MAX.. => format!("{COUNTED_MAX} or more {many}"),
        _ => format!("{count} {many}"),
    }
}

async fn home(app: &App, caller: &str, headers: &HeaderMap) -> Result<Response, Problem> {
    let longhaul = app.longhaul();
    let open =
        GateFilter { status: Some(GateStatus::Open), limit: COUNTED_MAX, ..GateFilter::default() };
    let working = RunFilter {
        statuses: vec![Status::Pending, Status::Running],
        limit: COUNTED_MAX,
        ..RunFilter::default()
    };
    let open = longhaul.gates(open).await?.len();
    let working = longhaul.list_brief(working).await?.len();
    let base = base_url(headers);
    let lines = [
        format!("You are {caller}."),
        format!(
            "{}, {}.",
            count_text(working, "run is at work", "runs are at work"),
            count_text(open, "question waits for a person", "questions wait for a person"),
        ),
        format!("The API is at {base}/v1, described at {base}/openapi.json."),
    ];
    let commands = [
        ("What is going on", "longhaul ls".to_owned()),
        ("What waits for you", "longhaul gates".to_owned()),
        (
            "From a program",
            format!("curl -H \"Authorization: Bearer $LONGHAUL_KEY\" {base}/v1/runs"),
        ),
    ];
    let version = &app.options().version;
    render_page(
        StatusCode::OK,
        &MessagePage { version, title: "Longhaul is running", lines: &lines, commands: &commands },
    )
}
