//! Many clients: idle streams, clients that never read, and a shutdown that none of them can
//! delay.

use std::time::Duration;

use longhaul_core::access::Role;
use longhaul_core::time::Millis;
use longhaul_engine::Task;
use longhaul_server::ServerOptions;
use serde_json::json;

use crate::suite::harness::client::{TestConnection, TestRequest, get, post};
use crate::suite::harness::sse::SseClient;
use crate::suite::harness::{TIMEOUT, TestServer, server_with};

/// Maximum number of streams per caller.
const STREAMS_MAX: usize = 2_000;

async fn submit_runs(server: &TestServer, count: usize) -> Vec<String> {
    let task = Task::new("tester", "Do it.");
    let tasks = (0..count).map(|_| task.clone()).collect();
    let batch = server.longhaul.submit_all(tasks).await.unwrap();
    batch.run_ids().iter().map(ToString::to_string).collect()
}

fn events_request(run: &str) -> TestRequest {
    // An `after` behind the last event: such a stream only waits.
    get(format!("/v1/runs/{run}/events?after=1"))
}

#[tokio::test]
async fn thousands_of_streams_receive_only_their_own_events() {
    let server = server_with([]).open().await;
    let runs = submit_runs(&server, 1_000).await;
    let other_key = server.create_key("eve", Role::Viewer).await;
    let mut streams = Vec::new();
    for index in 0..STREAMS_MAX {
        let request = events_request(&runs[index % runs.len()]);
        streams.push(SseClient::open(&server, request).await);
    }
    let refused = SseClient::request(&server, events_request(&runs[0])).await;
    assert_eq!(refused.head.status, 429);
    assert_eq!(refused.head.header("retry-after"), Some("1"));
    let refused = server.send(get("/v1/events/stream")).await;
    assert_eq!(refused.problem(), "too_many_streams");
    // Another caller has its own stream permits.
    SseClient::open(&server, events_request(&runs[0]).with_key(&other_key)).await;
    for index in [0, 500, 999] {
        let steer = post(format!("/v1/runs/{}/steer", runs[index]), &json!({ "text": "hi" }));
        server.send(steer).await.expect(202);
        for at in [index, index + runs.len()] {
            // On a slow machine a heartbeat comment comes first.
            let frame = streams[at].next_of_type("steer.queued").await;
            assert_eq!(frame.id, Some(2));
            assert_eq!(frame.json()["run"], runs[index]);
        }
    }
    // No other stream got an event, and a closed stream releases its permit.
    assert!(streams[1].is_silent() && streams[998].is_silent() && streams[1_500].is_silent());
    streams.truncate(STREAMS_MAX / 2);
    server.wait_for_subscribers(STREAMS_MAX / 2).await;
    SseClient::open(&server, events_request(&runs[0])).await;
}

/// Writes more events than the socket buffers hold while the client does not read.
async fn fill_streams(server: &TestServer) {
    let task = Task::new("tester", "x".repeat(40_000));
    let tasks = (0..400).map(|_| task.clone()).collect();
    server.longhaul.submit_all(tasks).await.unwrap();
}

#[tokio::test]
async fn a_client_that_never_reads_does_not_delay_others() {
    let mut server = server_with([]).with_sim_clock().open().await;
    fill_streams(&server).await;
    let mut idle_streams = Vec::new();
    for _ in 0..10 {
        idle_streams.push(SseClient::open(&server, get("/v1/events/stream?after=0")).await);
    }
    for _ in 0..20 {
        server.assert_healthy().await;
    }
    // It can't delay the shutdown longer than the grace period either.
    server.stop();
    server.wait_until_listener_closed().await;
    server.clock().advance(Millis::from_secs(5));
    server.wait_stopped().await;
}

/// Opens a connection that got a response and is kept alive. If the machine is too busy to send
/// the request in time, opens another one.
async fn keep_alive_connection(server: &TestServer) -> TestConnection {
    loop {
        let mut connection = TestConnection::connect(server.address).await;
        connection.send(&get("/livez").without_key().bytes(&server.host(), "")).await;
        if let Some(answer) = connection.read_response().await
            && answer.status == 200
        {
            return connection;
        }
    }
}

#[tokio::test]
async fn a_connection_that_sends_no_request_is_closed() {
    let short_timeout =
        |options: &mut ServerOptions| options.head_timeout = Duration::from_millis(100);
    let server = server_with([]).options(short_timeout).open().await;
    let mut silent_connection = TestConnection::connect(server.address).await;
    let mut partial_connection = TestConnection::connect(server.address).await;
    partial_connection.send(b"GET /livez HTTP/1.1\r\nhost: loc").await;
    let kept_alive = tokio::time::timeout(TIMEOUT, keep_alive_connection(&server)).await;
    let mut kept_alive = kept_alive.expect("a connection gets a response");
    for connection in [&mut silent_connection, &mut partial_connection, &mut kept_alive] {
        let last = String::from_utf8(connection.read_all().await).unwrap();
        assert!(last.is_empty() || last.starts_with("HTTP/1.1 408"), "{last}");
    }
    // Sending single bytes does not extend the timeout.
    let mut slow_connection = TestConnection::connect(server.address).await;
    let send_slowly = async {
        while slow_connection.send(b"x").await {
            if slow_connection.read_soon().await || slow_connection.is_closed() {
                break;
            }
        }
    };
    let result = tokio::time::timeout(TIMEOUT, send_slowly).await;
    assert!(result.is_ok(), "the slow connection was not closed");
}

#[tokio::test]
async fn a_stream_that_is_not_read_is_closed() {
    let short_timeout =
        |options: &mut ServerOptions| options.write_timeout = Duration::from_millis(100);
    let server = server_with([]).options(short_timeout).open().await;
    fill_streams(&server).await;
    let idle_stream = SseClient::open(&server, get("/v1/events/stream?after=0")).await;
    server.wait_for_subscribers(0).await;
    drop(idle_stream);
    server.assert_healthy().await;
}

#[tokio::test]
async fn no_connection_outlives_the_server() {
    let mut server = server_with([]).with_sim_clock().open().await;
    fill_streams(&server).await;
    let host = server.host();
    let mut idle = TestConnection::connect(server.address).await;
    idle.send(&get("/livez").without_key().bytes(&host, "")).await;
    assert_eq!(idle.read_response().await.unwrap().status, 200);
    let mut partial_connection = TestConnection::connect(server.address).await;
    partial_connection.send(b"GET /livez HTTP/1.1\r\nhost: loc").await;
    let mut idle_stream = SseClient::open(&server, get("/v1/events/stream?after=0")).await;
    let mut body = TestConnection::connect(server.address).await;
    let lines = "content-type: application/json\r\ncontent-length: 9\r\nexpect: 100-continue";
    let key = &server.key;
    let head = format!(
        "POST /v1/runs HTTP/1.1\r\nhost: {host}\r\nauthorization: Bearer {key}\r\n{lines}\r\n\r\n"
    );
    body.send(head.as_bytes()).await;
    assert_eq!(body.read_head().await.unwrap().status, 100);
    server.stop();
    // Idle connections are closed immediately.
    assert_eq!(idle.read_all().await, b"");
    server.clock().advance(Millis::from_secs(5));
    server.wait_stopped().await;
    assert_eq!(partial_connection.read_all().await, b"");
    body.read_all().await;
    while idle_stream.next().await.is_some() {}
}
