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
use longhaul_model::mock::{Answer, Content, Ending};
use serde_json::Value;

/// A body that is there, or one that comes piece by piece.
pub(crate) type Sent = Either<Full<Bytes>, StreamBody<Pieces>>;

type Pieces = BoxStream<'static, io::Result<Frame<Bytes>>>;

/// Sends an answer, when its time has come.
pub(crate) async fn send(answer: Answer) -> Response<Sent> {
    wait(answer.before).await;
    let body = match (answer.content, answer.ending) {
        (Content::Whole(body), Ending::Clean) => Either::Left(Full::new(body)),
        (Content::Whole(half), ending) => pieces(vec![half], Millis::ZERO, ending),
        (Content::Stream(events), ending) => pieces(events, answer.between, ending),
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
pub(crate) fn own(word: &Value) -> Response<Sent> {
    let mut response = Response::new(Either::Left(Full::from(word.to_string())));
    let kind = HeaderValue::from_static("application/json");
    response.headers_mut().insert("content-type", kind);
    response
}

fn pieces(events: Vec<Bytes>, between: Millis, ending: Ending) -> Sent {
    let begun = Some((events.into_iter(), Millis::ZERO));
    let pieces = stream::unfold(begun, move |state| async move {
        let (mut events, pause) = state?;
        if let Some(event) = events.next() {
            wait(pause).await;
            return Some((Ok(Frame::data(event)), Some((events, between))));
        }
        match ending {
            Ending::Clean => None,
            Ending::Cut => {
                // What was said before must have left, or it would be lost with
                // the connection.
                tokio::task::yield_now().await;
                let cut = io::Error::from(io::ErrorKind::ConnectionAborted);
                Some((Err(cut), None))
            }
            Ending::Stall => std::future::pending().await,
        }
    });
    Either::Right(StreamBody::new(pieces.boxed()))
}

async fn wait(span: Millis) {
    if span > Millis::ZERO {
        SystemClock.sleep(span).await;
    }
}
