//! Logins that something is wrong with, here or at the server: said as it is, and no
//! worse than it is.

use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt as _, symlink};

use longhaul_mcp::{BookError, LoginError, McpError, Visit};
use serde_json::json;

use super::kit::{RUN, around, call, soon, tool};
use super::login_kit::Guarded;

#[tokio::test(flavor = "multi_thread")]
async fn a_file_that_can_not_be_used_is_said_as_it_is_and_ends_nothing() {
    let server = Guarded::start();
    let servers = server.worker();
    server.log_in(&servers, "").await.unwrap();
    assert_eq!(call(&servers, "greet", json!({})).await.unwrap(), "Hello.");
    let file = server.file();
    let kept = fs::read(&file).unwrap();
    let (open, shut) = (Permissions::from_mode(0o644), Permissions::from_mode(0o600));
    // Somebody is in the middle of a run when it happens.
    let greet = tool(&servers, "greet").await;
    fs::set_permissions(&file, open).unwrap();
    let (around, _told) = around();
    let failure = soon(greet.call(json!({}), &around)).await.unwrap_err();
    let words = failure.to_string();
    assert!(!failure.is_unknown(), "{words}");
    assert!(words.contains("is open to others (mode 644)"), "{words}");
    fs::set_permissions(&file, shut).unwrap();
    fs::write(&file, "{").unwrap();
    // Whoever comes new is told once, and nothing that is not so.
    let error = soon(server.worker().tools("guarded", None, RUN)).await;
    let error = error.unwrap_err();
    assert!(matches!(error, McpError::Login { .. }), "{error:?}");
    let words = error.to_string();
    assert!(words.contains("`longhaul mcp logout guarded`"), "{words}");
    assert!(!words.contains("Is it running"), "{words}");
    assert!(!words.contains(".."), "{words}");
    fs::write(&file, kept).unwrap();
    assert_eq!(call(&servers, "greet", json!({})).await.unwrap(), "Hello.");
    // All over the one link.
    assert_eq!(server.seen().await["greets"], 1);
    soon(servers.close()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn nobody_is_sent_to_a_browser_for_what_could_not_be_kept() {
    let server = Guarded::start();
    let servers = server.worker();
    let folder = server.folder();
    fs::create_dir_all(&folder).unwrap();
    fs::set_permissions(&folder, Permissions::from_mode(0o755)).unwrap();
    let visit = Visit {
        redirect: "http://127.0.0.1:1/callback".to_owned(),
        ..Visit::default()
    };
    let error = soon(servers.login("guarded", &visit)).await.unwrap_err();
    assert!(
        matches!(error, LoginError::Book(BookError::Open { .. })),
        "{error:?}"
    );
    fs::set_permissions(&folder, Permissions::from_mode(0o700)).unwrap();
    let real = folder.with_file_name("real");
    fs::rename(&folder, &real).unwrap();
    symlink(&real, &folder).unwrap();
    let error = soon(servers.login("guarded", &visit)).await.unwrap_err();
    assert!(
        matches!(error, LoginError::Book(BookError::Elsewhere { .. })),
        "{error:?}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_token_that_can_not_be_sent_is_no_token() {
    let server = Guarded::start();
    let servers = server.worker();
    server.get("/do?access=%22s3cret%5Cr%5Cn%22").await;
    let error = server.log_in(&servers, "").await.unwrap_err().to_string();
    assert!(error.contains("can't be sent"), "{error}");
    assert!(server.kept().is_empty());
    server.log_in(&servers, "").await.unwrap();
    assert_eq!(call(&servers, "greet", json!({})).await.unwrap(), "Hello.");
    server.get("/do?revoke=1&access=%22s3cret%5Cr%5Cn%22").await;
    let failure = call(&servers, "greet", json!({})).await.unwrap_err();
    let words = failure.to_string();
    assert!(!failure.is_unknown(), "{words}");
    assert!(words.contains("a token that can't be sent"), "{words}");
    assert!(!words.contains("s3cret"), "{words}");
    // What renews it came with it, and was kept.
    assert!(server.kept()[0].0.contains("refresh-s3cret-3"));
    assert_eq!(call(&servers, "greet", json!({})).await.unwrap(), "Hello.");
    assert_eq!(server.seen().await["refreshes"], 2);
    soon(servers.close()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_token_that_ends_soon_is_used_where_it_can_not_be_renewed_yet() {
    let server = Guarded::start();
    let servers = server.worker();
    server.get("/do?lasts=29").await;
    server.log_in(&servers, "").await.unwrap();
    server
        .get("/do?refresh_error=%22temporarily_unavailable%22")
        .await;
    assert_eq!(call(&servers, "greet", json!({})).await.unwrap(), "Hello.");
    let seen = server.seen().await;
    assert!(seen["refreshes"].as_u64().unwrap() >= 1, "{seen}");
    server.get("/do?refresh_error=null").await;
    assert_eq!(call(&servers, "greet", json!({})).await.unwrap(), "Hello.");
    assert!(server.kept()[0].0.contains("refresh-s3cret-2"));
    soon(servers.close()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_renewal_that_can_not_be_written_down_is_used_all_the_same() {
    let server = Guarded::start();
    let servers = server.worker();
    server.log_in(&servers, "").await.unwrap();
    // Something lies where the file is written.
    let beside = format!("json.{}", std::process::id());
    let beside = server.file().with_extension(beside);
    fs::create_dir(&beside).unwrap();
    server.get("/do?revoke=1").await;
    for _ in 0..2 {
        assert_eq!(call(&servers, "greet", json!({})).await.unwrap(), "Hello.");
    }
    assert!(server.kept()[0].0.contains("refresh-s3cret-1"));
    assert_eq!(server.seen().await["refreshes"], 1);
    // It can be written again, and what is renewed is the newer one.
    fs::remove_dir(&beside).unwrap();
    server.get("/do?revoke=1").await;
    assert_eq!(call(&servers, "greet", json!({})).await.unwrap(), "Hello.");
    assert!(server.kept()[0].0.contains("refresh-s3cret-3"));
    assert_eq!(server.seen().await["refreshes"], 2);
    soon(servers.close()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn who_is_known_and_not_allowed_is_told_so_and_ends_nothing() {
    let server = Guarded::start();
    let servers = server.worker();
    server.log_in(&servers, "").await.unwrap();
    assert_eq!(call(&servers, "greet", json!({})).await.unwrap(), "Hello.");
    server.get("/do?forbids=true").await;
    let failure = call(&servers, "greet", json!({})).await.unwrap_err();
    let words = failure.to_string();
    assert!(!failure.is_unknown(), "{words}");
    assert!(words.contains("does not allow this"), "{words}");
    assert!(!words.contains("Authorization header"), "{words}");
    server.get("/do?forbids=false").await;
    assert_eq!(call(&servers, "greet", json!({})).await.unwrap(), "Hello.");
    assert_eq!(server.seen().await["greets"], 1);
    soon(servers.close()).await;
}
