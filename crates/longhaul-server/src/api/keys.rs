//! Keys, for admins, and tickets: links that open the pages in a browser, once. A secret is shown
//! once, and a ticket opens no more than the caller's own key.

use axum::extract::State;
use axum::http::HeaderMap;
use axum::response::Response;
use longhaul_api::key::{CreatedKey, KeyBody, KeyView, TicketView};
use longhaul_api::list::List;
use longhaul_core::id::KeyName;
use longhaul_core::time::Millis;
use longhaul_engine::handle::KeyAsk;

use crate::app::App;
use crate::ask::base;
use crate::body::Json;
use crate::caller::{Admin, Viewer};
use crate::guard::key::Shown;
use crate::once::RequestHandle;
use crate::params::Name;
use crate::problem::Problem;
use crate::reply::{made_secret, ok};

/// A hundred years: a key for longer is one without an end, and times beyond the
/// year 9999 can't be written.
const SPAN_MAX: u64 = 3_155_760_000_000;

/// Lists keys, the oldest first.
#[utoipa::path(
    get, path = "/v1/keys", tag = "keys", operation_id = "list_keys",
    responses((status = 200, description = "All keys", body = List<KeyView>)),
)]
pub(crate) async fn list(State(app): State<App>, _: Admin) -> Result<Response, Problem> {
    let data = app.longhaul().keys().await?;
    ok(&List { data, next: None })
}

/// Makes a key.
#[utoipa::path(
    post, path = "/v1/keys", tag = "keys", operation_id = "make_key",
    request_body = KeyBody,
    responses((status = 201, description = "The key, shown this once", body = CreatedKey)),
)]
pub(crate) async fn make(
    request: RequestHandle,
    caller: Admin,
    Json(body): Json<KeyBody>,
) -> Result<Response, Problem> {
    if body.expires_in_ms == Some(0) {
        return Err(Problem::invalid("`expires_in_ms` is 1 or more"));
    }
    let ask = KeyAsk {
        name: name(&body.name)?,
        role: body.role,
        span: body.expires_in_ms.map(span).transpose()?,
        by: caller.name().to_owned(),
    };
    let key = request.longhaul.make_key(ask).await?;
    let secret = key.secret.reveal().to_owned();
    let key = key.key;
    let (name, role) = (&key.name, key.role.as_str());
    tracing::info!(key = name, role, caller = caller.name(), "a key was made");
    made_secret("/v1/keys", &CreatedKey { secret, key })
}

/// Ends a key, and every session that it gave out.
#[utoipa::path(
    delete, path = "/v1/keys/{name}", tag = "keys", operation_id = "revoke_key",
    params(("name" = String, Path, description = "The key")),
    responses((status = 200, description = "The key, revoked", body = KeyView)),
)]
pub(crate) async fn revoke(
    State(app): State<App>,
    caller: Admin,
    Name(said): Name,
) -> Result<Response, Problem> {
    let key = app.longhaul().revoke_key(&name(&said)?).await?;
    tracing::info!(key = key.name, caller = caller.name(), "a key was revoked");
    ok(&key)
}

fn name(said: &str) -> Result<KeyName, Problem> {
    KeyName::new(said).map_err(|bad| Problem::invalid(bad.to_string()))
}

fn span(said: u64) -> Result<Millis, Problem> {
    match (1..=SPAN_MAX).contains(&said) {
        true => Ok(Millis(said)),
        false => {
            let words = format!("`expires_in_ms` is 1 to {SPAN_MAX}, which is a hundred years");
            Err(Problem::invalid(words).hint("leave it out for a key without an end"))
        }
    }
}

/// Makes a link that opens the pages in a browser.
#[utoipa::path(
    post, path = "/v1/tickets", tag = "keys", operation_id = "make_ticket",
    responses((status = 201, description = "The link, shown this once", body = TicketView)),
)]
pub(crate) async fn make_ticket(
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_lives_for_a_time_that_can_be_written() {
        for (said, fits) in [
            (0, false),
            (1, true),
            (SPAN_MAX, true),
            (SPAN_MAX + 1, false),
            (u64::MAX, false),
        ] {
            assert_eq!(span(said).is_ok(), fits, "{said}");
        }
    }
}
