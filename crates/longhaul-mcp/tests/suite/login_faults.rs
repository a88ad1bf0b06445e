//! Logins with errors in the credential file or at the server. The error is reported, and the login
//! is not deleted without need.

use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt as _, symlink};

use longhaul_mcp::{LoginRequest, McpError};
use serde_json::json;

use super::harness::{RUN, call, tool, tool_context, within_timeout};
use super::login_harness::OAuthServer;

#[tokio::test(flavor = "multi_thread")]
async fn an_unusable_credential_file_is_reported_and_ends_no_login() {
    let server = OAuthServer::start();
    let servers = server.servers();
    server.log_in(&servers, "").await.unwrap();
    assert_eq!(call(&servers, "greet", json!({})).await.unwrap(), "Hello.");
    let file = server.login_file();
    let saved_content = fs::read(&file).unwrap();
    let (open, private) = (Permissions::from_mode(0o644), Permissions::from_mode(0o600));
    // The file becomes unusable in the middle of a run.
    let greet = tool(&servers, "greet").await;
    fs::set_permissions(&file, open).unwrap();
    let (ctx, _progress) = tool_context();
    let failure = within_timeout(greet.call(json!({}), &ctx)).await.unwrap_err();
    let message = failure.to_string();
    assert!(!failure.is_outcome_unknown(), "{message}");
    assert!(message.contains("is accessible to other users (mode 644)"), "{message}");
    fs::set_permissions(&file, private).unwrap();
    fs::write(&file, "{").unwrap();
    // A new worker gets a single accurate error.
    let error = within_timeout(server.servers().server_tools("guarded", None, RUN)).await;
    let error = error.unwrap_err();
    assert!(matches!(error, McpError::LoginRequired { .. }), "{error:?}");
    let message = error.to_string();
    assert!(message.contains("`longhaul mcp logout guarded`"), "{message}");
    assert!(!message.contains("server is running"), "{message}");
    assert!(!message.contains(".."), "{message}");
    fs::write(&file, saved_content).unwrap();
    assert_eq!(call(&servers, "greet", json!({})).await.unwrap(), "Hello.");
    // All over one connection.
    assert_eq!(server.stats().await["handshakes"], 1);
    within_timeout(servers.close_all_servers()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn no_browser_login_starts_if_credentials_can_not_be_saved() {
    let server = OAuthServer::start();
    let servers = server.servers();
    let folder = server.login_dir();
    fs::create_dir_all(&folder).unwrap();
    fs::set_permissions(&folder, Permissions::from_mode(0o755)).unwrap();
    let request = LoginRequest {
        redirect_uri: "http://127.0.0.1:1/callback".to_owned(),
        ..LoginRequest::default()
    };
    let error =
        within_timeout(servers.login("guarded").unwrap().start(&request)).await.unwrap_err();
    assert!(error.to_string().contains("is accessible to other users (mode 755)"), "{error}");
    fs::set_permissions(&folder, Permissions::from_mode(0o700)).unwrap();
    let target = folder.with_file_name("real");
    fs::rename(&folder, &target).unwrap();
    symlink(&target, &folder).unwrap();
    let error =
        within_timeout(servers.login("guarded").unwrap().start(&request)).await.unwrap_err();
    assert!(error.to_string().contains("is a symbolic link or not a directory"), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_token_that_does_not_fit_a_header_is_rejected() {
    let server = OAuthServer::start();
    let servers = server.servers();
    server.get("/control?next_access_token=%22s3cret%5Cr%5Cn%22").await;
    let error = server.log_in(&servers, "").await.unwrap_err().to_string();
    assert!(error.contains("not valid in a header"), "{error}");
    assert!(server.saved_logins().is_empty());
    server.log_in(&servers, "").await.unwrap();
    assert_eq!(call(&servers, "greet", json!({})).await.unwrap(), "Hello.");
    server.get("/control?revoke_access_tokens=1&next_access_token=%22s3cret%5Cr%5Cn%22").await;
    let failure = call(&servers, "greet", json!({})).await.unwrap_err();
    let message = failure.to_string();
    assert!(!failure.is_outcome_unknown(), "{message}");
    assert!(message.contains("the token is not valid in a header"), "{message}");
    assert!(!message.contains("s3cret"), "{message}");
    // The refresh token of the same response was saved.
    assert!(server.saved_logins()[0].0.contains("refresh-s3cret-3"));
    assert_eq!(call(&servers, "greet", json!({})).await.unwrap(), "Hello.");
    assert_eq!(server.stats().await["refreshes"], 2);
    within_timeout(servers.close_all_servers()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_expiring_token_is_used_while_refresh_fails() {
    let server = OAuthServer::start();
    let servers = server.servers();
    server.get("/control?token_lifetime_seconds=29").await;
    server.log_in(&servers, "").await.unwrap();
    server.get("/control?refresh_error=%22temporarily_unavailable%22").await;
    assert_eq!(call(&servers, "greet", json!({})).await.unwrap(), "Hello.");
    let stats = server.stats().await;
    assert!(stats["refreshes"].as_u64().unwrap() >= 1, "{stats}");
    server.get("/control?refresh_error=null").await;
    assert_eq!(call(&servers, "greet", json!({})).await.unwrap(), "Hello.");
    assert!(server.saved_logins()[0].0.contains("refresh-s3cret-2"));
    within_timeout(servers.close_all_servers()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn no_token_is_requested_while_it_can_not_be_saved() {
    let server = OAuthServer::start();
    let servers = server.servers();
    server.log_in(&servers, "").await.unwrap();
    assert_eq!(call(&servers, "greet", json!({})).await.unwrap(), "Hello.");
    // A directory blocks the path of the temporary file.
    let extension = format!("json.{}", std::process::id());
    let temp_path = server.login_file().with_extension(extension);
    fs::create_dir(&temp_path).unwrap();
    server.get("/control?revoke_access_tokens=1").await;
    let failure = call(&servers, "greet", json!({})).await.unwrap_err();
    assert!(!failure.is_outcome_unknown(), "{failure}");
    assert!(failure.to_string().contains("the login file `"), "{failure}");
    assert_eq!(server.stats().await["refreshes"], 0);
    assert!(server.saved_logins()[0].0.contains("refresh-s3cret-1"));
    // The path is free again, and the login is not lost.
    fs::remove_dir(&temp_path).unwrap();
    assert_eq!(call(&servers, "greet", json!({})).await.unwrap(), "Hello.");
    assert!(server.saved_logins()[0].0.contains("refresh-s3cret-2"));
    assert_eq!(server.stats().await["refreshes"], 1);
    within_timeout(servers.close_all_servers()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_forbidden_call_is_reported_and_does_not_end_the_login() {
    let server = OAuthServer::start();
    let servers = server.servers();
    server.log_in(&servers, "").await.unwrap();
    assert_eq!(call(&servers, "greet", json!({})).await.unwrap(), "Hello.");
    server.get("/control?forbid_calls=true").await;
    let failure = call(&servers, "greet", json!({})).await.unwrap_err();
    let message = failure.to_string();
    assert!(!failure.is_outcome_unknown(), "{message}");
    assert!(message.contains("does not allow this"), "{message}");
    assert!(!message.contains("Authorization header"), "{message}");
    server.get("/control?forbid_calls=false").await;
    assert_eq!(call(&servers, "greet", json!({})).await.unwrap(), "Hello.");
    assert_eq!(server.stats().await["handshakes"], 1);
    within_timeout(servers.close_all_servers()).await;
}
