//! What a stream is asked with: its query, its headers, and what was shown at
//! the door.
//!
//! Never: a stream for somebody who showed nothing.

use axum::extract::FromRequestParts;
use axum::http::HeaderMap;
use axum::http::request::Parts;

use crate::app::App;
use crate::guard::key::Shown;
use crate::params::Query;
use crate::problem::Problem;

/// What was asked beside the path.
#[derive(Debug)]
pub(crate) struct Asked {
    pub(crate) query: Query,
    pub(crate) headers: HeaderMap,
    pub(crate) shown: Shown,
}

impl FromRequestParts<App> for Asked {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self, Problem> {
        let shown = parts.extensions.get::<Shown>().cloned();
        Ok(Self {
            query: Query::from_request_parts(parts, app).await?,
            headers: parts.headers.clone(),
            shown: shown.ok_or_else(|| Problem::forbidden("nobody is known here"))?,
        })
    }
}
