//! Tests of the bounds of the proxy, and of its start and end.

use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixListener;
use std::time::Duration;

use longhaul_core::port::sandbox::SandboxError;
use longhaul_sandbox::egress::{EgressOptions, EgressProxy, HostList};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::harness::{Harness, read_to_end, start, start_with};

const SHORT: Duration = Duration::from_millis(100);

#[tokio::test]
async fn connection_257_waits_until_another_one_ends() {
    let (server, _task) = Harness::line_server().await;
    let harness = start_with(&["a.example", "a.example:22"], |_, upstream| {
        upstream.ports.insert(22, server);
    })
    .await;
    let mut open = Vec::new();
    for _ in 0..256 {
        open.push(harness.connect_to("a.example:443").await);
    }
    let mut waiting = Vec::new();
    for _ in 0..44 {
        let mut stream = harness.connect().await;
        stream.write_all(b"GET / HTTP/1.1\r\nConnection: close\r\n\r\n").await.unwrap();
        waiting.push(stream);
    }
    let mut first = waiting.remove(0);
    let mut byte = [0];
    assert!(tokio::time::timeout(SHORT, first.read_exact(&mut byte)).await.is_err());
    drop(open.pop());
    for stream in std::iter::once(first).chain(waiting) {
        let answer = read_to_end(stream).await;
        assert!(answer.starts_with("HTTP/1.1 400 "), "{answer}");
    }
}

#[tokio::test]
async fn a_header_that_is_too_long_is_refused() {
    let harness = start(&["a.example"]).await;
    let mut stream = harness.connect().await;
    let request = format!("GET http://a.example/ HTTP/1.1\r\nx: {}\r\n\r\n", "x".repeat(200_000));
    // The proxy may close the connection before all is sent.
    _ = stream.write_all(request.as_bytes()).await;
    let answer = read_to_end(stream).await;
    assert!(answer.starts_with("HTTP/1.1 431 ") || answer.is_empty(), "{answer}");
    let many = "x: y\r\n".repeat(1000);
    let request = format!("GET http://a.example/ HTTP/1.1\r\n{many}\r\n");
    let answer = harness.send(request.as_bytes()).await;
    assert!(answer.starts_with("HTTP/1.1 431 "), "{answer}");
    assert_eq!(harness.log(), Vec::<String>::new());
}

#[tokio::test]
async fn a_program_that_sends_its_request_slowly_is_disconnected() {
    let harness = start_with(&["a.example"], |options, _| {
        options.timeouts.handshake = SHORT;
        options.timeouts.idle = Duration::from_secs(60);
    })
    .await;
    for bytes in [&b""[..], b"G", b"GET http://a.example/ HTTP/1.1\r\nHost", &[5], &[5, 1, 0]] {
        let mut stream = harness.connect().await;
        stream.write_all(bytes).await.unwrap();
        let answer = read_to_end(stream).await;
        assert!(answer.is_empty() || answer.starts_with('\u{5}') || answer.contains(" 408 "));
    }
    let mut stream = harness.connect_to("a.example:443").await;
    stream.write_all(&[0x16, 3, 1, 1]).await.unwrap();
    assert_eq!(read_to_end(stream).await, "");
}

#[tokio::test]
async fn an_idle_tunnel_is_closed() {
    let (server, _task) = Harness::line_server().await;
    let harness = start_with(&["a.example:22"], |options, upstream| {
        options.timeouts.idle = SHORT;
        upstream.ports.insert(22, server);
    })
    .await;
    let stream = harness.connect_to("a.example:22").await;
    assert_eq!(read_to_end(stream).await, "hello\n");
}

#[tokio::test]
async fn the_number_of_refusals_is_bounded() {
    let harness = start(&["a.example"]).await;
    for number in 0..40 {
        let request = format!(
            "CONNECT {number}.evil.example:443 HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
        );
        assert!(harness.send(request.as_bytes()).await.contains(" 403 "));
    }
    assert_eq!(harness.proxy.take_refusals().len(), 32);
}

#[tokio::test]
async fn a_dropped_proxy_closes_its_connections_and_removes_its_socket() {
    let (server, _task) = Harness::line_server().await;
    let harness = start_with(&["a.example:22"], |_, upstream| {
        upstream.ports.insert(22, server);
    })
    .await;
    let socket = harness.dir.path().join("egress.sock");
    let mode = std::fs::metadata(&socket).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let stream = harness.connect_to("a.example:22").await;
    let Harness { proxy, dir, .. } = harness;
    drop(proxy);
    assert_eq!(read_to_end(stream).await.trim_start_matches("hello\n"), "");
    assert!(!socket.exists());
    drop(dir);
}

#[tokio::test]
async fn a_socket_that_is_left_is_replaced_and_a_file_is_not() {
    let dir = tempfile::tempdir().unwrap();
    let options = |name: &str| EgressOptions::new(dir.path().join(name), HostList::default());
    drop(UnixListener::bind(dir.path().join("left")).unwrap());
    assert!(EgressProxy::start(options("left")).is_ok());
    std::fs::write(dir.path().join("file"), "content").unwrap();
    for name in ["file", "missing/socket", &"x".repeat(120)] {
        let Err(SandboxError::Unavailable(message)) = EgressProxy::start(options(name)) else {
            panic!("a proxy started at {name}");
        };
        assert!(message.contains(name) && message.contains("107 bytes"), "{message}");
    }
    assert_eq!(std::fs::read_to_string(dir.path().join("file")).unwrap(), "content");
}
