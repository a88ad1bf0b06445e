//! Logins: made once, used by all, renewed by one, and forgotten.

use futures_util::future::join_all;
use longhaul_mcp::{Door, Forgotten, McpError, OAuth, Servers, Visit, without_tokens};
use serde_json::json;

use super::kit::{RUN, call, soon};
use super::login_kit::Guarded;

/// Why nobody is let in, which is known and never in doubt.
async fn turned_away(servers: &Servers) -> String {
    let error = soon(servers.tools("guarded", None, RUN)).await.unwrap_err();
    assert!(matches!(error, McpError::Login { .. }), "{error:?}");
    let words = error.to_string();
    assert!(words.contains("`longhaul mcp login guarded`"), "{words}");
    words
}

#[tokio::test(flavor = "multi_thread")]
async fn a_login_is_made_once_and_used_until_it_is_forgotten() {
    let server = Guarded::start();
    let servers = server.worker();
    let words = turned_away(&servers).await;
    assert!(words.contains("it wants a login"), "{words}");
    assert!(servers.standing("guarded").unwrap().is_none());
    let standing = server.log_in(&servers, "").await.unwrap();
    // What the server said it needs.
    assert_eq!(standing.scopes, ["use"]);
    assert!(standing.renews && !standing.over && standing.until.is_some());
    let said = call(&servers, "greet", json!({})).await.unwrap();
    assert_eq!(said, "Hello.");
    // Another process has it as well.
    let other = server.worker();
    assert_eq!(call(&other, "greet", json!({})).await.unwrap(), "Hello.");
    let kept = server.kept();
    assert_eq!(kept.len(), 1);
    assert!(kept[0].0.contains("access-s3cret-1"), "it is kept");
    assert_eq!(kept[0].1, 0o600);
    let seen = format!("{servers:?} {standing:?}");
    assert!(!seen.contains("s3cret"), "{seen}");
    // A server that repeats it does not bring it into a journal.
    let said = call(&servers, "leak", json!({})).await.unwrap();
    assert!(said.contains("access-s3cret-1"), "{said}");
    assert!(!without_tokens(&said).contains("s3cret"), "{said}");
    for expect in [Forgotten::TakenBack, Forgotten::Nothing] {
        let gone = soon(servers.logout("guarded", true)).await.unwrap();
        assert_eq!(gone, expect);
    }
    assert!(server.kept().is_empty());
    turned_away(&server.worker()).await;
    soon(servers.close()).await;
    soon(other.close()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_token_that_ends_is_renewed_once_for_all_who_need_it() {
    let server = Guarded::start();
    server.get("/do?lasts=5").await;
    let servers = [server.worker(), server.worker(), server.worker()];
    server.log_in(&servers[0], "").await.unwrap();
    let calls = servers
        .iter()
        .map(|servers| call(servers, "greet", json!({})));
    for said in join_all(calls).await {
        assert_eq!(said.unwrap(), "Hello.");
    }
    assert_eq!(server.seen().await["refreshes"], 1);
    // Taken back before its time, in the middle of everything.
    server.get("/do?revoke=1").await;
    let calls = servers.iter().chain(&servers);
    let calls = calls.map(|servers| call(servers, "greet", json!({})));
    for said in join_all(calls).await {
        assert_eq!(said.unwrap(), "Hello.");
    }
    assert_eq!(server.seen().await["refreshes"], 2);
    for servers in &servers {
        soon(servers.close()).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_login_that_was_taken_back_says_so_and_nothing_is_in_doubt() {
    let server = Guarded::start();
    let servers = server.worker();
    server.log_in(&servers, "").await.unwrap();
    assert_eq!(call(&servers, "greet", json!({})).await.unwrap(), "Hello.");
    server.get("/do?revoke=1&revoke_refresh=1").await;
    let failure = call(&servers, "greet", json!({})).await.unwrap_err();
    let words = failure.to_string();
    assert!(!failure.is_unknown(), "{words}");
    assert!(words.contains("its login was taken back"), "{words}");
    assert!(words.contains("`longhaul mcp login guarded`"), "{words}");
    assert!(!words.contains("s3cret"), "{words}");
    // It is not tried again and again.
    turned_away(&servers).await;
    assert_eq!(server.seen().await["refreshes"], 1);
    assert!(servers.standing("guarded").unwrap().unwrap().over);
    let words = turned_away(&server.worker()).await;
    assert!(words.contains("taken back"), "{words}");
    server.log_in(&servers, "").await.unwrap();
    assert_eq!(call(&servers, "greet", json!({})).await.unwrap(), "Hello.");
    soon(servers.close()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn who_wants_more_says_what_and_is_asked_for_it_too() {
    let server = Guarded::start();
    let servers = server.worker();
    turned_away(&servers).await;
    server.log_in(&servers, "").await.unwrap();
    let failure = call(&servers, "admin", json!({})).await.unwrap_err();
    let words = failure.to_string();
    assert!(!failure.is_unknown(), "{words}");
    let command = "`longhaul mcp login guarded --scope \"admin\"`";
    assert!(words.contains(command), "{words}");
    // The rest goes on meanwhile.
    assert_eq!(call(&servers, "greet", json!({})).await.unwrap(), "Hello.");
    let other = server.worker();
    let standing = server.log_in(&other, "admin").await.unwrap();
    assert_eq!(standing.scopes, ["use", "admin"]);
    assert_eq!(call(&servers, "admin", json!({})).await.unwrap(), "Hello.");
    let seen = server.seen().await;
    assert_eq!(seen["scopes"], json!(["use", "use admin"]), "{seen}");
    soon(servers.close()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_to_another_question_is_none() {
    let server = Guarded::start();
    let servers = server.worker();
    let door = Door::open(None).await.unwrap();
    let visit = Visit {
        redirect: door.address(),
        ..Visit::default()
    };
    for (from, to, why) in [
        ("state=", "state=x", "not to the question"),
        ("code=", "c0de=", "holds no code"),
        ("iss=", "iss=x", "issuer mismatch"),
        ("iss=", "was=", "missing required issuer"),
        ("http", "", "no address"),
    ] {
        let began = soon(servers.login("guarded", &visit)).await.unwrap();
        let led_to = server.agree(began.address()).await.replacen(from, to, 1);
        let error = soon(began.finish(&led_to)).await.unwrap_err().to_string();
        assert!(error.contains(why), "{led_to}: {error}");
        assert!(!error.contains("c0de"), "{error}");
    }
    server.get("/do?denies=true").await;
    let error = server.log_in(&servers, "").await.unwrap_err().to_string();
    assert!(error.contains("access_denied"), "{error}");
    assert_eq!(server.seen().await["logins"], 0);
    assert!(server.kept().is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_login_needs_is_asked_of_nobody_whom_the_server_must_not_name() {
    let server = Guarded::start();
    let servers = server.worker();
    for (endpoint, why) in [
        ("https://169.254.169.254/token", "private or reserved"),
        ("http://far.example/token", "not https://"),
        ("file:///etc/passwd", "without a host"),
    ] {
        server
            .get(&format!("/do?token_endpoint=%22{endpoint}%22"))
            .await;
        let error = server.log_in(&servers, "").await.unwrap_err().to_string();
        assert!(error.contains(why), "{error}");
    }
    server.get("/do?token_endpoint=null&registers=false").await;
    let error = server.log_in(&servers, "").await.unwrap_err().to_string();
    assert!(error.contains("\"clientId\""), "{error}");
    let known = server.known_as(OAuth {
        client_id: Some("us".to_owned()),
        client_secret: Some("our-s3cret".to_owned()),
        ..OAuth::default()
    });
    server.log_in(&known, "").await.unwrap();
    // The project's own secret is not kept anywhere else.
    assert!(!server.kept()[0].0.contains("our-s3cret"));
    assert_eq!(call(&known, "greet", json!({})).await.unwrap(), "Hello.");
    soon(known.close()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_passes_does_not_end_a_login() {
    let server = Guarded::start();
    let servers = server.worker();
    server.log_in(&servers, "").await.unwrap();
    assert_eq!(call(&servers, "greet", json!({})).await.unwrap(), "Hello.");
    server.get("/do?revoke=1").await;
    for (amiss, mended, why) in [
        ("well_known=503", "well_known=0", "503"),
        ("well_known=404", "well_known=0", "does not say now who"),
        (
            "refresh_error=%22invalid_client%22",
            "refresh_error=null",
            "invalid_client",
        ),
    ] {
        server.get(&format!("/do?{amiss}")).await;
        let failure = call(&servers, "greet", json!({})).await.unwrap_err();
        let words = failure.to_string();
        assert!(!failure.is_unknown(), "{words}");
        assert!(words.contains("could not be renewed"), "{words}");
        assert!(words.contains(why), "{words}");
        assert!(
            words.ends_with("run `longhaul mcp login guarded`"),
            "{words}"
        );
        // Neither is whoever comes new told anything else.
        let words = turned_away(&server.worker()).await;
        assert!(words.contains(why), "{words}");
        let kept = server.kept();
        assert!(kept[0].0.contains("refresh-s3cret-1"), "it stays");
        assert!(!servers.standing("guarded").unwrap().unwrap().over);
        server.get(&format!("/do?{mended}")).await;
    }
    assert_eq!(call(&servers, "greet", json!({})).await.unwrap(), "Hello.");
    soon(servers.close()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_renewal_that_nobody_waits_for_is_kept_all_the_same() {
    let server = Guarded::start();
    let servers = server.worker();
    server.get("/do?lasts=5").await;
    server.log_in(&servers, "").await.unwrap();
    server.get("/do?gate=false").await;
    tokio::select! {
        _ = servers.tools("guarded", None, RUN) => panic!("it waits for the renewal"),
        _ = soon(server.get("/arrived")) => {}
    }
    assert!(server.kept()[0].0.contains("refresh-s3cret-1"));
    server.get("/do?gate=true").await;
    soon(servers.close()).await;
    soon(servers.settle()).await;
    assert!(server.kept()[0].0.contains("refresh-s3cret-2"));
    let other = server.worker();
    assert_eq!(call(&other, "greet", json!({})).await.unwrap(), "Hello.");
    assert_eq!(server.seen().await["refreshes"], 1);
    soon(other.close()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn no_token_is_asked_for_that_nobody_would_keep() {
    let server = Guarded::start();
    let servers = server.worker();
    server.get("/do?lasts=5").await;
    server.log_in(&servers, "").await.unwrap();
    server.get("/do?known_waits=true&gate=false").await;
    tokio::select! {
        _ = servers.tools("guarded", None, RUN) => panic!("it waits for the renewal"),
        _ = soon(server.get("/arrived")) => {}
    }
    let opened = server.get("/do?gate=true");
    soon(async { tokio::join!(servers.settle(), opened) }).await;
    assert_eq!(server.seen().await["refreshes"], 0);
    assert!(server.kept()[0].0.contains("refresh-s3cret-1"));
    soon(servers.close()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_server_wants_is_asked_as_a_stranger() {
    let server = Guarded::start();
    let servers = server.worker();
    assert!(soon(servers.wants_login("guarded")).await.unwrap());
    server.log_in(&servers, "").await.unwrap();
    assert!(soon(servers.wants_login("guarded")).await.unwrap());
    // Only calls want one.
    server.get("/do?open=true").await;
    assert!(!soon(servers.wants_login("guarded")).await.unwrap());
    assert!(soon(servers.publishes_login("guarded")).await.unwrap());
    server.get("/do?well_known=404").await;
    assert!(!soon(servers.publishes_login("guarded")).await.unwrap());
    // Nor does whoever speaks without an end.
    server.get("/do?streams=true").await;
    assert!(!soon(servers.publishes_login("guarded")).await.unwrap());
}
