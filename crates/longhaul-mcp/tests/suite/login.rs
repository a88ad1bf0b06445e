//! Logins: made once, shared by all processes, refreshed once for all callers, and deleted.

use futures_util::future::join_all;
use longhaul_mcp::{
    CallbackServer, LoginRequest, McpError, McpServers, OAuthConfig, redact_tokens,
};
use serde_json::json;

use super::harness::{RUN, call, within_timeout};
use super::login_harness::OAuthServer;

/// Returns the error of a missing login.
async fn login_error(servers: &McpServers) -> String {
    let error = within_timeout(servers.server_tools("guarded", None, RUN)).await.unwrap_err();
    assert!(matches!(error, McpError::LoginRequired { .. }), "{error:?}");
    let message = error.to_string();
    assert!(message.contains("`longhaul mcp login guarded`"), "{message}");
    message
}

#[tokio::test(flavor = "multi_thread")]
async fn a_login_is_used_until_logout() {
    let server = OAuthServer::start();
    let servers = server.servers();
    let message = login_error(&servers).await;
    assert!(message.contains("a login is required"), "{message}");
    assert!(servers.login("guarded").unwrap().status().unwrap().is_none());
    let status = server.log_in(&servers, "").await.unwrap();
    // The scope that the server requires.
    assert_eq!(status.scopes, ["use"]);
    assert!(status.is_renewable && !status.is_expired && status.expires_at.is_some());
    let output = call(&servers, "greet", json!({})).await.unwrap();
    assert_eq!(output, "Hello.");
    // Another process uses the same login.
    let other = server.servers();
    assert_eq!(call(&other, "greet", json!({})).await.unwrap(), "Hello.");
    let logins = server.saved_logins();
    assert_eq!(logins.len(), 1);
    assert!(logins[0].0.contains("access-s3cret-1"), "the token is not saved");
    assert_eq!(logins[0].1, 0o600);
    let debug_text = format!("{servers:?} {status:?}");
    assert!(!debug_text.contains("s3cret"), "{debug_text}");
    // A token that a server repeats is redacted before it reaches a journal.
    let output = call(&servers, "echo_token", json!({})).await.unwrap();
    assert!(output.contains("access-s3cret-1"), "{output}");
    assert!(!redact_tokens(&output).contains("s3cret"), "{output}");
    for was_logged_in in [true, false] {
        assert_eq!(
            within_timeout(servers.login("guarded").unwrap().log_out()).await.unwrap(),
            was_logged_in
        );
    }
    assert!(server.saved_logins().is_empty());
    login_error(&server.servers()).await;
    within_timeout(servers.close_all_servers()).await;
    within_timeout(other.close_all_servers()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_expiring_token_is_refreshed_once_for_all_callers() {
    let server = OAuthServer::start();
    server.get("/control?token_lifetime_seconds=5").await;
    let servers = [server.servers(), server.servers(), server.servers()];
    server.log_in(&servers[0], "").await.unwrap();
    let calls = servers.iter().map(|servers| call(servers, "greet", json!({})));
    for result in join_all(calls).await {
        assert_eq!(result.unwrap(), "Hello.");
    }
    assert_eq!(server.stats().await["refreshes"], 1);
    // Revoked before it expires, while it is in use.
    server.get("/control?revoke_access_tokens=1").await;
    let calls = servers.iter().chain(&servers);
    let calls = calls.map(|servers| call(servers, "greet", json!({})));
    for result in join_all(calls).await {
        assert_eq!(result.unwrap(), "Hello.");
    }
    assert_eq!(server.stats().await["refreshes"], 2);
    for servers in &servers {
        within_timeout(servers.close_all_servers()).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_revoked_login_is_reported_and_leaves_no_call_in_doubt() {
    let server = OAuthServer::start();
    let servers = server.servers();
    server.log_in(&servers, "").await.unwrap();
    assert_eq!(call(&servers, "greet", json!({})).await.unwrap(), "Hello.");
    server.get("/control?revoke_access_tokens=1&revoke_refresh_token=1").await;
    let failure = call(&servers, "greet", json!({})).await.unwrap_err();
    let message = failure.to_string();
    assert!(!failure.is_outcome_unknown(), "{message}");
    assert!(message.contains("the login was revoked"), "{message}");
    assert!(message.contains("`longhaul mcp login guarded`"), "{message}");
    assert!(!message.contains("s3cret"), "{message}");
    // A rejected refresh is not retried.
    login_error(&servers).await;
    assert_eq!(server.stats().await["refreshes"], 1);
    assert!(servers.login("guarded").unwrap().status().unwrap().unwrap().is_expired);
    let message = login_error(&server.servers()).await;
    assert!(message.contains("revoked"), "{message}");
    server.log_in(&servers, "").await.unwrap();
    assert_eq!(call(&servers, "greet", json!({})).await.unwrap(), "Hello.");
    within_timeout(servers.close_all_servers()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_missing_scope_is_reported_and_requested_at_login() {
    let server = OAuthServer::start();
    let servers = server.servers();
    login_error(&servers).await;
    server.log_in(&servers, "").await.unwrap();
    let failure = call(&servers, "admin", json!({})).await.unwrap_err();
    let message = failure.to_string();
    assert!(!failure.is_outcome_unknown(), "{message}");
    let command = "`longhaul mcp login guarded --scope \"admin\"`";
    assert!(message.contains(command), "{message}");
    // Other calls still work.
    assert_eq!(call(&servers, "greet", json!({})).await.unwrap(), "Hello.");
    let other = server.servers();
    let status = server.log_in(&other, "admin").await.unwrap();
    assert_eq!(status.scopes, ["use", "admin"]);
    assert_eq!(call(&servers, "admin", json!({})).await.unwrap(), "Hello.");
    let stats = server.stats().await;
    assert_eq!(stats["requested_scopes"], json!(["use", "use admin"]), "{stats}");
    within_timeout(servers.close_all_servers()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_callback_with_another_state_is_ignored() {
    let server = OAuthServer::start();
    let servers = server.servers();
    let callback_server = CallbackServer::bind(None).await.unwrap();
    let request =
        LoginRequest { redirect_uri: callback_server.redirect_uri(), ..LoginRequest::default() };
    for (from, to, expected) in [
        ("state=", "state=x", "belongs to another login"),
        ("code=", "c0de=", "has no code"),
        ("iss=", "iss=x", "issuer mismatch"),
        ("iss=", "was=", "missing required issuer"),
        ("http", "", "not a URL"),
    ] {
        let login =
            within_timeout(servers.login("guarded").unwrap().start(&request)).await.unwrap();
        let callback_url = server.approve(login.authorization_url()).await.replacen(from, to, 1);
        let error =
            within_timeout(login.finish_login(&callback_url)).await.unwrap_err().to_string();
        assert!(error.contains(expected), "{callback_url}: {error}");
        assert!(!error.contains("c0de"), "{error}");
    }
    server.get("/control?deny_authorization=true").await;
    let error = server.log_in(&servers, "").await.unwrap_err().to_string();
    assert!(error.contains("access_denied"), "{error}");
    assert_eq!(server.stats().await["logins"], 0);
    assert!(server.saved_logins().is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn login_requests_go_only_to_allowed_addresses() {
    let server = OAuthServer::start();
    let servers = server.servers();
    for (endpoint, expected) in [
        ("https://169.254.169.254/token", "private or reserved"),
        ("http://far.example/token", "not https://"),
        ("file:///etc/passwd", "has no host"),
    ] {
        server.get(&format!("/control?token_endpoint=%22{endpoint}%22")).await;
        let error = server.log_in(&servers, "").await.unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
    }
    server.get("/control?token_endpoint=null&supports_registration=false").await;
    let error = server.log_in(&servers, "").await.unwrap_err().to_string();
    assert!(error.contains("\"clientId\""), "{error}");
    let configured = server.servers_with(OAuthConfig {
        client_id: Some("us".to_owned()),
        client_secret: Some("our-s3cret".to_owned()),
        ..OAuthConfig::default()
    });
    server.log_in(&configured, "").await.unwrap();
    // The project's own client secret is not stored in the file.
    assert!(!server.saved_logins()[0].0.contains("our-s3cret"));
    assert_eq!(call(&configured, "greet", json!({})).await.unwrap(), "Hello.");
    within_timeout(configured.close_all_servers()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn transient_errors_do_not_end_a_login() {
    let server = OAuthServer::start();
    let servers = server.servers();
    server.log_in(&servers, "").await.unwrap();
    assert_eq!(call(&servers, "greet", json!({})).await.unwrap(), "Hello.");
    server.get("/control?revoke_access_tokens=1").await;
    for (fault, fix, expected) in [
        ("metadata_error_status=503", "metadata_error_status=0", "503"),
        (
            "metadata_error_status=404",
            "metadata_error_status=0",
            "currently names no authorization server",
        ),
        ("refresh_error=%22invalid_client%22", "refresh_error=null", "invalid_client"),
    ] {
        server.get(&format!("/control?{fault}")).await;
        let failure = call(&servers, "greet", json!({})).await.unwrap_err();
        let message = failure.to_string();
        assert!(!failure.is_outcome_unknown(), "{message}");
        assert!(message.contains("could not be refreshed"), "{message}");
        assert!(message.contains(expected), "{message}");
        assert!(message.ends_with("run `longhaul mcp login guarded`"), "{message}");
        // A new worker gets the same error.
        let message = login_error(&server.servers()).await;
        assert!(message.contains(expected), "{message}");
        let logins = server.saved_logins();
        assert!(logins[0].0.contains("refresh-s3cret-1"), "the login was deleted");
        assert!(!servers.login("guarded").unwrap().status().unwrap().unwrap().is_expired);
        server.get(&format!("/control?{fix}")).await;
    }
    assert_eq!(call(&servers, "greet", json!({})).await.unwrap(), "Hello.");
    within_timeout(servers.close_all_servers()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_abandoned_token_refresh_is_saved() {
    let server = OAuthServer::start();
    let servers = server.servers();
    server.get("/control?token_lifetime_seconds=5").await;
    server.log_in(&servers, "").await.unwrap();
    server.get("/control?hold_requests=true").await;
    tokio::select! {
        _ = servers.server_tools("guarded", None, RUN) => panic!("returned before the refresh"),
        _ = within_timeout(server.get("/wait_until_held")) => {}
    }
    assert!(server.saved_logins()[0].0.contains("refresh-s3cret-1"));
    server.get("/control?hold_requests=false").await;
    within_timeout(servers.close_all_servers()).await;
    within_timeout(servers.finish_token_refreshes()).await;
    assert!(server.saved_logins()[0].0.contains("refresh-s3cret-2"));
    let other = server.servers();
    assert_eq!(call(&other, "greet", json!({})).await.unwrap(), "Hello.");
    assert_eq!(server.stats().await["refreshes"], 1);
    within_timeout(other.close_all_servers()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn no_token_is_refreshed_that_could_not_be_saved() {
    let server = OAuthServer::start();
    let servers = server.servers();
    server.get("/control?token_lifetime_seconds=5").await;
    server.log_in(&servers, "").await.unwrap();
    server.get("/control?hold_metadata=true&hold_requests=true").await;
    tokio::select! {
        _ = servers.server_tools("guarded", None, RUN) => panic!("returned before the refresh"),
        _ = within_timeout(server.get("/wait_until_held")) => {}
    }
    let release_requests = server.get("/control?hold_requests=false");
    within_timeout(async { tokio::join!(servers.finish_token_refreshes(), release_requests) })
        .await;
    assert_eq!(server.stats().await["refreshes"], 0);
    assert!(server.saved_logins()[0].0.contains("refresh-s3cret-1"));
    within_timeout(servers.close_all_servers()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn login_requirements_are_probed_without_credentials() {
    let server = OAuthServer::start();
    let servers = server.servers();
    assert!(within_timeout(servers.requires_login("guarded")).await.unwrap());
    server.log_in(&servers, "").await.unwrap();
    assert!(within_timeout(servers.requires_login("guarded")).await.unwrap());
    // Only calls require a login.
    server.get("/control?login_for_calls_only=true").await;
    assert!(!within_timeout(servers.requires_login("guarded")).await.unwrap());
    assert!(within_timeout(servers.login("guarded").unwrap().is_advertised()).await.unwrap());
    server.get("/control?metadata_error_status=404").await;
    assert!(!within_timeout(servers.login("guarded").unwrap().is_advertised()).await.unwrap());
    // Neither does an endless stream of events.
    server.get("/control?stream_on_get=true").await;
    assert!(!within_timeout(servers.login("guarded").unwrap().is_advertised()).await.unwrap());
}
