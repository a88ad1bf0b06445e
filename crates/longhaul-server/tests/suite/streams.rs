//! One run as a stream: every event once and in order, however often the line
//! is cut, the model's words in between, beats, and an end.

use std::sync::Arc;

use longhaul_core::access::Role;
use longhaul_core::time::Millis;
use serde_json::{Value, json};
use tokio::sync::Semaphore;

use crate::suite::kit::client::{Ask, ask, get, post};
use crate::suite::kit::model::Line;
use crate::suite::kit::sse::{Ears, Frame};
use crate::suite::kit::{Server, asking, plan};
use longhaul_testkit::door::Door;

fn events(run: &str) -> Ask {
    get(format!("/v1/runs/{run}/events"))
}

/// The whole journal by pages.
async fn journal(server: &Server, run: &str) -> Vec<Value> {
    let (mut all, mut after) = (Vec::new(), "0".to_owned());
    loop {
        let path = format!("/v1/runs/{run}/events?limit=7&after={after}");
        let page = server.look(path).await;
        all.extend(page["data"].as_array().unwrap().iter().cloned());
        match page["next"].as_str() {
            Some(next) => after = next.to_owned(),
            None => return all,
        }
    }
}

/// What was heard must be this journal, with an end.
fn check_whole(heard: &[Frame], journal: &[Value], run: &str) {
    let facts: Vec<&Frame> = heard.iter().filter(|frame| frame.id.is_some()).collect();
    let told: Vec<Value> = facts.iter().map(|frame| frame.json()).collect();
    assert_eq!(told, journal);
    for (place, frame) in facts.iter().enumerate() {
        assert_eq!(frame.id, Some(place as u64 + 1));
        assert_eq!(frame.json()["seq"], place + 1);
        assert_eq!(frame.json()["type"], frame.event);
    }
    let end = heard.last().unwrap();
    assert_eq!((end.event.as_str(), end.id), ("end", None));
    let last = json!({ "run": run, "status": "completed", "last": journal.len() });
    assert_eq!(end.json(), last);
}

#[tokio::test]
async fn a_run_that_has_ended_is_told_at_once_from_any_place() {
    let server = plan([Line::Call("look", json!({}))]).at_work().await;
    let run = server.submit().await;
    server.ended(&run).await;
    let journal = journal(&server, &run).await;
    let heard = Ears::open(&server, events(&run)).await.all().await;
    check_whole(&heard, &journal, &run);
    let last = journal.len() as u64;
    let past = get(format!("/v1/runs/{run}/events?after={last}"));
    let far = get(format!("/v1/runs/{run}/events?after={}", u64::MAX));
    for (asked, first) in [
        (events(&run).with("last-event-id", "3"), Some(4)),
        (get(format!("/v1/runs/{run}/events?after=5")), Some(6)),
        // A client that reconnects knows better than the address it was given.
        (
            get(format!("/v1/runs/{run}/events?after=1")).with("last-event-id", "4"),
            Some(5),
        ),
        (events(&run).with("last-event-id", ""), Some(1)),
        (events(&run).with("last-event-id", &last.to_string()), None),
        (past, None),
        (far, None),
    ] {
        let what = format!("{asked:?}");
        let heard = Ears::open(&server, asked).await.all().await;
        assert_eq!(heard[0].id, first, "{what}");
        assert_eq!(heard.last().unwrap().event, "end", "{what}");
    }
    for said in ["x", "-1", "1.5", "99999999999999999999999"] {
        let asked = events(&run).with("last-event-id", said);
        let answer = server.ask(asked.with("accept", "text/event-stream")).await;
        assert_eq!(answer.problem(), "bad_last_event_id");
    }
    // A page of it that begins beyond its end is empty.
    let beyond = server
        .look(format!("/v1/runs/{run}/events?after={}", u64::MAX))
        .await;
    assert_eq!(beyond, json!({ "data": [], "next": null }));
}

#[tokio::test]
async fn a_stream_is_wanted_by_its_name() {
    let server = plan([]).at_work().await;
    let run = server.submit().await;
    server.ended(&run).await;
    for (accept, stream) in [
        ("text/event-stream", true),
        ("application/json, TEXT/EVENT-STREAM;q=0.5", true),
        ("*/*", false),
        ("text/*", false),
        ("application/json", false),
    ] {
        let answer = server.ask(events(&run).with("accept", accept)).await;
        let kind = answer.header("content-type").unwrap();
        assert_eq!(kind.starts_with("text/event-stream"), stream, "{accept}");
        assert!(answer.header("cache-control").unwrap().contains("no-store"));
    }
    let head = server
        .ask(ask("HEAD", format!("/v1/runs/{run}/events")))
        .await;
    assert_eq!(head.status, 200);
}

/// Dice that fall the same way each time.
struct Dice(u64);

impl Dice {
    fn below(&mut self, bound: usize) -> usize {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        (self.0 >> 33) as usize % bound
    }
}

#[tokio::test]
async fn a_line_that_is_cut_a_hundred_times_loses_and_repeats_nothing() {
    const CUTS: usize = 100;
    let gate = Arc::new(Semaphore::new(0));
    let turn = || {
        Line::Call("look", json!({}))
            .after("Let me see. ")
            .let_through(&gate)
    };
    let server = plan((0..CUTS).map(|_| turn())).at_work().await;
    let run = server.submit().await;
    let mut dice = Dice(20_260_101);
    let mut heard: Vec<Frame> = Vec::new();
    for cut in 0..CUTS {
        gate.add_permits(1);
        let last = heard.iter().rev().find_map(|frame| frame.id);
        let asked = match (last, cut % 2) {
            (None, _) => events(&run),
            (Some(last), 0) => events(&run).with("last-event-id", &last.to_string()),
            (Some(last), _) => get(format!("/v1/runs/{run}/events?after={last}")),
        };
        let ears = Ears::open(&server, asked).await;
        heard.extend(ears.cut_after(dice.below(4_000)).await);
    }
    let last = heard.iter().rev().find_map(|frame| frame.id).unwrap();
    let asked = events(&run).with("last-event-id", &last.to_string());
    heard.extend(Ears::open(&server, asked).await.all().await);
    let journal = journal(&server, &run).await;
    assert!(journal.len() > 300, "{}", journal.len());
    check_whole(&heard, &journal, &run);
}

#[tokio::test]
async fn words_come_in_between_and_have_no_place() {
    let (first, second) = (Door::shut(), Door::shut());
    let line = Line::Text("three").behind(&second).after("two ");
    let server = plan([line.behind(&first).after("one ")]).at_work().await;
    let run = server.submit().await;
    let mut ears = Ears::open(&server, events(&run)).await;
    let mut words = String::new();
    for (door, said) in [(&first, "one "), (&second, "two ")] {
        let delta = ears.until("message.delta").await;
        assert_eq!(delta.id, None);
        let told = delta.json();
        assert_eq!((&told["run"], &told["turn"]), (&json!(run), &json!(1)));
        assert_eq!(
            (&told["offset"], &told["text"]),
            (&json!(words.len()), &json!(said))
        );
        words.push_str(said);
        door.open();
    }
    // Whoever comes late hears the reply from its beginning.
    let rest = ears.all().await;
    check_whole_after(&rest);
    assert_eq!(server.ended(&run).await["output"]["text"], "three");
}

fn check_whole_after(rest: &[Frame]) {
    let facts: Vec<&str> = rest
        .iter()
        .filter(|frame| frame.id.is_some())
        .map(|frame| frame.event.as_str())
        .collect();
    assert!(facts.contains(&"turn.completed"), "{facts:?}");
    assert_eq!(rest.last().unwrap().event, "end");
}

#[tokio::test]
async fn a_stream_says_every_ten_seconds_that_it_is_there() {
    let server = asking().at_standing_clock().at_work().await;
    let (run, _) = server.at_gate().await;
    let mut one = Ears::open(&server, events(&run)).await;
    one.until("gate.raised").await;
    let last = journal(&server, &run).await.len();
    let mut heard = one.until_id(last as u64).await;
    assert_eq!(heard.id, Some(last as u64));
    let mut all = Ears::open(&server, get("/v1/events/stream")).await;
    for _ in 0..3 {
        server.clock().advance(Millis::from_secs(10));
        for ears in [&mut one, &mut all] {
            heard = ears.next().await.unwrap();
            assert_eq!((heard.comment.as_str(), heard.id), ("beat", None));
        }
    }
}

#[tokio::test]
async fn a_key_that_is_revoked_hears_no_more() {
    let server = asking().at_standing_clock().at_work().await;
    let (run, _) = server.at_gate().await;
    for path in [
        format!("/v1/runs/{run}/events"),
        "/v1/events/stream".to_owned(),
    ] {
        let key = server.make_key("eve", Role::Viewer).await;
        let mut ears = Ears::open(&server, get(path).shows(&key)).await;
        server.clock().advance(Millis::from_secs(10));
        while ears.next().await.unwrap().comment != "beat" {}
        server.ask(ask("DELETE", "/v1/keys/eve")).await.expect(200);
        server.clock().advance(Millis::from_secs(10));
        assert_eq!(ears.next().await, None);
        assert!(ears.is_over(), "it ends as a stream ends");
    }
}

#[tokio::test]
async fn a_stop_ends_streams_and_says_so_before() {
    let mut server = asking().at_work().await;
    let (run, _) = server.at_gate().await;
    let mut one = Ears::open(&server, events(&run)).await;
    let mut all = Ears::open(&server, get("/v1/events/stream")).await;
    one.until("gate.raised").await;
    server.stop();
    while one.next().await.is_some() {}
    while all.next().await.is_some() {}
    assert!(one.is_over() && all.is_over());
    server.stopped().await;
}

#[tokio::test]
async fn a_run_that_is_cancelled_ends_its_stream() {
    let server = asking().at_work().await;
    let (run, _) = server.at_gate().await;
    let mut ears = Ears::open(&server, events(&run)).await;
    ears.until("gate.raised").await;
    let cancel = post(
        format!("/v1/runs/{run}/cancel"),
        &json!({ "reason": "enough" }),
    );
    server.ask(cancel).await.expect(200);
    let end = ears.until("end").await.json();
    assert_eq!(end["status"], "cancelled");
    assert_eq!(ears.next().await, None);
}
