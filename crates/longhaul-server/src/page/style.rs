//! How pages look.
//!
//! Never: anything from another machine.

use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE};
use axum::response::{IntoResponse as _, Response};

/// The sheet, as it was when this was built.
pub(crate) async fn style() -> Response {
    let headers =
        [(CONTENT_TYPE, "text/css; charset=utf-8"), (CACHE_CONTROL, "public, max-age=300")];
    (headers, include_str!("../../templates/style.css")).into_response()
}
