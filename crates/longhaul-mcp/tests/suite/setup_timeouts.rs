//! Waits before a call is sent: a server that has to start, a login that has to be refreshed. A
//! call that was not sent is never in doubt.

use std::time::Duration;

use longhaul_core::time::Millis;
use longhaul_mcp::{McpError, McpServers, OAuthConfig};
use serde_json::json;
use tokio::time::timeout;

use super::harness::{
    RUN, call, hostile_spec, lines, single_server, text, tool, tool_context, within_timeout,
};
use super::login_harness::OAuthServer;

/// Timeout of a call. A call waits a quarter of it for the connection and the login.
const TIMEOUT: Millis = Millis::from_secs(4);

#[tokio::test]
async fn a_slow_restart_continues_after_its_caller_gave_up() {
    let dir = tempfile::tempdir().unwrap();
    let mut spec = hostile_spec("slow_restart", dir.path());
    spec.timeout = TIMEOUT;
    let (servers, _) = single_server(spec);
    let environment = tool(&servers, "environment").await;
    call(&servers, "die", json!({})).await.unwrap_err();
    let (ctx, _progress) = tool_context();
    for _ in 0..2 {
        let failure = within_timeout(environment.call(json!({}), &ctx)).await.unwrap_err();
        let message = failure.to_string();
        assert!(!failure.is_outcome_unknown(), "{message}");
        assert!(message.ends_with("was not ready within 1 s; the call was not sent"), "{message}");
    }
    std::fs::write(dir.path().join("allow_restart"), "").unwrap();
    // This call waits for the start that is already in progress.
    call(&servers, "hello", json!({})).await.unwrap();
    within_timeout(environment.call(json!({}), &ctx)).await.unwrap();
    assert_eq!(lines(dir.path(), "starts"), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_slow_token_refresh_leaves_no_call_in_doubt() {
    let server = OAuthServer::start();
    let servers = server.servers_with_timeout(OAuthConfig::default(), TIMEOUT);
    server.log_in(&servers, "").await.unwrap();
    let greet = tool(&servers, "greet").await;
    server.get("/control?revoke_access_tokens=1&hold_requests=true").await;
    let (ctx, _progress) = tool_context();
    let failure = within_timeout(greet.call(json!({}), &ctx)).await.unwrap_err();
    let message = failure.to_string();
    assert!(!failure.is_outcome_unknown(), "{message}");
    assert!(message.contains("still being refreshed; try again"), "{message}");
    server.get("/control?hold_requests=false").await;
    // The refresh and the connection survived the timeout of the call.
    let output = within_timeout(greet.call(json!({}), &ctx)).await.unwrap();
    assert_eq!(text(&output), "Hello.");
    let stats = server.stats().await;
    assert_eq!((&stats["refreshes"], &stats["calls"]), (&json!(1), &json!(1)));
    within_timeout(servers.close_all_servers()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_new_connection_waits_longer_for_a_token_refresh_than_a_call() {
    let server = OAuthServer::start();
    server.get("/control?token_lifetime_seconds=5").await;
    server.log_in(&server.servers(), "").await.unwrap();
    server.get("/control?hold_requests=true").await;
    let servers = server.servers_with_timeout(OAuthConfig::default(), Millis::from_secs(2));
    {
        let tools = servers.server_tools("guarded", None, RUN);
        tokio::pin!(tools);
        // A call would have timed out by now, and so would the handshake after it.
        let result = timeout(Duration::from_millis(1_500), &mut tools).await;
        assert!(result.is_err(), "{:?}", result.map(|tools| tools.is_ok()));
        server.get("/control?hold_requests=false").await;
        assert_eq!(within_timeout(tools).await.unwrap().len(), 3);
    }
    assert_eq!(server.stats().await["refreshes"], 1);
    within_timeout(servers.close_all_servers()).await;
}

/// Returns why the login is missing, and whether that is transient.
async fn login_error(servers: &McpServers) -> (String, bool) {
    match within_timeout(servers.server_tools("guarded", None, RUN)).await {
        Err(McpError::LoginRequired { reason, is_transient, .. }) => (reason, is_transient),
        other => panic!("{other:?}"),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_expired_login_is_reported_before_a_call_is_sent() {
    let server = OAuthServer::start();
    let servers = server.servers();
    server.log_in(&servers, "").await.unwrap();
    assert_eq!(call(&servers, "greet", json!({})).await.unwrap(), "Hello.");
    // The next token expires soon, and its refresh token is revoked below.
    server.get("/control?revoke_access_tokens=1&token_lifetime_seconds=5").await;
    assert_eq!(call(&servers, "greet", json!({})).await.unwrap(), "Hello.");
    server.get("/control?revoke_refresh_token=1").await;
    let (reason, is_transient) = login_error(&servers).await;
    assert_eq!(reason, "the login was revoked; run `longhaul mcp login guarded`");
    assert!(!is_transient);
    assert_eq!(server.stats().await["calls"], 2);
    server.log_in(&servers, "").await.unwrap();
    assert_eq!(call(&servers, "greet", json!({})).await.unwrap(), "Hello.");
    within_timeout(servers.close_all_servers()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn outages_are_transient_and_error_responses_permanent() {
    let server = OAuthServer::start();
    server.log_in(&server.servers(), "").await.unwrap();
    server.get("/control?revoke_access_tokens=1").await;
    for (fault, expected) in [
        ("metadata_error_status=503", true),
        ("metadata_error_status=404", true),
        ("metadata_error_status=0&refresh_error=%22invalid_client%22", false),
        ("refresh_error=%22temporarily_unavailable%22", true),
    ] {
        server.get(&format!("/control?{fault}")).await;
        let (reason, is_transient) = login_error(&server.servers()).await;
        assert_eq!(is_transient, expected, "{fault}: {reason}");
    }
}
