//! Tickets: a link that opens the pages in a browser, once.
//!
//! Never: more than the caller's own key opens.

use axum::extract::State;
use axum::http::HeaderMap;
use axum::response::Response;
use longhaul_api::key::TicketView;

use crate::app::App;
use crate::ask::base;
use crate::caller::Viewer;
use crate::guard::key::Shown;
use crate::problem::Problem;
use crate::reply::made_secret;

/// Makes a link that opens the pages in a browser.
#[utoipa::path(
    post, path = "/v1/tickets", tag = "keys", operation_id = "make_ticket",
    responses((status = 201, description = "The link, shown this once", body = TicketView)),
)]
pub(crate) async fn make(
    State(app): State<App>,
    Viewer(caller): Viewer,
    (shown, headers): (Shown, HeaderMap),
) -> Result<Response, Problem> {
    // A session is its key's; who only stands near has none to give.
    if matches!(shown, Shown::Loopback) {
        return Err(Problem::forbidden(
            "a session needs a key, and none was shown",
        ));
    }
    let ticket = app
        .longhaul()
        .give_ticket(caller.holder, app.own_key())
        .await?;
    let url = format!("{}/?t={}", base(&headers), ticket.reveal());
    made_secret("/", &TicketView { url })
}
