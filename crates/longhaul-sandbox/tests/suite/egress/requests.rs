//! Tests of HTTP requests through the proxy.

use std::net::{IpAddr, Ipv4Addr};

use super::harness::{LARGE_BYTES, PUBLIC, start, start_with};

#[tokio::test]
async fn curl_reaches_a_listed_host() {
    let harness = start(&["a.example"]).await;
    for url in ["http://a.example/x?y=1", "https://a.example/x?y=1"] {
        let output = harness.curl(&[url]).await;
        assert!(output.stdout.starts_with("GET /x?y=1\n"), "{output:?}");
        assert!(output.stdout.contains("host: a.example\n"), "{output:?}");
        assert!(!output.stdout.contains("proxy-connection"), "{output:?}");
    }
    let socks = format!("socks5h://127.0.0.1:{}", harness.port);
    for url in ["http://a.example/", "https://a.example/"] {
        let output = harness.curl(&["--proxy", &socks, url]).await;
        assert!(output.stdout.starts_with("GET /\n"), "{output:?}");
    }
    assert_eq!(harness.refusals(), "");
}

#[tokio::test]
async fn several_requests_of_one_connection_reach_their_hosts() {
    let harness = start(&["a.example", "b.example"]).await;
    let urls = ["http://a.example/1", "http://a.example/2", "http://b.example/3"];
    let output = harness.curl(&urls).await;
    for (path, host) in [("/1", "a"), ("/2", "a"), ("/3", "b")] {
        let expected = format!("GET {path}\nhost: {host}.example\n");
        assert!(output.stdout.contains(&expected), "{output:?}");
    }
    let connects = harness.log().iter().filter(|entry| entry.starts_with("93.")).count();
    assert_eq!(connects, 2, "{:?}", harness.log());
}

#[tokio::test]
async fn large_bodies_pass_in_both_directions() {
    let harness = start(&["a.example"]).await;
    let file = harness.dir.path().join("body");
    std::fs::write(&file, vec![b'y'; 3 * 1024 * 1024]).unwrap();
    let data = format!("@{}", file.display());
    for url in ["http://a.example", "https://a.example"] {
        let output = harness.curl(&[&format!("{url}/large")]).await;
        assert_eq!(output.stdout.len(), LARGE_BYTES, "{url} {}", output.stderr);
        let output = harness.curl(&["--data-binary", &data, url]).await;
        let (_, body) = output.stdout.split_once("\n\n").unwrap();
        assert_eq!(body.len(), 3 * 1024 * 1024, "{}", output.stderr);
    }
}

#[tokio::test]
async fn a_host_that_is_not_listed_is_refused_and_never_resolved() {
    let harness = start(&["a.example"]).await;
    let output = harness.curl(&["--write-out", "%{http_code}", "http://data.evil.example/"]).await;
    let expected = "The sandbox refused the connection to `data.evil.example:80`: the host is not \
                    in the list of hosts. The owner of the agent can allow it with `sandbox: { \
                    network: [\"data.evil.example\"] }` in the agent's file.";
    assert_eq!(output.stdout, format!("{expected}\n403"));
    assert_eq!(harness.refusals(), expected);
    assert_eq!(harness.refusals(), "", "refusals are taken once");
    let output = harness.curl(&["https://evil.example:8443/"]).await;
    assert_eq!(output.exit, Some(56), "{output:?}");
    assert!(harness.refusals().contains("network: [\"evil.example:8443\"]"));
    let socks = format!("socks5h://127.0.0.1:{}", harness.port);
    let output = harness.curl(&["--proxy", &socks, "https://evil.example/"]).await;
    assert_eq!(output.exit, Some(97), "{output:?}");
    assert!(harness.refusals().contains("`evil.example:443`"));
    assert_eq!(harness.log(), Vec::<String>::new());
}

#[tokio::test]
async fn a_port_that_is_not_listed_is_refused() {
    let harness = start(&["a.example", "b.example:8080"]).await;
    let output = harness.curl(&["http://a.example:8080/"]).await;
    assert!(output.stdout.contains("does not allow port 8080"), "{output:?}");
    let output = harness.curl(&["http://b.example:8080/"]).await;
    assert!(output.stdout.contains("host: b.example:8080\n"), "{output:?}");
}

#[tokio::test]
async fn addresses_are_refused_unless_they_are_listed() {
    let harness = start(&["a.example", "10.0.0.5:8080"]).await;
    for url in ["http://93.184.216.34/", "http://127.0.0.1:8081/", "http://[::1]:8080/"] {
        let output = harness.curl(&["--noproxy", "", url]).await;
        assert!(output.stdout.contains("is not in the list of hosts"), "{output:?}");
    }
    let output = harness.curl(&["http://10.0.0.5:8080/"]).await;
    assert!(output.stdout.contains("host: 10.0.0.5:8080\n"), "{output:?}");
    assert_eq!(harness.log(), ["10.0.0.5:8080"]);
}

#[tokio::test]
async fn listed_localhost_is_reached_without_a_lookup() {
    let harness = start(&["localhost:8080"]).await;
    let no_proxy = harness.proxy.env(1)["no_proxy"].clone();
    assert_eq!(no_proxy, "127.0.0.1,::1", "localhost is used through the proxy");
    let output = harness.curl(&["http://localhost:8080/"]).await;
    assert!(output.stdout.contains("host: localhost:8080\n"), "{output:?}");
    assert_eq!(harness.log(), ["127.0.0.1:8080"]);
}

#[tokio::test]
async fn a_name_with_a_private_address_is_refused() {
    for address in
        ["127.0.0.1", "10.0.0.5", "169.254.169.254", "::1", "::ffff:127.0.0.1", "fd00::1"]
    {
        let address: IpAddr = address.parse().unwrap();
        // The address itself is listed, which allows no name that resolves to it.
        let harness = start_with(&["a.example", "10.0.0.5:80"], |_, upstream| {
            upstream.addresses.insert("a.example", vec![address]);
        })
        .await;
        let output = harness.curl(&["http://a.example/"]).await;
        assert!(output.stdout.contains("is private or reserved"), "{address} {output:?}");
        assert_eq!(harness.curl(&["https://a.example/"]).await.exit, Some(56));
        assert!(harness.log().iter().all(|entry| entry == "a.example"), "{:?}", harness.log());
    }
}

#[tokio::test]
async fn only_the_public_addresses_of_a_name_are_used() {
    let harness = start_with(&["a.example"], |_, upstream| {
        let addresses = vec![Ipv4Addr::LOCALHOST.into(), PUBLIC.into()];
        upstream.addresses.insert("a.example", addresses);
    })
    .await;
    let output = harness.curl(&["http://a.example/"]).await;
    assert!(output.stdout.starts_with("GET /\n"), "{output:?}");
    assert_eq!(harness.log(), ["a.example", "93.184.216.34:80"]);
}

#[tokio::test]
async fn a_host_that_does_not_answer_is_no_refusal() {
    let harness = start(&["a.example:9999"]).await;
    let output = harness.curl(&["--write-out", "%{http_code}", "http://a.example:9999/"]).await;
    assert!(output.stdout.starts_with("can't connect to `a.example:9999`: "), "{output:?}");
    assert!(output.stdout.ends_with("502"), "{output:?}");
    assert_eq!(harness.refusals(), "");
}

#[tokio::test]
async fn malformed_requests_are_answered_with_400() {
    let harness = start(&["a.example"]).await;
    for request in [
        "GET / HTTP/1.1\r\nHost: a.example\r\nConnection: close\r\n\r\n",
        "GET https://a.example/ HTTP/1.1\r\nHost: a.example\r\nConnection: close\r\n\r\n",
        "GET http://user@a.example/ HTTP/1.1\r\nHost: a.example\r\nConnection: close\r\n\r\n",
        "CONNECT a.example HTTP/1.1\r\nHost: a.example\r\nConnection: close\r\n\r\n",
        "CONNECT a.example:0 HTTP/1.1\r\nHost: a.example\r\nConnection: close\r\n\r\n",
        "GET http://a.example/ HTTP/1.1\r\nbad header\r\n\r\n",
    ] {
        let answer = harness.send(request.as_bytes()).await;
        assert!(answer.starts_with("HTTP/1.1 400 "), "{request:?} {answer}");
    }
    assert_eq!(harness.log(), Vec::<String>::new());
}

#[tokio::test]
async fn the_host_header_can_not_name_another_host() {
    let harness = start(&["a.example", "b.example"]).await;
    let request =
        "GET http://a.example/ HTTP/1.1\r\nHost: evil.example\r\nConnection: close\r\n\r\n";
    let answer = harness.send(request.as_bytes()).await;
    assert!(answer.contains("host: a.example\n"), "{answer}");
    // The same through a tunnel to the port of plain HTTP.
    let output =
        harness.curl(&["--proxytunnel", "-H", "Host: b.example", "http://a.example/"]).await;
    assert!(output.stdout.contains("contains another host"), "{output:?}");
    let output = harness.curl(&["--proxytunnel", "http://a.example/"]).await;
    assert!(output.stdout.contains("host: a.example\n"), "{output:?}");
}
