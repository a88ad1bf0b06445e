//! The guarded client over real sockets: forbidden addresses, headers dropped on redirects, and
//! limits of responses.

use std::sync::Arc;

use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpListener;

use longhaul_core::port::outbound::{
    NetworkScope, OutboundError, OutboundHttpClient as _, OutboundRequest, OutboundResponse,
};
use longhaul_core::time::{Clock, Millis};
use longhaul_testkit::clock::SimClock;
use longhaul_tool::outbound::{Allowlist, GuardedHttpClient};

use crate::suite::harness::{
    FakeResolver, Server, guarded_client, http_response, read_request, shared_client,
};

fn request(method: &str, url: &str) -> OutboundRequest {
    OutboundRequest {
        method: method.into(),
        url: url.into(),
        headers: Vec::new(),
        body: Vec::new(),
        timeout: Millis::from_secs(30),
        bytes_max: 1_000_000,
        network_scope: NetworkScope::Public,
    }
}

async fn get(client: &GuardedHttpClient, url: &str) -> Result<OutboundResponse, OutboundError> {
    client.send(request("GET", url)).await
}

fn allowlist(allow: &[&str]) -> Allowlist {
    Allowlist::new(allow.iter().copied(), false).unwrap()
}

fn clock() -> Arc<dyn Clock> {
    Arc::new(SimClock::new())
}

#[tokio::test]
async fn private_addresses_are_not_requested_in_any_notation() {
    let client = GuardedHttpClient::new(Allowlist::default(), clock());
    for url in [
        "http://127.0.0.1/",
        "http://127.1/",
        "http://2130706433/",
        "http://0x7f000001/",
        "http://0x7f.1/",
        "http://0177.0.0.1/",
        "http://127.0.0.1./",
        "http://①②⑦.0.0.1/",
        "http://0/",
        "http://[::1]/",
        "http://[::]/",
        "http://[::ffff:127.0.0.1]/",
        "http://[::ffff:7f00:1]/",
        "http://[64:ff9b::7f00:1]/",
        "http://[2002:7f00:1::]/",
        "http://[fe80::1]/",
        "http://[fe80::1%25eth0]/",
        "http://[fd00:ec2::254]/",
        "http://169.254.169.254/latest/meta-data",
        "http://100.64.0.1/",
        "http://255.255.255.255/",
        "http://localhost/",
        "http://LOCALHOST./",
        "http://a.localhost/",
        "http://8.8.8.8:22/",
        "http://8.8.8.8:0/",
        "http://me:pw@8.8.8.8/",
        "http://me@8.8.8.8/",
        "http:///",
        "http://./",
        "https://",
        "ftp://8.8.8.8/",
        "file:///etc/passwd",
        "gopher://127.0.0.1:70/_x",
        "javascript:alert(1)",
        "data:text/plain,x",
        "//8.8.8.8/",
        "nonsense",
        "",
    ] {
        let result = get(&client, url).await;
        assert!(matches!(result, Err(OutboundError::Forbidden { .. })), "{url}: {result:?}");
        assert!(!result.unwrap_err().to_string().contains("pw"), "{url}");
    }
}

#[tokio::test]
async fn a_name_that_resolves_to_a_private_address_is_not_requested() {
    let server = Server::with_response(http_response("200 OK", &[], "inside")).await;
    let resolver = FakeResolver::new(&[
        ("a.example", &["127.0.0.1"]),
        ("b.example", &["10.0.0.1", "::1", "169.254.169.254", "::ffff:127.0.0.1"]),
        ("none.example", &[]),
    ]);
    let rule = format!("*:{}", server.port);
    let client = GuardedHttpClient::with_resolver(allowlist(&[&rule]), clock(), resolver.clone());
    for name in ["a.example", "b.example"] {
        let result = get(&client, &format!("http://{name}:{}/x", server.port)).await;
        assert!(matches!(result, Err(OutboundError::Forbidden { .. })), "{result:?}");
    }
    for name in ["none.example", "lost.example"] {
        let result = get(&client, &format!("http://{name}/")).await;
        assert!(matches!(result, Err(OutboundError::Failed { .. })), "{result:?}");
    }
    assert_eq!(server.requests().len(), 0);
    // One lookup per request, so that there is no second one that could give another result.
    assert_eq!(resolver.lookups(), 4);
}

#[tokio::test]
async fn allow_rules_and_private_reach_open_private_addresses() {
    let server = Server::with_response(http_response("200 OK", &[("x-a", "b")], "inside")).await;
    let resolver = FakeResolver::new(&[("a.example", &["169.254.1.1", "127.0.0.1"])]);
    let port = server.port;
    let name_url = format!("http://a.example:{port}/");
    let address_url = format!("http://127.0.0.1:{port}/");
    let rules = [format!("a.example:{port}"), format!("127.0.0.1:{port}")];
    let rules: Vec<&str> = rules.iter().map(String::as_str).collect();
    let open_client =
        GuardedHttpClient::with_resolver(allowlist(&rules), clock(), resolver.clone());
    for url in [&name_url, &address_url] {
        let response = get(&open_client, url).await.unwrap();
        assert_eq!((response.status, response.body.as_slice()), (200, &b"inside"[..]));
        assert!(response.headers.contains(&("x-a".into(), "b".into())));
    }
    assert_eq!(resolver.lookups(), 1);
    let all = Allowlist::new([], true).unwrap();
    let all = GuardedHttpClient::with_resolver(all, clock(), resolver.clone());
    assert!(get(&all, &name_url).await.is_ok());
    let result = get(&all, "http://169.254.169.254/").await;
    assert!(matches!(result, Err(OutboundError::Forbidden { .. })), "{result:?}");

    let closed_client = GuardedHttpClient::with_resolver(Allowlist::default(), clock(), resolver);
    for url in [&name_url, &address_url] {
        assert!(get(&closed_client, url).await.is_err());
        let mut local_request = request("GET", url);
        local_request.network_scope = NetworkScope::Private;
        assert_eq!(closed_client.send(local_request).await.unwrap().status, 200);
    }
    assert_eq!(server.requests().len(), 5);
}

#[tokio::test]
async fn redirects_are_limited_and_each_is_checked() {
    let server = Server::new(|request| {
        let to = match request.path.as_str() {
            "/inside" => "http://127.0.0.1/".to_owned(),
            "/name" => "http://inside.example/".to_owned(),
            "/meta" => "http://169.254.169.254/latest".to_owned(),
            "/file" => "file:///etc/passwd".to_owned(),
            "/0" => return http_response("200 OK", &[], "here"),
            "/bare" => return http_response("302 Found", &[], "no word where"),
            path => format!("/{}", path[1..].parse::<u32>().unwrap() - 1),
        };
        http_response("302 Found", &[("location", &to)], "")
    })
    .await;
    let client = shared_client();
    assert_eq!(get(&client, &server.url("/5")).await.unwrap().body, b"here");
    assert_eq!(get(&client, &server.url("/bare")).await.unwrap().status, 302);
    let error = get(&client, &server.url("/6")).await.unwrap_err().to_string();
    assert!(error.contains("more than 5 times"), "{error}");
    for path in ["/inside", "/name", "/meta", "/file"] {
        let error = get(&client, &server.url(path)).await;
        assert!(matches!(error, Err(OutboundError::Forbidden { .. })), "{path}: {error:?}");
    }
}

#[tokio::test]
async fn headers_for_one_server_are_not_sent_to_another() {
    let second_server = Server::with_response(http_response("200 OK", &[], "far")).await;
    let location = second_server.url("/landed");
    let first_server =
        Server::with_response(http_response("302 Found", &[("location", &location)], "")).await;
    let client = shared_client();
    let mut post_request = request("POST", &first_server.url("/"));
    post_request.headers = vec![
        ("Authorization".into(), "Bearer hush".into()),
        ("Cookie".into(), "hush".into()),
        ("X-Key".into(), "hush".into()),
    ];
    post_request.body = b"words".to_vec();
    assert_eq!(client.send(post_request).await.unwrap().body, b"far");
    let (first, second) = (&first_server.requests()[0], &second_server.requests()[0]);
    assert_eq!((first.method.as_str(), first.body.as_slice()), ("POST", &b"words"[..]));
    assert_eq!(first.header("x-key"), Some("hush"));
    assert_eq!(first.header("accept-encoding"), Some("identity"));
    assert_eq!((second.method.as_str(), second.body.len()), ("GET", 0));
    assert!(!format!("{second:?}").contains("hush"), "{second:?}");
    assert_eq!(second.header("referer"), None);
}

#[tokio::test]
async fn responses_are_limited() {
    let chunked = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\nconnection: close\r\n\r\n";
    let chunked = format!("{chunked}{}0\r\n\r\n", "5\r\nabcde\r\n".repeat(3));
    let gzip = [("content-encoding", "gzip")];
    let identity = [("content-encoding", "identity")];
    for (answer, bytes_max, expected) in [
        (http_response("200 OK", &[], "x".repeat(10)), 10, ""),
        (http_response("200 OK", &[], "x".repeat(11)), 10, "longer than 10 bytes"),
        (chunked.clone().into_bytes(), 15, ""),
        (chunked.into_bytes(), 14, "longer than 14 bytes"),
        (http_response("200 OK", &identity, "x"), 10, ""),
        (http_response("200 OK", &gzip, "x"), 10, "content encoding `gzip`"),
        (http_response("304 Not Modified", &gzip, ""), 10, ""),
        (b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nabc".to_vec(), 10, "did not answer"),
        (b"SSH-2.0-OpenSSH_9.6\r\n".to_vec(), 10, "did not answer"),
        (b"".to_vec(), 10, "did not answer"),
    ] {
        let response_text = String::from_utf8_lossy(&answer).into_owned();
        let server = Server::with_response(answer).await;
        let mut request = request("GET", &server.url("/hidden?key=hush"));
        request.bytes_max = bytes_max;
        let message = shared_client().send(request).await;
        let message = message.map_or_else(|error| error.to_string(), |_| String::new());
        assert!(
            message.contains(expected) && message.is_empty() == expected.is_empty(),
            "{response_text}: {message}"
        );
        assert!(!message.contains("hush") && !message.contains("hidden"), "{message}");
    }
}

#[tokio::test]
async fn a_dripping_server_times_out() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://site.example:{}/", listener.local_addr().unwrap().port());
    let clock = SimClock::new();
    let client = guarded_client(&clock);
    let mut long_request = request("GET", &url);
    // A timeout above the maximum is reduced to the maximum.
    long_request.timeout = Millis::from_secs(600);
    let drip = async {
        let (mut stream, _) = listener.accept().await.unwrap();
        read_request(&mut stream).await.unwrap();
        stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 99\r\n\r\n").await.unwrap();
        for _ in 0..3 {
            stream.write_all(b"x").await.unwrap();
            clock.advance(Millis::from_secs(10));
        }
        std::future::pending::<()>().await;
    };
    let error = tokio::select! {
        error = client.send(long_request) => error.unwrap_err().to_string(),
        () = drip => unreachable!(),
    };
    assert!(error.contains("no complete response within 30s"), "{error}");
}

#[tokio::test]
async fn a_refused_connection_is_reported() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    drop(listener);
    let client = shared_client();
    let error = get(&client, &format!("http://site.example:{port}/?key=hush")).await;
    let error = error.unwrap_err().to_string();
    assert!(error.contains("connection failed") && !error.contains("hush"), "{error}");
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let plain_answer = async {
        let (mut stream, _) = listener.accept().await.unwrap();
        let error = b"HTTP/1.1 400 Bad Request\r\n\r\n";
        stream.write_all(error).await.unwrap();
    };
    let url = format!("https://site.example:{port}/");
    let (error, ()) = tokio::join!(get(&client, &url), plain_answer);
    assert!(matches!(error, Err(OutboundError::Failed { .. })), "{error:?}");
}
