//! Servers that misbehave: they break their own tools, and nothing else.

use std::path::Path;
use std::sync::Arc;

use longhaul_core::id::RunId;
use longhaul_core::port::tool::ClaimId;
use longhaul_core::time::Millis;
use longhaul_mcp::{McpError, Servers};
use serde_json::json;
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, BufReader};
use tokio::net::TcpListener;

use super::harness::{
    RUN, SkippingClock, call, hostile_spec, lines, python_spec, single_server, text, tool,
    tool_context, with_env, within_timeout,
};

fn temp_dir() -> tempfile::TempDir {
    tempfile::tempdir().unwrap()
}

#[tokio::test]
async fn a_server_that_dies_at_start_is_tried_five_times() {
    let place = temp_dir();
    let spec = hostile_spec("dies_at_start", place.path());
    let (servers, clock) = single_server(with_env(spec, "API_KEY", "hunter2hunter"));
    let error = within_timeout(servers.tools("dies_at_start", None, RUN)).await.unwrap_err();
    let words = error.to_string();
    assert!(matches!(error, McpError::RepeatedFailures { times: 5, .. }), "{words}");
    assert!(words.contains("exit status: 3"), "{words}");
    assert!(words.contains("the key *** is none"), "{words}");
    assert_eq!(clock.sleeps(), [1_000, 2_000, 4_000, 8_000]);
    assert_eq!(lines(place.path(), "started"), 5);
    // It is told once more, not started.
    within_timeout(servers.tools("dies_at_start", None, RUN)).await.unwrap_err();
    assert_eq!(lines(place.path(), "started"), 5);
    clock.advance(Millis::from_secs(60));
    within_timeout(servers.tools("dies_at_start", None, RUN)).await.unwrap_err();
    assert_eq!(lines(place.path(), "started"), 6);
    assert_eq!(clock.sleeps().len(), 4);
}

#[tokio::test]
async fn a_server_that_exits_at_the_new_handshake_gets_the_old_one() {
    let place = temp_dir();
    let (servers, _) = single_server(hostile_spec("touchy", place.path()));
    let checked = within_timeout(servers.check("touchy")).await.unwrap();
    assert_eq!(checked.protocol, "2025-11-25");
    assert_eq!(checked.name, "hostile ");
    let said = call(&servers, "hello", json!({})).await;
    assert!(said.unwrap().starts_with("hello from "));
}

#[tokio::test]
async fn a_server_that_ignores_the_new_handshake_is_probed_once() {
    let place = temp_dir();
    let (servers, _) = single_server(hostile_spec("deaf", place.path()));
    let checked = within_timeout(servers.check("deaf")).await.unwrap();
    assert_eq!(checked.protocol, "2025-11-25");
    assert_eq!(lines(place.path(), "passed_over"), 1);
    // Whoever starts it now knows.
    call(&servers, "hello", json!({})).await.unwrap();
    call(&servers, "die", json!({})).await.unwrap_err();
    call(&servers, "hello", json!({})).await.unwrap();
    assert_eq!(lines(place.path(), "started"), 3);
    assert_eq!(lines(place.path(), "passed_over"), 1);
}

#[tokio::test]
async fn a_slow_server_handles_both_handshakes() {
    let place = temp_dir();
    let (servers, _) = single_server(hostile_spec("late", place.path()));
    let checked = within_timeout(servers.check("late")).await.unwrap();
    assert_eq!(checked.protocol, "2025-11-25");
    let waited = std::fs::read_to_string(place.path().join("waited")).unwrap();
    assert_eq!(waited, "server/discover, initialize\n");
    assert_eq!(lines(place.path(), "started"), 1);
    let said = call(&servers, "hello", json!({})).await.unwrap();
    assert!(said.starts_with("hello from "), "{said}");
}

#[tokio::test]
async fn an_elicitation_during_a_call_is_declined_and_reported() {
    for mode in ["any", "newer"] {
        let place = temp_dir();
        let (servers, _) = single_server(hostile_spec(mode, place.path()));
        let asks = tool(&servers, "asks_with_defaults").await;
        let (around, mut told) = tool_context();
        let said = within_timeout(asks.call(json!({}), &around)).await.unwrap();
        let said: serde_json::Value = serde_json::from_str(&text(&said)).unwrap();
        assert_eq!(said["e"], json!({ "action": "decline" }), "{mode}");
        let words = "it asked \"who?\" and was declined: nothing is answered to this server";
        assert_eq!(told.try_recv(), Ok((None, words.to_owned())), "{mode}");
    }
}

#[tokio::test]
async fn an_unreadable_elicitation_form_is_declined_and_reported() {
    let place = temp_dir();
    let (servers, _) = single_server(hostile_spec("any", place.path()));
    for field in [
        json!({ "type": "boolean", "default": "yes" }),
        json!({ "type": "object", "properties": {} }),
    ] {
        let asks = tool(&servers, "asks_oddly").await;
        let (around, mut told) = tool_context();
        let said = within_timeout(asks.call(json!({ "field": field }), &around)).await;
        let said: serde_json::Value = serde_json::from_str(&text(&said.unwrap())).unwrap();
        assert_eq!(said["e"], json!({ "action": "decline" }), "{field}");
        let (_, words) = told.try_recv().unwrap();
        assert!(words.starts_with("it asked \"who?\" and was declined"), "{words}");
    }
}

#[tokio::test]
async fn a_once_call_to_a_dying_server_ends_unknown_and_the_next_gets_a_new_server() {
    let place = temp_dir();
    let (servers, clock) = single_server(hostile_spec("any", place.path()));
    let failure = call(&servers, "die", json!({})).await.unwrap_err();
    assert!(failure.is_outcome_unknown(), "{failure}");
    assert!(failure.to_string().contains("exit status: 7"), "{failure}");
    assert!(failure.to_string().contains("I am dying"), "{failure}");
    assert_eq!(lines(place.path(), "died"), 1);
    call(&servers, "hello", json!({})).await.unwrap();
    assert_eq!(lines(place.path(), "started"), 2);
    assert_eq!(clock.sleeps(), [1_000]);
}

#[tokio::test]
async fn a_repeatable_call_is_retried_once() {
    let place = temp_dir();
    let (servers, _) = single_server(hostile_spec("any", place.path()));
    let said = call(&servers, "die_first", json!({})).await.unwrap();
    assert_eq!(said, "alive at the 2. try");
    let failure = call(&servers, "die_always", json!({})).await.unwrap_err();
    assert!(!failure.is_outcome_unknown(), "{failure}");
    assert_eq!(lines(place.path(), "always"), 2);
}

#[tokio::test]
async fn dropping_a_call_cancels_it_and_ignores_its_late_response() {
    let place = temp_dir();
    let (servers, _) = single_server(hostile_spec("any", place.path()));
    let hangs = tool(&servers, "hang").await;
    let (around, mut told) = tool_context();
    {
        let call = hangs.call(json!({}), &around);
        tokio::pin!(call);
        tokio::select! {
            _ = &mut call => panic!("it never ends"),
            said = within_timeout(told.recv()) => assert_eq!(said, Some((Some(25), "hanging".to_owned()))),
        }
    }
    let said = call(&servers, "until_cancelled", json!({})).await.unwrap();
    assert_eq!(said, "cancelled: True");
    call(&servers, "hello", json!({})).await.unwrap();
    assert_eq!(lines(place.path(), "started"), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_sends_too_much_is_closed_without_affecting_others() {
    let place = temp_dir();
    let (other, _) = single_server(hostile_spec("any", place.path()));
    call(&other, "hello", json!({})).await.unwrap();
    for (name, why) in [
        ("flood", "floods its output"),
        ("babble", "floods its output"),
        ("no_end", "more than 16 MB"),
        ("asks_forever", "without waiting"),
    ] {
        let place = temp_dir();
        let (servers, _) = single_server(hostile_spec("any", place.path()));
        let failure = call(&servers, name, json!({})).await.unwrap_err();
        assert!(failure.to_string().contains(why), "{name}: {failure}");
        assert!(failure.is_outcome_unknown(), "{name}: {failure}");
        call(&servers, "hello", json!({})).await.unwrap();
    }
    call(&other, "hello", json!({})).await.unwrap();
    assert_eq!(lines(place.path(), "started"), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn results_are_limited_and_too_long_ones_are_not_retried() {
    let place = temp_dir();
    let (servers, _) = single_server(hostile_spec("any", place.path()));
    let said = call(&servers, "big", json!({})).await.unwrap();
    assert!(said.len() < 11_000_000, "{}", said.len());
    assert!(said.ends_with("(cut off here: it was 12000000 bytes long)"));
    let failure = call(&servers, "huge", json!({})).await.unwrap_err();
    assert!(failure.to_string().contains("more than 16 MB"), "{failure}");
    assert_eq!(lines(place.path(), "huge"), 1);
}

#[tokio::test]
async fn garbage_between_messages_is_skipped() {
    let place = temp_dir();
    let (servers, _) = single_server(hostile_spec("any", place.path()));
    for (name, said) in [
        ("garbage", "after the garbage"),
        ("bad_utf8", "a\u{fffd}b"),
        ("odd", "{\"type\":\"smell\",\"of\":\"rain\"}"),
    ] {
        assert_eq!(call(&servers, name, json!({})).await.unwrap(), said, "{name}");
    }
    let failure = call(&servers, "fails", json!({})).await.unwrap_err();
    assert_eq!(failure.to_string(), "it did not work");
    for (name, why) in [
        ("formless", "its `content` is no list. What came: {"),
        ("breaks_its_word", "it breaks its own schema at /a: 5 is not"),
    ] {
        let failure = call(&servers, name, json!({})).await.unwrap_err();
        // It has answered, so nobody has to be asked what came of it.
        assert!(!failure.is_outcome_unknown(), "{name}");
        let words = failure.to_string();
        assert!(words.contains("has answered, but ") && words.contains(why), "{words}");
    }
    let failure = call(&servers, "refuses", json!({})).await.unwrap_err().to_string();
    assert!(failure.contains("refused: not today"), "{failure}");
    assert!(failure.len() < 1_000);
    assert_eq!(lines(place.path(), "started"), 1);
}

#[tokio::test]
async fn requests_of_a_server_are_declined() {
    let place = temp_dir();
    let (servers, _) = single_server(hostile_spec("any", place.path()));
    let said = call(&servers, "asks", json!({})).await.unwrap();
    let said: serde_json::Value = serde_json::from_str(&said).unwrap();
    assert_eq!(said["e"]["action"], "decline");
    assert_eq!(said["s"], -32601);
    assert_eq!(said["r"]["roots"], json!([]));
    assert_eq!(said["x"], -32601);
}

#[tokio::test]
async fn a_server_gets_only_path_from_our_environment() {
    let place = temp_dir();
    let spec = with_env(hostile_spec("any", place.path()), "GIVEN", "yes");
    let (servers, _) = single_server(spec);
    let said = call(&servers, "environment", json!({})).await.unwrap();
    let said: serde_json::Value = serde_json::from_str(&said).unwrap();
    let mut names: Vec<&str> = said.as_object().unwrap().keys().map(String::as_str).collect();
    // Python may say how it reads its own files.
    names.retain(|name| *name != "LC_CTYPE");
    names.sort_unstable();
    assert_eq!(names, ["GIVEN", "PATH"]);
}

#[tokio::test]
async fn a_list_changed_notification_refreshes_the_tool_list() {
    let place = temp_dir();
    let (servers, _) = single_server(hostile_spec("any", place.path()));
    call(&servers, "hello", json!({})).await.unwrap();
    call(&servers, "hello", json!({})).await.unwrap();
    assert_eq!(lines(place.path(), "listed"), 1);
    let missing = within_timeout(servers.tools("any", Some("grown"), RUN)).await;
    let words = missing.unwrap_err().to_string();
    assert!(words.contains("has no tool `grown`: it has hello"), "{words}");
    call(&servers, "grow", json!({})).await.unwrap();
    tool(&servers, "grown").await;
    assert_eq!(lines(place.path(), "listed"), 2);
}

#[tokio::test]
async fn invalid_tools_are_left_out_with_a_note() {
    let place = temp_dir();
    let (servers, _) = single_server(hostile_spec("lies", place.path()));
    let checked = within_timeout(servers.check("lies")).await.unwrap();
    let names: Vec<&str> = checked.tools.iter().map(|offered| offered.spec.name.as_str()).collect();
    assert_eq!(names, ["mcp:lies/good", "mcp:lies/wordy"]);
    assert_eq!(checked.notes.len(), 7, "{:#?}", checked.notes);
    assert!(checked.tools[1].spec.description.len() < 5_000);
    let missing = within_timeout(servers.tools("lies", Some("round"), RUN)).await;
    let words = missing.unwrap_err().to_string();
    assert!(words.contains("refers to itself"), "{words}");
}

#[tokio::test]
async fn endless_tool_lists_are_cut_off() {
    for (mode, most, why) in [("endless", 64, "no end"), ("crowd", 256, "more than 256")] {
        let place = temp_dir();
        let (servers, _) = single_server(hostile_spec(mode, place.path()));
        let checked = within_timeout(servers.check(mode)).await.unwrap();
        assert_eq!(checked.tools.len(), most, "{mode}");
        assert!(checked.notes[0].contains(why), "{:?}", checked.notes);
    }
}

#[tokio::test]
async fn a_server_that_dies_during_listing_reports_why() {
    let place = temp_dir();
    let (servers, _) = single_server(hostile_spec("dies_listing", place.path()));
    let error = within_timeout(servers.tools("dies_listing", None, RUN)).await.unwrap_err();
    assert!(error.to_string().contains("exit status: 5"), "{error}");
    assert_eq!(lines(place.path(), "started"), 2);
}

#[tokio::test]
async fn a_server_that_hangs_during_listing_is_restarted_once() {
    let place = temp_dir();
    let mut spec = hostile_spec("mute_first", place.path());
    spec.timeout = Millis::from_secs(2);
    let (servers, _) = single_server(spec);
    let ask = || within_timeout(servers.tools("mute_first", None, RUN));
    let (one, other) = tokio::join!(ask(), ask());
    let words = one.unwrap_err().to_string();
    assert!(words.contains("did not say within 2 s"), "{words}");
    assert_eq!(other.unwrap_err().to_string(), words);
    assert_eq!(lines(place.path(), "listed"), 1);
    assert_eq!(call(&servers, "hello", json!({})).await.map(|_| ()), Ok(()));
    assert_eq!(lines(place.path(), "started"), 2);
}

#[tokio::test]
async fn a_server_with_three_timed_out_calls_is_restarted() {
    let place = temp_dir();
    let spec = hostile_spec("any", place.path());
    let timeout = spec.timeout;
    let (servers, clock) = single_server(spec);
    let hangs = tool(&servers, "hang").await;
    // A call that somebody cancels says nothing of the server, and an answer counts.
    for (waited, answered) in [
        (timeout, false),
        (timeout, true),
        (timeout, false),
        (Millis(1), false),
        (timeout, false),
        (timeout, false),
    ] {
        assert_eq!(lines(place.path(), "started"), 1);
        let (around, mut told) = tool_context();
        {
            let call = hangs.call(json!({}), &around);
            tokio::pin!(call);
            tokio::select! {
                _ = &mut call => panic!("it never ends"),
                _ = within_timeout(told.recv()) => clock.advance(waited),
            }
        }
        if answered {
            call(&servers, "hello", json!({})).await.unwrap();
        }
    }
    call(&servers, "hello", json!({})).await.unwrap();
    assert_eq!(lines(place.path(), "started"), 2);
}

/// Has a server and its child hold a line to us; the line ends when both are gone.
async fn process_family(servers: &Servers) -> BufReader<tokio::net::TcpStream> {
    let door = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = door.local_addr().unwrap().port();
    let said = call(servers, "family", json!({ "port": port })).await;
    assert_eq!(said.unwrap(), "both");
    let (line, _) = within_timeout(door.accept()).await.unwrap();
    let mut line = BufReader::new(line);
    let mut here = String::new();
    within_timeout(line.read_line(&mut here)).await.unwrap();
    assert_eq!(here, "here\n");
    line
}

async fn assert_closed(mut line: BufReader<tokio::net::TcpStream>) {
    let mut rest = Vec::new();
    // A line that is reset has ended as well.
    _ = within_timeout(line.read_to_end(&mut rest)).await;
    assert!(rest.is_empty());
}

#[tokio::test]
async fn a_run_scoped_server_and_its_children_end_with_the_run() {
    let place = temp_dir();
    let mut spec = hostile_spec("any", place.path());
    spec.per_run = true;
    let (servers, _) = single_server(spec);
    let line = process_family(&servers).await;
    let another = ClaimId { run: RunId::from_bits(8), ..RUN };
    let other = within_timeout(servers.tools("any", Some("hello"), another)).await.unwrap();
    let (around, _told) = tool_context();
    within_timeout(other[0].call(json!({}), &around)).await.unwrap();
    assert_eq!(lines(place.path(), "started"), 2);
    within_timeout(servers.release(RUN)).await;
    assert_closed(line).await;
    within_timeout(other[0].call(json!({}), &around)).await.unwrap();
    assert_eq!(lines(place.path(), "started"), 2);
}

#[tokio::test]
async fn a_server_that_ignores_sigterm_is_killed() {
    let place = temp_dir();
    let (servers, _) = single_server(hostile_spec("stays", place.path()));
    let line = process_family(&servers).await;
    within_timeout(servers.close()).await;
    assert_closed(line).await;
}

#[tokio::test]
async fn dropping_servers_kills_them() {
    let place = temp_dir();
    let (servers, _) = single_server(hostile_spec("any", place.path()));
    let line = process_family(&servers).await;
    drop(servers);
    assert_closed(line).await;
}

#[tokio::test]
async fn unknown_servers_and_tools_are_reported_with_a_hint() {
    let nowhere = super::harness::stdio_spec("nowhere", Path::new("/no/such/program"), &[]);
    let mut bad = python_spec("bad name", &[]);
    bad.name = "bad name".into();
    let servers = Servers::new(vec![nowhere, bad], Arc::new(SkippingClock::default()));
    for (server, said) in [
        ("nowhere", "`/no/such/program` could not be run"),
        ("bad name", "can't be used as it is configured"),
        ("other", "There is no MCP server `other`: there is bad name, nowhere"),
    ] {
        let error = within_timeout(servers.check(server)).await.unwrap_err().to_string();
        assert!(error.contains(said), "{error}");
    }
}
