//! Filters of the list of runs, counts, the run of a gate, and deletion.

use longhaul_core::access::Role;
use serde_json::{Value, json};

use crate::suite::harness::client::{get, post, request};
use crate::suite::harness::model::FakeReply;
use crate::suite::harness::{TestServer, server_with, server_with_gate, task};

async fn submit(server: &TestServer, fields: Value) -> String {
    let mut body = task();
    body.as_object_mut().unwrap().append(&mut fields.as_object().unwrap().clone());
    let run = server.send(post("/v1/runs", &body)).await.expect(201);
    run["id"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn runs_are_filtered_by_what_was_submitted() {
    let server = server_with([]).open().await;
    let leak = submit(&server, json!({ "input": "Fix the LEAK in ticket 123" })).await;
    let fields = json!({ "input": "x", "thread": "chat", "resource": "ann", "tags": ["red"] });
    let other = submit(&server, fields).await;
    for (query, expected) in [
        ("search=ticket%20123", &[&leak][..]),
        ("search=fix&search=leak", &[]),
        ("thread=chat", &[&other]),
        ("resource=ann&tag=red&brief=true", &[&other]),
        ("tag=blue", &[]),
        ("since=2020-01-01T00:00:00Z&sort=waiting", &[&leak, &other]),
        ("until=2020-01-01T00:00:00Z", &[]),
        ("reason=worker,lane", &[&other, &leak]),
        ("mine=true", &[]),
        ("all_runs=true", &[&other, &leak]),
    ] {
        let answer = server.send(get(format!("/v1/runs?{query}"))).await;
        if query.matches("search").count() > 1 {
            assert_eq!(answer.status, 422, "{query}");
            continue;
        }
        let list = answer.expect(200);
        let ids: Vec<&str> = list["data"]
            .as_array()
            .unwrap()
            .iter()
            .map(|run| run["id"].as_str().unwrap())
            .collect();
        assert_eq!(ids, expected, "{query}");
    }
    let long = format!("/v1/runs?search={}", "x".repeat(257));
    for path in ["/v1/runs?since=today", "/v1/runs?sort=size", "/v1/runs?tag=", &long] {
        assert_eq!(server.send(get(path)).await.status, 422, "{path}");
    }
    let counts = server.get_json("/v1/runs/counts").await;
    let expected = json!({
        "total": 2, "open": 2, "waiting_for_person": 0, "failed": 0, "cost_usd": 0.0, "unpriced": 0
    });
    assert_eq!(counts, expected);
    let brief = server.get_json("/v1/runs?brief=true&search=leak").await;
    assert_eq!(brief["data"][0]["title"], "Fix the LEAK in ticket 123");
}

#[tokio::test]
async fn a_gate_names_the_agent_and_the_task_of_its_run() {
    let server = server_with_gate().start().await;
    let (run, gate) = server.submit_until_gate().await;
    let path = format!("/v1/gates/{}", gate["id"].as_str().unwrap());
    let shown = server.get_json(path).await;
    assert_eq!(shown["agent"], "tester");
    assert!(shown["task"].is_string(), "{shown}");
    let list = server.get_json("/v1/gates?status=open").await;
    assert_eq!(list["data"], json!([shown]));
    let mine = server.get_json("/v1/runs?mine=true&brief=true").await;
    assert_eq!(mine["data"][0]["id"], run.as_str());
    assert_eq!(server.get_json("/v1/runs/counts").await["waiting_for_person"], 1);
}

#[tokio::test]
async fn an_ended_run_is_deleted_by_an_admin() {
    let server = server_with([FakeReply::Text("Done.")]).start().await;
    let run = server.submit().await;
    server.wait_until_ended(&run).await;
    let approver = server.create_key("boss", Role::Approver).await;
    let delete = || request("DELETE", format!("/v1/runs/{run}"));
    assert_eq!(server.send(delete().with_key(&approver)).await.status, 403);
    let deleted = server.send(delete()).await.expect(200);
    assert_eq!((&deleted["id"], &deleted["runs"]), (&json!(run), &json!([run])));
    assert_eq!(server.send(delete()).await.status, 404);
    assert_eq!(server.send(get(format!("/v1/runs/{run}"))).await.status, 404);
}

#[tokio::test]
async fn an_open_run_is_not_deleted() {
    let server = server_with([]).open().await;
    let run = server.submit().await;
    let problem = server.send(request("DELETE", format!("/v1/runs/{run}"))).await.expect(409);
    assert_eq!(problem["code"], "run_in_use");
    assert!(problem["detail"].as_str().unwrap().contains(&format!("longhaul cancel {run}")));
    assert_eq!(server.get_json(format!("/v1/runs/{run}")).await["status"], "pending");
}
