//! The list of a server's models, over real sockets.

use std::time::Duration;

use longhaul_core::failure::{Failure, FailureClass};
use longhaul_core::time::Clock as _;
use longhaul_model::http::{Http, Limits};
use longhaul_model::key::ApiKey;
use longhaul_model::roll::{Asker, Manner, models};

use super::kit::{Act, Noon, Server, plain};

const KEY: &str = "sk-very-secret-0123456789";

async fn ask(
    base: &str,
    manner: Manner,
    headers: &[(String, String)],
) -> Result<Vec<String>, Failure> {
    let limits = Limits {
        connect: Duration::from_secs(5),
        first_byte: Duration::from_secs(5),
        idle: Duration::from_secs(5),
        stall: Duration::from_secs(2),
        ..Limits::default()
    };
    let http = Http::new(base, limits).unwrap();
    let key = ApiKey::new(KEY);
    let asker = Asker {
        provider: "somebody",
        manner,
        key: Some(&key),
        headers,
        now: Noon.now(),
    };
    models(&http, &asker).await
}

#[tokio::test]
async fn each_is_asked_in_its_own_manner() {
    let list = r#"{"object":"list","data":[{"id":"b"},{"id":"a"},{"no":1},{"id":"x\u001b[2J"}]}"#;
    for (manner, base, line, login) in [
        (
            Manner::Anthropic,
            "",
            "GET /v1/models?limit=1000 HTTP/1.1",
            format!("x-api-key: {KEY}"),
        ),
        (
            Manner::OpenAi,
            "/api/v1",
            "GET /api/v1/models HTTP/1.1",
            format!("authorization: Bearer {KEY}"),
        ),
        (
            Manner::OpenAi,
            "/v1/",
            "GET /v1/models HTTP/1.1",
            format!("authorization: Bearer {KEY}"),
        ),
        (
            Manner::OpenAi,
            "",
            "GET /models HTTP/1.1",
            format!("authorization: Bearer {KEY}"),
        ),
    ] {
        let server = Server::new(vec![plain(200, &[], list)]).await;
        let headers = [("x-team".to_owned(), "blue".to_owned())];
        let base = format!("{}{base}", server.base());
        let names = ask(&base, manner, &headers).await.unwrap();
        assert_eq!(names, ["b", "a"]);
        let head = &server.seen()[0].head;
        assert_eq!(head.lines().next(), Some(line));
        assert!(head.contains(&login), "{head}");
        assert!(head.contains("x-team: blue"), "{head}");
    }
}

#[tokio::test]
async fn lists_have_many_shapes() {
    for (body, names) in [
        (r#"{"models":[{"name":"m"}]}"#, Some(vec!["m"])),
        (r#"["m","n"]"#, Some(vec!["m", "n"])),
        (r#"{"data":null}"#, Some(vec![])),
        (r#"{"data":[]}"#, Some(vec![])),
        (r#"{"data":7}"#, None),
        ("{}", None),
        ("<html><title>Log in</title></html>", None),
    ] {
        let server = Server::new(vec![plain(200, &[], body)]).await;
        let found = ask(&server.base(), Manner::OpenAi, &[]).await;
        match names {
            Some(names) => assert_eq!(found.unwrap(), names, "{body}"),
            None => {
                let failure = found.unwrap_err();
                assert_eq!(failure.class, FailureClass::Server, "{body}");
                assert!(failure.message.contains("no list of models"), "{failure:?}");
            }
        }
    }
}

#[tokio::test]
async fn what_goes_wrong_is_told_apart_and_never_with_the_key() {
    let quoting = format!(r#"{{"error":{{"type":"authentication_error","message":"bad {KEY}"}}}}"#);
    let moved = [("location", "https://elsewhere.example/v1/models")];
    for (plan, class, said) in [
        (plain(401, &[], &quoting), FailureClass::Auth, "bad [key]"),
        (
            plain(302, &moved, ""),
            FailureClass::InvalidRequest,
            "which is not followed",
        ),
        (
            plain(503, &[], "busy"),
            FailureClass::Overloaded,
            "answered 503",
        ),
        (vec![Act::Close], FailureClass::Network, "closed"),
        (
            vec![
                Act::Send(b"HTTP/1.1 200 OK\r\ncontent-length: 99999999\r\n\r\n".to_vec()),
                Act::Forever(vec![b' '; 65_536]),
            ],
            FailureClass::Server,
            "longer than 4194304 bytes",
        ),
        (
            vec![
                Act::Send(b"HTTP/1.1 200 OK\r\ncontent-length: 99999999\r\n\r\n".to_vec()),
                Act::Drip(b" ".to_vec(), Duration::from_millis(5)),
            ],
            FailureClass::Timeout,
            "nothing but signs of life",
        ),
    ] {
        let server = Server::new(vec![plan]).await;
        let failure = ask(&server.base(), Manner::OpenAi, &[]).await.unwrap_err();
        assert_eq!(failure.class, class, "{failure:?}");
        assert!(failure.message.contains(said), "{failure:?}");
        assert!(!format!("{failure:?}").contains(KEY), "{failure:?}");
        assert_eq!(server.seen().len(), 1);
    }
}

#[tokio::test]
async fn a_header_that_is_none_is_no_question() {
    let server = Server::new(vec![]).await;
    let headers = [("a b".to_owned(), "c".to_owned())];
    let failure = ask(&server.base(), Manner::OpenAi, &headers)
        .await
        .unwrap_err();
    assert_eq!(failure.message, "the header `a b` can't be sent");
    assert_eq!(server.connections(), 0);
}

#[tokio::test]
async fn a_list_that_holds_the_key_does_not_show_it() {
    let list = format!(r#"["{KEY}","m","for {KEY}","by-hand-1"]"#);
    let server = Server::new(vec![plain(200, &[], &list)]).await;
    let headers = [("x-key".to_owned(), "by-hand-1".to_owned())];
    let names = ask(&server.base(), Manner::OpenAi, &headers).await.unwrap();
    assert_eq!(names, ["[key]", "m", "for [key]", "[header]"]);
}
