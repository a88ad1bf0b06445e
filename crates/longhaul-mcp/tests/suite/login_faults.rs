//! Logins that something is wrong with, here or at the server: said as it is, and no
//! worse than it is.

use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt as _, symlink};

use longhaul_mcp::{CredentialFileError, LoginError, LoginRequest, McpError};
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
    let kept = fs::read(&file).unwrap();
    let (open, shut) = (Permissions::from_mode(0o644), Permissions::from_mode(0o600));
    // Somebody is in the middle of a run when it happens.
    let greet = tool(&servers, "greet").await;
    fs::set_permissions(&file, open).unwrap();
    let (around, _told) = tool_context();
    let failure = within_timeout(greet.call(json!({}), &around)).await.unwrap_err();
    let words = failure.to_string();
    assert!(!failure.is_outcome_unknown(), "{words}");
    assert!(words.contains("is open to others (mode 644)"), "{words}");
    fs::set_permissions(&file, shut).unwrap();
    fs::write(&file, "{").unwrap();
    // Whoever comes new is told once, and nothing that is not so.
    let error = within_timeout(server.servers().tools("guarded", None, RUN)).await;
    let error = error.unwrap_err();
    assert!(matches!(error, McpError::LoginRequired { .. }), "{error:?}");
    let words = error.to_string();
    assert!(words.contains("`longhaul mcp logout guarded`"), "{words}");
    assert!(!words.contains("Is it running"), "{words}");
    assert!(!words.contains(".."), "{words}");
    fs::write(&file, kept).unwrap();
    assert_eq!(call(&servers, "greet", json!({})).await.unwrap(), "Hello.");
    // All over the one link.
    assert_eq!(server.stats().await["greets"], 1);
    within_timeout(servers.close()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn no_browser_login_starts_if_credentials_can_not_be_saved() {
    let server = OAuthServer::start();
    let servers = server.servers();
    let folder = server.login_dir();
    fs::create_dir_all(&folder).unwrap();
    fs::set_permissions(&folder, Permissions::from_mode(0o755)).unwrap();
    let visit = LoginRequest {
        redirect_uri: "http://127.0.0.1:1/callback".to_owned(),
        ..LoginRequest::default()
    };
    let error = within_timeout(servers.login("guarded", &visit)).await.unwrap_err();
    assert!(
        matches!(error, LoginError::CredentialFile(CredentialFileError::NotPrivate { .. })),
        "{error:?}"
    );
    fs::set_permissions(&folder, Permissions::from_mode(0o700)).unwrap();
    let real = folder.with_file_name("real");
    fs::rename(&folder, &real).unwrap();
    symlink(&real, &folder).unwrap();
    let error = within_timeout(servers.login("guarded", &visit)).await.unwrap_err();
    assert!(
        matches!(error, LoginError::CredentialFile(CredentialFileError::NotADirectory { .. })),
        "{error:?}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_token_that_does_not_fit_a_header_is_rejected() {
    let server = OAuthServer::start();
    let servers = server.servers();
    server.get("/do?access=%22s3cret%5Cr%5Cn%22").await;
    let error = server.log_in(&servers, "").await.unwrap_err().to_string();
    assert!(error.contains("can't be sent"), "{error}");
    assert!(server.saved_logins().is_empty());
    server.log_in(&servers, "").await.unwrap();
    assert_eq!(call(&servers, "greet", json!({})).await.unwrap(), "Hello.");
    server.get("/do?revoke=1&access=%22s3cret%5Cr%5Cn%22").await;
    let failure = call(&servers, "greet", json!({})).await.unwrap_err();
    let words = failure.to_string();
    assert!(!failure.is_outcome_unknown(), "{words}");
    assert!(words.contains("a token that can't be sent"), "{words}");
    assert!(!words.contains("s3cret"), "{words}");
    // What renews it came with it, and was kept.
    assert!(server.saved_logins()[0].0.contains("refresh-s3cret-3"));
    assert_eq!(call(&servers, "greet", json!({})).await.unwrap(), "Hello.");
    assert_eq!(server.stats().await["refreshes"], 2);
    within_timeout(servers.close()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_expiring_token_is_used_while_refresh_fails() {
    let server = OAuthServer::start();
    let servers = server.servers();
    server.get("/do?lasts=29").await;
    server.log_in(&servers, "").await.unwrap();
    server.get("/do?refresh_error=%22temporarily_unavailable%22").await;
    assert_eq!(call(&servers, "greet", json!({})).await.unwrap(), "Hello.");
    let seen = server.stats().await;
    assert!(seen["refreshes"].as_u64().unwrap() >= 1, "{seen}");
    server.get("/do?refresh_error=null").await;
    assert_eq!(call(&servers, "greet", json!({})).await.unwrap(), "Hello.");
    assert!(server.saved_logins()[0].0.contains("refresh-s3cret-2"));
    within_timeout(servers.close()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refreshed_token_is_used_even_if_it_can_not_be_saved() {
    let server = OAuthServer::start();
    let servers = server.servers();
    server.log_in(&servers, "").await.unwrap();
    // Something lies where the file is written.
    let beside = format!("json.{}", std::process::id());
    let beside = server.login_file().with_extension(beside);
    fs::create_dir(&beside).unwrap();
    server.get("/do?revoke=1").await;
    for _ in 0..2 {
        assert_eq!(call(&servers, "greet", json!({})).await.unwrap(), "Hello.");
    }
    assert!(server.saved_logins()[0].0.contains("refresh-s3cret-1"));
    assert_eq!(server.stats().await["refreshes"], 1);
    // It can be written again, and what is renewed is the newer one.
    fs::remove_dir(&beside).unwrap();
    server.get("/do?revoke=1").await;
    assert_eq!(call(&servers, "greet", json!({})).await.unwrap(), "Hello.");
    assert!(server.saved_logins()[0].0.contains("refresh-s3cret-3"));
    assert_eq!(server.stats().await["refreshes"], 2);
    within_timeout(servers.close()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_forbidden_call_is_reported_and_does_not_end_the_login() {
    let server = OAuthServer::start();
    let servers = server.servers();
    server.log_in(&servers, "").await.unwrap();
    assert_eq!(call(&servers, "greet", json!({})).await.unwrap(), "Hello.");
    server.get("/do?forbids=true").await;
    let failure = call(&servers, "greet", json!({})).await.unwrap_err();
    let words = failure.to_string();
    assert!(!failure.is_outcome_unknown(), "{words}");
    assert!(words.contains("does not allow this"), "{words}");
    assert!(!words.contains("Authorization header"), "{words}");
    server.get("/do?forbids=false").await;
    assert_eq!(call(&servers, "greet", json!({})).await.unwrap(), "Hello.");
    assert_eq!(server.stats().await["greets"], 1);
    within_timeout(servers.close()).await;
}
