//! An HTTP server that rejects single requests. Other requests to it continue.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use futures_util::future::join_all;
use longhaul_core::port::tool::ToolFailure;
use longhaul_mcp::McpServers;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Barrier;
use tokio::task::JoinSet;

use super::harness::{
    RUN, call, http_spec, single_server, text, tool, tool_context, within_timeout,
};

/// Reads a request: its first line, and its message if there is one.
async fn read_request(stream: &mut TcpStream) -> (String, Value) {
    let mut bytes = Vec::new();
    let mut buffer = [0; 4096];
    loop {
        let text = String::from_utf8_lossy(&bytes).into_owned();
        if let Some((head, body)) = text.split_once("\r\n\r\n") {
            let length = head.lines().find_map(|field| {
                let (name, value) = field.split_once(':')?;
                let is_content_length = name.eq_ignore_ascii_case("content-length");
                is_content_length.then(|| value.trim().parse::<usize>().unwrap())
            });
            if body.len() >= length.unwrap_or(0) {
                let message = serde_json::from_str(body).unwrap_or_default();
                return (head.to_owned(), message);
            }
        }
        match stream.read(&mut buffer).await {
            Ok(count @ 1..) => bytes.extend_from_slice(&buffer[..count]),
            Ok(0) | Err(_) => return Default::default(),
        }
    }
}

/// Number of concurrent calls. More than the default limit of HTTP libraries.
const CONCURRENT_CALLS: usize = 20;

/// State of the server.
struct RejectingServer {
    handshakes: AtomicUsize,
    /// Statuses with which the next list requests are rejected.
    list_rejections: Mutex<Vec<u16>>,
    /// Calls wait here until all have arrived.
    barrier: Barrier,
}

impl RejectingServer {
    fn handshakes(&self) -> usize {
        self.handshakes.load(Ordering::Acquire)
    }

    /// Returns the response. `None` means only the status is sent.
    async fn answer(&self, message: &Value) -> (u16, Option<Value>) {
        let result = match message["method"].as_str() {
            Some("initialize") => {
                self.handshakes.fetch_add(1, Ordering::AcqRel);
                json!({
                    "protocolVersion": message["params"]["protocolVersion"],
                    "capabilities": { "tools": {} },
                    "serverInfo": { "name": "picky", "version": "1" },
                })
            }
            Some("tools/list") => {
                if let Some(status) = self.list_rejections.lock().unwrap().pop() {
                    return (status, None);
                }
                let tools = ["hello", "wait_for_all", "t400", "t401", "t403", "t429"];
                let tools = tools.map(|name| json!({ "name": name, "inputSchema": {} }));
                json!({ "tools": tools })
            }
            Some("tools/call") => {
                let name = message["params"]["name"].as_str().unwrap();
                if let Some(status) = name.strip_prefix('t') {
                    return (status.parse().unwrap(), None);
                }
                if name == "wait_for_all" {
                    self.barrier.wait().await;
                }
                json!({ "content": [{ "type": "text", "text": "Hello." }] })
            }
            Some("server/discover") => return (400, None),
            Some(_) => return (202, None),
            None => return (405, None),
        };
        let response = json!({ "jsonrpc": "2.0", "id": message["id"], "result": result });
        (200, Some(response))
    }

    async fn serve(&self, mut stream: TcpStream) {
        let (_, message) = read_request(&mut stream).await;
        let (status, body) = self.answer(&message).await;
        let body = body.map(|body| body.to_string()).unwrap_or_default();
        let length = body.len();
        let response = format!(
            "HTTP/1.1 {status} It\r\nmcp-session-id: s\r\ncontent-type: application/json\r\n\
             content-length: {length}\r\nconnection: close\r\n\r\n{body}"
        );
        // The client may be gone already.
        _ = stream.write_all(response.as_bytes()).await;
    }
}

/// Starts the server. The next list requests are rejected with these statuses, the last one first.
async fn rejecting_server(
    tasks: &mut JoinSet<()>,
    lists: &[u16],
) -> (McpServers, Arc<RejectingServer>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/mcp", listener.local_addr().unwrap());
    let server = Arc::new(RejectingServer {
        handshakes: AtomicUsize::new(0),
        list_rejections: Mutex::new(lists.to_vec()),
        barrier: Barrier::new(CONCURRENT_CALLS),
    });
    let shared = Arc::clone(&server);
    tasks.spawn(async move {
        let mut connections = JoinSet::new();
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            let server = Arc::clone(&shared);
            connections.spawn(async move { server.serve(stream).await });
        }
    });
    let headers = [("Authorization", "Bearer hunter2hunter")];
    (single_server(http_spec("picky", &url, &headers)).0, server)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rejected_request_does_not_end_a_session() {
    let mut tasks = JoinSet::new();
    let (servers, server) = rejecting_server(&mut tasks, &[]).await;
    let call_rejected = async |name: &str| -> ToolFailure {
        let failure = call(&servers, name, json!({})).await.unwrap_err();
        assert!(!failure.is_outcome_unknown(), "{failure}");
        failure
    };
    let hello = async || call(&servers, "hello", json!({})).await.unwrap();
    let message = call_rejected("t400").await.to_string();
    assert!(message.ends_with("rejected the call: the server answered with HTTP 400"), "{message}");
    for _ in 0..5 {
        call_rejected("t429").await;
    }
    call_rejected("t400").await;
    assert_eq!(hello().await, "Hello.");
    // Rejections for a wrong key do not end the session either.
    for name in ["t401", "t403"] {
        let message = call_rejected(name).await.to_string();
        assert!(message.contains("the call: the server requires a valid key"), "{message}");
        assert!(!message.contains("hunter2"), "{message}");
    }
    assert_eq!(hello().await, "Hello.");
    assert_eq!(server.handshakes(), 1);
    // After three rejections in a row, a new session is opened.
    for _ in 0..3 {
        call_rejected("t400").await;
    }
    assert_eq!(hello().await, "Hello.");
    assert_eq!(server.handshakes(), 2);
    within_timeout(servers.close_all_servers()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rejected_listing_is_retried_in_a_new_session() {
    let mut tasks = JoinSet::new();
    for status in [400, 401, 429] {
        let (servers, server) = rejecting_server(&mut tasks, &[status]).await;
        let result = call(&servers, "hello", json!({})).await;
        assert_eq!(result.unwrap(), "Hello.", "{status}");
        assert_eq!(server.handshakes(), 2, "{status}");
        within_timeout(servers.close_all_servers()).await;
    }
    // After a second rejection the error is returned.
    let (servers, server) = rejecting_server(&mut tasks, &[400, 429]).await;
    let error = within_timeout(servers.server_tools("picky", None, RUN)).await.unwrap_err();
    assert!(error.to_string().contains("`picky` disconnected: "), "{error}");
    assert!(error.to_string().contains("HTTP 400"), "{error}");
    assert_eq!(server.handshakes(), 2);
    within_timeout(servers.close_all_servers()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn calls_do_not_wait_for_each_other() {
    let mut tasks = JoinSet::new();
    let (servers, _) = rejecting_server(&mut tasks, &[]).await;
    let barrier_tool = tool(&servers, "wait_for_all").await;
    let (ctx, _progress) = tool_context();
    let calls = (0..CONCURRENT_CALLS).map(|_| barrier_tool.call(json!({}), &ctx));
    for result in within_timeout(join_all(calls)).await {
        assert_eq!(text(&result.unwrap()), "Hello.");
    }
    within_timeout(servers.close_all_servers()).await;
}
