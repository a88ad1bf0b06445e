//! Who asks, as a handler wants them: each handler names the least role it is
//! for, so that it can't be written without one.
//!
//! Never: a role that is checked later.

use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use longhaul_core::access::Role;
use longhaul_engine::handle::Identity;

use crate::app::App;
use crate::middleware::auth::Credential;
use crate::problem::Problem;

macro_rules! caller {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Debug, Clone)]
        pub(crate) struct $name(pub(crate) Identity);

        impl FromRequestParts<App> for $name {
            type Rejection = Problem;

            async fn from_request_parts(parts: &mut Parts, _: &App) -> Result<Self, Problem> {
                require_identity(parts, Role::$name).map(Self)
            }
        }

        impl $name {
            /// As journals show them.
            #[allow(dead_code, reason = "not every role is written down")]
            pub(crate) fn name(&self) -> &str {
                &self.0.principal.name
            }
        }
    };
}

caller!(
    /// Somebody who may look.
    Viewer
);
caller!(
    /// Somebody who may submit, steer and stop.
    Operator
);
caller!(
    /// Somebody who may decide.
    Approver
);
caller!(
    /// Somebody who may make keys.
    Admin
);

impl FromRequestParts<App> for Credential {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &App) -> Result<Self, Problem> {
        let shown = parts.extensions.get::<Self>().cloned();
        shown.ok_or_else(|| Problem::forbidden("nobody is known here"))
    }
}

fn require_identity(parts: &Parts, least: Role) -> Result<Identity, Problem> {
    // The guard lets nobody in unknown; without it nobody is.
    let Some(known) = parts.extensions.get::<Identity>() else {
        return Err(Problem::forbidden("nobody is known here"));
    };
    require_role(known, least)?;
    Ok(known.clone())
}

/// Holds a caller to a role.
pub(crate) fn require_role(known: &Identity, least: Role) -> Result<(), Problem> {
    if known.principal.role >= least {
        return Ok(());
    }
    let (has, needs) = (known.principal.role.as_str(), least.as_str());
    let words = format!("your key's role is {has}, and this needs {needs}");
    Err(Problem::forbidden(words)
        .hint(format!("ask an admin for a key: longhaul keys new NAME --role {needs}")))
}
