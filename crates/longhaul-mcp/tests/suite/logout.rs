//! Logins that are given up: forgotten here, and taken back where they came from.

use longhaul_mcp::{Forgotten, OAuth, Servers};
use serde_json::{Value, json};

use super::kit::soon;
use super::login_kit::Guarded;

async fn gone(servers: &Servers, may_ask: bool) -> Forgotten {
    soon(servers.logout("guarded", may_ask)).await.unwrap()
}

/// Why it was not taken back; never with a word of whoever was asked.
fn why(gone: &Forgotten) -> &str {
    let Forgotten::Here { why } = gone else {
        panic!("{gone:?}");
    };
    assert!(!why.contains("s3cret"), "{why}");
    why
}

#[tokio::test(flavor = "multi_thread")]
async fn both_tokens_are_taken_back_before_they_are_forgotten() {
    let server = Guarded::start();
    let registered = server.worker();
    server.log_in(&registered, "").await.unwrap();
    assert_eq!(gone(&registered, true).await, Forgotten::TakenBack);
    assert!(server.kept().is_empty());
    let known = |secret: Option<&str>| {
        server.known_as(OAuth {
            client_id: Some("us:1".to_owned()),
            client_secret: secret.map(str::to_owned),
            ..OAuth::default()
        })
    };
    for known in [known(Some("our/s3cret")), known(None)] {
        server.log_in(&known, "").await.unwrap();
        assert_eq!(gone(&known, true).await, Forgotten::TakenBack);
    }
    let seen = server.seen().await;
    let expect = json!([
        [
            "refresh_token",
            "refresh-s3cret-1",
            "registered:registered-s3cret"
        ],
        [
            "access_token",
            "access-s3cret-1",
            "registered:registered-s3cret"
        ],
        ["refresh_token", "refresh-s3cret-2", "us%3A1:our%2Fs3cret"],
        ["access_token", "access-s3cret-2", "us%3A1:our%2Fs3cret"],
        ["refresh_token", "refresh-s3cret-3", "us:1"],
        ["access_token", "access-s3cret-3", "us:1"],
    ]);
    assert_eq!(seen["revoked"], expect, "{seen}");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_can_not_be_taken_back_is_forgotten_all_the_same() {
    let server = Guarded::start();
    let servers = server.worker();
    for (amiss, expect) in [
        ("revoke_status=503", "HTTP 503 for its refresh token"),
        ("revoke_status=302", "HTTP 302 for its refresh token"),
        (
            "revocation_endpoint=%22https://169.254.169.254/revoke%22",
            "private or reserved",
        ),
        (
            "revocation_endpoint=%22http://far.example/revoke%22",
            "not https://",
        ),
        (
            "revocation_endpoint=%22nowhere%22",
            "an address that is none",
        ),
        ("well_known=404", "does not say now who gave it"),
        ("well_known=503", "503"),
    ] {
        server.log_in(&servers, "").await.unwrap();
        server.get(&format!("/do?{amiss}")).await;
        let gone = gone(&servers, true).await;
        assert!(why(&gone).contains(expect), "{amiss}: {gone:?}");
        assert!(server.kept().is_empty(), "{amiss}");
        let mended = "revoke_status=200&revocation_endpoint=null&well_known=0";
        server.get(&format!("/do?{mended}")).await;
    }
    server.log_in(&servers, "").await.unwrap();
    server.get("/do?revoke_status=202").await;
    assert_eq!(gone(&servers, true).await, Forgotten::TakenBack);
    server.log_in(&servers, "").await.unwrap();
    server.get("/do?revokes=false").await;
    assert_eq!(gone(&servers, true).await, Forgotten::NoWay);
    assert!(server.kept().is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn nobody_is_asked_who_did_not_give_it_or_must_not_be() {
    let (server, other) = (Guarded::start(), Guarded::start());
    let servers = server.worker();
    server.log_in(&servers, "").await.unwrap();
    let named = format!("/do?authorization_server=%22{}%22", other.base());
    server.get(&named).await;
    let told = gone(&servers, true).await;
    assert!(
        why(&told).contains("another authorization server"),
        "{told:?}"
    );
    assert!(server.kept().is_empty());
    server.get("/do?authorization_server=null").await;
    server.log_in(&servers, "").await.unwrap();
    assert_eq!(gone(&servers, false).await, Forgotten::Unasked);
    assert!(server.kept().is_empty());
    // What can't be read says nothing that could be sent.
    server.log_in(&servers, "").await.unwrap();
    std::fs::write(server.file(), "{").unwrap();
    assert!(why(&gone(&servers, true).await).contains("can't be read"));
    assert!(server.kept().is_empty());
    for server in [&server, &other] {
        let seen: Value = server.seen().await;
        assert_eq!(seen["revoked"], json!([]), "{seen}");
    }
}
