//! What the log says, and what it must never say: keys, tickets, links and
//! sessions.

use std::io;
use std::sync::{Arc, Mutex};

use longhaul_core::access::Role;
use serde_json::json;
use tracing_subscriber::fmt::MakeWriter;

use crate::suite::kit::client::{Wire, ask, get, post};
use crate::suite::kit::{asking, task};

/// A log in memory. Clones are the same.
#[derive(Debug, Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl Log {
    fn text(&self) -> String {
        String::from_utf8(self.0.lock().unwrap().clone()).unwrap()
    }
}

impl io::Write for Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl<'a> MakeWriter<'a> for Log {
    type Writer = Self;

    fn make_writer(&'a self) -> Self {
        self.clone()
    }
}

/// The rest of a text after a word.
fn after(url: &str, word: &str) -> String {
    url.split_once(word).unwrap().1.to_owned()
}

/// A log of the whole process: what a thread hears alone may be missed, because
/// whether a line is wanted at all is remembered for all threads.
fn listen() -> Log {
    let log = Log::default();
    let subscriber = tracing_subscriber::fmt()
        .with_max_level(tracing_subscriber::filter::LevelFilter::TRACE)
        .with_writer(log.clone())
        .finish();
    tracing::subscriber::set_global_default(subscriber).unwrap();
    log
}

#[tokio::test]
async fn no_secret_is_ever_written_down() {
    let log = listen();
    let server = asking().at_work().await;
    let (_, gate) = server.at_gate().await;
    let key = server.make_key("eve", Role::Viewer).await;
    let ticket = server.ask(ask("POST", "/v1/tickets")).await.expect(201);
    let ticket = after(ticket["url"].as_str().unwrap(), "?t=");
    let path = format!("/v1/gates/{}/links", gate["id"].as_str().unwrap());
    let link = server
        .ask(post(path, &json!({ "recipient": "anna" })))
        .await
        .expect(201);
    let token = after(link["url"].as_str().unwrap(), "/a/");
    let traded = server.ask(get(format!("/?t={ticket}")).bare()).await;
    let cookie = traded.header("set-cookie").unwrap();
    let session = after(cookie.split(';').next().unwrap(), "=");
    let cookie = cookie.split(';').next().unwrap();
    // Everything that can go wrong with a secret in it.
    for asked in [
        get(format!("/a/{token}")).bare(),
        ask("POST", format!("/a/{token}")).bare(),
        ask("DELETE", format!("/a/{token}")).bare(),
        get(format!("/a/{token}/x")).bare(),
        get(format!("/a/{token}"))
            .bare()
            .with("host", "evil.example"),
        get(format!("/a/{token}?x=1"))
            .bare()
            .with("origin", "http://evil.example"),
        get(format!("/?t={ticket}")).bare(),
        get(format!("/?t={ticket}&t={ticket}")).bare(),
        get(format!("/v1/runs?t={ticket}")).cookie(cookie),
        get(format!("/v1/{session}")).cookie(cookie),
        get("/v1/keys").shows(&key),
        post("/v1/runs", &task()).shows(&key).once(&key),
        get(format!("/v1/agents/{key}")).shows(&key),
        ask("DELETE", format!("/v1/keys/{key}")),
    ] {
        server.ask(asked).await;
    }
    server.models.breaks(true);
    server.ask(post("/v1/runs", &task())).await;
    let mut wire = Wire::to(server.address).await;
    wire.send(format!("GET /a/{token} HTTP/1.1\r\nx y: {key}\r\n\r\n").as_bytes())
        .await;
    wire.read_all().await;
    let text = log.text();
    for (what, secret) in [
        ("the machine's key", &server.key),
        ("a key", &key),
        ("a ticket", &ticket),
        ("a link", &token),
        ("a session", &session),
    ] {
        assert!(
            !text.contains(secret.as_str()),
            "{what} stands in the log:\n{text}"
        );
    }
    for said in [
        "refused",
        "route=\"/a/{token}\"",
        "code=\"forbidden\"",
        "caller=\"key:eve\"",
        "a request broke its handler",
        "request_id=\"req_",
    ] {
        assert!(text.contains(said), "{said} is not in the log:\n{text}");
    }
}
