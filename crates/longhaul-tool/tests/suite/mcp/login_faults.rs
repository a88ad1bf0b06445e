//! Logins that something is wrong with, here or at the server: said as it is, and no
//! worse than it is.

use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt as _, symlink};

use longhaul_tool::mcp::{BookError, LoginError, McpError, Visit};
use serde_json::json;

use super::kit::{RUN, call, soon};
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
    fs::set_permissions(&file, open).unwrap();
    let failure = call(&servers, "greet", json!({})).await.unwrap_err();
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
