//! Web pages, rendered on the server without scripts. Text of models and people is always escaped,
//! and its invisible characters are marked as on a terminal.

pub(crate) mod index;
pub(crate) mod link;

use askama::Template;
use axum::http::StatusCode;
use axum::http::header::{CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, HeaderName};
use axum::response::{IntoResponse as _, Response};

use crate::app::App;
use crate::problem::Problem;

const ROBOTS_TAG: HeaderName = HeaderName::from_static("x-robots-tag");

/// Content security policy: pages load only their own style sheet, and forms submit only to
/// this server.
const CONTENT_POLICY: &str = "default-src 'none'; style-src 'self'; img-src 'self' data:; form-action 'self'; \
                      base-uri 'none'; frame-ancestors 'none'";

/// Renders a page template as an HTTP response.
pub(crate) fn render_page(status: StatusCode, page: &impl Template) -> Result<Response, Problem> {
    let text = page.render().map_err(|error| {
        tracing::error!(%error, "could not render a page");
        Problem::internal_error()
    })?;
    let headers = [
        (CONTENT_TYPE, "text/html; charset=utf-8"),
        (CONTENT_SECURITY_POLICY, CONTENT_POLICY),
        (ROBOTS_TAG, "noindex, nofollow"),
    ];
    Ok((status, headers, text).into_response())
}

/// A page with a title, lines of text and optional commands to run.
#[derive(Debug, Template)]
#[template(path = "message.html")]
pub(crate) struct MessagePage<'a> {
    pub(crate) version: &'a str,
    pub(crate) title: &'a str,
    pub(crate) lines: &'a [String],
    pub(crate) commands: &'a [(&'a str, String)],
}

/// Renders a page with a title and lines of text, without shell commands to copy.
pub(crate) fn render_message_page(
    app: &App,
    status: StatusCode,
    title: &str,
    lines: &[String],
) -> Result<Response, Problem> {
    let version = &app.state.options.version;
    let commands = &[];
    render_page(status, &MessagePage { version, title, lines, commands })
}

/// Serves the style sheet that is compiled into the binary. It loads nothing from other hosts.
pub(crate) async fn serve_style_sheet() -> Response {
    let headers =
        [(CONTENT_TYPE, "text/css; charset=utf-8"), (CACHE_CONTROL, "public, max-age=300")];
    (headers, include_str!("../templates/style.css")).into_response()
}
