//! The log has the expected messages, and never keys, tickets, links or sessions.

use std::io;
use std::sync::{Arc, Mutex};

use longhaul_core::access::Role;
use serde_json::json;
use tracing_subscriber::fmt::MakeWriter;

use crate::suite::harness::client::{TestConnection, get, post, request};
use crate::suite::harness::{server_with_gate, task};

/// A log in memory. Cheap to clone; clones share state.
#[derive(Debug, Clone, Default)]
struct LogBuffer(Arc<Mutex<Vec<u8>>>);

impl LogBuffer {
    fn text(&self) -> String {
        String::from_utf8(self.0.lock().unwrap().clone()).unwrap()
    }
}

impl io::Write for LogBuffer {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl<'a> MakeWriter<'a> for LogBuffer {
    type Writer = Self;

    fn make_writer(&'a self) -> Self {
        self.clone()
    }
}

/// Returns the rest of a text after a substring.
fn text_after(url: &str, marker: &str) -> String {
    url.split_once(marker).unwrap().1.to_owned()
}

/// Installs a global log subscriber. A subscriber of a single thread could miss lines, because
/// whether a log line is enabled is cached for all threads.
fn capture_log() -> LogBuffer {
    let log = LogBuffer::default();
    let subscriber = tracing_subscriber::fmt()
        .with_max_level(tracing_subscriber::filter::LevelFilter::TRACE)
        .with_writer(log.clone())
        .finish();
    tracing::subscriber::set_global_default(subscriber).unwrap();
    log
}

#[tokio::test]
async fn no_secret_is_logged() {
    let log = capture_log();
    let server = server_with_gate().start().await;
    let (_, gate) = server.submit_until_gate().await;
    let key = server.create_key("eve", Role::Viewer).await;
    let ticket = server.send(request("POST", "/v1/tickets")).await.expect(201);
    let ticket = text_after(ticket["url"].as_str().unwrap(), "?t=");
    let path = format!("/v1/gates/{}/links", gate["id"].as_str().unwrap());
    let link = server.send(post(path, &json!({ "recipient": "anna" }))).await.expect(201);
    let token = text_after(link["url"].as_str().unwrap(), "/a/");
    let response = server.send(get(format!("/?t={ticket}")).without_key()).await;
    let cookie = response.header("set-cookie").unwrap();
    let session = text_after(cookie.split(';').next().unwrap(), "=");
    let cookie = cookie.split(';').next().unwrap();
    // Failing requests that contain a secret.
    for http_request in [
        get(format!("/a/{token}")).without_key(),
        request("POST", format!("/a/{token}")).without_key(),
        request("DELETE", format!("/a/{token}")).without_key(),
        get(format!("/a/{token}/x")).without_key(),
        get(format!("/a/{token}")).without_key().header("host", "evil.example"),
        get(format!("/a/{token}?x=1")).without_key().header("origin", "http://evil.example"),
        get(format!("/?t={ticket}")).without_key(),
        get(format!("/?t={ticket}&t={ticket}")).without_key(),
        get(format!("/v1/runs?t={ticket}")).cookie(cookie),
        get(format!("/v1/{session}")).cookie(cookie),
        get("/v1/keys").with_key(&key),
        post("/v1/runs", &task()).with_key(&key).idempotency_key(&key),
        get(format!("/v1/agents/{key}")).with_key(&key),
        request("DELETE", format!("/v1/keys/{key}")),
    ] {
        server.send(http_request).await;
    }
    server.models.set_fails(true);
    server.send(post("/v1/runs", &task())).await;
    let mut connection = TestConnection::connect(server.address).await;
    connection.send(format!("GET /a/{token} HTTP/1.1\r\nx y: {key}\r\n\r\n").as_bytes()).await;
    connection.read_all().await;
    let text = log.text();
    for (kind, secret) in [
        ("the local machine key", &server.key),
        ("a key", &key),
        ("a ticket", &ticket),
        ("a link", &token),
        ("a session", &session),
    ] {
        assert!(!text.contains(secret.as_str()), "{kind} is in the log:\n{text}");
    }
    for expected in [
        "request rejected",
        "route=\"/a/{token}\"",
        "code=\"forbidden\"",
        "caller=\"key:eve\"",
        "a request handler panicked",
        "request_id=\"req_",
    ] {
        assert!(text.contains(expected), "{expected} is not in the log:\n{text}");
    }
}
