//! API handlers for API keys, which only admins may use, and for tickets: one-time links that open
//! a browser session. A secret is shown once. A session has no more rights than the caller's own
//! key.

use axum::extract::State;
use axum::http::HeaderMap;
use axum::response::Response;
use longhaul_api::key::{CreatedKey, KeyView, LoginTicketView, NewKeyBody};
use longhaul_api::list::List;
use longhaul_core::id::ApiKeyName;
use longhaul_core::time::Millis;
use longhaul_engine::handle::NewKeyRequest;

use crate::app::App;
use crate::body::Json;
use crate::caller::{Admin, Viewer};
use crate::idempotency::EngineHandleForRequest;
use crate::middleware::auth::Credential;
use crate::params::NamePathParam;
use crate::peer::request_base_url;
use crate::problem::Problem;
use crate::response::{created_secret_response, ok_response};

/// Maximum lifetime of an API key in milliseconds: 100 years. Times beyond the year 9999 can't be
/// written.
const TTL_MS_MAX: u64 = 3_155_760_000_000;

/// Lists all API keys, oldest first.
#[utoipa::path(
    get, path = "/v1/keys", tag = "keys", operation_id = "list_keys",
    responses((status = 200, description = "All keys", body = List<KeyView>)),
)]
pub(crate) async fn list_keys(State(app): State<App>, _: Admin) -> Result<Response, Problem> {
    let data = app.longhaul().list_api_keys().await?;
    ok_response(&List { data, next: None })
}

/// Creates an API key.
#[utoipa::path(
    post, path = "/v1/keys", tag = "keys", operation_id = "create_key",
    request_body = NewKeyBody,
    responses((status = 201, description = "The key, shown only once", body = CreatedKey)),
)]
pub(crate) async fn create_key(
    request: EngineHandleForRequest,
    caller: Admin,
    Json(body): Json<NewKeyBody>,
) -> Result<Response, Problem> {
    if body.expires_in_ms == Some(0) {
        return Err(Problem::unprocessable("`expires_in_ms` must be 1 or more"));
    }
    let new_key = NewKeyRequest {
        name: parse_key_name(&body.name)?,
        role: body.role,
        ttl: body.expires_in_ms.map(parse_ttl).transpose()?,
        by: caller.name().to_owned(),
    };
    let key = request.longhaul.create_key(new_key).await?;
    let secret = key.secret.reveal().to_owned();
    let key = key.key;
    let (name, role) = (&key.name, key.role.as_str());
    tracing::info!(key = name, role, caller = caller.name(), "key created");
    created_secret_response("/v1/keys", &CreatedKey { secret, key })
}

/// Revokes an API key and all browser sessions that were opened with it.
#[utoipa::path(
    delete, path = "/v1/keys/{name}", tag = "keys", operation_id = "revoke_key",
    params(("name" = String, Path, description = "Name of the key")),
    responses((status = 200, description = "The revoked key", body = KeyView)),
)]
pub(crate) async fn revoke_key(
    State(app): State<App>,
    caller: Admin,
    NamePathParam(name): NamePathParam,
) -> Result<Response, Problem> {
    let key = app.longhaul().revoke_api_key(&parse_key_name(&name)?).await?;
    tracing::info!(key = key.name, caller = caller.name(), "key revoked");
    ok_response(&key)
}

fn parse_key_name(name: &str) -> Result<ApiKeyName, Problem> {
    ApiKeyName::new(name).map_err(|error| Problem::unprocessable(error.to_string()))
}

fn parse_ttl(ttl_ms: u64) -> Result<Millis, Problem> {
    match (1..=TTL_MS_MAX).contains(&ttl_ms) {
        true => Ok(Millis(ttl_ms)),
        false => {
            let message = format!("`expires_in_ms` must be between 1 and {TTL_MS_MAX} (100 years)");
            Err(Problem::unprocessable(message)
                .with_hint("leave it out for a key that does not expire"))
        }
    }
}

/// Creates a one-time link that opens a browser session.
#[utoipa::path(
    post, path = "/v1/tickets", tag = "keys", operation_id = "create_ticket",
    responses((status = 201, description = "The link, shown only once", body = LoginTicketView)),
)]
pub(crate) async fn create_login_ticket(
    State(app): State<App>,
    Viewer(caller): Viewer,
    (credential, headers): (Credential, HeaderMap),
) -> Result<Response, Problem> {
    // A session belongs to a key; a loopback caller without a key can't have one.
    if matches!(credential, Credential::Loopback) {
        return Err(Problem::forbidden("a session needs a key, and the request has none"));
    }
    let ticket =
        app.longhaul().create_login_ticket(caller.key, app.local_machine_key_hash()).await?;
    let url = format!("{}/?t={}", request_base_url(&headers), ticket.reveal());
    created_secret_response("/", &LoginTicketView { url })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ttl_of_a_key_is_limited() {
        for (ttl_ms, expected) in
            [(0, false), (1, true), (TTL_MS_MAX, true), (TTL_MS_MAX + 1, false), (u64::MAX, false)]
        {
            assert_eq!(parse_ttl(ttl_ms).is_ok(), expected, "{ttl_ms}");
        }
    }
}
