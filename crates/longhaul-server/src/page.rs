//! Web pages, rendered on the server without scripts. Text of models and people is always escaped,
//! and its invisible characters are marked as on a terminal.

pub(crate) mod index;
pub(crate) mod link;
pub(crate) mod style;

use std::fmt;

use askama::Template;
use axum::http::header::{CONTENT_SECURITY_POLICY, CONTENT_TYPE, HeaderName};
use axum::http::{HeaderValue, StatusCode};
use axum::response::{IntoResponse as _, Response};

use longhaul_core::sanitize::sanitize_text;

use crate::app::App;
use crate::problem::Problem;

const ROBOTS_TAG: HeaderName = HeaderName::from_static("x-robots-tag");

/// Content security policy: pages load only their own style sheet, and forms submit only to
/// this server.
const CONTENT_POLICY: &str = "default-src 'none'; style-src 'self'; img-src 'self' data:; form-action 'self'; \
                      base-uri 'none'; frame-ancestors 'none'";

/// Text of models, tools and people as a page shows it, with a visible mark in place of each
/// character that is invisible or reverses the text around it.
#[derive(Debug, Default)]
pub(crate) struct ShownText(String);

impl<T: AsRef<str>> From<T> for ShownText {
    fn from(text: T) -> Self {
        Self(sanitize_text(text.as_ref()))
    }
}

impl fmt::Display for ShownText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Renders a page template as an HTTP response.
pub(crate) fn render_page(
    status: StatusCode,
    template: &impl Template,
) -> Result<Response, Problem> {
    let text = template.render().map_err(|error| {
        tracing::error!(%error, "could not render a page");
        Problem::internal_error()
    })?;
    let mut response = (status, text).into_response();
    let headers = response.headers_mut();
    for (name, value) in [
        (CONTENT_TYPE, "text/html; charset=utf-8"),
        (CONTENT_SECURITY_POLICY, CONTENT_POLICY),
        (ROBOTS_TAG, "noindex, nofollow"),
    ] {
        headers.insert(name, HeaderValue::from_static(value));
    }
    Ok(response)
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
    let version = &app.options().version;
    let commands = &[];
    render_page(status, &MessagePage { version, title, lines, commands })
}
