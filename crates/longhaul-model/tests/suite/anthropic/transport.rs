//! Connections that are late, closed, broken or never end.

use std::sync::Arc;
use std::time::Duration;

use longhaul_model::http::{HttpClient, HttpLimits};
use tokio::sync::Notify;

use super::harness::{RECORDED, answer, model, model_at};
use crate::suite::fixtures::{hello_messages, limits, lines};
use crate::suite::harness::{
    LAST_CHUNK, STREAM_HEAD, Server, ServerAction, chunk, full_response, stream_response,
    unsolicited_server,
};

fn send(bytes: impl Into<Vec<u8>>) -> ServerAction {
    ServerAction::Send(bytes.into())
}

fn failure_class(
    response: &Result<longhaul_core::port::model::ModelResponse, longhaul_core::failure::Failure>,
) -> &'static str {
    match response {
        Ok(_) => "ok",
        Err(failure) => failure.class.as_str(),
    }
}

#[tokio::test]
async fn a_request_on_a_closed_pooled_connection_is_retried_once() {
    let reconnect_plans = |end: ServerAction| {
        let complete_response = stream_response(RECORDED.as_bytes());
        vec![complete_response.clone(), vec![end], complete_response]
    };
    for end in [ServerAction::Close, ServerAction::Reset] {
        let server = Server::new(reconnect_plans(end)).await;
        let model = model(&server);
        for _ in 0..2 {
            let (response, _) = answer(&server, &model, &hello_messages()).await;
            assert_eq!(failure_class(&response), "ok", "{}", lines(&response));
        }
        assert_eq!((server.requests().len(), server.connections()), (3, 2));
    }
}

#[tokio::test]
async fn a_request_on_a_new_connection_is_tried_only_once() {
    let good_response =
        String::from_utf8([STREAM_HEAD.as_bytes(), &chunk(RECORDED.as_bytes())].concat());
    let good_response =
        good_response.unwrap().replace("\r\nrequest-id", "\r\nconnection: close\r\nrequest-id");
    let good_response = vec![send(good_response), send("0\r\n\r\n"), ServerAction::Close];
    for end in [ServerAction::Close, ServerAction::Reset] {
        let plans = vec![good_response.clone(), vec![end.clone()], vec![end.clone()], vec![end]];
        let server = Server::new(plans).await;
        let model = model(&server);
        for (index, expected) in ["ok", "network", "network", "network"].iter().enumerate() {
            let (response, _) = answer(&server, &model, &hello_messages()).await;
            assert_eq!(failure_class(&response), *expected, "{}", lines(&response));
            let count = index + 1;
            assert_eq!((server.requests().len(), server.connections()), (count, count));
        }
    }
}

#[tokio::test]
async fn a_stale_connection_is_replaced_once() {
    for end in [ServerAction::Close, ServerAction::Reset] {
        let complete_response = stream_response(RECORDED.as_bytes());
        let server = Server::new(vec![complete_response, vec![end.clone()], vec![end]]).await;
        let model = model(&server);
        for expected in ["ok", "network"] {
            let (response, _) = answer(&server, &model, &hello_messages()).await;
            assert_eq!(failure_class(&response), expected, "{}", lines(&response));
        }
        assert_eq!((server.requests().len(), server.connections()), (3, 2));
    }
}

#[tokio::test]
async fn a_connection_is_reused() {
    // The body ends later than the reply.
    let delayed_end = vec![
        send([STREAM_HEAD.as_bytes(), &chunk(RECORDED.as_bytes())].concat()),
        send("5\r\n: bye\r\n"),
        send("0\r\n\r\n"),
    ];
    let bad_request = full_response(400, &[], "{}");
    let server =
        Server::new(vec![delayed_end.clone(), delayed_end.clone(), bad_request, delayed_end]).await;
    let model = model(&server);
    for expected in ["ok", "ok", "invalid_request", "ok"] {
        let (response, _) = answer(&server, &model, &hello_messages()).await;
        assert_eq!(failure_class(&response), expected, "{}", lines(&response));
    }
    assert_eq!(server.connections(), 1);
}

#[tokio::test]
async fn a_response_that_does_not_end_is_decoded() {
    let wait_forever = ServerAction::Wait(Arc::new(Notify::new()));
    let open_response = [STREAM_HEAD.as_bytes(), &chunk(RECORDED.as_bytes())].concat();
    let server = Server::new(vec![vec![send(open_response), wait_forever]]).await;
    let (response, _) = answer(&server, &model(&server), &hello_messages()).await;
    assert_eq!(failure_class(&response), "ok");
}

#[tokio::test]
async fn a_failed_new_connection_is_not_retried() {
    for end in [ServerAction::Close, ServerAction::Reset] {
        let server = Server::new(vec![vec![end]]).await;
        let (response, _) = answer(&server, &model(&server), &hello_messages()).await;
        assert_eq!(failure_class(&response), "network");
        assert_eq!(response.unwrap_err().usage, None);
        assert_eq!(server.requests().len(), 1);
    }
}

#[tokio::test]
async fn a_request_with_a_started_response_is_never_retried() {
    let partial_response = [STREAM_HEAD.as_bytes(), &chunk(&RECORDED.as_bytes()[..300])].concat();
    for end in [ServerAction::Close, ServerAction::Reset] {
        let plans =
            vec![stream_response(RECORDED.as_bytes()), vec![send(partial_response.clone()), end]];
        let server = Server::new(plans).await;
        let model = model(&server);
        answer(&server, &model, &hello_messages()).await.0.unwrap();
        let (response, _) = answer(&server, &model, &hello_messages()).await;
        assert_eq!(failure_class(&response), "network");
        assert_eq!(server.requests().len(), 2);
    }
}

#[tokio::test]
async fn a_stream_is_detected_whatever_its_content_type() {
    let mut plans = Vec::new();
    for kind in ["application/json", "text/html; charset=utf-8"] {
        let head = STREAM_HEAD.replace("text/event-stream", kind);
        for before in ["", "\n \r\n", ": hello\n\n", "retry: 5\nid: 7\n\n", "\n:\n"] {
            let body = format!("{before}{RECORDED}");
            let response_parts = [head.as_bytes(), &chunk(body.as_bytes()), LAST_CHUNK.as_bytes()];
            plans.push(vec![send(response_parts.concat())]);
            // One byte per chunk.
            let byte_chunks: Vec<Vec<u8>> = body.bytes().map(|byte| chunk(&[byte])).collect();
            let byte_chunks = byte_chunks.concat();
            plans.push(vec![send(head.clone()), send(byte_chunks), send(LAST_CHUNK)]);
        }
    }
    let rounds = plans.len();
    plans.insert(0, stream_response(RECORDED.as_bytes()));
    let server = Server::new(plans).await;
    let model = model(&server);
    let (expected, expected_text) = answer(&server, &model, &hello_messages()).await;
    for _ in 0..rounds {
        let (response, text) = answer(&server, &model, &hello_messages()).await;
        assert_eq!(lines(&response), lines(&expected));
        assert_eq!(text, expected_text);
    }
}

#[tokio::test]
async fn a_body_that_only_starts_like_a_stream_is_an_error() {
    let json = [("content-type", "application/json")];
    let bodies = ["dat", "data", "database is down", "event", "", "  "];
    let plans = bodies.iter().map(|body| full_response(200, &json, body)).collect();
    let server = Server::new(plans).await;
    let model = model(&server);
    for body in bodies {
        let (response, _) = answer(&server, &model, &hello_messages()).await;
        let text = lines(&response);
        assert!(text.contains("neither a stream nor a message"), "{text}");
        assert!(text.contains(body.trim()), "{text}");
    }
}

#[tokio::test]
async fn a_wrong_content_length_is_a_failure() {
    let length = RECORDED.len();
    let head = |length: usize| {
        format!(
            "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncontent-length: {length}\r\n\r\n{RECORDED}"
        )
    };
    let server = Server::new(vec![
        vec![send(head(length + 1)), ServerAction::Close],
        vec![send(head(length - 40)), ServerAction::Close],
        // Without a content length the body ends with the connection.
        vec![send(head(0).replace("content-length: 0\r\n", "")), ServerAction::Close],
    ])
    .await;
    let model = model(&server);
    // The reply is complete before the missing bytes are noticed.
    for expected in ["ok", "network", "ok"] {
        let (response, _) = answer(&server, &model, &hello_messages()).await;
        assert_eq!(failure_class(&response), expected, "{}", lines(&response));
    }
}

#[tokio::test]
async fn every_wait_has_a_timeout() {
    let wait_forever = || ServerAction::Wait(Arc::new(Notify::new()));
    let short_timeout = Duration::from_millis(40);
    let partial_response = [STREAM_HEAD.as_bytes(), &chunk(&RECORDED.as_bytes()[..300])].concat();
    let ping = chunk(b"event: ping\ndata: {\"type\":\"ping\"}\n\n");
    let server = Server::new(vec![
        vec![wait_forever()],
        vec![send(STREAM_HEAD), wait_forever()],
        vec![send(partial_response), wait_forever()],
        vec![send(STREAM_HEAD), ServerAction::SendForever(ping)],
        vec![send("HTTP/1.1 500 No\r\ncontent-length: 9\r\n\r\nhal"), wait_forever()],
    ])
    .await;
    let first_byte_limits = HttpLimits { first_byte: short_timeout, ..limits() };
    let idle_limits = HttpLimits { idle: short_timeout, ..limits() };
    let stall_limits = HttpLimits { stall: short_timeout, ..limits() };
    let cases = [
        (first_byte_limits, "!timeout: anthropic: received no response within 40 ms"),
        (first_byte_limits, "!timeout: anthropic: received no response within 40 ms"),
        (idle_limits, "!timeout: anthropic: received no data for 40 ms"),
        (stall_limits, "!timeout: anthropic: received only keep-alive events for 40 ms"),
        (idle_limits, "!server: anthropic answered 500: hal"),
    ];
    for (limits, expected) in cases {
        let (response, _) =
            answer(&server, &model_at(&server.base_url(), limits), &hello_messages()).await;
        assert_eq!(lines(&response), expected);
    }
}

#[tokio::test]
async fn a_dripping_response_times_out() {
    let head = |status: &str| {
        format!(
            "HTTP/1.1 {status}\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n"
        )
    };
    let drip = || ServerAction::Drip(chunk(b" "), Duration::from_millis(5));
    let partial_body = chunk(br#"{"type":"message","content":[ "#);
    let server = Server::new(vec![
        vec![send(head("200 OK")), drip()],
        vec![send([head("200 OK").as_bytes(), &partial_body].concat()), drip()],
        vec![send([head("500 No").as_bytes(), &chunk(b"hal")].concat()), drip()],
        vec![send(head("429 No")), drip()],
    ])
    .await;
    let stall_limits = HttpLimits { stall: Duration::from_millis(60), ..limits() };
    for expected in [
        "!timeout: anthropic: received only keep-alive events for 60 ms",
        "!timeout: anthropic: received only keep-alive events for 60 ms",
        "!server: anthropic answered 500: hal",
        "!rate_limit: anthropic answered 429: no further details",
    ] {
        let (response, _) =
            answer(&server, &model_at(&server.base_url(), stall_limits), &hello_messages()).await;
        assert_eq!(lines(&response), expected);
    }
}

#[tokio::test]
async fn text_is_streamed_as_it_arrives() {
    let notify = Arc::new(Notify::new());
    let text_offset = RECORDED.find("now 🙂").unwrap();
    let event_offset = RECORDED[..text_offset].rfind("event:").unwrap();
    let (before, after) = RECORDED.as_bytes().split_at(event_offset);
    let server = Server::new(vec![vec![
        send([STREAM_HEAD.as_bytes(), &chunk(before)].concat()),
        ServerAction::Wait(Arc::clone(&notify)),
        send([&chunk(after), b"0\r\n\r\n".as_slice()].concat()),
    ]])
    .await;
    /// Lets the server continue when the first text is received.
    struct NotifyingSink(Arc<Notify>);
    impl longhaul_core::port::model::DeltaSink for NotifyingSink {
        fn on_text(&self, _: &str) {
            self.0.notify_one();
        }
    }
    let model = model(&server);
    let question = crate::suite::fixtures::model_request(&hello_messages());
    let response = model.generate(&question, &NotifyingSink(notify)).await;
    assert_eq!(failure_class(&response), "ok");
}

#[tokio::test]
async fn every_response_is_limited() {
    let endless_response =
        |piece: &str| vec![send(STREAM_HEAD), ServerAction::SendForever(chunk(piece.as_bytes()))];
    let long_event =
        r#"{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"@"}}"#;
    let long_event = format!("data: {}\n\n", long_event.replace('@', &"x".repeat(200_000)));
    let json =
        "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n";
    let server = Server::new(vec![
        endless_response(&long_event),
        endless_response(&format!("data: {}", "x".repeat(100_000))),
        endless_response(&format!(": {}\n", "x".repeat(100_000))),
        vec![send(json), ServerAction::SendForever(chunk(" ".repeat(100_000).as_bytes()))],
    ])
    .await;
    let cases = [
        "the response is longer than 52428800 bytes",
        "one event of the stream is longer than 8388608 bytes",
        "one event of the stream is longer than 8388608 bytes",
        "the response is longer than 52428800 bytes",
    ];
    let model = model(&server);
    for expected in cases {
        let (response, _) = answer(&server, &model, &hello_messages()).await;
        assert_eq!(lines(&response), format!("!server: anthropic: {expected}"));
    }
}

#[tokio::test]
async fn non_utf8_and_non_http_responses_are_failures() {
    let stream_start = &RECORDED.as_bytes()[..RECORDED.find("event: ping").unwrap()];
    let invalid_utf8 = [stream_start, b"data: \xff\xfe\n\n", RECORDED.as_bytes()].concat();
    let server = Server::new(vec![
        stream_response(&invalid_utf8),
        vec![send("what?\r\n\r\n"), ServerAction::Close],
        full_response(302, &[("location", "/elsewhere")], ""),
    ])
    .await;
    let model = model(&server);
    for expected in ["server", "network", "invalid_request"] {
        let (response, _) = answer(&server, &model, &hello_messages()).await;
        assert_eq!(failure_class(&response), expected, "{}", lines(&response));
    }
    assert_eq!(server.requests().len(), 3, "a redirect is not followed");
}

#[tokio::test]
async fn connect_and_tls_errors_are_failures() {
    let server = Server::new(vec![]).await;
    let (address, _tasks) = unsolicited_server(b"HTTP/1.1 400 This is no TLS\r\n\r\n").await;
    let tls_url = format!("https://{address}");
    let closed_port_url = "http://127.0.0.1:1";
    for base in [&*tls_url, closed_port_url] {
        let (response, _) = answer(&server, &model_at(base, limits()), &hello_messages()).await;
        assert_eq!(failure_class(&response), "network", "{}", lines(&response));
    }
}

#[test]
fn an_invalid_base_url_is_rejected() {
    for base_url in
        ["", "api.anthropic.com", "ftp://x", "http://", "https://me:pw@x", "http://x/?key=1"]
    {
        let error = HttpClient::new(base_url, HttpLimits::default()).unwrap_err().to_string();
        assert!(error.starts_with("the base URL can't be used: "), "{base_url}: {error}");
    }
}
