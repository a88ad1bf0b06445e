//! The authenticated caller of a request and the check of its role.

use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use longhaul_core::access::Role;
use longhaul_engine::handle::CallerIdentity;

use crate::app::App;
use crate::problem::Problem;

/// Extractor for a caller who may read runs, gates and agents.
#[derive(Debug)]
pub(crate) struct Viewer;

impl FromRequestParts<App> for Viewer {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &App) -> Result<Self, Problem> {
        require_caller_identity(parts, Role::Viewer).map(|_| Self)
    }
}

/// Returns the caller of a request, or an error unless the caller has at least this role.
pub(crate) fn require_caller_identity(
    parts: &Parts,
    required: Role,
) -> Result<CallerIdentity, Problem> {
    // The auth middleware lets no unauthenticated request pass; this check is a second barrier.
    let Some(identity) = parts.extensions.get::<CallerIdentity>() else {
        return Err(Problem::forbidden("authentication required"));
    };
    require_role(identity, required)?;
    Ok(identity.clone())
}

/// Returns an error unless the caller has at least this role.
pub(crate) fn require_role(identity: &CallerIdentity, required: Role) -> Result<(), Problem> {
    if identity.principal.role >= required {
        return Ok(());
    }
    let (actual_role, required_role) = (identity.principal.role.as_str(), required.as_str());
    let message = format!(
        "this request needs the role {required_role}, but your key has the role {actual_role}"
    );
    Err(Problem::forbidden(message).with_hint(format!(
        "ask an admin for a key: longhaul keys new NAME --role {required_role}"
    )))
}
