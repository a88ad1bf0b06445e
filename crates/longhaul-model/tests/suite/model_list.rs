//! Tests of the model list over real sockets.

use std::time::Duration;

use longhaul_core::failure::{Failure, FailureClass};
use longhaul_core::time::Clock as _;
use longhaul_model::http::{HttpClient, HttpLimits};
use longhaul_model::key::ApiKey;
use longhaul_model::model_list::{ModelListRequest, fetch_model_names};
use longhaul_model::providers::built_in::ApiFormat;

use super::harness::{FixedClock, Server, ServerAction, full_response};

const KEY: &str = "sk-very-secret-0123456789";

async fn list_models(
    base: &str,
    api: ApiFormat,
    headers: &[(String, String)],
) -> Result<Vec<String>, Failure> {
    let limits = HttpLimits {
        connect: Duration::from_secs(5),
        first_byte: Duration::from_secs(5),
        idle: Duration::from_secs(5),
        stall: Duration::from_secs(2),
        ..HttpLimits::default()
    };
    let http = HttpClient::new(base, limits).unwrap();
    let key = ApiKey::new(KEY);
    let asker = ModelListRequest {
        provider: "somebody",
        api,
        key: Some(&key),
        headers,
        now: FixedClock.now(),
    };
    fetch_model_names(&http, &asker).await
}

#[tokio::test]
async fn each_api_is_queried_in_its_own_format() {
    let list = r#"{"object":"list","data":[{"id":"b"},{"id":"a"},{"no":1},{"id":"x\u001b[2J"}]}"#;
    for (api, base, line, login) in [
        (
            ApiFormat::Anthropic,
            "",
            "GET /v1/models?limit=1000 HTTP/1.1",
            format!("x-api-key: {KEY}"),
        ),
        (
            ApiFormat::Chat,
            "/api/v1",
            "GET /api/v1/models HTTP/1.1",
            format!("authorization: Bearer {KEY}"),
        ),
        (
            ApiFormat::Chat,
            "/v1/",
            "GET /v1/models HTTP/1.1",
            format!("authorization: Bearer {KEY}"),
        ),
        (ApiFormat::Chat, "", "GET /models HTTP/1.1", format!("authorization: Bearer {KEY}")),
    ] {
        let server = Server::new(vec![full_response(200, &[], list)]).await;
        let headers = [("x-team".to_owned(), "blue".to_owned())];
        let base = format!("{}{base}", server.base_url());
        let names = list_models(&base, api, &headers).await.unwrap();
        assert_eq!(names, ["b", "a"]);
        let head = &server.requests()[0].head;
        assert_eq!(head.lines().next(), Some(line));
        assert!(head.contains(&login), "{head}");
        assert!(head.contains("x-team: blue"), "{head}");
    }
}

#[tokio::test]
async fn model_lists_of_many_formats_are_parsed() {
    for (body, names) in [
        (r#"{"models":[{"name":"m"}]}"#, Some(vec!["m"])),
        (r#"["m","n"]"#, Some(vec!["m", "n"])),
        (r#"{"data":null}"#, Some(vec![])),
        (r#"{"data":[]}"#, Some(vec![])),
        (r#"{"data":7}"#, None),
        ("{}", None),
        ("<html><title>Log in</title></html>", None),
    ] {
        let server = Server::new(vec![full_response(200, &[], body)]).await;
        let found = list_models(&server.base_url(), ApiFormat::Chat, &[]).await;
        match names {
            Some(names) => assert_eq!(found.unwrap(), names, "{body}"),
            None => {
                let failure = found.unwrap_err();
                assert_eq!(failure.class, FailureClass::Server, "{body}");
                assert!(failure.message.contains("not a model list"), "{failure:?}");
            }
        }
    }
}

#[tokio::test]
async fn model_list_errors_are_distinguished_and_hide_the_key() {
    let error_body =
        format!(r#"{{"error":{{"type":"authentication_error","message":"bad {KEY}"}}}}"#);
    let location_header = [("location", "https://elsewhere.example/v1/models")];
    for (plan, class, expected) in [
        (full_response(401, &[], &error_body), FailureClass::Auth, "bad [key]"),
        (full_response(302, &location_header, ""), FailureClass::InvalidRequest, "is not followed"),
        (full_response(503, &[], "busy"), FailureClass::Overloaded, "answered 503"),
        (vec![ServerAction::Close], FailureClass::Network, "closed"),
        (
            vec![
                ServerAction::Send(b"HTTP/1.1 200 OK\r\ncontent-length: 99999999\r\n\r\n".to_vec()),
                ServerAction::SendForever(vec![b' '; 65_536]),
            ],
            FailureClass::Server,
            "longer than 4194304 bytes",
        ),
        (
            vec![
                ServerAction::Send(b"HTTP/1.1 200 OK\r\ncontent-length: 99999999\r\n\r\n".to_vec()),
                ServerAction::Drip(b" ".to_vec(), Duration::from_millis(5)),
            ],
            FailureClass::Timeout,
            "only keep-alive events",
        ),
    ] {
        let server = Server::new(vec![plan]).await;
        let failure = list_models(&server.base_url(), ApiFormat::Chat, &[]).await.unwrap_err();
        assert_eq!(failure.class, class, "{failure:?}");
        assert!(failure.message.contains(expected), "{failure:?}");
        assert!(!format!("{failure:?}").contains(KEY), "{failure:?}");
        assert_eq!(server.requests().len(), 1);
    }
}

#[tokio::test]
async fn an_invalid_header_sends_no_request() {
    let server = Server::new(vec![]).await;
    let headers = [("a b".to_owned(), "c".to_owned())];
    let failure = list_models(&server.base_url(), ApiFormat::Chat, &headers).await.unwrap_err();
    assert_eq!(failure.message, "the header `a b` has an invalid name or value");
    assert_eq!(server.connections(), 0);
}

#[tokio::test]
async fn a_model_list_that_contains_the_key_is_redacted() {
    let list = format!(r#"["{KEY}","m","for {KEY}","by-hand-1"]"#);
    let server = Server::new(vec![full_response(200, &[], &list)]).await;
    let headers = [("x-key".to_owned(), "by-hand-1".to_owned())];
    let names = list_models(&server.base_url(), ApiFormat::Chat, &headers).await.unwrap();
    assert_eq!(names, ["[key]", "m", "for [key]", "[header]"]);
}
