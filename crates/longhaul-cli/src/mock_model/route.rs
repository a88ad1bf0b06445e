//! Which request is for whom, and what is wrong before anybody is asked.
//!
//! Never: reads more of a body than a request may have.

use bytes::{Bytes, BytesMut};
use http_body_util::BodyExt as _;
use hyper::body::{Body as _, Incoming};
use hyper::http::request::Parts;
use hyper::{HeaderMap, Method, Request, Response};
use longhaul_core::time::Clock as _;
use longhaul_engine::clock::SystemClock;
use longhaul_model::mock::{
    Answer, Asked, BODY_BYTES_MAX, Dialect, FAULT_HEADER, Mock, TURN_HEADER,
};

use serde_json::json;

use crate::mock_model::answered::{Sent, own, send};
use crate::mock_model::counts::Counts;

/// What is taken of a body that is too long, so that its sender is still there
/// to be told.
const TAKEN_MAX: usize = 2 * BODY_BYTES_MAX;

/// What an address is for.
#[derive(Clone, Copy)]
enum Place {
    Ask(Dialect),
    Models,
    Live,
    Stats,
}

/// Answers one request.
pub(crate) async fn answer(
    mock: &Mock,
    counts: &Counts,
    request: Request<Incoming>,
) -> Result<Response<Sent>, hyper::Error> {
    let path = request.uri().path();
    let Some(place) = place(path) else {
        let dialect = dialect_of(path, request.headers());
        let words = format!("there is nothing at {path}");
        return Ok(send(mock.refuse(dialect, 404, &words)).await);
    };
    let method = match place {
        Place::Ask(_) => Method::POST,
        Place::Models | Place::Live | Place::Stats => Method::GET,
    };
    if *request.method() != method {
        let dialect = dialect_of(path, request.headers());
        let mut answer = mock.refuse(dialect, 405, &format!("write {method} {path}"));
        answer.headers.push(("allow", method.to_string()));
        return Ok(send(answer).await);
    }
    match place {
        Place::Live => Ok(own(&json!({ "status": "ok" }))),
        Place::Stats => Ok(own(&counts.shown())),
        Place::Models => {
            let answer = mock.models(dialect_of(path, request.headers()));
            Ok(send(answer).await)
        }
        Place::Ask(dialect) => {
            let (head, body) = request.into_parts();
            let body = read(body).await?;
            counts.add(body.as_ref().map_or(0, Bytes::len));
            Ok(send(ask(mock, dialect, (&head, body))).await)
        }
    }
}

fn place(path: &str) -> Option<Place> {
    match path {
        "/v1/messages" => Some(Place::Ask(Dialect::Messages)),
        "/v1/responses" | "/responses" => Some(Place::Ask(Dialect::Responses)),
        "/v1/chat/completions" | "/chat/completions" => Some(Place::Ask(Dialect::Chat)),
        "/v1/models" | "/models" => Some(Place::Models),
        "/livez" => Some(Place::Live),
        "/stats" => Some(Place::Stats),
        _ => None,
    }
}

/// Whose words are spoken where the address does not say it.
fn dialect_of(path: &str, headers: &HeaderMap) -> Dialect {
    match place(path) {
        Some(Place::Ask(dialect)) => dialect,
        Some(Place::Models | Place::Live | Place::Stats) | None => {
            match headers.contains_key("anthropic-version") {
                true => Dialect::Messages,
                false => Dialect::Chat,
            }
        }
    }
}

fn ask(mock: &Mock, dialect: Dialect, (head, body): (&Parts, Option<Bytes>)) -> Answer {
    let Some(body) = body else {
        let words = format!("a request has at most {BODY_BYTES_MAX} bytes");
        let mut answer = mock.refuse(dialect, 413, &words);
        answer.headers.push(("connection", "close".to_owned()));
        return answer;
    };
    // What is no text can't be what is meant, and is refused as such.
    let header = |name| {
        let value = head.headers.get(name);
        value.map(|value| value.to_str().unwrap_or_default())
    };
    mock.answer(&Asked {
        dialect,
        turn: header(TURN_HEADER),
        fault: header(FAULT_HEADER),
        body: &body,
        now: SystemClock.now(),
    })
}

/// The whole body; none: it is longer than a request may be.
async fn read(mut body: Incoming) -> Result<Option<Bytes>, hyper::Error> {
    let (mut all, mut taken) = (BytesMut::new(), 0_usize);
    while let Some(frame) = body.frame().await {
        let Ok(data) = frame?.into_data() else {
            continue;
        };
        taken = taken.saturating_add(data.len());
        if taken > BODY_BYTES_MAX {
            all = BytesMut::new();
        } else if all.is_empty() && body.is_end_stream() {
            return Ok(Some(data));
        } else {
            all.extend_from_slice(&data);
        }
        if taken > TAKEN_MAX {
            break;
        }
    }
    Ok((taken <= BODY_BYTES_MAX).then(|| all.freeze()))
}
