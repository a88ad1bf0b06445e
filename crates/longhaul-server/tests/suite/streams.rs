//! One run as a stream: every event once and in order, however often the line
//! is cut, the model's words in between, beats, and an end.

use std::sync::Arc;

use longhaul_core::access::Role;
use longhaul_core::time::Millis;
use serde_json::{Value, json};
use tokio::sync::Semaphore;

use crate::suite::harness::client::{TestRequest, get, post, request};
use crate::suite::harness::model::FakeReply;
use crate::suite::harness::sse::{SseClient, SseEvent};
use crate::suite::harness::{TestServer, server_with, server_with_gate};
use longhaul_testkit::latch::Latch;

fn events(run: &str) -> TestRequest {
    get(format!("/v1/runs/{run}/events"))
}

/// The whole journal by pages.
async fn journal(server: &TestServer, run: &str) -> Vec<Value> {
    let (mut all, mut after) = (Vec::new(), "0".to_owned());
    loop {
        let path = format!("/v1/runs/{run}/events?limit=7&after={after}");
        let page = server.get_json(path).await;
        all.extend(page["data"].as_array().unwrap().iter().cloned());
        match page["next"].as_str() {
            Some(next) => after = next.to_owned(),
            None => return all,
        }
    }
}

/// What was heard must be this journal, with an end.
fn check_complete(heard: &[SseEvent], journal: &[Value], run: &str) {
    let facts: Vec<&SseEvent> = heard.iter().filter(|frame| frame.id.is_some()).collect();
    let told: Vec<Value> = facts.iter().map(|frame| frame.json()).collect();
    assert_eq!(told, journal);
    for (place, frame) in facts.iter().enumerate() {
        assert_eq!(frame.id, Some(place as u64 + 1));
        assert_eq!(frame.json()["seq"], place + 1);
        assert_eq!(frame.json()["type"], frame.event);
    }
    let end = heard.last().unwrap();
    assert_eq!((end.event.as_str(), end.id), ("end", None));
    let last = json!({ "run": run, "status": "completed", "last_seq": journal.len() });
    assert_eq!(end.json(), last);
}

#[tokio::test]
async fn an_ended_run_is_streamed_at_once_from_any_seq() {
    let server = server_with([FakeReply::Call("look", json!({}))]).start().await;
    let run = server.submit().await;
    server.ended(&run).await;
    let journal = journal(&server, &run).await;
    let heard = SseClient::open(&server, events(&run)).await.all().await;
    check_complete(&heard, &journal, &run);
    let last = journal.len() as u64;
    let past = get(format!("/v1/runs/{run}/events?after={last}"));
    let far = get(format!("/v1/runs/{run}/events?after={}", u64::MAX));
    for (asked, first) in [
        (events(&run).header("last-event-id", "3"), Some(4)),
        (get(format!("/v1/runs/{run}/events?after=5")), Some(6)),
        // A client that reconnects knows better than the address it was given.
        (get(format!("/v1/runs/{run}/events?after=1")).header("last-event-id", "4"), Some(5)),
        (events(&run).header("last-event-id", ""), Some(1)),
        (events(&run).header("last-event-id", &last.to_string()), None),
        (past, None),
        (far, None),
    ] {
        let what = format!("{asked:?}");
        let heard = SseClient::open(&server, asked).await.all().await;
        assert_eq!(heard[0].id, first, "{what}");
        assert_eq!(heard.last().unwrap().event, "end", "{what}");
    }
    for said in ["x", "-1", "1.5", "99999999999999999999999"] {
        let asked = events(&run).header("last-event-id", said);
        let answer = server.send(asked.header("accept", "text/event-stream")).await;
        assert_eq!(answer.problem(), "bad_last_event_id");
    }
    // A page of it that begins beyond its end is empty.
    let beyond = server.get_json(format!("/v1/runs/{run}/events?after={}", u64::MAX)).await;
    assert_eq!(beyond, json!({ "data": [], "next": null }));
}

#[tokio::test]
async fn a_stream_is_selected_by_the_accept_header() {
    let server = server_with([]).start().await;
    let run = server.submit().await;
    server.ended(&run).await;
    for (accept, stream) in [
        ("text/event-stream", true),
        ("application/json, TEXT/EVENT-STREAM;q=0.5", true),
        ("*/*", false),
        ("text/*", false),
        ("application/json", false),
    ] {
        let answer = server.send(events(&run).header("accept", accept)).await;
        let kind = answer.header("content-type").unwrap();
        assert_eq!(kind.starts_with("text/event-stream"), stream, "{accept}");
        assert!(answer.header("cache-control").unwrap().contains("no-store"));
    }
    let head = server.send(request("HEAD", format!("/v1/runs/{run}/events"))).await;
    assert_eq!(head.status, 200);
}

/// Dice that fall the same way each time.
struct SeededRng(u64);

impl SeededRng {
    fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (self.0 >> 33) as usize % bound
    }
}

#[tokio::test]
async fn a_stream_reconnected_a_hundred_times_loses_and_repeats_nothing() {
    const CUTS: usize = 100;
    let gate = Arc::new(Semaphore::new(0));
    let turn =
        || FakeReply::Call("look", json!({})).after_streaming("Let me see. ").after_permit(&gate);
    let server = server_with((0..CUTS).map(|_| turn())).start().await;
    let run = server.submit().await;
    let mut dice = SeededRng(20_260_101);
    let mut heard: Vec<SseEvent> = Vec::new();
    for cut in 0..CUTS {
        gate.add_permits(1);
        let last = heard.iter().rev().find_map(|frame| frame.id);
        let asked = match (last, cut % 2) {
            (None, _) => events(&run),
            (Some(last), 0) => events(&run).header("last-event-id", &last.to_string()),
            (Some(last), _) => get(format!("/v1/runs/{run}/events?after={last}")),
        };
        let ears = SseClient::open(&server, asked).await;
        heard.extend(ears.close_after(dice.below(4_000)).await);
    }
    let last = heard.iter().rev().find_map(|frame| frame.id).unwrap();
    let asked = events(&run).header("last-event-id", &last.to_string());
    heard.extend(SseClient::open(&server, asked).await.all().await);
    let journal = journal(&server, &run).await;
    assert!(journal.len() > 300, "{}", journal.len());
    check_complete(&heard, &journal, &run);
}

#[tokio::test]
async fn text_deltas_are_interleaved_and_have_no_id() {
    let (first, second) = (Latch::new(), Latch::new());
    let line = FakeReply::Text("three").after_latch(&second).after_streaming("two ");
    let server = server_with([line.after_latch(&first).after_streaming("one ")]).start().await;
    let run = server.submit().await;
    let mut ears = SseClient::open(&server, events(&run)).await;
    let mut words = String::new();
    for (door, said) in [(&first, "one "), (&second, "two ")] {
        let delta = ears.until("message.delta").await;
        assert_eq!(delta.id, None);
        let told = delta.json();
        assert_eq!((&told["run"], &told["turn"]), (&json!(run), &json!(1)));
        assert_eq!((&told["offset"], &told["text"]), (&json!(words.len()), &json!(said)));
        words.push_str(said);
        door.open();
    }
    // Whoever comes late hears the reply from its beginning.
    let rest = ears.all().await;
    check_complete_after(&rest);
    assert_eq!(server.ended(&run).await["output"]["text"], "three");
}

fn check_complete_after(rest: &[SseEvent]) {
    let facts: Vec<&str> =
        rest.iter().filter(|frame| frame.id.is_some()).map(|frame| frame.event.as_str()).collect();
    assert!(facts.contains(&"turn.completed"), "{facts:?}");
    assert_eq!(rest.last().unwrap().event, "end");
}

#[tokio::test]
async fn a_stream_sends_a_heartbeat_every_ten_seconds() {
    let server = server_with_gate().with_sim_clock().start().await;
    let (run, _) = server.at_gate().await;
    let mut one = SseClient::open(&server, events(&run)).await;
    one.until("gate.raised").await;
    let last = journal(&server, &run).await.len();
    let mut heard = one.until_id(last as u64).await;
    assert_eq!(heard.id, Some(last as u64));
    let mut all = SseClient::open(&server, get("/v1/events/stream")).await;
    for _ in 0..3 {
        server.clock().advance(Millis::from_secs(10));
        for ears in [&mut one, &mut all] {
            heard = ears.next().await.unwrap();
            assert_eq!((heard.comment.as_str(), heard.id), ("heartbeat", None));
        }
    }
}

#[tokio::test]
async fn a_stream_ends_when_its_key_is_revoked() {
    let server = server_with_gate().with_sim_clock().start().await;
    let (run, _) = server.at_gate().await;
    for path in [format!("/v1/runs/{run}/events"), "/v1/events/stream".to_owned()] {
        let key = server.create_key("eve", Role::Viewer).await;
        let mut ears = SseClient::open(&server, get(path).with_key(&key)).await;
        server.clock().advance(Millis::from_secs(10));
        while ears.next().await.unwrap().comment != "heartbeat" {}
        server.send(request("DELETE", "/v1/keys/eve")).await.expect(200);
        server.clock().advance(Millis::from_secs(10));
        assert_eq!(ears.next().await, None);
        assert!(ears.is_complete(), "it ends as a stream ends");
    }
}

#[tokio::test]
async fn a_shutdown_ends_streams_with_a_notice() {
    let mut server = server_with_gate().start().await;
    let (run, _) = server.at_gate().await;
    let mut one = SseClient::open(&server, events(&run)).await;
    let mut all = SseClient::open(&server, get("/v1/events/stream")).await;
    one.until("gate.raised").await;
    server.stop();
    while one.next().await.is_some() {}
    while all.next().await.is_some() {}
    assert!(one.is_complete() && all.is_complete());
    server.wait_stopped().await;
}

#[tokio::test]
async fn a_run_that_is_cancelled_ends_its_stream() {
    let server = server_with_gate().start().await;
    let (run, _) = server.at_gate().await;
    let mut ears = SseClient::open(&server, events(&run)).await;
    ears.until("gate.raised").await;
    let cancel = post(format!("/v1/runs/{run}/cancel"), &json!({ "reason": "enough" }));
    server.send(cancel).await.expect(200);
    let end = ears.until("end").await.json();
    assert_eq!(end["status"], "cancelled");
    assert_eq!(ears.next().await, None);
}
