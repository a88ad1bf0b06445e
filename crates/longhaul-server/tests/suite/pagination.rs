//! Pagination: no item is repeated or skipped, even if items are added between two pages.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use crate::suite::harness::client::post;
use crate::suite::harness::{TestServer, server_with, server_with_gate, task};

/// Reads a list page by page, and adds an item between any two pages.
async fn list_all_pages<F: AsyncFn()>(
    server: &TestServer,
    path: &str,
    name: &str,
    add_entry: F,
) -> Vec<String> {
    let mut all = Vec::new();
    let mut after = String::new();
    loop {
        let page = server.get_json(format!("{path}limit=3{after}")).await;
        let data = page["data"].as_array().unwrap();
        assert!(data.len() <= 3, "{page}");
        all.extend(data.iter().map(|item| value_text(&item[name])));
        match page["next"].as_str() {
            None => return all,
            Some(next) => after = format!("&after={next}"),
        }
        add_entry().await;
    }
}

fn value_text(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

fn assert_listed_once(all: &[String], expected: &[String]) {
    let unique: BTreeSet<&String> = all.iter().collect();
    assert_eq!(unique.len(), all.len(), "twice: {all:?}");
    for id in expected {
        assert!(unique.contains(id), "{id} is missing in {all:?}");
    }
}

#[tokio::test]
async fn runs_are_listed_once_while_others_are_added() {
    let server = server_with([]).open().await;
    let mut runs = Vec::new();
    for _ in 0..10 {
        runs.push(server.submit().await);
    }
    for path in ["/v1/runs?", "/v1/runs?brief=true&", "/v1/runs?status=pending&agent=tester&"] {
        let all = list_all_pages(&server, path, "id", async || drop(server.submit().await)).await;
        assert_listed_once(&all, &runs);
        let mut sorted = all.clone();
        sorted.sort_unstable_by(|one, two| two.cmp(one));
        assert_eq!(all, sorted, "newest first");
    }
    let first_page = server.get_json("/v1/runs?limit=10").await;
    assert_ne!(first_page["next"], Value::Null);
}

#[tokio::test]
async fn gates_are_listed_once_while_others_are_raised() {
    let server = server_with_gate().start().await;
    let mut gates = Vec::new();
    for _ in 0..7 {
        gates.push(value_text(&server.submit_until_gate().await.1["id"]));
    }
    for path in ["/v1/gates?", "/v1/gates?status=open&"] {
        let all =
            list_all_pages(&server, path, "id", async || drop(server.submit_until_gate().await))
                .await;
        assert_listed_once(&all, &gates);
    }
}

#[tokio::test]
async fn lanes_are_listed_once_while_others_are_filled() {
    let server = server_with([]).open().await;
    let fill = async |lane: &str| {
        let mut body = task();
        body["lane"] = json!(lane);
        server.send(post("/v1/runs", &body)).await.expect(201);
    };
    // Names with characters that must be escaped in a URL.
    let lanes = ["a", "b", "b:1", "c-d", "e.f", "g_h", "m", "z"].map(str::to_owned);
    for lane in &lanes {
        fill(lane).await;
    }
    let all = list_all_pages(&server, "/v1/lanes?", "lane", async || {
        fill("aa").await;
        fill("y").await;
    })
    .await;
    assert_listed_once(&all, &lanes);
    assert!(all.is_sorted(), "{all:?}");
}

#[tokio::test]
async fn events_are_read_once_while_others_are_written() {
    let server = server_with([]).open().await;
    let run = server.submit().await;
    let steer = async || {
        let steer_request = post(format!("/v1/runs/{run}/steer"), &json!({ "text": "x" }));
        server.send(steer_request).await.expect(202);
    };
    for _ in 0..8 {
        steer().await;
    }
    let rounds = std::cell::Cell::new(0);
    let add_event = async || {
        // The loop would never end if every page added another event.
        rounds.set(rounds.get() + 1);
        if rounds.get() < 4 {
            steer().await;
        }
    };
    let all = list_all_pages(&server, &format!("/v1/runs/{run}/events?"), "seq", add_event).await;
    let expected: Vec<String> = (1..=12).map(|seq: u32| seq.to_string()).collect();
    assert_eq!(all, expected);
}
