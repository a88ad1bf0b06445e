//! Everything that a stranger may send.

use std::io::{Read as _, Write as _};

use serde_json::Value;

use super::{WIRES, connect, exchange, is, project, question, request, send, start};
use crate::suite::served::Served;

/// The JSON of an answer.
fn body(answer: &str) -> Value {
    let (_, body) = answer.split_once("\r\n\r\n").unwrap();
    serde_json::from_str(body).unwrap_or_else(|bad| panic!("{bad}: {answer}"))
}

fn check(served: &Served, path: &str, sent: &[u8], status: u16) {
    let answer = send(served, path, sent);
    let shown = String::from_utf8_lossy(&sent[..sent.len().min(80)]).into_owned();
    assert!(is(&answer, status), "{path} {shown}: {answer}");
    let error = body(&answer);
    assert!(error["error"]["message"].is_string(), "{answer}");
    let anthropic = path == WIRES[0];
    assert_eq!(error["type"] == "error", anthropic, "{answer}");
    let id = if anthropic {
        "\r\nrequest-id: "
    } else {
        "\r\nx-request-id: "
    };
    assert!(answer.contains(id), "{answer}");
}

#[test]
fn what_is_no_request_is_refused_in_the_provider_s_shape() {
    let project = project();
    project.write("secret.yaml", "replies: [{ text: secret }]");
    let served = start(&project, &[]);
    for path in WIRES {
        check(&served, path, b"", 400);
        check(&served, path, b"{\"model\":", 400);
        check(&served, path, b"\xff\xfe\x00", 400);
        check(&served, path, "[".repeat(200_000).as_bytes(), 400);
        let mut foreign = question("look", false).to_string().into_bytes();
        foreign[2] = 0xff;
        check(&served, path, &foreign, 400);
        for model in [
            "../../etc/passwd",
            "../secret",
            "scripted/../secret",
            "/etc/passwd",
            "x",
        ] {
            let sent = question(model, false).to_string();
            check(&served, path, sent.as_bytes(), 404);
        }
    }
    assert_eq!(served.ask("GET /livez", &[], "").status, 200);
}

#[test]
fn a_body_that_is_too_long_is_refused_and_not_kept() {
    let project = project();
    let served = start(&project, &[]);
    let long = vec![b' '; (32 << 20) + 1];
    for path in WIRES {
        let answer = send(&served, path, &long);
        assert!(is(&answer, 413), "{answer}");
        assert!(body(&answer)["error"]["message"].is_string());
    }
    // The same without a length.
    let mut stream = connect(&served);
    let head = "POST /v1/messages HTTP/1.1\r\nhost: mock\r\ntransfer-encoding: chunked\r\n\r\n";
    stream.write_all(head.as_bytes()).unwrap();
    let mut chunk = format!("{:x}\r\n", long.len()).into_bytes();
    chunk.extend_from_slice(&long);
    chunk.extend_from_slice(b"\r\n0\r\n\r\n");
    stream.write_all(&chunk).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert!(is(&answer, 413), "{answer}");
    // One byte less is read, and is no JSON.
    check(&served, WIRES[0], &long[1..], 400);
}

#[test]
fn addresses_and_methods_that_are_not_there_are_named() {
    let project = project();
    let served = start(&project, &[]);
    for (line, status) in [
        ("GET /", 404),
        ("POST /v1/embeddings", 404),
        ("GET /v1/messages/../../etc/passwd", 404),
        ("GET /v1/messages", 405),
        ("DELETE /v1/responses", 405),
        ("POST /v1/models", 405),
        ("POST /livez", 405),
    ] {
        let answer = served.ask(line, &[], "");
        assert_eq!(answer.status, status, "{line}: {answer:?}");
        assert!(answer.json()["error"]["message"].is_string(), "{line}");
        assert_eq!(answer.header("allow").is_some(), status == 405, "{line}");
    }
    let headers = [("anthropic-version", "2023-06-01")];
    let answer = served.ask("GET /v1/nothing", &headers, "");
    assert_eq!(answer.json()["error"]["type"], "not_found_error");
}

#[test]
fn nonsense_and_half_a_request_harm_nobody() {
    let project = project();
    let served = start(&project, &[]);
    assert!(is(&exchange(&served, b"\x16\x03\x01 hello\r\n\r\n"), 400));
    let whole = request(WIRES[0], "", question("look", true).to_string().as_bytes());
    // Half a head, half a body, and a stream that nobody reads.
    for part in [&whole[..20], &whole[..whole.len() - 5], &whole[..]] {
        let mut stream = connect(&served);
        stream.write_all(part).unwrap();
        drop(stream);
    }
    let waits = connect(&served);
    assert_eq!(served.ask("GET /livez", &[], "").status, 200);
    drop(waits);
    served.signal("-TERM");
    assert_eq!(served.ended().0, 0);
}
