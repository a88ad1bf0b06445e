//! Faults on purpose, over a real socket.

use std::io::{ErrorKind, Read as _, Write as _};
use std::time::Duration;

use longhaul_engine::clock::Stopwatch;

use super::{API_PATHS, chat_request, connect, has_status, project, request, send_body, start};

#[test]
fn every_second_request_fails_with_retry_after() {
    let project = project();
    let server = start(&project, &["--fail-status", "503", "--fail-every", "2"]);
    let body = chat_request("look", true).to_string();
    for path in [API_PATHS, API_PATHS].concat().chunks(2).flatten().enumerate() {
        let (index, path) = path;
        let answer = server.request(&format!("POST {path}"), &[], &body);
        let status = if index % 2 == 0 { 200 } else { 503 };
        assert_eq!(answer.status, status, "{answer:?}");
        if status == 503 {
            assert_eq!(answer.header("retry-after"), Some("1"), "{answer:?}");
            assert!(answer.json()["error"]["message"].is_string());
        }
    }
}

#[test]
fn a_cut_stream_closes_its_connection() {
    let project = project();
    let server = start(&project, &["--cut-every", "2"]);
    let body = chat_request("look", true).to_string();
    for path in API_PATHS {
        let complete_response = send_body(&server, path, body.as_bytes());
        assert!(complete_response.ends_with("0\r\n\r\n"), "{complete_response}");
        // The client requests keep-alive, but the connection is closed.
        let mut stream = connect(&server);
        stream.write_all(&request(path, "", body.as_bytes())).unwrap();
        let mut response = String::new();
        stream.read_to_string(&mut response).unwrap();
        assert!(has_status(&response, 200) && response.contains("data: {"), "{response}");
        assert!(!response.ends_with("0\r\n\r\n"), "{response}");
        for end in ["message_stop", "response.completed", "[DONE]"] {
            assert!(!response.contains(end), "{response}");
        }
    }
}

#[test]
fn latency_and_token_delay_are_applied() {
    let project = project();
    let server = start(&project, &["--latency", "200ms", "--token-delay", "20ms"]);
    let body = chat_request("look", true).to_string();
    let stopwatch = Stopwatch::start();
    let answer = send_body(&server, API_PATHS[0], body.as_bytes());
    let elapsed_ms = stopwatch.elapsed_nanos() / 1_000_000;
    let events = u64::try_from(answer.matches("data: ").count()).unwrap();
    assert!(events > 8, "{answer}");
    let min = 200 + 20 * (events - 1);
    assert!(elapsed_ms >= min, "{elapsed_ms} ms for {events} events");
}

#[test]
fn a_header_selects_the_fault_of_one_request() {
    let project = project();
    let server = start(&project, &[]);
    for (path, stream) in API_PATHS.into_iter().flat_map(|p| [(p, false), (p, true)]) {
        let body = chat_request("look", stream).to_string();
        let send = |fault: &str| {
            let headers = [("x-longhaul-fault", fault)];
            server.request(&format!("POST {path}"), &headers, &body)
        };
        assert_eq!(send("status=418").status, 418);
        assert_eq!(send("fire").status, 400);
        let response = send("cut");
        assert!(response.status == 200 && !response.body.ends_with("0\r\n\r\n"), "{response:?}");
        assert!(send("garbage").body.contains("<html>"));
        let status = if stream { 200 } else { 529 };
        assert_eq!(send("error").status, status);
    }
}

#[test]
fn a_stalled_stream_sends_nothing_and_blocks_no_other_request() {
    let project = project();
    let server = start(&project, &[]);
    let body = chat_request("look", true).to_string();
    let mut stream = connect(&server);
    let headers = "x-longhaul-fault: stall\r\n";
    let request_bytes = request(API_PATHS[1], headers, body.as_bytes());
    stream.write_all(&request_bytes).unwrap();
    let mut received = Vec::new();
    stream.set_read_timeout(Some(Duration::from_millis(300))).unwrap();
    let error = stream.read_to_end(&mut received).unwrap_err();
    assert!([ErrorKind::WouldBlock, ErrorKind::TimedOut].contains(&error.kind()), "{error}");
    let received = String::from_utf8(received).unwrap();
    assert!(received.contains("response.created"), "{received}");
    assert!(!received.contains("response.completed"), "{received}");
    assert!(has_status(&send_body(&server, API_PATHS[1], body.as_bytes()), 200));
    server.signal("-TERM");
    assert_eq!(server.wait_exit().0, 0);
}
