//! The event stream of all runs: filtered, resumed, and not delayed by a single run.

use std::collections::BTreeMap;

use longhaul_core::access::Role;
use longhaul_core::time::Millis;
use longhaul_engine::Task;
use serde_json::json;

use crate::suite::harness::client::{get, request};
use crate::suite::harness::model::FakeReply;
use crate::suite::harness::server_with;
use crate::suite::harness::sse::{SseClient, SseEvent};

const ALL: &str = "/v1/events/stream";

/// Reads events until this number of runs has ended.
async fn read_until_ended(stream: &mut SseClient, runs: usize) -> Vec<SseEvent> {
    let (mut frames, mut ended_count) = (Vec::new(), 0);
    while ended_count < runs {
        let frame = stream.next().await.expect("the stream continues");
        ended_count += usize::from(frame.event == "run.completed");
        frames.push(frame);
    }
    frames
}

#[tokio::test]
async fn events_of_all_runs_are_streamed_in_order() {
    let server = server_with([FakeReply::Call("look", json!({}))]).start().await;
    let old = server.submit().await;
    server.wait_until_ended(&old).await;
    let mut stream = SseClient::open(&server, get(ALL)).await;
    for _ in 0..5 {
        server.submit().await;
    }
    let frames = read_until_ended(&mut stream, 5).await;
    let ids: Vec<u64> = frames.iter().filter_map(|frame| frame.id).collect();
    assert!(ids.is_sorted_by(|one, two| one < two), "{ids:?}");
    let mut next_seq: BTreeMap<String, u64> = BTreeMap::new();
    for frame in &frames {
        let body = frame.json();
        let run = body["run"].as_str().unwrap().to_owned();
        assert_ne!(run, old, "no events from before the stream was opened");
        let seq = next_seq.entry(run).or_insert(1);
        assert_eq!(body["seq"], *seq);
        *seq += 1;
    }
    assert_eq!(next_seq.len(), 5);
}

#[tokio::test]
async fn the_stream_of_all_runs_resumes_after_the_last_event_id() {
    let server = server_with([]).start().await;
    let from_start = || get(format!("{ALL}?after=0"));
    for _ in 0..3 {
        let run = server.submit().await;
        server.wait_until_ended(&run).await;
    }
    let all_frames = read_until_ended(&mut SseClient::open(&server, from_start()).await, 3).await;
    for index in [0, 1, 7, all_frames.len() - 2] {
        let last = all_frames[index].id.unwrap().to_string();
        for request in [
            get(format!("{ALL}?after={last}")),
            get(ALL).header("last-event-id", &last),
            get(format!("{ALL}?after=0")).header("last-event-id", &last),
        ] {
            let mut stream = SseClient::open(&server, request).await;
            assert_eq!(stream.next().await.as_ref(), all_frames.get(index + 1), "{index}");
        }
    }
    // A client with an id in the future waits for it.
    SseClient::open(&server, get(format!("{ALL}?after={}", u64::MAX))).await;
}

#[tokio::test]
async fn the_stream_of_all_runs_is_filtered() {
    let server = server_with([FakeReply::Call("look", json!({}))]).start().await;
    for (filter, expected) in [
        ("run.completed", "run.completed"),
        ("tool.*", "tool.started tool.completed"),
        ("turn.started,%20run.created", "run.created turn.started turn.started"),
    ] {
        let mut stream = SseClient::open(&server, get(format!("{ALL}?filter={filter}"))).await;
        let run = server.submit().await;
        server.wait_until_ended(&run).await;
        let mut event_names = Vec::new();
        for _ in expected.split(' ') {
            event_names.push(stream.next().await.unwrap().event);
        }
        assert_eq!(event_names.join(" "), expected);
    }
}

#[tokio::test]
async fn revocation_and_shutdown_end_the_stream_during_catch_up() {
    let mut server = server_with([]).with_sim_clock().open().await;
    // More data than the socket buffers hold while the client does not read.
    let task = Task::new("tester", "x".repeat(20_000));
    let tasks = (0..1_000).map(|_| task.clone()).collect();
    server.longhaul.submit_all(tasks).await.unwrap();
    let key = server.create_key("eve", Role::Viewer).await;
    let http_request = get(format!("{ALL}?after=0")).with_key(&key);
    let mut stream = SseClient::open(&server, http_request).await;
    stream.next().await.unwrap();
    server.send(request("DELETE", "/v1/keys/eve")).await.expect(200);
    server.clock().advance(Millis::from_secs(10));
    let mut frame_count = 0;
    while stream.next().await.is_some() {
        frame_count += 1;
    }
    assert!(stream.is_complete() && frame_count < 999, "{frame_count} more");
    let mut stream = SseClient::open(&server, get(format!("{ALL}?after=0"))).await;
    stream.next().await.unwrap();
    server.stop();
    while stream.next().await.is_some() {}
    server.wait_stopped().await;
}
