//! Error responses of the provider and the failures they are mapped to.

use super::harness::{KEY, RECORDED, answer, model};
use crate::suite::fixtures::hello_messages;
use crate::suite::harness::{Server, full_response, stream_response};

/// Status, error type, code, message and expected class.
type Row = (u16, &'static str, &'static str, &'static str, &'static str);

const TABLE: &[Row] = &[
    (
        400,
        "invalid_request_error",
        "unknown_parameter",
        "Unknown parameter: 'inputs'.",
        "invalid_request",
    ),
    (
        400,
        "invalid_request_error",
        "context_length_exceeded",
        "Your input exceeds the context window of this model.",
        "context_overflow",
    ),
    (
        400,
        "invalid_request_error",
        "invalid_prompt",
        "Invalid prompt: your prompt was flagged.",
        "refused",
    ),
    (
        400,
        "image_generation_user_error",
        "image_content_policy_violation",
        "Your request was rejected by the safety system.",
        "refused",
    ),
    (400, "invalid_request_error", "image_too_large", "The image is too large.", "invalid_request"),
    (
        400,
        "invalid_request_error",
        "invalid_base64_image",
        "The image data is not valid.",
        "invalid_request",
    ),
    (
        401,
        "invalid_request_error",
        "invalid_api_key",
        "Incorrect API key provided: sk-proj-very-secret-0123456789.",
        "auth",
    ),
    (
        404,
        "invalid_request_error",
        "model_not_found",
        "The model `gpt-99` does not exist or you do not have access to it.",
        "invalid_request",
    ),
    (
        429,
        "requests",
        "rate_limit_exceeded",
        "Rate limit reached for gpt-5.5 on requests per min (RPM): Limit 3, Used 3.",
        "rate_limit",
    ),
    (
        429,
        "tokens",
        "rate_limit_exceeded",
        "Request too large for gpt-5.5 on tokens per min (TPM): Limit 30000, Requested 50000. The input or output tokens must be reduced in order to run successfully.",
        "context_overflow",
    ),
    (
        429,
        "insufficient_quota",
        "insufficient_quota",
        "You exceeded your current quota, please check your plan and billing details.",
        "quota",
    ),
    (
        500,
        "server_error",
        "server_error",
        "The server had an error while processing your request.",
        "server",
    ),
    (
        503,
        "service_unavailable_error",
        "server_is_overloaded",
        "Our servers are currently overloaded. Please try again later.",
        "overloaded",
    ),
    (503, "server_error", "slow_down", "Slow down.", "overloaded"),
    (504, "server_error", "vector_store_timeout", "The vector store did not answer.", "timeout"),
];

#[tokio::test]
async fn failures_are_classified_by_status_and_in_a_stream() {
    let stream_start = &RECORDED[..RECORDED.find("event: response.web_search").unwrap()];
    let json = [
        ("content-type", "application/json"),
        ("x-request-id", "req_1"),
        ("openai-processing-ms", "12"),
    ];
    let mut plans = Vec::new();
    for (status, kind, code, error_text, _) in TABLE {
        let error =
            format!(r#"{{"message":"{error_text}","type":"{kind}","param":null,"code":"{code}"}}"#);
        plans.push(full_response(*status, &json, &format!(r#"{{"error":{error}}}"#)));
        for event in [
            format!(
                r#"{{"type":"error","code":"{code}","message":"{error_text}","param":null,"sequence_number":9}}"#
            ),
            format!(r#"{{"type":"error","error":{error}}}"#),
            format!(r#"{{"error":{error}}}"#),
            format!(
                r#"{{"type":"response.failed","response":{{"status":"failed","error":{{"code":"{code}","message":"{error_text}"}},"usage":null}}}}"#
            ),
        ] {
            plans.push(stream_response(format!("{stream_start}data: {event}\n\n").as_bytes()));
        }
    }
    let server = Server::new(plans).await;
    let model = model(&server);
    for (status, _, code, error_text, class) in TABLE {
        let failure = answer(&server, &model, &hello_messages()).await.0.unwrap_err();
        assert_eq!(failure.class.as_str(), *class, "{error_text}");
        assert_eq!(failure.status, Some(*status));
        assert_eq!(failure.request_id.as_deref(), Some("req_1"));
        assert!(!failure.message.contains(KEY), "{}", failure.message);
        let prefix = format!("openai answered {status} ({code}): ");
        assert!(failure.message.starts_with(&prefix), "{}", failure.message);
        assert_eq!(failure.usage, None);
        for variant in 0..4 {
            let failure = answer(&server, &model, &hello_messages()).await.0.unwrap_err();
            assert_eq!(failure.class.as_str(), *class, "in the stream, {variant}: {error_text}");
            assert_eq!(failure.status, Some(200));
            assert_eq!(failure.request_id.as_deref(), Some("req_7"));
            let prefix = format!("openai failed mid-stream ({code}): ");
            assert!(failure.message.starts_with(&prefix), "{}", failure.message);
            let usage = failure.usage.unwrap();
            assert!(usage.estimated && usage.output_tokens > 0, "{usage:?}");
        }
    }
}

type Headers = &'static [(&'static str, &'static str)];

/// Status, headers and expected delay in milliseconds.
const RETRY_AFTER_CASES: &[(u16, Headers, Option<u64>)] = &[
    (429, &[], None),
    (429, &[("retry-after", "30")], Some(30_000)),
    (429, &[("retry-after-ms", "120"), ("retry-after", "1")], Some(120)),
    (429, &[("x-ratelimit-reset-requests", "6m0s")], Some(360_000)),
    (429, &[("x-ratelimit-reset-requests", "1s")], Some(1_000)),
    (429, &[("x-ratelimit-reset-tokens", "20ms")], Some(20)),
    (
        429,
        &[
            ("x-ratelimit-limit-requests", "3"),
            ("x-ratelimit-remaining-requests", "0"),
            ("x-ratelimit-reset-requests", "20s"),
            ("x-ratelimit-remaining-tokens", "149984"),
            ("x-ratelimit-reset-tokens", "6ms"),
        ],
        Some(20_000),
    ),
    (503, &[("retry-after", "5")], Some(5_000)),
    (500, &[("x-ratelimit-reset-requests", "20s")], None),
    (401, &[("retry-after", "5")], None),
];

#[tokio::test]
async fn retry_after_is_read_from_headers() {
    let plans =
        RETRY_AFTER_CASES.iter().map(|(status, headers, _)| full_response(*status, headers, ""));
    let server = Server::new(plans.collect()).await;
    let model = model(&server);
    for (status, headers, expected_delay) in RETRY_AFTER_CASES {
        let failure = answer(&server, &model, &hello_messages()).await.0.unwrap_err();
        let delay = failure.retry_after.map(|delay| delay.0);
        assert_eq!(delay, *expected_delay, "{status} {headers:?}");
    }
}

#[tokio::test]
async fn a_failure_has_the_usage() {
    let failed_event = r#"{"type":"response.failed","response":{"status":"failed","error":{"code":"server_error","message":"Oh"},"usage":{"input_tokens":50,"input_tokens_details":{"cached_tokens":20},"output_tokens":7}}}"#;
    let event_without_reason =
        r#"{"type":"response.failed","response":{"status":"failed","error":null}}"#;
    let streams = [failed_event, event_without_reason]
        .map(|event| stream_response(format!("data: {event}\n\n").as_bytes()));
    let server = Server::new(streams.into()).await;
    let model = model(&server);
    let failure = answer(&server, &model, &hello_messages()).await.0.unwrap_err();
    let usage = failure.usage.unwrap();
    let counts = (usage.input_tokens, usage.cached_tokens, usage.output_tokens);
    assert_eq!(counts, (30, 20, 7));
    assert!(usage.estimated);
    let failure = answer(&server, &model, &hello_messages()).await.0.unwrap_err();
    assert_eq!(failure.class.as_str(), "server");
    assert_eq!(failure.message, "openai failed mid-stream: no reason given");
}
