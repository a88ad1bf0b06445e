//! Logins: made once, used by all, renewed by one, and forgotten.

use futures_util::future::join_all;
use longhaul_mcp::{
    CallbackServer, LoginRequest, LogoutOutcome, McpError, OAuthConfig, Servers, redact_tokens,
};
use serde_json::json;

use super::harness::{RUN, call, within_timeout};
use super::login_harness::OAuthServer;

/// Why nobody is let in, which is known and never in doubt.
async fn login_error(servers: &Servers) -> String {
    let error = within_timeout(servers.tools("guarded", None, RUN)).await.unwrap_err();
    assert!(matches!(error, McpError::LoginRequired { .. }), "{error:?}");
    let words = error.to_string();
    assert!(words.contains("`longhaul mcp login guarded`"), "{words}");
    words
}

#[tokio::test(flavor = "multi_thread")]
async fn a_login_is_used_until_logout() {
    let server = OAuthServer::start();
    let servers = server.servers();
    let words = login_error(&servers).await;
    assert!(words.contains("it wants a login"), "{words}");
    assert!(servers.login_status("guarded").unwrap().is_none());
    let standing = server.log_in(&servers, "").await.unwrap();
    // What the server said it needs.
    assert_eq!(standing.scopes, ["use"]);
    assert!(standing.is_renewable && !standing.is_expired && standing.expires_at.is_some());
    let said = call(&servers, "greet", json!({})).await.unwrap();
    assert_eq!(said, "Hello.");
    // Another process has it as well.
    let other = server.servers();
    assert_eq!(call(&other, "greet", json!({})).await.unwrap(), "Hello.");
    let kept = server.saved_logins();
    assert_eq!(kept.len(), 1);
    assert!(kept[0].0.contains("access-s3cret-1"), "it is kept");
    assert_eq!(kept[0].1, 0o600);
    let seen = format!("{servers:?} {standing:?}");
    assert!(!seen.contains("s3cret"), "{seen}");
    // A server that repeats it does not bring it into a journal.
    let said = call(&servers, "leak", json!({})).await.unwrap();
    assert!(said.contains("access-s3cret-1"), "{said}");
    assert!(!redact_tokens(&said).contains("s3cret"), "{said}");
    for expect in [LogoutOutcome::Revoked, LogoutOutcome::NotLoggedIn] {
        let gone = within_timeout(servers.logout("guarded", true)).await.unwrap();
        assert_eq!(gone, expect);
    }
    assert!(server.saved_logins().is_empty());
    login_error(&server.servers()).await;
    within_timeout(servers.close()).await;
    within_timeout(other.close()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_expiring_token_is_refreshed_once_for_all_callers() {
    let server = OAuthServer::start();
    server.get("/do?lasts=5").await;
    let servers = [server.servers(), server.servers(), server.servers()];
    server.log_in(&servers[0], "").await.unwrap();
    let calls = servers.iter().map(|servers| call(servers, "greet", json!({})));
    for said in join_all(calls).await {
        assert_eq!(said.unwrap(), "Hello.");
    }
    assert_eq!(server.stats().await["refreshes"], 1);
    // Taken back before its time, in the middle of everything.
    server.get("/do?revoke=1").await;
    let calls = servers.iter().chain(&servers);
    let calls = calls.map(|servers| call(servers, "greet", json!({})));
    for said in join_all(calls).await {
        assert_eq!(said.unwrap(), "Hello.");
    }
    assert_eq!(server.stats().await["refreshes"], 2);
    for servers in &servers {
        within_timeout(servers.close()).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_revoked_login_is_reported_and_leaves_no_call_in_doubt() {
    let server = OAuthServer::start();
    let servers = server.servers();
    server.log_in(&servers, "").await.unwrap();
    assert_eq!(call(&servers, "greet", json!({})).await.unwrap(), "Hello.");
    server.get("/do?revoke=1&revoke_refresh=1").await;
    let failure = call(&servers, "greet", json!({})).await.unwrap_err();
    let words = failure.to_string();
    assert!(!failure.is_outcome_unknown(), "{words}");
    assert!(words.contains("its login was taken back"), "{words}");
    assert!(words.contains("`longhaul mcp login guarded`"), "{words}");
    assert!(!words.contains("s3cret"), "{words}");
    // It is not tried again and again.
    login_error(&servers).await;
    assert_eq!(server.stats().await["refreshes"], 1);
    assert!(servers.login_status("guarded").unwrap().unwrap().is_expired);
    let words = login_error(&server.servers()).await;
    assert!(words.contains("taken back"), "{words}");
    server.log_in(&servers, "").await.unwrap();
    assert_eq!(call(&servers, "greet", json!({})).await.unwrap(), "Hello.");
    within_timeout(servers.close()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_missing_scope_is_reported_and_requested_at_login() {
    let server = OAuthServer::start();
    let servers = server.servers();
    login_error(&servers).await;
    server.log_in(&servers, "").await.unwrap();
    let failure = call(&servers, "admin", json!({})).await.unwrap_err();
    let words = failure.to_string();
    assert!(!failure.is_outcome_unknown(), "{words}");
    let command = "`longhaul mcp login guarded --scope \"admin\"`";
    assert!(words.contains(command), "{words}");
    // The rest goes on meanwhile.
    assert_eq!(call(&servers, "greet", json!({})).await.unwrap(), "Hello.");
    let other = server.servers();
    let standing = server.log_in(&other, "admin").await.unwrap();
    assert_eq!(standing.scopes, ["use", "admin"]);
    assert_eq!(call(&servers, "admin", json!({})).await.unwrap(), "Hello.");
    let seen = server.stats().await;
    assert_eq!(seen["scopes"], json!(["use", "use admin"]), "{seen}");
    within_timeout(servers.close()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_callback_with_another_state_is_ignored() {
    let server = OAuthServer::start();
    let servers = server.servers();
    let door = CallbackServer::bind(None).await.unwrap();
    let visit = LoginRequest { redirect_uri: door.redirect_uri(), ..LoginRequest::default() };
    for (from, to, why) in [
        ("state=", "state=x", "not to the question"),
        ("code=", "c0de=", "holds no code"),
        ("iss=", "iss=x", "issuer mismatch"),
        ("iss=", "was=", "missing required issuer"),
        ("http", "", "no address"),
    ] {
        let began = within_timeout(servers.login("guarded", &visit)).await.unwrap();
        let led_to = server.approve(began.authorization_url()).await.replacen(from, to, 1);
        let error = within_timeout(began.finish(&led_to)).await.unwrap_err().to_string();
        assert!(error.contains(why), "{led_to}: {error}");
        assert!(!error.contains("c0de"), "{error}");
    }
    server.get("/do?denies=true").await;
    let error = server.log_in(&servers, "").await.unwrap_err().to_string();
    assert!(error.contains("access_denied"), "{error}");
    assert_eq!(server.stats().await["logins"], 0);
    assert!(server.saved_logins().is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn login_requests_go_only_to_allowed_addresses() {
    let server = OAuthServer::start();
    let servers = server.servers();
    for (endpoint, why) in [
        ("https://169.254.169.254/token", "private or reserved"),
        ("http://far.example/token", "not https://"),
        ("file:///etc/passwd", "without a host"),
    ] {
        server.get(&format!("/do?token_endpoint=%22{endpoint}%22")).await;
        let error = server.log_in(&servers, "").await.unwrap_err().to_string();
        assert!(error.contains(why), "{error}");
    }
    server.get("/do?token_endpoint=null&registers=false").await;
    let error = server.log_in(&servers, "").await.unwrap_err().to_string();
    assert!(error.contains("\"clientId\""), "{error}");
    let known = server.servers_with(OAuthConfig {
        client_id: Some("us".to_owned()),
        client_secret: Some("our-s3cret".to_owned()),
        ..OAuthConfig::default()
    });
    server.log_in(&known, "").await.unwrap();
    // The project's own secret is not kept anywhere else.
    assert!(!server.saved_logins()[0].0.contains("our-s3cret"));
    assert_eq!(call(&known, "greet", json!({})).await.unwrap(), "Hello.");
    within_timeout(known.close()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn transient_errors_do_not_end_a_login() {
    let server = OAuthServer::start();
    let servers = server.servers();
    server.log_in(&servers, "").await.unwrap();
    assert_eq!(call(&servers, "greet", json!({})).await.unwrap(), "Hello.");
    server.get("/do?revoke=1").await;
    for (amiss, mended, why) in [
        ("well_known=503", "well_known=0", "503"),
        ("well_known=404", "well_known=0", "does not say now who"),
        ("refresh_error=%22invalid_client%22", "refresh_error=null", "invalid_client"),
    ] {
        server.get(&format!("/do?{amiss}")).await;
        let failure = call(&servers, "greet", json!({})).await.unwrap_err();
        let words = failure.to_string();
        assert!(!failure.is_outcome_unknown(), "{words}");
        assert!(words.contains("could not be renewed"), "{words}");
        assert!(words.contains(why), "{words}");
        assert!(words.ends_with("run `longhaul mcp login guarded`"), "{words}");
        // Neither is whoever comes new told anything else.
        let words = login_error(&server.servers()).await;
        assert!(words.contains(why), "{words}");
        let kept = server.saved_logins();
        assert!(kept[0].0.contains("refresh-s3cret-1"), "it stays");
        assert!(!servers.login_status("guarded").unwrap().unwrap().is_expired);
        server.get(&format!("/do?{mended}")).await;
    }
    assert_eq!(call(&servers, "greet", json!({})).await.unwrap(), "Hello.");
    within_timeout(servers.close()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_abandoned_token_refresh_is_saved() {
    let server = OAuthServer::start();
    let servers = server.servers();
    server.get("/do?lasts=5").await;
    server.log_in(&servers, "").await.unwrap();
    server.get("/do?gate=false").await;
    tokio::select! {
        _ = servers.tools("guarded", None, RUN) => panic!("it waits for the renewal"),
        _ = within_timeout(server.get("/arrived")) => {}
    }
    assert!(server.saved_logins()[0].0.contains("refresh-s3cret-1"));
    server.get("/do?gate=true").await;
    within_timeout(servers.close()).await;
    within_timeout(servers.finish_refreshes()).await;
    assert!(server.saved_logins()[0].0.contains("refresh-s3cret-2"));
    let other = server.servers();
    assert_eq!(call(&other, "greet", json!({})).await.unwrap(), "Hello.");
    assert_eq!(server.stats().await["refreshes"], 1);
    within_timeout(other.close()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn no_token_is_refreshed_that_could_not_be_saved() {
    let server = OAuthServer::start();
    let servers = server.servers();
    server.get("/do?lasts=5").await;
    server.log_in(&servers, "").await.unwrap();
    server.get("/do?known_waits=true&gate=false").await;
    tokio::select! {
        _ = servers.tools("guarded", None, RUN) => panic!("it waits for the renewal"),
        _ = within_timeout(server.get("/arrived")) => {}
    }
    let opened = server.get("/do?gate=true");
    within_timeout(async { tokio::join!(servers.finish_refreshes(), opened) }).await;
    assert_eq!(server.stats().await["refreshes"], 0);
    assert!(server.saved_logins()[0].0.contains("refresh-s3cret-1"));
    within_timeout(servers.close()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn login_requirements_are_probed_without_credentials() {
    let server = OAuthServer::start();
    let servers = server.servers();
    assert!(within_timeout(servers.requires_login("guarded")).await.unwrap());
    server.log_in(&servers, "").await.unwrap();
    assert!(within_timeout(servers.requires_login("guarded")).await.unwrap());
    // Only calls want one.
    server.get("/do?open=true").await;
    assert!(!within_timeout(servers.requires_login("guarded")).await.unwrap());
    assert!(within_timeout(servers.advertises_login("guarded")).await.unwrap());
    server.get("/do?well_known=404").await;
    assert!(!within_timeout(servers.advertises_login("guarded")).await.unwrap());
    // Nor does whoever speaks without an end.
    server.get("/do?streams=true").await;
    assert!(!within_timeout(servers.advertises_login("guarded")).await.unwrap());
}
