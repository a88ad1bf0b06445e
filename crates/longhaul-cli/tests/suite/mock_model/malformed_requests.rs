//! Malformed and hostile requests.

use std::io::{Read as _, Write as _};

use serde_json::Value;

use super::{
    API_PATHS, chat_request, connect, has_status, project, request, send_body, send_raw, start,
};
use crate::suite::server_harness::TestServer;

/// Parses the JSON of a response.
fn response_json(answer: &str) -> Value {
    let (_, body) = answer.split_once("\r\n\r\n").unwrap();
    serde_json::from_str(body).unwrap_or_else(|error| panic!("{error}: {answer}"))
}

fn assert_rejected(server: &TestServer, path: &str, body: &[u8], status: u16) {
    let answer = send_body(server, path, body);
    let excerpt = String::from_utf8_lossy(&body[..body.len().min(80)]).into_owned();
    assert!(has_status(&answer, status), "{path} {excerpt}: {answer}");
    let error = response_json(&answer);
    assert!(error["error"]["message"].is_string(), "{answer}");
    let anthropic = path == API_PATHS[0];
    assert_eq!(error["type"] == "error", anthropic, "{answer}");
    let id = if anthropic { "\r\nrequest-id: " } else { "\r\nx-request-id: " };
    assert!(answer.contains(id), "{answer}");
}

#[test]
fn invalid_requests_get_the_error_format_of_the_provider() {
    let project = project();
    project.write("secret.yaml", "replies: [{ text: secret }]");
    let server = start(&project, &[]);
    for path in API_PATHS {
        assert_rejected(&server, path, b"", 400);
        assert_rejected(&server, path, b"{\"model\":", 400);
        assert_rejected(&server, path, b"\xff\xfe\x00", 400);
        assert_rejected(&server, path, "[".repeat(200_000).as_bytes(), 400);
        let mut invalid_utf8 = chat_request("look", false).to_string().into_bytes();
        invalid_utf8[2] = 0xff;
        assert_rejected(&server, path, &invalid_utf8, 400);
        for model in ["../../etc/passwd", "../secret", "scripted/../secret", "/etc/passwd", "x"] {
            let body = chat_request(model, false).to_string();
            assert_rejected(&server, path, body.as_bytes(), 404);
        }
    }
    assert_eq!(server.request("GET /livez", &[], "").status, 200);
}

#[test]
fn an_oversized_body_is_refused() {
    let project = project();
    let server = start(&project, &[]);
    let long_body = vec![b' '; (32 << 20) + 1];
    for path in API_PATHS {
        let answer = send_body(&server, path, &long_body);
        assert!(has_status(&answer, 413), "{answer}");
        assert!(response_json(&answer)["error"]["message"].is_string());
    }
    // The same with a chunked body.
    let mut stream = connect(&server);
    let head = "POST /v1/messages HTTP/1.1\r\nhost: mock\r\ntransfer-encoding: chunked\r\n\r\n";
    stream.write_all(head.as_bytes()).unwrap();
    let mut chunk = format!("{:x}\r\n", long_body.len()).into_bytes();
    chunk.extend_from_slice(&long_body);
    chunk.extend_from_slice(b"\r\n0\r\n\r\n");
    stream.write_all(&chunk).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert!(has_status(&answer, 413), "{answer}");
    // One byte less is accepted, but is not valid JSON.
    assert_rejected(&server, API_PATHS[0], &long_body[1..], 400);
}

#[test]
fn unknown_paths_and_methods_get_error_responses() {
    let project = project();
    let server = start(&project, &[]);
    for (line, status) in [
        ("GET /", 404),
        ("POST /v1/embeddings", 404),
        ("GET /v1/messages/../../etc/passwd", 404),
        ("GET /v1/messages", 405),
        ("DELETE /v1/responses", 405),
        ("POST /v1/models", 405),
        ("POST /livez", 405),
    ] {
        let answer = server.request(line, &[], "");
        assert_eq!(answer.status, status, "{line}: {answer:?}");
        assert!(answer.json()["error"]["message"].is_string(), "{line}");
        assert_eq!(answer.header("allow").is_some(), status == 405, "{line}");
    }
    let headers = [("anthropic-version", "2023-06-01")];
    let answer = server.request("GET /v1/nothing", &headers, "");
    assert_eq!(answer.json()["error"]["type"], "not_found_error");
}

#[test]
fn malformed_and_partial_requests_do_no_harm() {
    let project = project();
    let server = start(&project, &[]);
    assert!(has_status(&send_raw(&server, b"\x16\x03\x01 hello\r\n\r\n"), 400));
    let request_bytes =
        request(API_PATHS[0], "", chat_request("look", true).to_string().as_bytes());
    // Part of a head, part of a body, and a stream that is not read.
    for part in
        [&request_bytes[..20], &request_bytes[..request_bytes.len() - 5], &request_bytes[..]]
    {
        let mut stream = connect(&server);
        stream.write_all(part).unwrap();
        drop(stream);
    }
    let idle_connection = connect(&server);
    assert_eq!(server.request("GET /livez", &[], "").status, 200);
    drop(idle_connection);
    server.signal("-TERM");
    assert_eq!(server.wait_exit().0, 0);
}
