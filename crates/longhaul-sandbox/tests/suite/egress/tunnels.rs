//! Tests of tunnels: TLS that is not decrypted, other protocols, and SOCKS5.

use std::sync::Arc;

use rustls::pki_types::ServerName;
use rustls::{ClientConfig, RootCertStore};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio_rustls::TlsConnector;

use super::harness::{Harness, read_to_end, secret, start, start_with};

/// Sends a request through TLS with this name in the handshake. `None` means no name.
async fn request_with_name(
    harness: &Harness,
    (target, name): (&str, Option<&'static str>),
) -> std::io::Result<String> {
    let mut roots = RootCertStore::empty();
    roots.add(harness.root()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.enable_sni = name.is_some();
    let name = ServerName::try_from(name.unwrap_or("a.example")).unwrap();
    let stream = harness.connect_to(target).await;
    let mut stream = TlsConnector::from(Arc::new(config)).connect(name, stream).await?;
    stream.write_all(b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").await?;
    Ok(read_to_end(stream).await)
}

#[tokio::test]
async fn the_name_in_the_tls_handshake_must_be_that_of_the_target() {
    let harness = start(&["a.example", "b.example", "a.example:8443", "10.0.0.5:8443"]).await;
    let answer = request_with_name(&harness, ("a.example:443", Some("a.example"))).await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
    assert_eq!(harness.refusals(), "");
    for (target, name, reason) in [
        ("a.example:443", Some("b.example"), "is for another host, `b.example`"),
        ("a.example:443", None, "contains no name"),
        ("a.example:8443", Some("b.example"), "is for another host"),
        ("a.example:8443", None, "contains no name"),
        ("10.0.0.5:8443", Some("a.example"), "is for another host"),
    ] {
        let result = request_with_name(&harness, (target, name)).await;
        assert!(result.is_err(), "{target} {name:?} {result:?}");
        let refusals = harness.refusals();
        assert!(refusals.contains(reason) && refusals.contains(target), "{refusals}");
    }
    // An address needs no name.
    let answer = request_with_name(&harness, ("10.0.0.5:8443", None)).await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
    assert_eq!(harness.refusals(), "");
}

#[tokio::test]
async fn the_name_is_checked_for_hosts_of_secrets_as_well() {
    let harness = start_with(&["a.example", "b.example"], |options, _| {
        options.secrets = vec![secret("TOKEN", "secret-value", &["a.example"])];
    })
    .await;
    let result = request_with_name(&harness, ("a.example:443", Some("b.example"))).await;
    assert!(result.is_err(), "{result:?}");
    assert!(harness.refusals().contains("is for another host, `b.example`"));
    assert_eq!(harness.log(), Vec::<String>::new());
}

#[tokio::test]
async fn port_443_is_for_tls_only() {
    let harness = start(&["a.example"]).await;
    let mut stream = harness.connect_to("a.example:443").await;
    stream.write_all(b"GET / HTTP/1.1\r\nHost: evil.example\r\n\r\n").await.unwrap();
    assert_eq!(read_to_end(stream).await, "");
    assert!(harness.refusals().contains("it is not TLS"));
}

#[tokio::test]
async fn malformed_handshakes_end_the_connection() {
    let harness = start(&["a.example"]).await;
    let start_of_record = [0x16, 3, 1, 0xff, 0xff];
    for bytes in [&[0x16, 3, 1, 0, 4, 1, 0, 0, 0][..], &[0x16, 0, 0, 0, 0], &start_of_record] {
        let mut stream = harness.connect_to("a.example:443").await;
        stream.write_all(bytes).await.unwrap();
        // More than the longest handshake. The proxy may close the connection before it is sent.
        _ = stream.write_all(&[0; 70_000]).await;
        assert_eq!(read_to_end(stream).await, "");
    }
}

#[tokio::test]
async fn other_protocols_pass_at_their_listed_ports() {
    let (server, _task) = Harness::line_server().await;
    let harness = start_with(&["a.example:22"], |_, upstream| {
        upstream.ports.insert(22, server);
    })
    .await;
    let mut stream = BufReader::new(harness.connect_to("a.example:22").await);
    let mut line = String::new();
    stream.read_line(&mut line).await.unwrap();
    assert_eq!(line, "hello\n", "the server sends first");
    stream.write_all(b"SSH-2.0\n").await.unwrap();
    stream.shutdown().await.unwrap();
    assert_eq!(read_to_end(stream).await, "SSH-2.0\n");
}

/// Sends a SOCKS5 request and returns the code of the reply.
async fn socks_reply(harness: &Harness, request: &[u8]) -> u8 {
    let mut stream = harness.connect().await;
    stream.write_all(&[5, 2, 1, 0]).await.unwrap();
    let mut method = [0; 2];
    stream.read_exact(&mut method).await.unwrap();
    assert_eq!(method, [5, 0]);
    stream.write_all(request).await.unwrap();
    let mut reply = [0; 10];
    stream.read_exact(&mut reply).await.unwrap();
    reply[1]
}

#[tokio::test]
async fn socks_replies_name_the_kind_of_failure() {
    let harness = start(&["a.example", "a.example:9999", "10.0.0.5:8080"]).await;
    let name = |name: &str, port: u16| {
        let mut request = vec![5, 1, 0, 3, name.len() as u8];
        request.extend(name.as_bytes());
        request.extend(port.to_be_bytes());
        request
    };
    for (request, reply) in [
        (name("a.example", 443), 0),
        (name("evil.example", 443), 2),
        (name("a.example", 22), 2),
        (name("127.0.0.1", 8080), 2),
        (name("10.0.0.5", 8080), 0),
        (name("a.example", 9999), 4),
        (name("a b", 443), 1),
        (name("", 443), 1),
        (vec![5, 1, 0, 1, 10, 0, 0, 5, 0x1f, 0x90], 0),
        (vec![5, 1, 0, 1, 127, 0, 0, 1, 0x1f, 0x90], 2),
        ([&[5, 1, 0, 4][..], &[0; 15], &[1, 0x1f, 0x90]].concat(), 2),
        (vec![5, 2, 0, 1, 10, 0, 0, 5, 0x1f, 0x90], 7),
        (vec![5, 3, 0, 1, 10, 0, 0, 5, 0x1f, 0x90], 7),
        (vec![5, 1, 0, 9], 8),
    ] {
        assert_eq!(socks_reply(&harness, &request).await, reply, "{request:?}");
    }
    assert_eq!(harness.send(&[5, 1, 2]).await.as_bytes().first(), Some(&5), "only passwords");
}
