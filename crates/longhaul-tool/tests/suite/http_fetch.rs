//! `http_fetch` over real sockets: requests, output and rejections.

use serde_json::{Value, json};

use longhaul_core::id::{CallId, Epoch, RunId};
use longhaul_core::message::Part;
use longhaul_core::policy::effect::{EffectClass, InDoubtPolicy};
use longhaul_core::policy::gate::GateRule;
use longhaul_core::port::tool::{Tool, ToolContext, ToolFailure};
use longhaul_tool::HttpFetchTool;

use crate::suite::harness::{Server, http_response, shared_client};

fn tool() -> HttpFetchTool {
    HttpFetchTool::new(shared_client()).unwrap()
}

async fn fetch(input: Value) -> Result<String, String> {
    let result = fetch_result(input).await;
    result.map_err(|failure| failure.to_string())
}

async fn fetch_result(input: Value) -> Result<String, ToolFailure> {
    fetch_with_rules(input, Vec::new()).await
}

async fn fetch_with_rules(input: Value, rules: Vec<GateRule>) -> Result<String, ToolFailure> {
    let call = CallId { turn: 1, index: 1 };
    let ctx = ToolContext { rules, ..ToolContext::new(RunId::from_bits(7), call, Epoch(1)) };
    match tool().call(input, &ctx).await {
        Ok(output) => match &output.content[..] {
            [Part::Text(text)] => Ok(text.to_string()),
            other => panic!("one text, not {other:?}"),
        },
        Err(failure) => Err(failure),
    }
}

#[test]
fn http_fetch_has_effect_classes_and_rule_match_texts() {
    let tool = tool();
    assert_eq!(tool.spec().in_doubt, Some(InDoubtPolicy::Ask));
    for (input, class, match_text) in [
        (
            json!({ "url": "HTTPS://Site.example/a/../b#part" }),
            EffectClass::Pure,
            "GET https://site.example/b",
        ),
        (
            json!({ "url": "http://0x7f.1", "method": "head" }),
            EffectClass::Pure,
            "HEAD http://127.0.0.1/",
        ),
        (
            json!({ "url": "https://site.example", "method": "POST" }),
            EffectClass::Once,
            "POST https://site.example/",
        ),
        (json!({ "url": "nonsense", "method": "DELETE" }), EffectClass::Once, "DELETE nonsense"),
        (json!({ "method": 7 }), EffectClass::Pure, "GET "),
    ] {
        assert_eq!(tool.class(&input), class, "{input}");
        assert_eq!(tool.rule_match_texts(&input), [match_text], "{input}");
        assert!(!tool.are_rule_match_texts_unknown(&input), "{input}");
    }
    // The rules see what is requested, and what the server may take it for.
    let input = json!({ "url": "https://Site.example//%61dmin" });
    let texts = ["GET https://site.example//%61dmin", "GET https://site.example/admin"];
    assert_eq!(tool.rule_match_texts(&input), texts);
    assert!(tool.are_rule_match_texts_unknown(&json!({ "url": "https://site.example/%zz" })));
}

#[tokio::test]
async fn a_page_is_shown_as_text_with_its_final_url() {
    let page = "<title>News</title><nav>menu</nav><h1>Today</h1><p>Read <a href=more>more</a>.";
    let server = Server::new(move |request| match request.path.as_str() {
        "/old" => http_response("301 Moved", &[("location", "/new/")], ""),
        _ => {
            http_response("200 OK", &[("content-type", "text/html"), ("set-cookie", "hush")], page)
        }
    })
    .await;
    let output = fetch(json!({ "url": server.url("/old") })).await.unwrap();
    let expected = format!(
        "HTTP 200 OK\nredirected to: {new}\ncontent-length: {length}\ncontent-type: text/html\n\n\
         Title: News\n\n# Today\n\nRead [more]({new}more).",
        new = server.url("/new/"),
        length = page.len(),
    );
    assert_eq!(output, expected);
    let request = &server.requests()[0];
    assert!(request.header("accept").unwrap().starts_with("text/html"));
    assert!(request.header("user-agent").unwrap().starts_with("longhaul/"));
}

#[tokio::test]
async fn a_redirect_to_a_url_that_a_rule_restricts_is_not_followed() {
    let server = Server::new(move |request| match request.path.as_str() {
        "/old" => http_response("302 Found", &[("location", "/x/../%61dmin")], "moved"),
        "/odd" => http_response("302 Found", &[("location", "/a%zz")], "moved"),
        _ => http_response("200 OK", &[("content-type", "text/plain")], "the page"),
    })
    .await;
    let origin = server.url("");
    let rule = |glob: Option<&str>, action: Value| -> GateRule {
        let glob = glob.map(|glob| format!("GET {origin}{glob}"));
        serde_json::from_value(json!({ "tool": "http_fetch", "match": glob, "action": action }))
            .unwrap()
    };
    let (allow, deny, ask) = (json!("allow"), json!({ "deny": "no" }), json!({ "ask": "OK?" }));
    for (path, rules, is_followed) in [
        ("/old", vec![], true),
        ("/old", vec![rule(Some("/other"), deny.clone())], true),
        ("/old", vec![rule(Some("/admin"), deny.clone())], false),
        ("/old", vec![rule(Some("/old"), allow.clone()), rule(None, ask.clone())], false),
        ("/old", vec![rule(None, allow.clone()), rule(Some("/admin"), deny.clone())], true),
        ("/odd", vec![rule(Some("/admin"), allow)], true),
        ("/odd", vec![rule(Some("/admin"), ask)], false),
    ] {
        let requests = server.requests().len();
        let input = json!({ "url": server.url(path) });
        let output = fetch_with_rules(input, rules.clone()).await.unwrap();
        assert_eq!(output.contains("the page"), is_followed, "{rules:?}: {output}");
        let hint = "because an approval rule applies to it. To go on, fetch http://";
        assert_eq!(output.contains(hint), !is_followed, "{rules:?}: {output}");
        assert_eq!(server.requests().len() - requests, if is_followed { 2 } else { 1 });
    }
}

#[tokio::test]
async fn every_http_status_is_a_result() {
    for (status, headers, body, expected) in [
        (
            "200 OK",
            ("content-type", "application/json"),
            "{\"a\":1}",
            "HTTP 200 OK\ncontent-type: application/json\n\n{\n  \"a\": 1\n}",
        ),
        (
            "404 Not Found",
            ("content-type", "text/plain"),
            "gone",
            "HTTP 404 Not Found\ncontent-type: text/plain\n\ngone",
        ),
        (
            "429 Too Many Requests",
            ("retry-after", "7"),
            "",
            "HTTP 429 Too Many Requests\nretry-after: 7\n\n[The body is empty.]",
        ),
        (
            "500 Oh",
            ("content-type", "image/png"),
            "bytes",
            "HTTP 500 Internal Server Error\ncontent-type: image/png\n\n[The body is not text and is not shown: image/png, 5 bytes.]",
        ),
        (
            "299 Odd",
            ("content-type", "text/html"),
            "<p> <script>x</script>",
            "HTTP 299\ncontent-type: text/html\n\n[The body has no text.]",
        ),
    ] {
        let server = Server::with_response(http_response(status, &[headers], body)).await;
        let output = fetch(json!({ "url": server.url("/") })).await.unwrap();
        let length = format!("content-length: {}\n", body.len());
        assert_eq!(output.replace(&length, ""), expected);
    }
}

#[tokio::test]
async fn method_headers_and_body_are_sent_as_given() {
    let server = Server::with_response(http_response("201 Created", &[], "")).await;
    let url = server.url("/");
    let input =
        json!({ "url": url, "method": "POST", "body": "{\"a\":1}", "headers": { "X-Key": "k" } });
    assert!(fetch(input).await.unwrap().starts_with("HTTP 201 Created"));
    let input =
        json!({ "url": url, "method": "put", "body": "a=1", "headers": { "Content-Type": "x/y" } });
    fetch(input).await.unwrap();
    fetch(json!({ "url": url, "method": "PATCH", "body": "words" })).await.unwrap();
    let received = server.requests();
    let summary: Vec<_> = received
        .iter()
        .map(|received| {
            (
                received.method.as_str(),
                received.header("content-type").unwrap(),
                received.body.as_slice(),
            )
        })
        .collect();
    assert_eq!(
        summary,
        [
            ("POST", "application/json", &b"{\"a\":1}"[..]),
            ("PUT", "x/y", b"a=1"),
            ("PATCH", "text/plain; charset=utf-8", b"words"),
        ]
    );
    assert_eq!(received[0].header("x-key"), Some("k"));
}

#[tokio::test]
async fn forbidden_urls_are_not_requested() {
    let server = Server::with_response(http_response("200 OK", &[], "")).await;
    let url = server.url("/");
    let with_header = |name: &str| json!({ "url": url, "headers": { name: "x" } });
    let many_headers: serde_json::Map<_, _> =
        (0..21).map(|n| (format!("x-{n}"), json!("x"))).collect();
    for (input, expected) in [
        (with_header("Cookie"), "`cookie` can't be set"),
        (with_header(" X-Forwarded-For"), "`x-forwarded-for` can't be set"),
        (with_header("proxy-authorization"), "can't be set"),
        (with_header("user-agent"), "can't be set"),
        (with_header("Host"), "set by the client itself"),
        (with_header("content-length"), "set by the client itself"),
        (with_header("bad name"), "invalid name"),
        (json!({ "url": url, "headers": { "a": "x\r\nb: y" } }), "invalid value"),
        (json!({ "url": url, "headers": many_headers }), "more than 20 headers"),
        (json!({ "url": url, "method": "TRACE" }), "one of GET, HEAD"),
        (json!({ "url": url, "body": "x" }), "GET sends no body"),
        (json!({ "url": url, "depth": 7 }), "unknown field"),
        (json!({ "url": "http://inside.example/" }), "private or reserved"),
        (json!({ "url": "http://127.0.0.1/" }), "private or reserved"),
        (json!({ "url": "file:///etc/passwd" }), "only http:// and https://"),
        (json!({}), "missing field `url`"),
    ] {
        let error = fetch(input.clone()).await.unwrap_err();
        assert!(error.contains(expected), "{input}: {error}");
    }
    assert_eq!(server.requests().len(), 0);
}

#[tokio::test]
async fn a_post_without_a_response_is_in_doubt() {
    let truncated = "HTTP/1.1 200 OK\r\ncontent-length: 99999999\r\n\r\n";
    let private_redirect = http_response("302 Found", &[("location", "http://127.0.0.1/")], "");
    for answer in [Vec::new(), truncated.into(), private_redirect] {
        let server = Server::with_response(answer).await;
        for (method, is_in_doubt) in [("POST", true), ("DELETE", true), ("GET", false)] {
            let error = fetch_result(json!({ "url": server.url("/"), "method": method })).await;
            let error = error.unwrap_err();
            assert_eq!(error.message().contains("may have been received"), is_in_doubt, "{error}");
            assert_eq!(error.is_outcome_unknown(), is_in_doubt, "{error}");
        }
    }
}

#[tokio::test]
async fn a_post_that_was_never_sent_is_a_failure() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    drop(listener);
    for url in [format!("http://site.example:{port}/"), "http://127.0.0.1/".to_owned()] {
        let error = fetch_result(json!({ "url": url, "method": "POST" })).await;
        let error = error.unwrap_err();
        assert!(!error.is_outcome_unknown() && !error.message().contains("received"), "{error}");
    }
}

#[tokio::test]
async fn a_compressed_response_is_reported_as_such() {
    let gzip_response = http_response("200 OK", &[("content-encoding", "gzip")], "x");
    let server = Server::with_response(gzip_response).await;
    let error = fetch(json!({ "url": server.url("/") })).await.unwrap_err();
    let expected = "answered with the unexpected content encoding `gzip`";
    assert!(error.contains(expected), "{error}");
    assert!(!error.contains("did not answer") && !error.contains("later"), "{error}");
}
