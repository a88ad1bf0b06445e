//! Servers that misbehave: they break their own tools, and nothing else.

use std::path::Path;
use std::sync::Arc;

use longhaul_core::id::RunId;
use longhaul_core::port::tool::Stay;
use longhaul_core::time::Millis;
use longhaul_mcp::{McpError, Servers};
use serde_json::json;
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, BufReader};
use tokio::net::TcpListener;

use super::kit::{
    Hasty, RUN, alone, around, call, hostile, lines, python, soon, text, tool, with_env,
};

fn folder() -> tempfile::TempDir {
    tempfile::tempdir().unwrap()
}

#[tokio::test]
async fn one_that_dies_at_start_is_tried_five_times_and_then_left_alone() {
    let place = folder();
    let spec = hostile("dies_at_start", place.path());
    let (servers, clock) = alone(with_env(spec, "API_KEY", "hunter2hunter"));
    let error = soon(servers.tools("dies_at_start", None, RUN))
        .await
        .unwrap_err();
    let words = error.to_string();
    assert!(
        matches!(error, McpError::KeepsFailing { times: 5, .. }),
        "{words}"
    );
    assert!(words.contains("exit status: 3"), "{words}");
    assert!(words.contains("the key *** is none"), "{words}");
    assert_eq!(clock.waits(), [1_000, 2_000, 4_000, 8_000]);
    assert_eq!(lines(place.path(), "started"), 5);
    // It is told once more, not started.
    soon(servers.tools("dies_at_start", None, RUN))
        .await
        .unwrap_err();
    assert_eq!(lines(place.path(), "started"), 5);
    clock.pass(Millis::from_secs(60));
    soon(servers.tools("dies_at_start", None, RUN))
        .await
        .unwrap_err();
    assert_eq!(lines(place.path(), "started"), 6);
    assert_eq!(clock.waits().len(), 4);
}

#[tokio::test]
async fn one_that_ends_at_the_newer_greeting_is_greeted_in_the_older_manner() {
    let place = folder();
    let (servers, _) = alone(hostile("touchy", place.path()));
    let checked = soon(servers.check("touchy")).await.unwrap();
    assert_eq!(checked.protocol, "2025-11-25");
    assert_eq!(checked.name, "hostile ");
    let said = call(&servers, "hello", json!({})).await;
    assert!(said.unwrap().starts_with("hello from "));
}

#[tokio::test]
async fn one_that_passes_over_the_newer_greeting_is_asked_that_once() {
    let place = folder();
    let (servers, _) = alone(hostile("deaf", place.path()));
    let checked = soon(servers.check("deaf")).await.unwrap();
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
async fn one_that_starts_slowly_is_not_confused_by_two_greetings() {
    let place = folder();
    let (servers, _) = alone(hostile("late", place.path()));
    let checked = soon(servers.check("late")).await.unwrap();
    assert_eq!(checked.protocol, "2025-11-25");
    let waited = std::fs::read_to_string(place.path().join("waited")).unwrap();
    assert_eq!(waited, "server/discover, initialize\n");
    assert_eq!(lines(place.path(), "started"), 1);
    let said = call(&servers, "hello", json!({})).await.unwrap();
    assert!(said.starts_with("hello from "), "{said}");
}

#[tokio::test]
async fn what_is_asked_in_a_call_is_declined_and_told() {
    for mode in ["any", "newer"] {
        let place = folder();
        let (servers, _) = alone(hostile(mode, place.path()));
        let asks = tool(&servers, "asks_with_defaults").await;
        let (around, mut told) = around();
        let said = soon(asks.call(json!({}), &around)).await.unwrap();
        let said: serde_json::Value = serde_json::from_str(&text(&said)).unwrap();
        assert_eq!(said["e"], json!({ "action": "decline" }), "{mode}");
        let words = "it asked \"who?\" and was declined: nothing is answered to this server";
        assert_eq!(told.try_recv(), Ok((None, words.to_owned())), "{mode}");
    }
}

#[tokio::test]
async fn a_form_that_can_not_be_read_is_declined_and_told() {
    let place = folder();
    let (servers, _) = alone(hostile("any", place.path()));
    for field in [
        json!({ "type": "boolean", "default": "yes" }),
        json!({ "type": "object", "properties": {} }),
    ] {
        let asks = tool(&servers, "asks_oddly").await;
        let (around, mut told) = around();
        let said = soon(asks.call(json!({ "field": field }), &around)).await;
        let said: serde_json::Value = serde_json::from_str(&text(&said.unwrap())).unwrap();
        assert_eq!(said["e"], json!({ "action": "decline" }), "{field}");
        let (_, words) = told.try_recv().unwrap();
        assert!(
            words.starts_with("it asked \"who?\" and was declined"),
            "{words}"
        );
    }
}

#[tokio::test]
async fn a_call_that_must_not_be_repeated_ends_unknown_and_the_next_finds_a_new_server() {
    let place = folder();
    let (servers, clock) = alone(hostile("any", place.path()));
    let failure = call(&servers, "die", json!({})).await.unwrap_err();
    assert!(failure.is_unknown(), "{failure}");
    assert!(failure.to_string().contains("exit status: 7"), "{failure}");
    assert!(failure.to_string().contains("I am dying"), "{failure}");
    assert_eq!(lines(place.path(), "died"), 1);
    call(&servers, "hello", json!({})).await.unwrap();
    assert_eq!(lines(place.path(), "started"), 2);
    assert_eq!(clock.waits(), [1_000]);
}

#[tokio::test]
async fn a_call_that_may_be_repeated_is_made_once_more() {
    let place = folder();
    let (servers, _) = alone(hostile("any", place.path()));
    let said = call(&servers, "die_first", json!({})).await.unwrap();
    assert_eq!(said, "alive at the 2. try");
    let failure = call(&servers, "die_always", json!({})).await.unwrap_err();
    assert!(!failure.is_unknown(), "{failure}");
    assert_eq!(lines(place.path(), "always"), 2);
}

#[tokio::test]
async fn to_let_go_of_a_call_cancels_it_and_what_comes_later_is_nobodys() {
    let place = folder();
    let (servers, _) = alone(hostile("any", place.path()));
    let hangs = tool(&servers, "hang").await;
    let (around, mut told) = around();
    {
        let call = hangs.call(json!({}), &around);
        tokio::pin!(call);
        tokio::select! {
            _ = &mut call => panic!("it never ends"),
            said = soon(told.recv()) => assert_eq!(said, Some((Some(25), "hanging".to_owned()))),
        }
    }
    let said = call(&servers, "until_cancelled", json!({})).await.unwrap();
    assert_eq!(said, "cancelled: True");
    call(&servers, "hello", json!({})).await.unwrap();
    assert_eq!(lines(place.path(), "started"), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_says_too_much_is_closed_and_others_feel_nothing() {
    let place = folder();
    let (other, _) = alone(hostile("any", place.path()));
    call(&other, "hello", json!({})).await.unwrap();
    for (name, why) in [
        ("flood", "floods its output"),
        ("babble", "floods its output"),
        ("no_end", "more than 16 MB"),
        ("asks_forever", "without waiting"),
    ] {
        let place = folder();
        let (servers, _) = alone(hostile("any", place.path()));
        let failure = call(&servers, name, json!({})).await.unwrap_err();
        assert!(failure.to_string().contains(why), "{name}: {failure}");
        assert!(failure.is_unknown(), "{name}: {failure}");
        call(&servers, "hello", json!({})).await.unwrap();
    }
    call(&other, "hello", json!({})).await.unwrap();
    assert_eq!(lines(place.path(), "started"), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn results_are_bounded_and_what_is_too_long_is_not_asked_for_again() {
    let place = folder();
    let (servers, _) = alone(hostile("any", place.path()));
    let said = call(&servers, "big", json!({})).await.unwrap();
    assert!(said.len() < 11_000_000, "{}", said.len());
    assert!(said.ends_with("(cut off here: it was 12000000 bytes long)"));
    let failure = call(&servers, "huge", json!({})).await.unwrap_err();
    assert!(failure.to_string().contains("more than 16 MB"), "{failure}");
    assert_eq!(lines(place.path(), "huge"), 1);
}

#[tokio::test]
async fn garbage_between_messages_is_passed_over() {
    let place = folder();
    let (servers, _) = alone(hostile("any", place.path()));
    for (name, said) in [
        ("garbage", "after the garbage"),
        ("bad_utf8", "a\u{fffd}b"),
        ("odd", "{\"type\":\"smell\",\"of\":\"rain\"}"),
    ] {
        assert_eq!(
            call(&servers, name, json!({})).await.unwrap(),
            said,
            "{name}"
        );
    }
    let failure = call(&servers, "fails", json!({})).await.unwrap_err();
    assert_eq!(failure.to_string(), "it did not work");
    for (name, why) in [
        ("formless", "its `content` is no list. What came: {"),
        (
            "breaks_its_word",
            "it breaks its own schema at /a: 5 is not",
        ),
    ] {
        let failure = call(&servers, name, json!({})).await.unwrap_err();
        // It has answered, so nobody has to be asked what came of it.
        assert!(!failure.is_unknown(), "{name}");
        let words = failure.to_string();
        assert!(
            words.contains("has answered, but ") && words.contains(why),
            "{words}"
        );
    }
    let failure = call(&servers, "refuses", json!({}))
        .await
        .unwrap_err()
        .to_string();
    assert!(failure.contains("refused: not today"), "{failure}");
    assert!(failure.len() < 1_000);
    assert_eq!(lines(place.path(), "started"), 1);
}

#[tokio::test]
async fn what_a_server_asks_of_us_is_declined() {
    let place = folder();
    let (servers, _) = alone(hostile("any", place.path()));
    let said = call(&servers, "asks", json!({})).await.unwrap();
    let said: serde_json::Value = serde_json::from_str(&said).unwrap();
    assert_eq!(said["e"]["action"], "decline");
    assert_eq!(said["s"], -32601);
    assert_eq!(said["r"]["roots"], json!([]));
    assert_eq!(said["x"], -32601);
}

#[tokio::test]
async fn a_server_sees_nothing_of_our_environment_but_the_path() {
    let place = folder();
    let spec = with_env(hostile("any", place.path()), "GIVEN", "yes");
    let (servers, _) = alone(spec);
    let said = call(&servers, "environment", json!({})).await.unwrap();
    let said: serde_json::Value = serde_json::from_str(&said).unwrap();
    let mut names: Vec<&str> = said
        .as_object()
        .unwrap()
        .keys()
        .map(String::as_str)
        .collect();
    // Python may say how it reads its own files.
    names.retain(|name| *name != "LC_CTYPE");
    names.sort_unstable();
    assert_eq!(names, ["GIVEN", "PATH"]);
}

#[tokio::test]
async fn a_list_counts_anew_once_the_server_says_that_it_changed() {
    let place = folder();
    let (servers, _) = alone(hostile("any", place.path()));
    call(&servers, "hello", json!({})).await.unwrap();
    call(&servers, "hello", json!({})).await.unwrap();
    assert_eq!(lines(place.path(), "listed"), 1);
    let missing = soon(servers.tools("any", Some("grown"), RUN)).await;
    let words = missing.unwrap_err().to_string();
    assert!(
        words.contains("has no tool `grown`: it has hello"),
        "{words}"
    );
    call(&servers, "grow", json!({})).await.unwrap();
    tool(&servers, "grown").await;
    assert_eq!(lines(place.path(), "listed"), 2);
}

#[tokio::test]
async fn lies_are_left_out_with_a_note_and_the_rest_stays() {
    let place = folder();
    let (servers, _) = alone(hostile("lies", place.path()));
    let checked = soon(servers.check("lies")).await.unwrap();
    let names: Vec<&str> = checked
        .tools
        .iter()
        .map(|offered| offered.card.name.as_str())
        .collect();
    assert_eq!(names, ["mcp:lies/good", "mcp:lies/wordy"]);
    assert_eq!(checked.notes.len(), 7, "{:#?}", checked.notes);
    assert!(checked.tools[1].card.description.len() < 5_000);
    let missing = soon(servers.tools("lies", Some("round"), RUN)).await;
    let words = missing.unwrap_err().to_string();
    assert!(words.contains("refers to itself"), "{words}");
}

#[tokio::test]
async fn lists_without_end_have_one() {
    for (mode, most, why) in [("endless", 64, "no end"), ("crowd", 256, "more than 256")] {
        let place = folder();
        let (servers, _) = alone(hostile(mode, place.path()));
        let checked = soon(servers.check(mode)).await.unwrap();
        assert_eq!(checked.tools.len(), most, "{mode}");
        assert!(checked.notes[0].contains(why), "{:?}", checked.notes);
    }
}

#[tokio::test]
async fn one_that_dies_when_it_is_asked_for_its_list_says_why() {
    let place = folder();
    let (servers, _) = alone(hostile("dies_listing", place.path()));
    let error = soon(servers.tools("dies_listing", None, RUN))
        .await
        .unwrap_err();
    assert!(error.to_string().contains("exit status: 5"), "{error}");
    assert_eq!(lines(place.path(), "started"), 2);
}

#[tokio::test]
async fn one_that_hangs_at_its_list_is_started_anew_and_asked_once_for_all() {
    let place = folder();
    let mut spec = hostile("mute_first", place.path());
    spec.timeout = Millis::from_secs(2);
    let (servers, _) = alone(spec);
    let ask = || soon(servers.tools("mute_first", None, RUN));
    let (one, other) = tokio::join!(ask(), ask());
    let words = one.unwrap_err().to_string();
    assert!(words.contains("did not say within 2 s"), "{words}");
    assert_eq!(other.unwrap_err().to_string(), words);
    assert_eq!(lines(place.path(), "listed"), 1);
    assert_eq!(call(&servers, "hello", json!({})).await.map(|_| ()), Ok(()));
    assert_eq!(lines(place.path(), "started"), 2);
}

#[tokio::test]
async fn one_that_lets_three_calls_run_out_of_time_is_started_anew() {
    let place = folder();
    let spec = hostile("any", place.path());
    let timeout = spec.timeout;
    let (servers, clock) = alone(spec);
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
        let (around, mut told) = around();
        {
            let call = hangs.call(json!({}), &around);
            tokio::pin!(call);
            tokio::select! {
                _ = &mut call => panic!("it never ends"),
                _ = soon(told.recv()) => clock.pass(waited),
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
async fn family(servers: &Servers) -> BufReader<tokio::net::TcpStream> {
    let door = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = door.local_addr().unwrap().port();
    let said = call(servers, "family", json!({ "port": port })).await;
    assert_eq!(said.unwrap(), "both");
    let (line, _) = soon(door.accept()).await.unwrap();
    let mut line = BufReader::new(line);
    let mut here = String::new();
    soon(line.read_line(&mut here)).await.unwrap();
    assert_eq!(here, "here\n");
    line
}

async fn gone(mut line: BufReader<tokio::net::TcpStream>) {
    let mut rest = Vec::new();
    // A line that is reset has ended as well.
    _ = soon(line.read_to_end(&mut rest)).await;
    assert!(rest.is_empty());
}

#[tokio::test]
async fn a_server_of_a_run_ends_with_the_run_and_so_does_its_family() {
    let place = folder();
    let mut spec = hostile("any", place.path());
    spec.per_run = true;
    let (servers, _) = alone(spec);
    let line = family(&servers).await;
    let another = Stay {
        run: RunId::from_bits(8),
        ..RUN
    };
    let other = soon(servers.tools("any", Some("hello"), another))
        .await
        .unwrap();
    let (around, _told) = around();
    soon(other[0].call(json!({}), &around)).await.unwrap();
    assert_eq!(lines(place.path(), "started"), 2);
    soon(servers.let_go(RUN)).await;
    gone(line).await;
    soon(other[0].call(json!({}), &around)).await.unwrap();
    assert_eq!(lines(place.path(), "started"), 2);
}

#[tokio::test]
async fn one_that_does_not_want_to_end_is_killed() {
    let place = folder();
    let (servers, _) = alone(hostile("stays", place.path()));
    let line = family(&servers).await;
    soon(servers.close()).await;
    gone(line).await;
}

#[tokio::test]
async fn to_drop_the_servers_is_to_kill_them() {
    let place = folder();
    let (servers, _) = alone(hostile("any", place.path()));
    let line = family(&servers).await;
    drop(servers);
    gone(line).await;
}

#[tokio::test]
async fn what_is_not_there_is_said_with_what_helps() {
    let nowhere = super::kit::stdio("nowhere", Path::new("/no/such/program"), &[]);
    let mut bad = python("bad name", &[]);
    bad.name = "bad name".into();
    let servers = Servers::new(vec![nowhere, bad], Arc::new(Hasty::default()));
    for (server, said) in [
        ("nowhere", "`/no/such/program` could not be run"),
        ("bad name", "can't be used as it is configured"),
        (
            "other",
            "There is no MCP server `other`: there is bad name, nowhere",
        ),
    ] {
        let error = soon(servers.check(server)).await.unwrap_err().to_string();
        assert!(error.contains(said), "{error}");
    }
}
