//! A server over HTTP that turns single requests away: whatever others do there goes on.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use longhaul_core::port::tool::ToolFailure;
use longhaul_tool::mcp::Servers;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

use super::kit::{alone, at, call, soon};

/// A request: its first line, and its message if it has one.
async fn heard(line: &mut TcpStream) -> (String, Value) {
    let mut all = Vec::new();
    let mut some = [0; 4096];
    loop {
        let said = String::from_utf8_lossy(&all).into_owned();
        if let Some((head, body)) = said.split_once("\r\n\r\n") {
            let length = head.lines().find_map(|field| {
                let (name, value) = field.split_once(':')?;
                let is_it = name.eq_ignore_ascii_case("content-length");
                is_it.then(|| value.trim().parse::<usize>().unwrap())
            });
            if body.len() >= length.unwrap_or(0) {
                let message = serde_json::from_str(body).unwrap_or_default();
                return (head.to_owned(), message);
            }
        }
        match line.read(&mut some).await {
            Ok(count @ 1..) => all.extend_from_slice(&some[..count]),
            Ok(0) | Err(_) => return Default::default(),
        }
    }
}

/// What it answers; none: only the status.
fn answer(asked: &Value, greeted: &AtomicUsize) -> (u16, Option<Value>) {
    let result = match asked["method"].as_str() {
        Some("initialize") => {
            greeted.fetch_add(1, Ordering::AcqRel);
            json!({
                "protocolVersion": asked["params"]["protocolVersion"],
                "capabilities": { "tools": {} },
                "serverInfo": { "name": "picky", "version": "1" },
            })
        }
        Some("tools/list") => {
            let tools = ["hello", "t400", "t429"];
            let tools = tools.map(|name| json!({ "name": name, "inputSchema": {} }));
            json!({ "tools": tools })
        }
        Some("tools/call") => match asked["params"]["name"].as_str() {
            Some("t400") => return (400, None),
            Some("t429") => return (429, None),
            Some(_) | None => json!({ "content": [{ "type": "text", "text": "Hello." }] }),
        },
        Some("server/discover") => return (400, None),
        Some(_) => return (202, None),
        None => return (405, None),
    };
    let whole = json!({ "jsonrpc": "2.0", "id": asked["id"], "result": result });
    (200, Some(whole))
}

/// Starts it: where it is, and how often it was greeted.
async fn picky(tasks: &mut JoinSet<()>) -> (Servers, Arc<AtomicUsize>) {
    let door = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/mcp", door.local_addr().unwrap());
    let greeted = Arc::new(AtomicUsize::new(0));
    let counts = Arc::clone(&greeted);
    tasks.spawn(async move {
        loop {
            let (mut line, _) = door.accept().await.unwrap();
            let (_, asked) = heard(&mut line).await;
            let (status, body) = answer(&asked, &counts);
            let body = body.map(|body| body.to_string()).unwrap_or_default();
            let length = body.len();
            let whole = format!(
                "HTTP/1.1 {status} It\r\nmcp-session-id: s\r\ncontent-type: application/json\r\n\
                 content-length: {length}\r\nconnection: close\r\n\r\n{body}"
            );
            // Whoever does not wait for it does not need it.
            _ = line.write_all(whole.as_bytes()).await;
        }
    });
    (alone(at("picky", &url, &[])).0, greeted)
}

#[tokio::test(flavor = "multi_thread")]
async fn one_request_that_is_turned_away_does_not_end_a_session() {
    let mut tasks = JoinSet::new();
    let (servers, greeted) = picky(&mut tasks).await;
    let refused = async |name: &str| -> ToolFailure {
        let failure = call(&servers, name, json!({})).await.unwrap_err();
        assert!(!failure.is_unknown(), "{failure}");
        failure
    };
    let hello = async || call(&servers, "hello", json!({})).await.unwrap();
    let words = refused("t400").await.to_string();
    assert!(
        words.ends_with("refused: it answered with HTTP 400"),
        "{words}"
    );
    for _ in 0..5 {
        refused("t429").await;
    }
    refused("t400").await;
    assert_eq!(hello().await, "Hello.");
    assert_eq!(greeted.load(Ordering::Acquire), 1);
    // A session that lets nothing through is no session.
    for _ in 0..3 {
        refused("t400").await;
    }
    assert_eq!(hello().await, "Hello.");
    assert_eq!(greeted.load(Ordering::Acquire), 2);
    soon(servers.close()).await;
}
