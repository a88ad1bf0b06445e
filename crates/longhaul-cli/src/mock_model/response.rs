//! Converts a mock response into an HTTP response with delays, which ends normally, breaks off or
//! stalls.

use std::io;

use bytes::Bytes;
use futures_util::stream::{self, BoxStream, StreamExt as _};
use http_body_util::{Either, Full, StreamBody};
use hyper::Response;
use hyper::body::Frame;
use hyper::header::HeaderValue;
use longhaul_core::time::{Clock as _, Millis};
use longhaul_engine::clock::SystemClock;
use longhaul_model::mock::{MockBody, MockResponse, ResponseTermination};
use serde_json::Value;

/// Body of an HTTP response: complete, or streamed in parts.
pub(crate) type ResponseBody = Either<Full<Bytes>, StreamBody<ChunkStream>>;

type ChunkStream = BoxStream<'static, io::Result<Frame<Bytes>>>;

/// Waits for the mock response's delay, then builds the HTTP response.
pub(crate) async fn wait_and_build_response(mock_response: MockResponse) -> Response<ResponseBody> {
    sleep(mock_response.initial_delay).await;
    let body = match (mock_response.body, mock_response.termination) {
        (MockBody::Full(body), ResponseTermination::Clean) => Either::Left(Full::new(body)),
        (MockBody::Full(body), termination) => {
            streaming_body(vec![body], Millis::ZERO, termination)
        }
        (MockBody::Stream(events), termination) => {
            streaming_body(events, mock_response.event_delay, termination)
        }
    };
    let mut response = Response::new(body);
    // Every status here is between 200 and 599, so the conversion can't fail.
    *response.status_mut() = mock_response.status.try_into().unwrap_or_default();
    for (name, value) in mock_response.headers {
        if let Ok(value) = HeaderValue::try_from(value) {
            response.headers_mut().insert(name, value);
        }
    }
    response
}

/// Builds the JSON response of one of the mock's own endpoints, which no provider has.
pub(crate) fn json_response(body: &Value) -> Response<ResponseBody> {
    let mut response = Response::new(Either::Left(Full::from(body.to_string())));
    let kind = HeaderValue::from_static("application/json");
    response.headers_mut().insert("content-type", kind);
    response
}

fn streaming_body(
    events: Vec<Bytes>,
    event_delay: Millis,
    termination: ResponseTermination,
) -> ResponseBody {
    let initial_state = Some((events.into_iter(), Millis::ZERO));
    let frames = stream::unfold(initial_state, move |state| async move {
        let (mut events, delay) = state?;
        if let Some(event) = events.next() {
            sleep(delay).await;
            return Some((Ok(Frame::data(event)), Some((events, event_delay))));
        }
        match termination {
            ResponseTermination::Clean => None,
            ResponseTermination::Truncated => {
                // Lets the earlier events be sent first; they would be lost with the connection.
                tokio::task::yield_now().await;
                let error = io::Error::from(io::ErrorKind::ConnectionAborted);
                Some((Err(error), None))
            }
            ResponseTermination::Stalled => std::future::pending().await,
        }
    });
    Either::Right(StreamBody::new(frames.boxed()))
}

async fn sleep(duration: Millis) {
    if duration > Millis::ZERO {
        SystemClock.sleep(duration).await;
    }
}
