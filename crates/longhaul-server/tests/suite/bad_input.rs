//! Invalid requests: each gets the right error or a closed connection, and the server keeps
//! working.

use serde_json::{Value, json};

use crate::suite::harness::client::{TestConnection, get, parse_response, post, request};
use crate::suite::harness::{TestServer, server_with, task};

/// Sends bytes on a new connection and returns the statuses of all responses. The list is empty
/// if the connection was closed without one.
async fn send_raw(server: &TestServer, bytes: &[u8]) -> Vec<u16> {
    let mut connection = TestConnection::connect(server.address).await;
    connection.send(bytes).await;
    connection.close().await;
    let received = connection.read_all().await;
    let text = String::from_utf8_lossy(&received);
    text.split("HTTP/1.1 ")
        .chain(text.split("HTTP/1.0 "))
        .filter_map(|part| part.get(..3)?.parse().ok())
        .collect()
}

/// Returns a request head with these additional lines.
fn request_head(server: &TestServer, first: &str, lines: &str) -> Vec<u8> {
    let (host, key) = (server.host(), &server.key);
    format!("{first}\r\nhost: {host}\r\nauthorization: Bearer {key}\r\n{lines}\r\n").into_bytes()
}

/// Problems of bodies name fields and JSON types, and no types of the program.
#[tokio::test]
async fn problems_of_bodies_are_in_plain_words() {
    let server = server_with([]).open().await;
    let chain = |steps: Value| json!({ "chain": { "steps": steps }, "input": "x" });
    let body_with_step =
        |field: &str, value: Value| chain(json!([{ "agent": "tester", field: value }]));
    let task = |field: &str, value: Value| json!({ "agent": "tester", "input": "x", field: value });
    let runs = "/v1/runs";
    for (path, body, field, expected) in [
        (runs, json!({ "chain": 3, "input": "x" }), "`chain`", "a string or an object"),
        (runs, json!({ "chain": ["x"], "input": "x" }), "`chain`", "a string or an object"),
        (runs, json!({ "chain": {}, "input": "x" }), "`chain`", "missing field `steps`"),
        (runs, chain(json!("x")), "`chain.steps`", "expected an array"),
        (runs, chain(json!([3])), "`chain.steps[0]`", "expected an object"),
        (runs, body_with_step("repeat", json!(3)), "`chain.steps[0].repeat`", "expected an object"),
        (runs, body_with_step("agnet", json!(3)), "`chain.steps[0].agnet`", "unknown field"),
        (
            runs,
            body_with_step("condition", json!("never")),
            "`chain.steps[0].condition`",
            "`on_success`",
        ),
        (runs, task("budget", json!("much")), "`budget`", "expected an object"),
        (runs, task("priority", json!("high")), "`priority`", "expected a whole number"),
        (runs, task("agent", json!({})), "`agent`", "invalid type: object, expected a string"),
        ("/v1/runs/batch", json!({ "runs": {} }), "`runs`", "expected an array"),
        ("/v1/runs/batch", json!({ "runs": [3] }), "`runs[0]`", "expected an object"),
        ("/v1/schedules", json!({ "name": [] }), "`name`", "invalid type: array"),
        ("/v1/schedules", json!({ "every_ms": -1 }), "`every_ms`", "0 or more"),
    ] {
        let refused = server.send(post(path, &body)).await;
        assert_eq!(refused.status, 422, "{body}");
        let detail = refused.json()["detail"].as_str().unwrap().to_owned();
        assert!(detail.contains(field) && detail.contains(expected), "{body}: {detail}");
        for name in ["struct", "enum", "sequence", " map", "u64", "i32"] {
            assert!(!detail.contains(name), "{body}: {detail}");
        }
    }
}

#[tokio::test]
async fn invalid_task_bodies_are_rejected() {
    let server = server_with([]).open().await;
    let deep_arrays = "[".repeat(10_000);
    let closed_arrays =
        format!("{{\"agent\":\"tester\",\"input\":{}{}}}", "[".repeat(10_000), "]".repeat(10_000));
    let deep_objects = "{\"a\":".repeat(10_000);
    let cases: [(&[u8], u16, &str); 14] = [
        (b"", 400, "invalid_json"),
        (b"{", 400, "invalid_json"),
        (b"{\"agent\":}", 400, "invalid_json"),
        (b"{'agent':'x'}", 400, "invalid_json"),
        (b"nul", 400, "invalid_json"),
        (b"{} {}", 400, "invalid_json"),
        (b"\xff\xfe\x00", 400, "invalid_json"),
        (b"{\"agent\":\"\xc3\x28\"}", 400, "invalid_json"),
        (b"{\"agent\":\"\\ud800\"}", 422, "invalid"),
        (b"\xef\xbb\xbf{}", 400, "invalid_json"),
        (b"{\"agent\":\"a\",\"agent\":\"b\"}", 422, "invalid"),
        (deep_arrays.as_bytes(), 400, "too_deep"),
        (closed_arrays.as_bytes(), 400, "too_deep"),
        (deep_objects.as_bytes(), 400, "too_deep"),
    ];
    for (body, status, code) in cases {
        for once in [false, true] {
            let mut http_request = request("POST", "/v1/runs").body("application/json", body);
            if once {
                http_request = http_request.idempotency_key("k");
            }
            let answer = server.send(http_request).await;
            let label = format!("{:?}", String::from_utf8_lossy(&body[..body.len().min(40)]));
            assert_eq!((answer.status, &*answer.problem()), (status, code), "{label}");
        }
    }
    for (kind, status) in [
        ("application/json", 201),
        ("Application/JSON; charset=utf-8", 201),
        ("text/json", 415),
        ("application/jsonx", 415),
        ("multipart/form-data; boundary=x", 415),
        ("", 415),
    ] {
        let http_request = request("POST", "/v1/runs").body(kind, task().to_string());
        assert_eq!(server.send(http_request).await.status, status, "{kind}");
    }
    server.assert_healthy().await;
}

#[tokio::test]
async fn a_body_that_is_too_large_is_refused_however_it_comes() {
    let server = server_with([]).open().await;
    let big_body = format!("{{\"agent\":\"tester\",\"input\":\"{}\"}}", "x".repeat(10 << 20));
    let json = "content-type: application/json\r\n";
    let length = format!("{json}content-length: {}\r\n", big_body.len());
    let with_length =
        [request_head(&server, "POST /v1/runs HTTP/1.1", &length), big_body.clone().into_bytes()]
            .concat();
    let chunk = format!("{:x}\r\n{big_body}\r\n0\r\n\r\n", big_body.len());
    let lines = format!("{json}transfer-encoding: chunked\r\n");
    let chunked =
        [request_head(&server, "POST /v1/runs HTTP/1.1", &lines), chunk.into_bytes()].concat();
    // A client that announces the size is rejected before it sends the body.
    let head_only = [request_head(&server, "POST /v1/runs HTTP/1.1", &length), Vec::new()].concat();
    for (bytes, must_respond) in [(head_only, true), (with_length, false), (chunked, false)] {
        let connection = TestConnection::connect(server.address).await;
        match connection.send_slowly(bytes).await {
            Some(answer) => assert_eq!(answer.status, 413, "{}", answer.text()),
            // Bytes in flight may have reset the connection before the response was read.
            None => assert!(!must_respond),
        }
    }
    server.assert_healthy().await;
}

#[tokio::test]
async fn too_large_request_heads_are_rejected() {
    let server = server_with([]).open().await;
    let many_headers: String = (0..1_000).map(|n| format!("x-{n}: y\r\n")).collect();
    let fat_header = format!("x-fat: {}\r\n", "y".repeat(100 * 1024));
    let pairs = "a=1&".repeat(1_000_000);
    let many_params = "limit=1&".repeat(65);
    let long_param = format!("lane={}", "y".repeat(9 * 1024));
    let get = "GET /v1/runs HTTP/1.1".to_owned();
    for (first, lines, expected) in [
        (get.clone(), many_headers.as_str(), 431),
        (get, fat_header.as_str(), 431),
        (format!("GET /v1/runs?{pairs} HTTP/1.1"), "", 431),
        (format!("GET /v1/runs?{many_params} HTTP/1.1"), "", 400),
        (format!("GET /v1/runs?{long_param} HTTP/1.1"), "", 400),
        (format!("GET /{} HTTP/1.1", "y".repeat(20_000)), "", 404),
        (format!("GET /v1/runs/{} HTTP/1.1", "y".repeat(20_000)), "", 404),
        (format!("GET /a/{} HTTP/1.1", "y".repeat(20_000)), "", 404),
    ] {
        let lines = format!("{lines}connection: close\r\n");
        let connection = TestConnection::connect(server.address).await;
        let answer = connection.send_slowly(request_head(&server, &first, &lines)).await;
        let status = answer.map(|answer| answer.status);
        let first_line = &first[..first.len().min(60)];
        assert!(
            status == Some(expected) || (expected == 431 && matches!(status, None | Some(414))),
            "{first_line} {status:?}"
        );
    }
    server.assert_healthy().await;
}

/// Sends a request and asserts that the response has one of these statuses, or that the
/// connection was closed.
async fn check(
    server: &TestServer,
    first_line: &str,
    lines_and_body: (&str, &str),
    expected: &[u16],
) {
    let (lines, body) = lines_and_body;
    let lines = format!("{lines}connection: close\r\n");
    let bytes = [request_head(server, first_line, &lines), body.as_bytes().to_vec()].concat();
    let statuses = send_raw(server, &bytes).await;
    let is_expected = match statuses.as_slice() {
        [] => !expected.contains(&200),
        [one] => expected.contains(one),
        [_, _, ..] => false,
    };
    assert!(is_expected, "{first_line} {lines:?}: {statuses:?}");
}

#[tokio::test]
async fn ambiguous_bodies_are_rejected() {
    let server = server_with([]).open().await;
    let body = task().to_string();
    let length = body.len();
    let chunk = format!("{length:x}\r\n{body}\r\n0\r\n\r\n");
    let wrong_length = length + 1;
    let chunked = "transfer-encoding: chunked";
    for (lines, body) in [
        (format!("content-length: {length}\r\ncontent-length: {wrong_length}"), body.as_str()),
        (format!("content-length: +{length}"), &body),
        (format!("content-length: {length}, {length}x"), &body),
        ("content-length: -1".into(), &body),
        ("transfer-encoding: gzip".into(), &body),
        (format!("{chunked}, identity"), &chunk),
        (chunked.into(), "xyz\r\n"),
        (chunked.into(), "ffffffffffffffffff\r\n"),
    ] {
        let lines = format!("content-type: application/json\r\n{lines}\r\n");
        check(&server, "POST /v1/runs HTTP/1.1", (&lines, body), &[400]).await;
    }
    // If both headers are present, only the chunked encoding counts.
    let both_headers =
        format!("content-type: application/json\r\ncontent-length: 5\r\n{chunked}\r\n");
    check(&server, "POST /v1/runs HTTP/1.1", (&both_headers, &chunk), &[201, 400]).await;
    server.assert_healthy().await;
}

#[tokio::test]
async fn ambiguous_request_heads_are_rejected() {
    let server = server_with([]).open().await;
    let two_hosts = format!("host: {}\r\n", server.host());
    for lines in [
        two_hosts.as_str(),
        "x-a: b\r\n c: d\r\n",
        "x a: b\r\n",
        "x-a : b\r\n",
        "x-a: b\0c\r\n",
        ": b\r\n",
    ] {
        check(&server, "GET /v1/runs HTTP/1.1", (lines, ""), &[400]).await;
    }
    let own_url_line = format!("GET http://{}/v1/runs HTTP/1.1", server.host());
    let cases: [(&str, &[u16]); 8] = [
        ("GET /v1/ru\0ns HTTP/1.1", &[400]),
        ("GET /v1/runs HTTP/9.9", &[400, 505]),
        ("GET /v1/runs x HTTP/1.1", &[400]),
        ("get", &[400]),
        ("PRI * HTTP/2.0", &[400, 505]),
        ("GET http://evil.example/v1/runs HTTP/1.1", &[421]),
        ("CONNECT evil.example:443 HTTP/1.1", &[400, 404, 405, 421]),
        (&own_url_line, &[200]),
    ];
    for (first, expected) in cases {
        check(&server, first, ("", ""), expected).await;
    }
    server.assert_healthy().await;
}

#[tokio::test]
async fn garbage_and_incomplete_requests_close_the_connection() {
    let server = server_with([]).open().await;
    let random_bytes: Vec<u8> = (0_u32..4_096).map(|n| (n * 7 % 251) as u8).collect();
    let tls = b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03".repeat(20);
    let partial_request = request_head(
        &server,
        "POST /v1/runs HTTP/1.1",
        "content-type: application/json\r\ncontent-length: 100\r\n",
    );
    let partial_request = [partial_request, b"{\"agent\":".to_vec()].concat();
    for bytes in [
        &b"\r\n\r\n\r\n"[..],
        b"GET",
        b"GET / HTTP/1.1\r\nhost:",
        &random_bytes,
        &tls,
        &partial_request,
        b"\0\0\0\0",
    ] {
        let statuses = send_raw(&server, bytes).await;
        assert!(statuses.iter().all(|status| *status == 400), "{statuses:?}");
    }
    // A connection without any data.
    assert_eq!(send_raw(&server, b"").await, Vec::<u16>::new());
    // HTTP/1.0 does not require a Host header, but this server does.
    assert_eq!(send_raw(&server, b"GET /livez HTTP/1.0\r\n\r\n").await, [400]);
    assert_eq!(send_raw(&server, b"GET /livez HTTP/1.0\r\nhost: localhost\r\n\r\n").await, [200]);
    server.assert_healthy().await;
}

#[tokio::test]
async fn a_half_closed_connection_gets_its_response_and_pipelining_keeps_order() {
    let server = server_with([]).open().await;
    let host = server.host();
    let get_bytes = |path: &str| get(path).without_key().bytes(&host, "");
    let submit = post("/v1/runs", &task()).bytes(&host, &server.key);
    let bytes = [
        get_bytes("/livez"),
        submit,
        get_bytes("/version"),
        get_bytes("/v1/runs"),
        get_bytes("/livez"),
    ]
    .concat();
    let mut connection = TestConnection::connect(server.address).await;
    connection.send(&bytes).await;
    let mut statuses = Vec::new();
    for _ in 0..5 {
        statuses.push(connection.read_response().await.unwrap().status);
    }
    assert_eq!(statuses, [200, 201, 200, 401, 200]);
    // A body that looks like another request is not treated as one.
    let hidden_request = get_bytes("/livez");
    let http_request = request("POST", "/v1/runs")
        .body("application/json", hidden_request)
        .bytes(&host, &server.key);
    connection.send(&[http_request, get_bytes("/version")].concat()).await;
    assert_eq!(connection.read_response().await.unwrap().status, 400);
    let next_response = connection.read_response().await;
    assert!(next_response.is_none_or(|next_response| next_response.json()["name"] == "longhaul"));
    // Sending byte by byte is slow but allowed.
    let mut connection = TestConnection::connect(server.address).await;
    for byte in get_bytes("/livez") {
        connection.send(&[byte]).await;
        tokio::task::yield_now().await;
    }
    assert_eq!(connection.read_response().await.unwrap().status, 200);
}

#[tokio::test]
async fn invalid_ids_are_rejected() {
    let server = server_with([]).open().await;
    let run = server.submit().await;
    for (path, expected) in [
        ("/v1/runs/%2e%2e%2fkeys", 404),
        ("/v1/runs/../keys", 404),
        ("/v1/runs/..%2f..%2fetc%2fpasswd", 404),
        ("/v1/runs/%00", 404),
        ("/v1/runs/%0d%0aset-cookie:%20a=b", 404),
        ("/v1/runs/%ff%fe", 400),
        ("/v1/runs/%zz", 404),
        ("/v1/runs/%", 404),
        ("/v1/gates/%2e%2e", 404),
        ("/v1/agents/..%2f..%2fx", 404),
        ("/v1/agents/%3Cscript%3E", 404),
        ("/v1/runs/run_0000000000000000000000000!", 404),
        ("/v1/runs?after=../x", 422),
        ("/v1/runs?lane=%00", 422),
        ("/%2e%2e/%2e%2e/etc/passwd", 404),
        ("/style.css/../v1/keys", 404),
        ("/a/%2e%2e%2fv1%2fkeys", 404),
    ] {
        let answer = server.send(get(path)).await;
        assert_eq!(answer.status, expected, "{path} {}", answer.text());
        assert_eq!(answer.header("set-cookie"), None);
        let text = answer.text();
        assert!(!text.contains('\0'), "{text}");
    }
    let uppercase_id = run.to_uppercase();
    for id in [&run[..run.len() - 1], &format!("{run}0"), &uppercase_id, &run[4..]] {
        let answer = server.send(get(format!("/v1/runs/{id}"))).await;
        assert_eq!(answer.status, 404, "{id}");
    }
    server.assert_healthy().await;
}

#[tokio::test]
async fn a_missing_body_times_out() {
    use longhaul_core::time::Millis;
    let server = server_with([]).with_sim_clock().open().await;
    let lines = "content-type: application/json\r\ncontent-length: 100\r\nexpect: 100-continue\r\n";
    let mut connection = TestConnection::connect(server.address).await;
    connection.send(&request_head(&server, "POST /v1/runs HTTP/1.1", lines)).await;
    // The server sends `100 Continue`, so it waits for the body.
    assert_eq!(connection.read_head().await.unwrap().status, 100);
    server.clock().advance(Millis::from_secs(20));
    let answer = connection.read_response().await.unwrap();
    assert_eq!((answer.status, &*answer.problem()), (408, "body_timeout"));
    server.assert_healthy().await;
}

#[test]
fn the_test_client_parses_responses() {
    let answer = parse_response(b"HTTP/1.1 200 OK\r\nA: b\r\n\r\n{}").unwrap();
    assert_eq!((answer.status, answer.header("a")), (200, Some("b")));
    assert_eq!(answer.json(), Value::Object(serde_json::Map::new()));
}
