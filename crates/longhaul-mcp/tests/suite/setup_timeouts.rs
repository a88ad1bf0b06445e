//! What comes before a question: a server that has to start, a login that has to be
//! renewed. Who has asked nothing yet is never in doubt about it.

use std::time::Duration;

use longhaul_core::time::Millis;
use longhaul_mcp::{McpError, OAuthConfig, Servers};
use serde_json::json;
use tokio::time::timeout;

use super::harness::{
    RUN, call, hostile_spec, lines, single_server, text, tool, tool_context, within_timeout,
};
use super::login_harness::OAuthServer;

/// Calls wait a quarter of this for what comes before their question.
const TIMEOUT: Millis = Millis::from_secs(4);

#[tokio::test]
async fn a_slow_restart_continues_after_its_caller_gave_up() {
    let place = tempfile::tempdir().unwrap();
    let mut spec = hostile_spec("slow_again", place.path());
    spec.timeout = TIMEOUT;
    let (servers, _) = single_server(spec);
    let once = tool(&servers, "environment").await;
    call(&servers, "die", json!({})).await.unwrap_err();
    let (around, _told) = tool_context();
    for _ in 0..2 {
        let failure = within_timeout(once.call(json!({}), &around)).await.unwrap_err();
        let words = failure.to_string();
        assert!(!failure.is_outcome_unknown(), "{words}");
        assert!(words.ends_with("was not ready in 1 s; nothing was asked of it"), "{words}");
    }
    std::fs::write(place.path().join("go"), "").unwrap();
    // The same start is what this waits for.
    call(&servers, "hello", json!({})).await.unwrap();
    within_timeout(once.call(json!({}), &around)).await.unwrap();
    assert_eq!(lines(place.path(), "started"), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_slow_token_refresh_leaves_no_call_in_doubt() {
    let server = OAuthServer::start();
    let servers = server.servers_with_timeout(OAuthConfig::default(), TIMEOUT);
    server.log_in(&servers, "").await.unwrap();
    let greet = tool(&servers, "greet").await;
    server.get("/do?revoke=1&gate=false").await;
    let (around, _told) = tool_context();
    let failure = within_timeout(greet.call(json!({}), &around)).await.unwrap_err();
    let words = failure.to_string();
    assert!(!failure.is_outcome_unknown(), "{words}");
    assert!(words.contains("still being renewed; try it again"), "{words}");
    server.get("/do?gate=true").await;
    // Nothing was lost by not waiting: neither the renewal nor the connection.
    let said = within_timeout(greet.call(json!({}), &around)).await.unwrap();
    assert_eq!(text(&said), "Hello.");
    let seen = server.stats().await;
    assert_eq!((&seen["refreshes"], &seen["calls"]), (&json!(1), &json!(1)));
    within_timeout(servers.close()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_new_connection_waits_longer_for_a_token_refresh_than_a_call() {
    let server = OAuthServer::start();
    server.get("/do?lasts=5").await;
    server.log_in(&server.servers(), "").await.unwrap();
    server.get("/do?gate=false").await;
    let servers = server.servers_with_timeout(OAuthConfig::default(), Millis::from_secs(2));
    {
        let tools = servers.tools("guarded", None, RUN);
        tokio::pin!(tools);
        // A call would have given up by now, and the greeting after it as well.
        let early = timeout(Duration::from_millis(1_500), &mut tools).await;
        assert!(early.is_err(), "{:?}", early.map(|tools| tools.is_ok()));
        server.get("/do?gate=true").await;
        assert_eq!(within_timeout(tools).await.unwrap().len(), 3);
    }
    assert_eq!(server.stats().await["refreshes"], 1);
    within_timeout(servers.close()).await;
}

/// Why nobody is let in, and whether that passes.
async fn login_error(servers: &Servers) -> (String, bool) {
    match within_timeout(servers.tools("guarded", None, RUN)).await {
        Err(McpError::LoginRequired { reason: why, is_transient: passes, .. }) => (why, passes),
        other => panic!("{other:?}"),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_expired_login_is_reported_before_a_call_is_sent() {
    let server = OAuthServer::start();
    let servers = server.servers();
    server.log_in(&servers, "").await.unwrap();
    assert_eq!(call(&servers, "greet", json!({})).await.unwrap(), "Hello.");
    // The next token is a short one, and none comes after it.
    server.get("/do?revoke=1&lasts=5").await;
    assert_eq!(call(&servers, "greet", json!({})).await.unwrap(), "Hello.");
    server.get("/do?revoke_refresh=1").await;
    let (why, passes) = login_error(&servers).await;
    assert_eq!(why, "its login was taken back; run `longhaul mcp login guarded`");
    assert!(!passes);
    assert_eq!(server.stats().await["calls"], 2);
    server.log_in(&servers, "").await.unwrap();
    assert_eq!(call(&servers, "greet", json!({})).await.unwrap(), "Hello.");
    within_timeout(servers.close()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn outages_are_transient_and_error_responses_permanent() {
    let server = OAuthServer::start();
    server.log_in(&server.servers(), "").await.unwrap();
    server.get("/do?revoke=1").await;
    for (amiss, expect) in [
        ("well_known=503", true),
        ("well_known=404", true),
        ("well_known=0&refresh_error=%22invalid_client%22", false),
        ("refresh_error=%22temporarily_unavailable%22", true),
    ] {
        server.get(&format!("/do?{amiss}")).await;
        let (why, passes) = login_error(&server.servers()).await;
        assert_eq!(passes, expect, "{amiss}: {why}");
    }
}
