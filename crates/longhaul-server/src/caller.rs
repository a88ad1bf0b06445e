//! Extractors for the authenticated caller. Each handler takes the extractor of the minimum
//! role it requires, so no handler can skip the check.

use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use longhaul_core::access::Role;
use longhaul_engine::handle::CallerIdentity;

use crate::app::App;
use crate::middleware::auth::Credential;
use crate::problem::Problem;

macro_rules! caller {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Debug, Clone)]
        pub(crate) struct $name(pub(crate) CallerIdentity);

        impl FromRequestParts<App> for $name {
            type Rejection = Problem;

            async fn from_request_parts(parts: &mut Parts, _: &App) -> Result<Self, Problem> {
                require_caller_identity(parts, Role::$name).map(Self)
            }
        }

        impl $name {
            /// Returns the caller's name as it appears in journals.
            #[allow(dead_code, reason = "not every role needs the name")]
            pub(crate) fn name(&self) -> &str {
                &self.0.principal.name
            }
        }
    };
}

caller!(
    /// A caller who may read runs, gates and agents.
    Viewer
);
caller!(
    /// A caller who may submit, steer and cancel runs.
    Operator
);
caller!(
    /// A caller who may answer gates.
    Approver
);
caller!(
    /// A caller who may create and revoke API keys.
    Admin
);

impl FromRequestParts<App> for Credential {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &App) -> Result<Self, Problem> {
        let credential = parts.extensions.get::<Self>().cloned();
        credential.ok_or_else(|| Problem::forbidden("authentication required"))
    }
}

fn require_caller_identity(parts: &Parts, required: Role) -> Result<CallerIdentity, Problem> {
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
