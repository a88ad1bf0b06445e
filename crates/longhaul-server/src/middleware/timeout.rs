//! Waits for an answer no longer than a caller would.
//!
//! Never: ends a stream. A stream's answer is there at once; its words come later.

use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};

use crate::app::App;
use crate::limits::RESPONSE_TIMEOUT;
use crate::problem::Problem;

/// Lets a request pass that is answered in time.
pub(crate) async fn request_timeout(
    State(app): State<App>,
    request: Request,
    next: Next,
) -> Response {
    let clock = &app.longhaul().services().clock;
    tokio::select! {
        biased;
        answer = next.run(request) => answer,
        () = clock.sleep(RESPONSE_TIMEOUT.into()) => {
            let words = "this took too long and was given up; what was acknowledged stands";
            Problem::new(StatusCode::SERVICE_UNAVAILABLE, "timeout", words)
                .hint("try again with the same Idempotency-Key")
                .retry_after(1)
                .into_response()
        }
    }
}
