//! Error responses of the provider and the failures they are mapped to.

use super::harness::{KEY, RECORDED, answer, model};
use crate::suite::fixtures::hello_messages;
use crate::suite::harness::{Server, full_response, stream_response};

/// Status, error type, message and expected class.
const TABLE: &[(u16, &str, &str, &str)] = &[
    (400, "invalid_request_error", "messages: at least one message is required", "invalid_request"),
    (
        400,
        "invalid_request_error",
        "prompt is too long: 208310 tokens > 200000 maximum",
        "context_overflow",
    ),
    (
        400,
        "invalid_request_error",
        "input length and `max_tokens` exceed context limit: 188240 + 21333 > 200000",
        "context_overflow",
    ),
    (
        400,
        "invalid_request_error",
        "Your credit balance is too low to access the Anthropic API.",
        "quota",
    ),
    (400, "invalid_request_error", "You have reached your specified API usage limits.", "quota"),
    (400, "invalid_request_error", "Output blocked by content filtering policy", "refused"),
    (401, "authentication_error", "invalid x-api-key", "auth"),
    (402, "billing_error", "Payment required", "quota"),
    (403, "permission_error", "Your API key does not have permission", "auth"),
    (404, "not_found_error", "model: claude-nope", "invalid_request"),
    (413, "request_too_large", "Request exceeds the maximum size", "context_overflow"),
    (
        429,
        "rate_limit_error",
        "Number of request tokens has exceeded your per-minute rate limit",
        "rate_limit",
    ),
    (500, "api_error", "Internal server error", "server"),
    (504, "timeout_error", "The request timed out", "timeout"),
    (529, "overloaded_error", "Overloaded", "overloaded"),
];

/// Error responses of other servers and of proxies: status, body and expected class.
const NONSTANDARD_ERRORS: &[(u16, &str, &str)] = &[
    (502, "<html><head><TITLE>502 Bad Gateway</TITLE></head><body>nginx</body></html>", "server"),
    (503, "<!doctype html><p>busy", "overloaded"),
    (503, "", "overloaded"),
    (403, "<title>Attention Required! | Cloudflare</title>", "auth"),
    (524, "", "timeout"),
    (400, "not JSON", "invalid_request"),
    (400, "[]", "invalid_request"),
    (400, "null", "invalid_request"),
    (400, r#"{"error":"model requires more context length"}"#, "context_overflow"),
    (
        400,
        r#"{"error":{"message":"too long","type":"invalid_request_error","code":"context_length_exceeded"}}"#,
        "context_overflow",
    ),
    (
        429,
        r#"{"error":{"message":"You exceeded your current quota","type":"insufficient_quota","code":"insufficient_quota"}}"#,
        "quota",
    ),
    (401, r#"{"error":{"message":"bad key sk-ant-very-secret-0123456789","code":401}}"#, "auth"),
    (422, r#"{"detail":"nope"}"#, "invalid_request"),
    (500, r#"{"error":{"type":5,"message":["x"]}}"#, "server"),
    (409, "", "server"),
    (418, "", "invalid_request"),
    (301, "", "invalid_request"),
];

#[tokio::test]
async fn failures_are_classified_by_status_and_in_a_stream() {
    let body = |kind: &str, error_text: &str| {
        format!(
            r#"{{"type":"error","error":{{"type":"{kind}","message":"{error_text}"}},"request_id":"req_b"}}"#
        )
    };
    let mut plans = Vec::new();
    for (status, kind, error_text, _) in TABLE {
        let headers = [("content-type", "application/json"), ("request-id", "req_1")];
        plans.push(full_response(*status, &headers, &body(kind, error_text)));
        let stream_start = &RECORDED[..RECORDED.find("event: ping").unwrap()];
        let error = body(kind, error_text);
        plans.push(stream_response(
            format!("{stream_start}event: error\ndata: {error}\n\n").as_bytes(),
        ));
    }
    let server = Server::new(plans).await;
    let model = model(&server);
    for (status, kind, error_text, class) in TABLE {
        let failure = answer(&server, &model, &hello_messages()).await.0.unwrap_err();
        assert_eq!(failure.class.as_str(), *class, "{error_text}");
        assert_eq!(failure.status, Some(*status));
        assert_eq!(failure.request_id.as_deref(), Some("req_1"));
        assert_eq!(failure.message, format!("anthropic answered {status} ({kind}): {error_text}"));
        assert_eq!(failure.usage, None);
        let failure = answer(&server, &model, &hello_messages()).await.0.unwrap_err();
        assert_eq!(failure.class.as_str(), *class, "in the stream: {error_text}");
        assert_eq!(failure.status, Some(200));
        assert_eq!(failure.request_id.as_deref(), Some("req_7"));
        let usage = failure.usage.unwrap();
        assert!(usage.estimated && usage.cached_tokens == 2_000, "{usage:?}");
    }
}

#[tokio::test]
async fn error_bodies_of_proxies_are_classified() {
    let headers = [("location", "https://elsewhere.example/")];
    let plans =
        NONSTANDARD_ERRORS.iter().map(|(status, body, _)| full_response(*status, &headers, body));
    let server = Server::new(plans.collect()).await;
    let model = model(&server);
    let mut all = String::new();
    for (status, body, class) in NONSTANDARD_ERRORS {
        let failure = answer(&server, &model, &hello_messages()).await.0.unwrap_err();
        assert_eq!(failure.class.as_str(), *class, "{status} {body}");
        assert!(!failure.message.contains(KEY), "{}", failure.message);
        all.push_str(&format!("{}: {}\n", failure.class.as_str(), failure.message));
    }
    insta::assert_snapshot!("malformed_errors", all);
}

#[tokio::test]
async fn failure_messages_are_short_and_on_one_line() {
    let long_body = format!("a\r\n\u{7}{}{KEY}", "ü".repeat(480));
    let huge_body = "x".repeat(32 * 1024 * 1024);
    let server =
        Server::new(vec![full_response(400, &[], &long_body), full_response(400, &[], &huge_body)])
            .await;
    let model = model(&server);
    for _ in 0..2 {
        let text = answer(&server, &model, &hello_messages()).await.0.unwrap_err().message;
        assert_eq!(text.chars().count(), 500);
        assert!(!text.chars().any(char::is_control));
        assert!(!text.contains("sk-ant"), "{text}");
    }
}

type Headers = &'static [(&'static str, &'static str)];

/// A number that is too large for any type.
const NEVER: &str = concat!(
    "99999999999999999999999999999999999999999999999999999999999999999999999999999999",
    "99999999999999999999999999999999999999999999999999999999999999999999999999999999",
    "99999999999999999999999999999999999999999999999999999999999999999999999999999999",
    "99999999999999999999999999999999999999999999999999999999999999999999999999999999",
);

/// Headers of a 429 response and the expected delay in milliseconds. The clock is at 12:00 on
/// 2026-11-15.
const RETRY_AFTER_CASES: &[(Headers, Option<u64>)] = &[
    (&[], None),
    (&[("retry-after", "30")], Some(30_000)),
    (&[("retry-after", "0.5")], Some(500)),
    (&[("retry-after", "0")], Some(0)),
    (&[("retry-after", "soon")], None),
    (&[("retry-after", "-5")], None),
    (&[("retry-after", "99999999")], Some(86_400_000)),
    (&[("retry-after", "Sun, 15 Nov 2026 12:00:07 GMT")], Some(7_000)),
    (&[("retry-after", "Sun, 15 Nov 2026 11:00:00 GMT")], Some(0)),
    (&[("retry-after", "Mon, 15 Nov 2026 12:00:08 GMT")], Some(8_000)),
    (&[("retry-after", "Fri, 31 Dec 9999 23:59:59 GMT")], Some(86_400_000)),
    (&[("retry-after", "9999-12-31T23:59:59Z")], Some(86_400_000)),
    (&[("retry-after", "Sun, 15 Nov 2066 12:00:00 GMT")], Some(86_400_000)),
    (&[("retry-after", NEVER)], Some(86_400_000)),
    (&[("retry-after-ms", NEVER)], Some(86_400_000)),
    (&[("retry-after", "9999 years")], None),
    (&[("retry-after-ms", "1500.2"), ("retry-after", "30")], Some(1_501)),
    (&[("x-ratelimit-reset-requests", "6m0s")], Some(360_000)),
    (&[("x-ratelimit-reset-tokens", "1h2m3.5s")], Some(3_723_500)),
    (&[("x-ratelimit-reset-tokens", "350ms")], Some(350)),
    (&[("x-ratelimit-reset-tokens", "0d2h")], Some(7_200_000)),
    (&[("x-ratelimit-reset-requests", "12")], Some(12_000)),
    (&[("x-ratelimit-reset", "1794744005000")], Some(5_000)),
    (&[("x-ratelimit-reset", "1794744006")], Some(6_000)),
    (&[("x-ratelimit-reset-requests", "9s"), ("x-ratelimit-reset-tokens", "4s")], Some(4_000)),
    (
        &[
            ("x-ratelimit-reset-requests", "9s"),
            ("x-ratelimit-remaining-requests", "0"),
            ("x-ratelimit-reset-tokens", "4s"),
            ("x-ratelimit-remaining-tokens", "100"),
        ],
        Some(9_000),
    ),
    (
        &[
            ("anthropic-ratelimit-tokens-reset", "2026-11-15T12:00:40Z"),
            ("anthropic-ratelimit-tokens-remaining", "0"),
            ("anthropic-ratelimit-requests-reset", "2026-11-15T12:01:00Z"),
            ("anthropic-ratelimit-requests-remaining", "49"),
        ],
        Some(40_000),
    ),
    (&[("x-ratelimit-reset-requests", "5parsecs")], None),
];

#[tokio::test]
async fn retry_after_is_read_from_headers() {
    let body = r#"{"type":"error","error":{"type":"rate_limit_error","message":"slow down"}}"#;
    let plans = RETRY_AFTER_CASES.iter().map(|(headers, _)| full_response(429, headers, body));
    let server = Server::new(plans.collect()).await;
    let model = model(&server);
    for (headers, wait) in RETRY_AFTER_CASES {
        let failure = answer(&server, &model, &hello_messages()).await.0.unwrap_err();
        assert_eq!(failure.retry_after.map(|wait| wait.0), *wait, "{headers:?}");
    }
}

#[tokio::test]
async fn a_permanent_failure_has_no_retry_after() {
    let headers = [("retry-after", "30"), ("x-ratelimit-reset-requests", "9s")];
    let server =
        Server::new(vec![full_response(401, &headers, ""), full_response(500, &headers[1..], "")])
            .await;
    let model = model(&server);
    for _ in 0..2 {
        let failure = answer(&server, &model, &hello_messages()).await.0.unwrap_err();
        assert_eq!(failure.retry_after, None);
    }
}
