//! Servers over HTTP: a real one, and some that misbehave.

use std::process::{Child, Command, Stdio};

use longhaul_mcp::{McpError, Servers};
use serde_json::json;
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

use super::kit::{RUN, alone, around, at, call, packages, soon, text, tool};

/// The server of everything, until it is dropped.
struct Everything(Child, String);

impl Everything {
    async fn start() -> Self {
        let free = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = free.local_addr().unwrap().port();
        drop(free);
        let program = "node_modules/@modelcontextprotocol/server-everything/dist/index.js";
        let mut child = Command::new("node")
            .arg(packages().join(program))
            .arg("streamableHttp")
            .env("PORT", port.to_string())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let told = tokio::process::ChildStderr::from_std(child.stderr.take().unwrap()).unwrap();
        let mut told = BufReader::new(told).lines();
        let ready = async {
            while let Some(line) = told.next_line().await.unwrap() {
                if line.contains("listening") {
                    return;
                }
            }
            panic!("it ended");
        };
        soon(ready).await;
        Self(child, format!("http://127.0.0.1:{port}/mcp"))
    }
}

impl Drop for Everything {
    fn drop(&mut self) {
        _ = self.0.kill();
        _ = self.0.wait();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn everything_is_had_over_http_too() {
    let server = Everything::start().await;
    let (servers, _) = alone(at("everything", &server.1, &[]));
    let checked = soon(servers.check("everything")).await.unwrap();
    assert!(checked.name.contains("everything"), "{checked:?}");
    let said = call(&servers, "echo", json!({ "message": "dear" })).await;
    assert_eq!(said.unwrap(), "Echo: dear");
    let long = tool(&servers, "trigger-long-running-operation").await;
    let (around, mut told) = around();
    let input = json!({ "duration": 1, "steps": 2 });
    let said = soon(long.call(input, &around)).await.unwrap();
    assert!(text(&said).contains("ompleted"), "{said:?}");
    assert_eq!(told.try_recv().unwrap().0, Some(50));
    let said = call(&servers, "get-tiny-image", json!({})).await.unwrap();
    assert!(said.contains("image/png"), "{said}");
    drop(server);
    let failure = call(&servers, "echo", json!({ "message": "dear" })).await;
    let failure = failure.unwrap_err();
    // Nobody was there to hear it.
    assert!(!failure.is_unknown(), "{failure}");
    soon(servers.close()).await;
}

/// A server that gives the same answer to everything: its address.
async fn canned(tasks: &mut JoinSet<()>, answer: &'static [&'static str]) -> String {
    let door = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = door.local_addr().unwrap().port();
    tasks.spawn(async move {
        loop {
            let (mut line, _) = door.accept().await.unwrap();
            heard(&mut line).await;
            'said: for (place, some) in answer.iter().enumerate() {
                // The last part is said for ever.
                let times = if place > 0 && place + 1 == answer.len() {
                    usize::MAX
                } else {
                    1
                };
                for _ in 0..times {
                    if line.write_all(some.as_bytes()).await.is_err() {
                        break 'said;
                    }
                }
            }
        }
    });
    format!("http://127.0.0.1:{port}/mcp?key=hunter2hunter")
}

/// Reads a request.
async fn heard(line: &mut TcpStream) {
    let mut all = Vec::new();
    let mut some = [0; 4096];
    while !String::from_utf8_lossy(&all).contains("\r\n\r\n") {
        match line.read(&mut some).await {
            Ok(count @ 1..) => all.extend_from_slice(&some[..count]),
            Ok(0) | Err(_) => return,
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_server_answers_is_bounded_and_secrets_stay_where_they_are() {
    let mut tasks = JoinSet::new();
    for (answer, why) in [
        (
            &["HTTP/1.1 401 Unauthorized\r\ncontent-length: 0\r\nwww-authenticate: Bearer\r\n\r\n"]
                [..],
            "Give it an Authorization header",
        ),
        (
            &[
                "HTTP/1.1 307 Temporary Redirect\r\nlocation: http://localhost:1/x\r\ncontent-length: 0\r\n\r\n",
            ],
            "HTTP 307",
        ),
        (
            &["HTTP/1.1 503 Service Unavailable\r\ncontent-length: 0\r\n\r\n"],
            "HTTP 503",
        ),
        (
            &["HTTP/1.1 200 OK\r\ncontent-type: text/html\r\ncontent-length: 5\r\n\r\n<html"],
            "what is no message",
        ),
        (
            &[
                "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n\r\n[",
                "1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,",
            ],
            "too long",
        ),
        (
            &[
                "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\ndata: ",
                "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx",
            ],
            "",
        ),
    ] {
        let url = canned(&mut tasks, answer).await;
        let spec = at("far", &url, &[("Authorization", "Bearer hunter2hunter")]);
        let servers = alone(spec).0;
        let error = soon(servers.check("far")).await.unwrap_err();
        let words = format!("{error} {error:?} {servers:?}");
        assert!(words.contains(why), "{words}");
        assert!(!words.contains("hunter2"), "{words}");
        assert!(words.len() < 3_000, "{words}");
    }
}

#[tokio::test]
async fn one_that_is_not_there_is_told_after_a_second_try() {
    let door = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/mcp", door.local_addr().unwrap());
    drop(door);
    let (servers, clock) = alone(at("far", &url, &[]));
    let error = soon(servers.tools("far", None, RUN)).await.unwrap_err();
    let words = error.to_string();
    assert!(
        matches!(error, McpError::KeepsFailing { times: 2, .. }),
        "{words}"
    );
    assert!(words.contains("Connection refused"), "{words}");
    assert!(
        words.ends_with(&format!("Is it running at {url}?")),
        "{words}"
    );
    assert_eq!(clock.waits(), [1_000]);
}

#[tokio::test]
async fn what_can_not_be_sent_is_said_before_it_is() {
    for (url, header, why) in [
        ("no address", ("a", "b"), "no URL"),
        ("ftp://a/", ("a", "b"), "no http://"),
        ("http://a/", ("Mcp-Session-Id", "b"), "the protocol's own"),
        ("http://a/", ("a b", "c"), "no name of a header"),
        ("http://a/", ("a", "b\nc"), "can't be sent"),
    ] {
        let servers: Servers = alone(at("far", url, &[header])).0;
        let error = soon(servers.check("far")).await.unwrap_err().to_string();
        assert!(error.contains(why), "{error}");
    }
}
