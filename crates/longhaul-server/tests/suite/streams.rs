//! The event stream of one run: every event once and in order despite disconnects, text deltas,
//! heartbeats, and the end.

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

fn events_request(run: &str) -> TestRequest {
    get(format!("/v1/runs/{run}/events"))
}

/// Returns the whole journal, read in pages.
async fn read_journal(server: &TestServer, run: &str) -> Vec<Value> {
    let (mut events, mut after) = (Vec::new(), "0".to_owned());
    loop {
        let path = format!("/v1/runs/{run}/events?limit=7&after={after}");
        let page = server.get_json(path).await;
        events.extend(page["data"].as_array().unwrap().iter().cloned());
        match page["next"].as_str() {
            Some(next) => after = next.to_owned(),
            None => return events,
        }
    }
}

/// Asserts that the received events are this journal with an end.
fn check_complete(frames: &[SseEvent], journal: &[Value], run: &str) {
    let events: Vec<&SseEvent> = frames.iter().filter(|frame| frame.id.is_some()).collect();
    let bodies: Vec<Value> = events.iter().map(|frame| frame.json()).collect();
    assert_eq!(bodies, journal);
    for (index, frame) in events.iter().enumerate() {
        assert_eq!(frame.id, Some(index as u64 + 1));
        assert_eq!(frame.json()["seq"], index + 1);
        assert_eq!(frame.json()["type"], frame.event);
    }
    let end = frames.last().unwrap();
    assert_eq!((end.event.as_str(), end.id), ("end", None));
    let last = json!({ "run": run, "status": "completed", "last_seq": journal.len() });
    assert_eq!(end.json(), last);
}

#[tokio::test]
async fn an_ended_run_is_streamed_at_once_from_any_seq() {
    let server = server_with([FakeReply::Call("look", json!({}))]).start().await;
    let run = server.submit().await;
    server.wait_until_ended(&run).await;
    let journal = read_journal(&server, &run).await;
    let frames = SseClient::open(&server, events_request(&run)).await.read_to_end().await;
    check_complete(&frames, &journal, &run);
    let last = journal.len() as u64;
    let after_last = get(format!("/v1/runs/{run}/events?after={last}"));
    let after_max = get(format!("/v1/runs/{run}/events?after={}", u64::MAX));
    for (request, first) in [
        (events_request(&run).header("last-event-id", "3"), Some(4)),
        (get(format!("/v1/runs/{run}/events?after=5")), Some(6)),
        // The header of a reconnecting client overrides the `after` in the URL.
        (get(format!("/v1/runs/{run}/events?after=1")).header("last-event-id", "4"), Some(5)),
        (events_request(&run).header("last-event-id", ""), Some(1)),
        (events_request(&run).header("last-event-id", &last.to_string()), None),
        (after_last, None),
        (after_max, None),
    ] {
        let label = format!("{request:?}");
        let frames = SseClient::open(&server, request).await.read_to_end().await;
        assert_eq!(frames[0].id, first, "{label}");
        assert_eq!(frames.last().unwrap().event, "end", "{label}");
    }
    for last_id in ["x", "-1", "1.5", "99999999999999999999999"] {
        let request = events_request(&run).header("last-event-id", last_id);
        let answer = server.send(request.header("accept", "text/event-stream")).await;
        assert_eq!(answer.problem(), "invalid_last_event_id");
    }
    // A page after the end of the journal is empty.
    let empty_page = server.get_json(format!("/v1/runs/{run}/events?after={}", u64::MAX)).await;
    assert_eq!(empty_page, json!({ "data": [], "next": null }));
}

#[tokio::test]
async fn a_stream_is_selected_by_the_accept_header() {
    let server = server_with([]).start().await;
    let run = server.submit().await;
    server.wait_until_ended(&run).await;
    for (accept, stream) in [
        ("text/event-stream", true),
        ("application/json, TEXT/EVENT-STREAM;q=0.5", true),
        ("*/*", false),
        ("text/*", false),
        ("application/json", false),
    ] {
        let answer = server.send(events_request(&run).header("accept", accept)).await;
        let kind = answer.header("content-type").unwrap();
        assert_eq!(kind.starts_with("text/event-stream"), stream, "{accept}");
        assert!(answer.header("cache-control").unwrap().contains("no-store"));
    }
    let head = server.send(request("HEAD", format!("/v1/runs/{run}/events"))).await;
    assert_eq!(head.status, 200);
}

/// A random number generator with a fixed seed.
struct SeededRng(u64);

impl SeededRng {
    fn next_below(&mut self, bound: usize) -> usize {
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
    let mut rng = SeededRng(20_260_101);
    let mut frames: Vec<SseEvent> = Vec::new();
    for round in 0..CUTS {
        gate.add_permits(1);
        let last = frames.iter().rev().find_map(|frame| frame.id);
        let request = match (last, round % 2) {
            (None, _) => events_request(&run),
            (Some(last), 0) => events_request(&run).header("last-event-id", &last.to_string()),
            (Some(last), _) => get(format!("/v1/runs/{run}/events?after={last}")),
        };
        let stream = SseClient::open(&server, request).await;
        frames.extend(stream.close_after(rng.next_below(4_000)).await);
    }
    let last = frames.iter().rev().find_map(|frame| frame.id).unwrap();
    let request = events_request(&run).header("last-event-id", &last.to_string());
    frames.extend(SseClient::open(&server, request).await.read_to_end().await);
    let journal = read_journal(&server, &run).await;
    assert!(journal.len() > 300, "{}", journal.len());
    check_complete(&frames, &journal, &run);
}

#[tokio::test]
async fn text_deltas_are_interleaved_and_have_no_id() {
    let (first, second) = (Latch::closed(), Latch::closed());
    let line = FakeReply::Text("three").after_latch(&second).after_streaming("two ");
    let server = server_with([line.after_latch(&first).after_streaming("one ")]).start().await;
    let run = server.submit().await;
    let mut stream = SseClient::open(&server, events_request(&run)).await;
    let mut text = String::new();
    for (latch, chunk) in [(&first, "one "), (&second, "two ")] {
        let delta = stream.next_of_type("message.delta").await;
        assert_eq!(delta.id, None);
        let body = delta.json();
        assert_eq!((&body["run"], &body["turn"]), (&json!(run), &json!(1)));
        assert_eq!((&body["offset"], &body["text"]), (&json!(text.len()), &json!(chunk)));
        text.push_str(chunk);
        latch.open();
    }
    // A late reader gets the reply from its beginning.
    let rest = stream.read_to_end().await;
    check_complete_after(&rest);
    assert_eq!(server.wait_until_ended(&run).await["output"]["text"], "three");
}

fn check_complete_after(rest: &[SseEvent]) {
    let kinds: Vec<&str> =
        rest.iter().filter(|frame| frame.id.is_some()).map(|frame| frame.event.as_str()).collect();
    assert!(kinds.contains(&"turn.completed"), "{kinds:?}");
    assert_eq!(rest.last().unwrap().event, "end");
}

#[tokio::test]
async fn a_stream_sends_a_heartbeat_every_ten_seconds() {
    let server = server_with_gate().with_sim_clock().start().await;
    let (run, _) = server.submit_until_gate().await;
    let mut run_stream = SseClient::open(&server, events_request(&run)).await;
    run_stream.next_of_type("gate.raised").await;
    let last = read_journal(&server, &run).await.len();
    let mut frame = run_stream.next_with_id(last as u64).await;
    assert_eq!(frame.id, Some(last as u64));
    let mut all = SseClient::open(&server, get("/v1/events/stream")).await;
    for _ in 0..3 {
        server.clock().advance(Millis::from_secs(10));
        for stream in [&mut run_stream, &mut all] {
            frame = stream.next().await.unwrap();
            assert_eq!((frame.comment.as_str(), frame.id), ("heartbeat", None));
        }
    }
}

#[tokio::test]
async fn a_stream_ends_when_its_key_is_revoked() {
    let server = server_with_gate().with_sim_clock().start().await;
    let (run, _) = server.submit_until_gate().await;
    for path in [format!("/v1/runs/{run}/events"), "/v1/events/stream".to_owned()] {
        let key = server.create_key("eve", Role::Viewer).await;
        let mut stream = SseClient::open(&server, get(path).with_key(&key)).await;
        server.clock().advance(Millis::from_secs(10));
        while stream.next().await.unwrap().comment != "heartbeat" {}
        server.send(request("DELETE", "/v1/keys/eve")).await.expect(200);
        server.clock().advance(Millis::from_secs(10));
        assert_eq!(stream.next().await, None);
        assert!(stream.is_complete(), "the stream ends properly");
    }
}

#[tokio::test]
async fn a_shutdown_ends_streams_with_a_notice() {
    let mut server = server_with_gate().start().await;
    let (run, _) = server.submit_until_gate().await;
    let mut run_stream = SseClient::open(&server, events_request(&run)).await;
    let mut all = SseClient::open(&server, get("/v1/events/stream")).await;
    run_stream.next_of_type("gate.raised").await;
    server.stop();
    while run_stream.next().await.is_some() {}
    while all.next().await.is_some() {}
    assert!(run_stream.is_complete() && all.is_complete());
    server.wait_stopped().await;
}

#[tokio::test]
async fn a_run_that_is_cancelled_ends_its_stream() {
    let server = server_with_gate().start().await;
    let (run, _) = server.submit_until_gate().await;
    let mut stream = SseClient::open(&server, events_request(&run)).await;
    stream.next_of_type("gate.raised").await;
    let cancel = post(format!("/v1/runs/{run}/cancel"), &json!({ "reason": "enough" }));
    server.send(cancel).await.expect(200);
    let end = stream.next_of_type("end").await.json();
    assert_eq!(end["status"], "cancelled");
    assert_eq!(stream.next().await, None);
}
