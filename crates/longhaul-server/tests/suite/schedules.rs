//! Events, schedules and statistics over HTTP.

use serde_json::{Value, json};

use crate::suite::harness::client::{TestRequest, get, post, request};
use crate::suite::harness::{TestServer, server_with, task};

async fn problem_code_and_detail(
    server: &TestServer,
    request: TestRequest,
    status: u16,
) -> (String, String) {
    let answer = server.send(request.clone()).await;
    assert_eq!(answer.status, status, "{request:?}: {}", answer.text());
    let body = answer.json();
    let text = |name: &str| body[name].as_str().unwrap().to_owned();
    (text("code"), text("detail"))
}

#[tokio::test]
async fn an_event_becomes_a_run() {
    let server = server_with([]).start().await;
    let event = json!({
        "agent": "tester", "kind": "player_action", "actor": { "name": "Ada" },
        "payload": { "message": "Hi." }, "lane": "npc-7", "thread": "t", "resource": "r",
    });
    let run = server.send(post("/v1/events", &event).header("idempotency-key", "e1")).await;
    let run = run.expect(201);
    for (name, value) in [
        ("type", json!("player_action")),
        ("actor", json!({ "name": "Ada" })),
        ("input", json!({ "message": "Hi." })),
        ("lane", json!("npc-7")),
        ("thread", json!("t")),
        ("resource", json!("r")),
    ] {
        assert_eq!(run[name], value, "{name} of {run}");
    }
    let second = server.send(post("/v1/events", &event).header("idempotency-key", "e1")).await;
    assert_eq!(second.expect(201)["id"], run["id"]);
    let id = run["id"].as_str().unwrap();
    server.wait_until_ended(id).await;
    let transcript = server.get_json(&format!("/v1/runs/{id}/transcript")).await.to_string();
    assert!(transcript.contains("A player named Ada is talking to you."), "{transcript}");
    // An event without data, and the same event as a task.
    let idle = json!({ "agent": "tester", "kind": "idle_tick" });
    assert_eq!(server.send(post("/v1/events", &idle)).await.expect(201)["input"], "");
    let task = json!({ "agent": "tester", "input": "", "event": "quake" });
    let run = server.send(post("/v1/runs", &task)).await.expect(201);
    assert_eq!(run["type"], "quake");
    let event_with = |name: &str, value: Value| {
        let mut event = event.clone();
        event[name] = value;
        post("/v1/events", &event)
    };
    for (request, code) in [
        (event_with("agent", json!("nobody")), "agent_not_found"),
        (event_with("kind", json!("")), "empty"),
        (event_with("kind", json!("k".repeat(257))), "too_long"),
        (event_with("kind", json!(7)), "invalid"),
        (event_with("lane", json!("l".repeat(10_000))), "invalid"),
        (event_with("payload", json!("x".repeat(1024 * 1024 + 1))), "too_long"),
        (event_with("text", json!("x")), "invalid"),
        (post("/v1/events", &json!({ "agent": "tester" })), "invalid"),
    ] {
        assert_eq!(problem_code_and_detail(&server, request, 422).await.0, code);
    }
    let event_and_type = json!({ "agent": "tester", "input": "", "event": "a", "type": "b" });
    let (_, detail) =
        problem_code_and_detail(&server, post("/v1/runs", &event_and_type), 422).await;
    assert_eq!(detail, "`event` and `type` exclude each other");
}

#[tokio::test]
async fn links_have_an_alias() {
    let server = server_with([]).open().await;
    let mut body = task();
    body["linkedGraphHandles"] = json!({ "taskIds": ["t1", "t2"], "projectId": "p1" });
    let run = server.send(post("/v1/runs", &body)).await.expect(201);
    assert_eq!(run["links"], body["linkedGraphHandles"]);
    let links = body["linkedGraphHandles"].clone();
    let task = json!({ "agent": "tester", "payload": "x", "linkedGraphHandles": links });
    let event = json!({ "agent": "tester", "kind": "idle_tick", "links": links });
    for (path, body) in [("/v1/inboxes/mail/tasks", task), ("/v1/events", event)] {
        assert_eq!(server.send(post(path, &body)).await.expect(201)["links"], links, "{path}");
    }
}

#[tokio::test]
async fn schedules_are_created_listed_run_and_deleted() {
    let server = server_with([]).open().await;
    let new_schedule = json!({
        "name": "digest", "cron": "0 9 * * MON-FRI", "tz": "Europe/Berlin", "agent": "tester",
        "input": "Sum up.", "catch_up": "once", "overlap": "queue",
    });
    let answer = server.send(post("/v1/schedules", &new_schedule)).await;
    let created = answer.expect(201);
    assert_eq!(answer.header("location"), Some("/v1/schedules/digest"));
    for (name, value) in new_schedule.as_object().unwrap() {
        assert_eq!(created[name], *value, "{name} of {created}");
    }
    assert!(created["next_at"].as_str().unwrap().ends_with(":00:00.000000Z"), "{created}");
    let list = server.get_json("/v1/schedules").await;
    assert_eq!(list, json!({ "data": [created], "next": null }));
    let run = server.send(request("POST", "/v1/schedules/digest/run")).await;
    let run = run.expect(201);
    assert_eq!((&run["lane"], &run["input"]), (&json!("schedule:digest"), &json!("Sum up.")));
    let view = server.get_json("/v1/schedules/digest").await;
    assert_eq!(view["last_run"], run["id"]);
    assert_eq!((&view["last_status"], &view["next_at"]), (&json!("pending"), &created["next_at"]));
    let idle =
        json!({ "name": "idle", "every_ms": 30_000, "agent": "tester", "event": "idle_tick" });
    let idle = server.send(post("/v1/schedules", &idle)).await.expect(201);
    assert_eq!((&idle["catch_up"], &idle["overlap"]), (&json!("skip"), &json!("skip")));
    let changed = |name: &str, value: Value| {
        let mut body = new_schedule.clone();
        body["name"] = json!("other");
        body[name] = value;
        post("/v1/schedules", &body)
    };
    for (request, status, code, reason) in [
        (post("/v1/schedules", &new_schedule), 409, "schedule_exists", "`digest`"),
        (changed("cron", json!("99 * * * *")), 422, "invalid_schedule", "an example is"),
        (changed("tz", json!("Nowhere")), 422, "invalid_schedule", "an example is `Europe/Berlin`"),
        (
            changed("chain", json!("full")),
            422,
            "invalid_schedule",
            "either an `agent` or a `chain`",
        ),
        (changed("agent", json!("nobody")), 422, "agent_not_found", "`nobody`"),
        (changed("catch_up", json!("never")), 422, "invalid", "catch_up"),
        (changed("when", json!("now")), 422, "invalid", "when"),
        (changed("name", json!("..")), 422, "invalid_schedule", "starts with a letter or digit"),
        (get("/v1/schedules?limit=abc"), 422, "invalid", "`limit` is unknown"),
        (post("/v1/schedules/digest/run", &json!({ "x": 1 })), 422, "invalid", "`x`"),
        (post("/v1/lanes/l/pause", &json!({ "x": 1 })), 422, "invalid", "`x`"),
        (post("/v1/lanes/l/resume", &json!("garbage")), 422, "invalid", "invalid type"),
        (get("/v1/schedules/none"), 404, "schedule_not_found", "`none`"),
        (request("POST", "/v1/schedules/none/run"), 404, "schedule_not_found", "`none`"),
        (request("DELETE", "/v1/schedules/none"), 404, "schedule_not_found", "`none`"),
    ] {
        let (found_code, detail) = problem_code_and_detail(&server, request, status).await;
        assert_eq!(found_code, code, "{detail}");
        assert!(detail.contains(reason), "{detail}");
    }
    let deleted = server.send(request("DELETE", "/v1/schedules/digest")).await.expect(200);
    assert_eq!(deleted["name"], "digest");
    assert_eq!(server.get_json("/v1/schedules").await["data"], json!([idle]));
}

#[tokio::test]
async fn statistics_count_the_runs_of_an_agent() {
    let server = server_with([]).start().await;
    let run = server.submit().await;
    server.wait_until_ended(&run).await;
    for query in ["", "?window=24h", "?window=1h%2030m"] {
        let stats = server.get_json(&format!("/v1/agents/tester/stats{query}")).await;
        assert_eq!(stats["agent"], "tester");
        assert_eq!((&stats["runs"]["total"], &stats["runs"]["completed"]), (&json!(1), &json!(1)));
        assert_eq!((&stats["success_rate"], &stats["truncated"]), (&json!(1.0), &json!(false)));
        assert_eq!(stats["turns"], json!({ "total": 1, "p50": 1, "p95": 1 }));
    }
    for (path, status, code) in [
        ("/v1/agents/tester/stats?window=7", 422, "invalid"),
        ("/v1/agents/tester/stats?windo=7d", 422, "invalid"),
        ("/v1/agents/nobody/stats", 404, "agent_not_found"),
        ("/v1/agents/%0A/stats", 404, "agent_not_found"),
    ] {
        assert_eq!(problem_code_and_detail(&server, get(path), status).await.0, code, "{path}");
    }
}
