//! Timeout for responses. It limits only the time until a response begins, so it does not end
//! streams.

use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};

use crate::app::App;
use crate::limits::RESPONSE_TIMEOUT;
use crate::problem::Problem;

/// Middleware that returns 503 if the response does not begin in time.
pub(crate) async fn limit_response_time(
    State(app): State<App>,
    request: Request,
    next: Next,
) -> Response {
    let clock = &app.longhaul().services().clock;
    tokio::select! {
        biased;
        response = next.run(request) => response,
        () = clock.sleep(RESPONSE_TIMEOUT.into()) => {
            let message = "the request timed out; everything acknowledged before is still stored";
            Problem::new(StatusCode::SERVICE_UNAVAILABLE, "timeout", message)
                .with_hint("try again with the same Idempotency-Key")
                .with_retry_after(1)
                .into_response()
        }
    }
}
