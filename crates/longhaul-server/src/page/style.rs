//! The style sheet of the web pages. It loads nothing from other hosts.

use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE};
use axum::response::{IntoResponse as _, Response};

/// Serves the style sheet that is compiled into the binary.
pub(crate) async fn serve_style_sheet() -> Response {
    let headers =
        [(CONTENT_TYPE, "text/css; charset=utf-8"), (CACHE_CONTROL, "public, max-age=300")];
    (headers, include_str!("../../templates/style.css")).into_response()
}
