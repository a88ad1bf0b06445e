//! An answer on its way: at its pace, and to the end that was planned for it.
//!
//! Never: faster or more whole than it was told to be.

use std::io;

use bytes::Bytes;
use futures_util::stream::{self, BoxStream, StreamExt as _};
use http_body_util::{Either, Full, StreamBody};
use hyper::Response;
use hyper::body::Frame;
use hyper::header::HeaderValue;
use longhaul_core::time::{Clock as _, Millis};
use longhaul_engine::clock::SystemClock;
use longhaul_model::mock::{MockBody, MockResponse, Termination};
use serde_json::Value;

/// A body that is there, or one that comes piece by piece.
pub(crate) type ResponseBody = Either<Full<Bytes>, StreamBody<ChunkStream>>;

type ChunkStream = BoxStream<'static, io::Result<Frame<Bytes>>>;

/// Sends an answer, when its time has come.
pub(crate) async fn to_response(answer: MockResponse) -> Response<ResponseBody> {
    sleep(answer.initial_delay).await;
    let body = match (answer.body, answer.termination) {
        (MockBody::Full(body), Termination::Clean) => Either::Left(Full::new(body)),
        (MockBody::Full(half), ending) => streaming_body(vec![half], Millis::ZERO, ending),
        (MockBody::Stream(events), ending) => streaming_body(events, answer.event_delay, ending),
    };
    let mut response = Response::new(body);
    // Every status here is between 200 and 599.
    *response.status_mut() = answer.status.try_into().unwrap_or_default();
    for (name, value) in answer.headers {
        if let Ok(value) = HeaderValue::try_from(value) {
            response.headers_mut().insert(name, value);
        }
    }
    response
}

/// A word of the mock's own, which no provider would say.
pub(crate) fn json_response(word: &Value) -> Response<ResponseBody> {
    let mut response = Response::new(Either::Left(Full::from(word.to_string())));
    let kind = HeaderValue::from_static("application/json");
    response.headers_mut().insert("content-type", kind);
    response
}

fn streaming_body(events: Vec<Bytes>, between: Millis, ending: Termination) -> ResponseBody {
    let begun = Some((events.into_iter(), Millis::ZERO));
    let pieces = stream::unfold(begun, move |state| async move {
        let (mut events, pause) = state?;
        if let Some(event) = events.next() {
            sleep(pause).await;
            return Some((Ok(Frame::data(event)), Some((events, between))));
        }
        match ending {
            Termination::Clean => None,
            Termination::Truncated => {
                // What was said before must have left, or it would be lost with
                // the connection.
                tokio::task::yield_now().await;
                let cut = io::Error::from(io::ErrorKind::ConnectionAborted);
                Some((Err(cut), None))
            }
            Termination::Stalled => std::future::pending().await,
        }
    });
    Either::Right(StreamBody::new(pieces.boxed()))
}

async fn sleep(span: Millis) {
    if span > Millis::ZERO {
        SystemClock.sleep(span).await;
    }
}
