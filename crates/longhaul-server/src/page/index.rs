//! The start page: exchanges a ticket (a one-time link) for a browser session and shows an
//! overview. Without a session it says only that a key is needed.

use axum::extract::State;
use axum::http::header::{LOCATION, SET_COOKIE};
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, Uri};
use axum::response::{IntoResponse as _, Response};
use longhaul_core::policy::gate::GateStatus;
use longhaul_core::port::store::{GateFilter, RunFilter};
use longhaul_core::sanitize::sanitize_line;
use longhaul_core::status::Status;
use longhaul_engine::secret::Secret;
use serde::Deserialize;

use crate::app::App;
use crate::middleware::auth::{find_caller, session_cookie_name};
use crate::page::{MessagePage, render_message_page, render_page};
use crate::params::parse_query;
use crate::peer::request_base_url;
use crate::problem::Problem;

/// Maximum number of runs or gates that the start page counts.
const COUNTED_MAX: usize = 1_000;

/// Query of the start page. Other parameters are ignored.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct TicketQuery {
    /// Login ticket of a one-time link.
    t: Option<String>,
}

/// Serves the start page at `/`.
pub(crate) async fn serve_start_page(
    State(app): State<App>,
    method: Method,
    uri: Uri,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let query: TicketQuery = parse_query(uri.query().unwrap_or_default())?;
    // Programs check links with HEAD; that must not consume the ticket.
    if let Some(ticket) = query.t.filter(|_| method != Method::HEAD) {
        return open_session_with_login_ticket(&app, &Secret::from_text(ticket), &headers).await;
    }
    // Only credentials count here; the open loopback does not.
    match find_caller(&app, None, &headers).await? {
        Some((_, identity)) => overview_page(&app, &identity.principal.name, &headers).await,
        None => {
            let lines = [
                "This page needs a session. The link that `longhaul dev` and `longhaul serve` \
                 print opens one, once, within ten minutes."
                    .to_owned(),
                "A new link: longhaul keys link".to_owned(),
            ];
            render_message_page(&app, StatusCode::UNAUTHORIZED, "Key required", &lines)
        }
    }
}

async fn open_session_with_login_ticket(
    app: &App,
    ticket: &Secret,
    headers: &HeaderMap,
) -> Result<Response, Problem> {
    let Some(session) =
        app.longhaul().exchange_ticket_for_session(ticket, app.state.local_key).await?
    else {
        let lines = [
            "It works once, within ten minutes, and only while its key is valid.".to_owned(),
            "A new link: longhaul keys link".to_owned(),
        ];
        return render_message_page(
            app,
            StatusCode::GONE,
            "This link has expired or was used",
            &lines,
        );
    };
    let secure = match request_base_url(headers).starts_with("https:") {
        true => "; Secure",
        false => "",
    };
    let name = session_cookie_name(app);
    let value = session.reveal();
    let cookie =
        format!("{name}={value}; Path=/; HttpOnly; SameSite=Strict; Max-Age=43200{secure}");
    let mut response = StatusCode::SEE_OTHER.into_response();
    let response_headers = response.headers_mut();
    response_headers.insert(LOCATION, HeaderValue::from_static("/"));
    if let Ok(cookie) = HeaderValue::from_str(&cookie) {
        response_headers.insert(SET_COOKIE, cookie);
    }
    Ok(response)
}

/// Formats a count with the singular or plural noun.
fn format_count(count: usize, singular: &str, plural: &str) -> String {
    match count {
        1 => format!("1 {singular}"),
        COUNTED_MAX.. => format!("{COUNTED_MAX} or more {plural}"),
        _ => format!("{count} {plural}"),
    }
}

async fn overview_page(app: &App, caller: &str, headers: &HeaderMap) -> Result<Response, Problem> {
    let longhaul = app.longhaul();
    let open_gates =
        GateFilter { status: Some(GateStatus::Open), limit: COUNTED_MAX, ..GateFilter::default() };
    let active_runs = RunFilter {
        statuses: vec![Status::Pending, Status::Running],
        limit: COUNTED_MAX,
        ..RunFilter::default()
    };
    let open_gates = longhaul.list_gates(open_gates).await?;
    let open_gates = open_gates.iter().filter(|gate| gate.status == GateStatus::Open).count();
    let active_runs = longhaul.list_brief_runs(active_runs).await?.len();
    let base = request_base_url(headers);
    let lines = [
        format!("You are signed in as {}.", sanitize_line(caller)),
        format!(
            "{}, {}.",
            format_count(active_runs, "run is active", "runs are active"),
            format_count(
                open_gates,
                "question is waiting for a person",
                "questions are waiting for a person"
            ),
        ),
        format!("The API is at {base}/v1, described at {base}/openapi.json."),
    ];
    let commands = [
        ("Show runs", "longhaul ls".to_owned()),
        ("Show open questions", "longhaul gates".to_owned()),
        ("Call the API", format!("curl -H \"Authorization: Bearer $LONGHAUL_KEY\" {base}/v1/runs")),
    ];
    let version = &app.state.options.version;
    render_page(
        StatusCode::OK,
        &MessagePage { version, title: "Longhaul is running", lines: &lines, commands: &commands },
    )
}
