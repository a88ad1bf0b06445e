//! The first page: trades a ticket for a session, and says what this is.
//!
//! Never: tells a stranger more than that a key is needed.

use axum::extract::State;
use axum::http::header::{LOCATION, SET_COOKIE};
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode};
use axum::response::{IntoResponse as _, Response};
use longhaul_core::policy::gate::GateStatus;
use longhaul_core::port::store::{GatesAsk, RowsAsk};
use longhaul_core::status::Status;
use longhaul_engine::secret::Secret;

use crate::app::App;
use crate::ask::base;
use crate::guard::key::{cookie_name, recognise, shown};
use crate::page::{WordPage, page, words};
use crate::params::Query;
use crate::problem::Problem;

/// So many are counted.
const COUNTED_MAX: usize = 1_000;

/// The page at `/`.
pub(crate) async fn start(
    State(app): State<App>,
    method: Method,
    query: Query,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    // Programs look with HEAD whether a link leads somewhere; that is no use of it.
    let ticket = query.one("t")?.filter(|_| method != Method::HEAD);
    if let Some(ticket) = ticket {
        return trade(&app, &Secret::shown(ticket), &headers).await;
    }
    // Only what is shown counts here, not where it comes from.
    let known = match shown(&app, None, &headers) {
        Some(shown) => recognise(&app, &shown).await?,
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
            words(&app, StatusCode::UNAUTHORIZED, "A key is needed", &lines)
        }
    }
}

async fn trade(app: &App, ticket: &Secret, headers: &HeaderMap) -> Result<Response, Problem> {
    let Some(session) = app.longhaul().trade_ticket(ticket, app.own_key()).await? else {
        let lines = [
            "It works once, within ten minutes, and dies with its key.".to_owned(),
            "A new link: longhaul keys link".to_owned(),
        ];
        return words(app, StatusCode::GONE, "This link is used up", &lines);
    };
    let secure = match base(headers).starts_with("https:") {
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
fn counted(count: usize, one: &str, many: &str) -> String {
    match count {
        1 => format!("1 {one}"),
        COUNTED_MAX.. => format!("{COUNTED_MAX} or more {many}"),
        _ => format!("{count} {many}"),
    }
}

async fn home(app: &App, caller: &str, headers: &HeaderMap) -> Result<Response, Problem> {
    let longhaul = app.longhaul();
    let open = GatesAsk {
        status: Some(GateStatus::Open),
        limit: COUNTED_MAX,
        ..GatesAsk::default()
    };
    let working = RowsAsk {
        statuses: vec![Status::Pending, Status::Running],
        limit: COUNTED_MAX,
        ..RowsAsk::default()
    };
    let open = longhaul.gates(open).await?.len();
    let working = longhaul.brief(working).await?.len();
    let base = base(headers);
    let lines = [
        format!("You are {caller}."),
        format!(
            "{}, {}.",
            counted(working, "run is at work", "runs are at work"),
            counted(
                open,
                "question waits for a person",
                "questions wait for a person"
            ),
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
    page(
        StatusCode::OK,
        &WordPage {
            version,
            title: "Longhaul is running",
            lines: &lines,
            commands: &commands,
        },
    )
}
