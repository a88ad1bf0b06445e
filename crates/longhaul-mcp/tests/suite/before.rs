//! What comes before a question: a server that has to start, a login that has to be
//! renewed. Who has asked nothing yet is never in doubt about it.

use std::time::Duration;

use longhaul_core::time::Millis;
use longhaul_mcp::{McpError, OAuth, Servers};
use serde_json::json;
use tokio::time::timeout;

use super::kit::{RUN, alone, around, call, hostile, lines, soon, text, tool};
use super::login_kit::Guarded;

/// Calls wait a quarter of this for what comes before their question.
const TIMEOUT: Millis = Millis::from_secs(4);

#[tokio::test]
async fn a_server_that_is_slow_to_start_again_goes_on_though_nobody_waits_for_it() {
    let place = tempfile::tempdir().unwrap();
    let mut spec = hostile("slow_again", place.path());
    spec.timeout = TIMEOUT;
    let (servers, _) = alone(spec);
    let once = tool(&servers, "environment").await;
    call(&servers, "die", json!({})).await.unwrap_err();
    let (around, _told) = around();
    for _ in 0..2 {
        let failure = soon(once.call(json!({}), &around)).await.unwrap_err();
        let words = failure.to_string();
        assert!(!failure.is_unknown(), "{words}");
        assert!(
            words.ends_with("was not ready in 1 s; nothing was asked of it"),
            "{words}"
        );
    }
    std::fs::write(place.path().join("go"), "").unwrap();
    // The same start is what this waits for.
    call(&servers, "hello", json!({})).await.unwrap();
    soon(once.call(json!({}), &around)).await.unwrap();
    assert_eq!(lines(place.path(), "started"), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_renewal_that_takes_long_leaves_no_call_in_doubt() {
    let server = Guarded::start();
    let servers = server.within(OAuth::default(), TIMEOUT);
    server.log_in(&servers, "").await.unwrap();
    let greet = tool(&servers, "greet").await;
    server.get("/do?revoke=1&gate=false").await;
    let (around, _told) = around();
    let failure = soon(greet.call(json!({}), &around)).await.unwrap_err();
    let words = failure.to_string();
    assert!(!failure.is_unknown(), "{words}");
    assert!(
        words.contains("still being renewed; try it again"),
        "{words}"
    );
    server.get("/do?gate=true").await;
    // Nothing was lost by not waiting: neither the renewal nor the connection.
    let said = soon(greet.call(json!({}), &around)).await.unwrap();
    assert_eq!(text(&said), "Hello.");
    let seen = server.seen().await;
    assert_eq!((&seen["refreshes"], &seen["calls"]), (&json!(1), &json!(1)));
    soon(servers.close()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn who_comes_new_waits_for_a_renewal_longer_than_a_call_may() {
    let server = Guarded::start();
    server.get("/do?lasts=5").await;
    server.log_in(&server.worker(), "").await.unwrap();
    server.get("/do?gate=false").await;
    let servers = server.within(OAuth::default(), Millis::from_secs(2));
    {
        let tools = servers.tools("guarded", None, RUN);
        tokio::pin!(tools);
        // A call would have given up by now, and the greeting after it as well.
        let early = timeout(Duration::from_millis(1_500), &mut tools).await;
        assert!(early.is_err(), "{:?}", early.map(|tools| tools.is_ok()));
        server.get("/do?gate=true").await;
        assert_eq!(soon(tools).await.unwrap().len(), 3);
    }
    assert_eq!(server.seen().await["refreshes"], 1);
    soon(servers.close()).await;
}

/// Why nobody is let in, and whether that passes.
async fn turned_away(servers: &Servers) -> (String, bool) {
    match soon(servers.tools("guarded", None, RUN)).await {
        Err(McpError::Login { why, passes, .. }) => (why, passes),
        other => panic!("{other:?}"),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_login_that_has_ended_is_told_before_a_call_is_lost_to_it() {
    let server = Guarded::start();
    let servers = server.worker();
    server.log_in(&servers, "").await.unwrap();
    assert_eq!(call(&servers, "greet", json!({})).await.unwrap(), "Hello.");
    // The next token is a short one, and none comes after it.
    server.get("/do?revoke=1&lasts=5").await;
    assert_eq!(call(&servers, "greet", json!({})).await.unwrap(), "Hello.");
    server.get("/do?revoke_refresh=1").await;
    let (why, passes) = turned_away(&servers).await;
    assert_eq!(
        why,
        "its login was taken back; run `longhaul mcp login guarded`"
    );
    assert!(!passes);
    assert_eq!(server.seen().await["calls"], 2);
    server.log_in(&servers, "").await.unwrap();
    assert_eq!(call(&servers, "greet", json!({})).await.unwrap(), "Hello.");
    soon(servers.close()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_outage_passes_and_an_answer_does_not() {
    let server = Guarded::start();
    server.log_in(&server.worker(), "").await.unwrap();
    server.get("/do?revoke=1").await;
    for (amiss, expect) in [
        ("well_known=503", true),
        ("well_known=404", true),
        ("well_known=0&refresh_error=%22invalid_client%22", false),
        ("refresh_error=%22temporarily_unavailable%22", true),
    ] {
        server.get(&format!("/do?{amiss}")).await;
        let (why, passes) = turned_away(&server.worker()).await;
        assert_eq!(passes, expect, "{amiss}: {why}");
    }
}
