//! Spend caps over HTTP.

use longhaul_core::access::Role;
use longhaul_core::policy::spend_cap::{
    CapReachedAction, CapUnit, CapUsageGrouping, CapWindowLength, SpendCap,
};
use serde_json::{Value, json};

use crate::suite::harness::client::{get, post};
use crate::suite::harness::model::{FakeReply, PRICED_MODEL};
use crate::suite::harness::{TestServerBuilder, server_with, task};

fn cap(per: CapUsageGrouping, at_cap: CapReachedAction) -> SpendCap {
    SpendCap {
        window: CapWindowLength::Day,
        tz: "UTC".to_owned(),
        per,
        pattern: None,
        unit: CapUnit::Runs,
        limit: 1,
        at_cap,
    }
}

#[tokio::test]
async fn a_cap_refuses_tasks_until_it_is_raised() {
    let caps = [
        cap(CapUsageGrouping::Agent, CapReachedAction::Refuse),
        cap(CapUsageGrouping::All, CapReachedAction::Wait),
    ];
    let server = server_with([]).with_sim_clock().caps(caps).open().await;
    server.send(post("/v1/runs", &task())).await.expect(201);
    let rejected = server.send(post("/v1/runs", &task())).await;
    let seconds: u32 = rejected.header("retry-after").unwrap().parse().unwrap();
    assert!((1..=24 * 60 * 60).contains(&seconds), "{seconds}");
    let problem = rejected.expect(429);
    assert_eq!(problem["code"], "over_cap");
    assert!(problem["detail"].as_str().unwrap().contains("`day-runs-agent` of tester"));
    let spend = server.get_json("/v1/spend").await;
    let (agent, all) = (&spend["data"][0], &spend["data"][1]);
    assert_eq!((&agent["id"], &agent["at_cap"]), (&json!("day-runs-agent"), &json!("refuse")));
    let expected_counts = json!([{
        "subject": "tester", "limit": 1, "used": 1, "held": 0, "left": 0, "waiting": 0,
    }]);
    assert_eq!(agent["counts"], expected_counts);
    assert_eq!(all["counts"][0]["used"], 0, "a cap that waits counts a run when it starts");
    let raise_path = "/v1/spend/day-runs-agent/raise";
    for (path, body, status, code) in [
        (raise_path, json!({ "runs": 1, "subject": "tester" }), 422, "invalid_raise"),
        (raise_path, json!({ "runs": 2 }), 422, "invalid_raise"),
        (raise_path, json!({ "runs": 2, "subject": "testr" }), 422, "invalid_raise"),
        (raise_path, json!({ "usd": 2, "subject": "tester" }), 422, "invalid_raise"),
        (raise_path, json!({ "runs": -2, "subject": "tester" }), 422, "invalid"),
        (raise_path, json!({ "runs": 2, "sbject": "tester" }), 422, "invalid"),
        ("/v1/spend/day-run-agent/raise", json!({ "runs": 2 }), 404, "cap_not_found"),
    ] {
        let problem = server.send(post(path, &body)).await.expect(status);
        assert_eq!(problem["code"], code, "{problem}");
    }
    let response = server.send(post(raise_path, &json!({ "runs": 2, "subject": "tester" }))).await;
    assert_eq!(response.expect(200)["counts"][0]["limit"], 2);
    server.send(post("/v1/runs", &task())).await.expect(201);
    server.send(post("/v1/runs", &task())).await.expect(429);
    server.send(get("/v1/spend?limit=3")).await.expect(422);
}

/// Checks which of these requests an operator may send, and that an approver may send all of them.
async fn assert_operator_may_send(
    server: TestServerBuilder,
    requests: impl IntoIterator<Item = (&'static str, Value, bool)>,
    limit: &str,
) {
    let server = server.open().await;
    let operator = server.create_key("ops", Role::Operator).await;
    let approver = server.create_key("boss", Role::Approver).await;
    for (path, body, is_allowed) in requests {
        let answer = server.send(post(path, &body).with_key(&operator)).await;
        if is_allowed {
            answer.expect(201);
            continue;
        }
        let problem = answer.expect(403);
        let detail = problem["detail"].as_str().unwrap();
        let reason = format!("the model `scripted/actor` has no price, so {limit} can't limit it");
        assert!(detail.contains(&reason), "{detail}");
        let hint = problem["hint"].as_str().unwrap();
        assert!(hint.contains("longhaul models price scripted/actor"), "{hint}");
        server.send(post(path, &body).with_key(&approver)).await.expect(201);
    }
}

#[tokio::test]
async fn only_an_approver_starts_a_model_without_a_price_under_a_cap_in_dollars() {
    let usd_cap = SpendCap {
        unit: CapUnit::Usd,
        limit: 4_000_000,
        pattern: Some("key:*".to_owned()),
        ..cap(CapUsageGrouping::Key, CapReachedAction::Wait)
    };
    let with = |field: &str, value: Value| {
        let mut task = task();
        task[field] = value;
        task
    };
    let event = json!({ "agent": "tester", "kind": "idle_tick" });
    let schedule = json!({ "name": "a", "agent": "tester", "every_ms": 60_000, "input": "x" });
    let chain = json!({ "chain": { "steps": [{ "agent": "tester" }] }, "input": "x" });
    let requests = [
        ("/v1/runs", task(), false),
        ("/v1/runs", with("model", json!(PRICED_MODEL)), true),
        ("/v1/runs/batch", json!({ "runs": [task()] }), false),
        ("/v1/runs", chain, false),
        ("/v1/inboxes/mail/tasks", json!({ "agent": "tester", "payload": "x" }), false),
        ("/v1/events", event, false),
        ("/v1/schedules", schedule, false),
        ("/v1/schedules/a/run", json!({}), false),
    ];
    let server = server_with([]).caps([usd_cap.clone()]);
    let limit = format!("the spend cap `{}`", usd_cap.cap_id());
    assert_operator_may_send(server, requests, &limit).await;
    let priced = server_with([]).caps([usd_cap.clone()]);
    let priced = priced.agent(|agent| agent.models = vec![PRICED_MODEL.to_owned()]);
    assert_operator_may_send(priced, [("/v1/runs", task(), true)], "").await;
    for unit in [CapUnit::Runs, CapUnit::Tokens] {
        let cap = SpendCap { unit, ..usd_cap.clone() };
        assert_operator_may_send(server_with([]).caps([cap]), [("/v1/runs", task(), true)], "")
            .await;
    }
}

#[tokio::test]
async fn only_an_approver_chooses_a_model_without_a_price_under_a_budget_in_dollars() {
    let with = |fields: Value| {
        let mut task = task();
        task.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
        ("/v1/runs", task)
    };
    let requests = [
        (with(json!({})), true),
        (with(json!({ "budget": { "tokens": 100 } })), true),
        (with(json!({ "budget": { "usd": 5 } })), false),
        (with(json!({ "model": "acme/unknown" })), false),
        (with(json!({ "model": PRICED_MODEL, "budget": { "usd": 5 } })), true),
    ];
    let requests = requests.map(|((path, body), is_allowed)| (path, body, is_allowed));
    assert_operator_may_send(server_with([]), requests, "the budget of $5.00").await;
}

#[tokio::test]
async fn only_an_approver_starts_a_run_whose_child_runs_or_retry_have_no_price() {
    let cap = SpendCap {
        unit: CapUnit::Usd,
        limit: 4_000_000,
        ..cap(CapUsageGrouping::All, CapReachedAction::Wait)
    };
    let priced = json!({ "agent": "tester", "input": "x", "model": PRICED_MODEL });
    let limit = format!("the spend cap `{}`", cap.cap_id());
    for (children, is_allowed) in [(None, false), (Some("tester"), false), (Some("other"), true)] {
        let server = server_with([]).caps([cap.clone()]).agent(|agent| {
            agent.tools.push("run_agent".to_owned());
            agent.children.agents.extend(children.map(str::to_owned));
        });
        let request = ("/v1/runs", priced.clone(), is_allowed);
        assert_operator_may_send(server, [request], &limit).await;
    }
    let server = server_with([FakeReply::Call("look", json!({}))]).caps([cap.clone()]);
    let server = server.agent(|agent| agent.max_turns = Some(1)).start().await;
    let run = server.send(post("/v1/runs", &task())).await.expect(201)["id"].to_string();
    let run = run.trim_matches('"');
    assert_eq!(server.wait_until_ended(run).await["status"], "failed");
    let operator = server.create_key("ops", Role::Operator).await;
    let retry = || post(format!("/v1/runs/{run}/retry"), &json!({}));
    let problem = server.send(retry().with_key(&operator)).await.expect(403);
    assert!(problem["detail"].as_str().unwrap().contains(&limit), "{problem}");
    server.send(retry()).await.expect(201);
}

#[tokio::test]
async fn a_schedule_counts_for_the_key_that_made_or_fired_it() {
    let caps = [cap(CapUsageGrouping::Key, CapReachedAction::Refuse)];
    let server = server_with([]).with_sim_clock().caps(caps).open().await;
    let anna = server.create_key("anna", Role::Operator).await;
    let bert = server.create_key("bert", Role::Operator).await;
    for name in ["a", "b"] {
        let body = json!({ "name": name, "agent": "tester", "every_ms": 60_000, "input": "x" });
        server.send(post("/v1/schedules", &body).with_key(&anna)).await.expect(201);
    }
    let fire = |name: &str| post(format!("/v1/schedules/{name}/run"), &json!({}));
    server.send(fire("a").with_key(&anna)).await.expect(201);
    let refused = server.send(fire("b").with_key(&anna)).await.expect(429);
    assert!(refused["detail"].as_str().unwrap().contains("of key:anna"), "{refused}");
    server.send(post("/v1/runs", &task()).with_key(&anna)).await.expect(429);
    server.send(fire("b").with_key(&bert)).await.expect(201);
    server.send(post("/v1/runs", &task()).with_key(&bert)).await.expect(429);
}
