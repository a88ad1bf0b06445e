//! HTTP servers: a real one, and some that misbehave.

use std::process::{Child, Command, Stdio};

use longhaul_mcp::{McpError, McpServers};
use serde_json::json;
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

use super::harness::{
    RUN, call, http_spec, packages, single_server, text, tool, tool_context, within_timeout,
};

/// The reference server `server-everything`; it is killed on drop.
struct EverythingServer(Child, String);

impl EverythingServer {
    async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        drop(listener);
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
        let stderr = tokio::process::ChildStderr::from_std(child.stderr.take().unwrap()).unwrap();
        let mut stderr = BufReader::new(stderr).lines();
        let wait_until_ready = async {
            while let Some(line) = stderr.next_line().await.unwrap() {
                if line.contains("listening") {
                    return;
                }
            }
            panic!("the server exited");
        };
        within_timeout(wait_until_ready).await;
        Self(child, format!("http://127.0.0.1:{port}/mcp"))
    }
}

impl Drop for EverythingServer {
    fn drop(&mut self) {
        _ = self.0.kill();
        _ = self.0.wait();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_everything_server_works_over_http() {
    let server = EverythingServer::start().await;
    let (servers, _) = single_server(http_spec("everything", &server.1, &[]));
    let report = within_timeout(servers.check_server("everything")).await.unwrap();
    assert!(report.name.contains("everything"), "{report:?}");
    let result = call(&servers, "echo", json!({ "message": "dear" })).await;
    assert_eq!(result.unwrap(), "Echo: dear");
    let long = tool(&servers, "trigger-long-running-operation").await;
    let (ctx, mut progress) = tool_context();
    let input = json!({ "duration": 1, "steps": 2 });
    let result = within_timeout(long.call(input, &ctx)).await.unwrap();
    assert!(text(&result).contains("ompleted"), "{result:?}");
    assert_eq!(progress.try_recv().unwrap().0, Some(50));
    let result = call(&servers, "get-tiny-image", json!({})).await.unwrap();
    assert!(result.contains("image/png"), "{result}");
    drop(server);
    let failure = call(&servers, "echo", json!({ "message": "dear" })).await;
    let failure = failure.unwrap_err();
    // The server is gone, so the request can't have reached it.
    assert!(!failure.is_outcome_unknown(), "{failure}");
    within_timeout(servers.close_all_servers()).await;
}

/// Starts a server that gives the same response to every request, and returns its URL.
async fn canned_server(tasks: &mut JoinSet<()>, answer: &'static [&'static str]) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tasks.spawn(async move {
        loop {
            let (mut stream, _) = listener.accept().await.unwrap();
            read_request(&mut stream).await;
            'parts: for (index, part) in answer.iter().enumerate() {
                // The last part is repeated forever.
                let times = if index > 0 && index + 1 == answer.len() { usize::MAX } else { 1 };
                for _ in 0..times {
                    if stream.write_all(part.as_bytes()).await.is_err() {
                        break 'parts;
                    }
                }
            }
        }
    });
    format!("http://127.0.0.1:{port}/mcp?key=hunter2hunter")
}

async fn read_request(stream: &mut TcpStream) {
    let mut head = Vec::new();
    let mut buffer = [0; 4096];
    while !String::from_utf8_lossy(&head).contains("\r\n\r\n") {
        match stream.read(&mut buffer).await {
            Ok(count @ 1..) => head.extend_from_slice(&buffer[..count]),
            Ok(0) | Err(_) => return,
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn http_responses_are_limited_and_redacted() {
    let mut tasks = JoinSet::new();
    for (answer, expected) in [
        (
            &["HTTP/1.1 401 Unauthorized\r\ncontent-length: 0\r\nwww-authenticate: Bearer\r\n\r\n"]
                [..],
            "Set an Authorization header",
        ),
        (
            &[
                "HTTP/1.1 307 Temporary Redirect\r\nlocation: http://localhost:1/x\r\ncontent-length: 0\r\n\r\n",
            ],
            "HTTP 307",
        ),
        (&["HTTP/1.1 503 Service Unavailable\r\ncontent-length: 0\r\n\r\n"], "HTTP 503"),
        (
            &["HTTP/1.1 200 OK\r\ncontent-type: text/html\r\ncontent-length: 5\r\n\r\n<html"],
            "not a JSON-RPC message",
        ),
        (
            &[
                "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n\r\n[",
                "1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,",
            ],
            "exceeds the size limit",
        ),
        (
            &[
                "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\ndata: ",
                "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx",
            ],
            "",
        ),
    ] {
        let url = canned_server(&mut tasks, answer).await;
        let spec = http_spec("far", &url, &[("Authorization", "Bearer hunter2hunter")]);
        let servers = single_server(spec).0;
        let error = within_timeout(servers.check_server("far")).await.unwrap_err();
        let message = format!("{error} {error:?} {servers:?}");
        assert!(message.contains(expected), "{message}");
        assert!(!message.contains("hunter2"), "{message}");
        assert!(message.len() < 3_000, "{message}");
    }
}

#[tokio::test]
async fn an_unreachable_server_is_reported_after_one_retry() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/mcp", listener.local_addr().unwrap());
    drop(listener);
    let (servers, clock) = single_server(http_spec("far", &url, &[]));
    let error = within_timeout(servers.server_tools("far", None, RUN)).await.unwrap_err();
    let message = error.to_string();
    assert!(matches!(error, McpError::RepeatedFailures { times: 2, .. }), "{message}");
    assert!(message.contains("Connection refused"), "{message}");
    assert!(message.ends_with(&format!("Check that the server is running at {url}.")), "{message}");
    assert_eq!(clock.sleeps(), [1_000]);
}

#[tokio::test]
async fn invalid_urls_and_headers_are_reported_before_sending() {
    for (url, header, expected) in [
        ("no address", ("a", "b"), "URL is invalid"),
        ("ftp://a/", ("a", "b"), "not an http://"),
        ("http://a/", ("Mcp-Session-Id", "b"), "reserved for the protocol"),
        ("http://a/", ("a b", "c"), "not a valid header name"),
        ("http://a/", ("a", "b\nc"), "not a valid header value"),
    ] {
        let servers: McpServers = single_server(http_spec("far", url, &[header])).0;
        let error = within_timeout(servers.check_server("far")).await.unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
    }
}
