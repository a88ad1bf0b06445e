//! Keys, for admins, and tickets: links that open the pages in a browser, once. A secret is shown
//! once, and a ticket opens no more than the caller's own key.

use axum::extract::State;
use axum::http::HeaderMap;
use axum::response::Response;
use longhaul_api::key::{CreatedKey, KeyBody, KeyView, TicketView};
use longhaul_api::list::List;
use longhaul_core::id::KeyName;
use longhaul_core::time::Millis;
use longhaul_engine::handle::CreateKey;

use crate::app::App;
use crate::body::Json;
use crate::caller::{Admin, Viewer};
use crate::idempotency::RequestHandle;
use crate::middleware::auth::Credential;
use crate::params::NamePath;
use crate::peer::base_url;
use crate::problem::Problem;
use crate::response::{created_secret, ok};

/// A hundred years: a key for longer is one without an end, and times beyond the
/// year 9999 can't be written.
const TTL_MS_MAX: u64 = 3_155_760_000_000;

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
    post, path = "/v1/keys", tag = "keys", operation_id = "create_key",
    request_body = KeyBody,
    responses((status = 201, description = "The key, shown this once", body = CreatedKey)),
)]
pub(crate) async fn create(
    request: RequestHandle,
    caller: Admin,
    Json(body): Json<KeyBody>,
) -> Result<Response, Problem> {
    if body.expires_in_ms == Some(0) {
        return Err(Problem::invalid("`expires_in_ms` is 1 or more"));
    }
    let ask = CreateKey {
        name: parse_name(&body.name)?,
        role: body.role,
        ttl: body.expires_in_ms.map(parse_ttl).transpose()?,
        by: caller.name().to_owned(),
    };
    let key = request.longhaul.create_key(ask).await?;
    let secret = key.secret.reveal().to_owned();
    let key = key.key;
    let (name, role) = (&key.name, key.role.as_str());
    tracing::info!(key = name, role, caller = caller.name(), "a key was made");
    created_secret("/v1/keys", &CreatedKey { secret, key })
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
    NamePath(said): NamePath,
) -> Result<Response, Problem> {
    let key = app.longhaul().revoke_key(&parse_name(&said)?).await?;
    tracing::info!(key = key.name, caller = caller.name(), "a key was revoked");
    ok(&key)
}

fn parse_name(said: &str) -> Result<KeyName, Problem> {
    KeyName::new(said).map_err(|bad| Problem::invalid(bad.to_string()))
}

fn parse_ttl(said: u64) -> Result<Millis, Problem> {
    match (1..=TTL_MS_MAX).contains(&said) {
        true => Ok(Millis(said)),
        false => {
            let words = format!("`expires_in_ms` is 1 to {TTL_MS_MAX}, which is a hundred years");
            Err(Problem::invalid(words).hint("leave it out for a key without an end"))
        }
    }
}

/// Makes a link that opens the pages in a browser.
#[utoipa::path(
    post, path = "/v1/tickets", tag = "keys", operation_id = "create_ticket",
    responses((status = 201, description = "The link, shown this once", body = TicketView)),
)]
pub(crate) async fn create_ticket(
    State(app): State<App>,
    Viewer(caller): Viewer,
    (shown, headers): (Credential, HeaderMap),
) -> Result<Response, Problem> {
    // A session is its key's; who only stands near has none to give.
    if matches!(shown, Credential::Loopback) {
        return Err(Problem::forbidden("a session needs a key, and none was shown"));
    }
    let ticket = app.longhaul().create_ticket(caller.key, app.local_key_hash()).await?;
    let url = format!("{}/?t={}", base_url(&headers), ticket.reveal());
    created_secret("/", &TicketView { url })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ttl_of_a_key_is_limited() {
        for (said, fits) in
            [(0, false), (1, true), (TTL_MS_MAX, true), (TTL_MS_MAX + 1, false), (u64::MAX, false)]
        {
            assert_eq!(parse_ttl(said).is_ok(), fits, "{said}");
        }
    }
}
