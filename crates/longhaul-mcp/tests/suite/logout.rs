//! Logouts: logins are deleted here and revoked at their authorization server.

use longhaul_mcp::{LogoutOutcome, McpServers, OAuthConfig};
use serde_json::{Value, json};

use super::harness::within_timeout;
use super::login_harness::OAuthServer;

async fn log_out(servers: &McpServers, may_ask: bool) -> LogoutOutcome {
    within_timeout(servers.logout("guarded", may_ask)).await.unwrap()
}

/// Returns why the revocation failed. The text never contains a response of the server.
fn failure_reason(outcome: &LogoutOutcome) -> &str {
    let LogoutOutcome::RevocationFailed { reason } = outcome else {
        panic!("{outcome:?}");
    };
    assert!(!reason.contains("s3cret"), "{reason}");
    reason
}

#[tokio::test(flavor = "multi_thread")]
async fn both_tokens_are_revoked_before_they_are_deleted() {
    let server = OAuthServer::start();
    let registered = server.servers();
    server.log_in(&registered, "").await.unwrap();
    assert_eq!(log_out(&registered, true).await, LogoutOutcome::Revoked);
    assert!(server.saved_logins().is_empty());
    let configured = |secret: Option<&str>| {
        server.servers_with(OAuthConfig {
            client_id: Some("us:1".to_owned()),
            client_secret: secret.map(str::to_owned),
            ..OAuthConfig::default()
        })
    };
    for configured in [configured(Some("our/s3cret")), configured(None)] {
        server.log_in(&configured, "").await.unwrap();
        assert_eq!(log_out(&configured, true).await, LogoutOutcome::Revoked);
    }
    let stats = server.stats().await;
    let expected = json!([
        ["refresh_token", "refresh-s3cret-1", "registered:registered-s3cret"],
        ["access_token", "access-s3cret-1", "registered:registered-s3cret"],
        ["refresh_token", "refresh-s3cret-2", "us%3A1:our%2Fs3cret"],
        ["access_token", "access-s3cret-2", "us%3A1:our%2Fs3cret"],
        ["refresh_token", "refresh-s3cret-3", "us:1"],
        ["access_token", "access-s3cret-3", "us:1"],
    ]);
    assert_eq!(stats["revocations"], expected, "{stats}");
}

#[tokio::test(flavor = "multi_thread")]
async fn tokens_are_deleted_even_if_revocation_fails() {
    let server = OAuthServer::start();
    let servers = server.servers();
    for (fault, expected) in [
        ("revocation_status=503", "HTTP 503 for the refresh token"),
        ("revocation_status=302", "HTTP 302 for the refresh token"),
        ("revocation_endpoint=%22https://169.254.169.254/revoke%22", "private or reserved"),
        ("revocation_endpoint=%22http://far.example/revoke%22", "not https://"),
        ("revocation_endpoint=%22nowhere%22", "not a valid URL"),
        ("metadata_error_status=404", "currently names no authorization server"),
        ("metadata_error_status=503", "503"),
    ] {
        server.log_in(&servers, "").await.unwrap();
        server.get(&format!("/control?{fault}")).await;
        let outcome = log_out(&servers, true).await;
        assert!(failure_reason(&outcome).contains(expected), "{fault}: {outcome:?}");
        assert!(server.saved_logins().is_empty(), "{fault}");
        let fix = "revocation_status=200&revocation_endpoint=null&metadata_error_status=0";
        server.get(&format!("/control?{fix}")).await;
    }
    server.log_in(&servers, "").await.unwrap();
    server.get("/control?revocation_status=202").await;
    assert_eq!(log_out(&servers, true).await, LogoutOutcome::Revoked);
    server.log_in(&servers, "").await.unwrap();
    server.get("/control?supports_revocation=false").await;
    assert_eq!(log_out(&servers, true).await, LogoutOutcome::RevocationUnsupported);
    assert!(server.saved_logins().is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn tokens_are_revoked_only_at_their_own_allowed_issuer() {
    let (server, other) = (OAuthServer::start(), OAuthServer::start());
    let servers = server.servers();
    server.log_in(&servers, "").await.unwrap();
    let path = format!("/control?authorization_server=%22{}%22", other.base_url());
    server.get(&path).await;
    let outcome = log_out(&servers, true).await;
    assert!(failure_reason(&outcome).contains("another authorization server"), "{outcome:?}");
    assert!(server.saved_logins().is_empty());
    server.get("/control?authorization_server=null").await;
    server.log_in(&servers, "").await.unwrap();
    assert_eq!(log_out(&servers, false).await, LogoutOutcome::RevocationSkipped);
    assert!(server.saved_logins().is_empty());
    // An unreadable login has no token that could be sent.
    server.log_in(&servers, "").await.unwrap();
    std::fs::write(server.login_file(), "{").unwrap();
    assert!(failure_reason(&log_out(&servers, true).await).contains("can't be read"));
    assert!(server.saved_logins().is_empty());
    for server in [&server, &other] {
        let stats: Value = server.stats().await;
        assert_eq!(stats["revocations"], json!([]), "{stats}");
    }
}
