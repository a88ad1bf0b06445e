//! API handlers for API keys, which only admins may use, and for tickets: one-time links that open
//! a browser session. A secret is shown once. A session has no more rights than the caller's own
//! key.

use longhaul_api::key::{CreatedKey, KeyView, LoginTicketView, NewKeyBody};
use longhaul_core::id::ApiKeyName;
use longhaul_core::time::Millis;
use longhaul_engine::handle::NewKeyRequest;

use crate::call::{Call, Replied, Reply};
use crate::middleware::auth::Credential;
use crate::problem::Problem;

/// Maximum lifetime of an API key in milliseconds: 100 years. Times beyond the year 9999 can't be
/// written.
const TTL_MS_MAX: u64 = 3_155_760_000_000;

pub(crate) async fn create_key(
    Call { ctx, body, .. }: Call<(), NewKeyBody>,
) -> Replied<CreatedKey> {
    let name = ApiKeyName::new(&body.name);
    let new_key = NewKeyRequest {
        name: name.map_err(|error| Problem::unprocessable(error.to_string()))?,
        role: body.role,
        ttl: body.expires_in_ms.map(parse_ttl).transpose()?,
        by: ctx.by().to_owned(),
    };
    let issued = ctx.longhaul_of_request().0.create_key(new_key).await?;
    let (secret, key) = (issued.secret.reveal().to_owned(), issued.key);
    tracing::info!(key = key.name, role = key.role.as_str(), caller = ctx.by(), "key created");
    Ok(Reply::created("/v1/keys".to_owned(), CreatedKey { secret, key }).with_secret())
}

pub(crate) async fn revoke_key(Call { ctx, path: name, .. }: Call<ApiKeyName>) -> Replied<KeyView> {
    let key = ctx.longhaul().revoke_api_key(&name).await?;
    tracing::info!(key = key.name, caller = ctx.by(), "key revoked");
    Ok(Reply::ok(key))
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

pub(crate) async fn create_login_ticket(Call { ctx, .. }: Call) -> Replied<LoginTicketView> {
    // A session belongs to a key; a caller without a key can't have one.
    if matches!(ctx.credential, Credential::Loopback | Credential::InProcess) {
        return Err(Problem::forbidden("a session needs a key, and the request has none"));
    }
    let local_key = ctx.app.state.local_key;
    let ticket = ctx.longhaul().create_login_ticket(ctx.caller.key.clone(), local_key).await?;
    let url = format!("{}/?t={}", ctx.base_url(), ticket.reveal());
    Ok(Reply::created("/".to_owned(), LoginTicketView { url }).with_secret())
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
