//! Every error response: the status, the code, and a problem with a hint.

use longhaul_core::access::Role;
use longhaul_core::port::store::StoreError;
use longhaul_core::time::Millis;
use serde_json::{Value, json};

use crate::suite::harness::blocking_auth_store::BlockPoint;
use crate::suite::harness::client::{TestRequest, get, post, request};
use crate::suite::harness::model::FakeReply;
use crate::suite::harness::{TestServer, server_with, server_with_gate, task};
use longhaul_testkit::latch::Latch;

const UNKNOWN_RUN: &str = "/v1/runs/run_00000000000000000000000001";
const UNKNOWN_GATE: &str = "/v1/gates/gate_00000000000000000000000001";

async fn check(server: &TestServer, request: TestRequest, status: u16, code: &str) -> Value {
    let answer = server.send(request.clone()).await;
    let label = format!("{request:?}: {}", answer.text());
    assert_eq!(answer.status, status, "{label}");
    assert_eq!(answer.problem(), code, "{label}");
    let retry_after = answer.header("retry-after");
    assert!(status != 429 || retry_after.is_some(), "{label}");
    answer.json()
}

fn task_with(name: &str, value: Value) -> Value {
    let mut body = task();
    body[name] = value;
    body
}

#[tokio::test]
async fn unknown_resources_are_404() {
    let server = server_with([]).open().await;
    let run = server.submit().await;
    let steer = "steer_00000000000000000000000001";
    for (http_request, code) in [
        (get(UNKNOWN_RUN), "run_not_found"),
        (get(format!("{UNKNOWN_RUN}/why")), "run_not_found"),
        (get(format!("{UNKNOWN_RUN}/transcript")), "run_not_found"),
        (get(format!("{UNKNOWN_RUN}/events")), "run_not_found"),
        (get(format!("{UNKNOWN_RUN}/steer")), "run_not_found"),
        (
            get(format!("{UNKNOWN_RUN}/events")).header("accept", "text/event-stream"),
            "run_not_found",
        ),
        (post(format!("{UNKNOWN_RUN}/steer"), &json!({ "text": "x" })), "run_not_found"),
        (request("POST", format!("{UNKNOWN_RUN}/cancel")), "run_not_found"),
        (request("POST", format!("{UNKNOWN_RUN}/pause")), "run_not_found"),
        (request("POST", format!("{UNKNOWN_RUN}/resume")), "run_not_found"),
        (get("/v1/runs/1234"), "run_not_found"),
        (get(UNKNOWN_GATE), "gate_not_found"),
        (
            post(format!("{UNKNOWN_GATE}/answer"), &json!({ "decision": "reject" })),
            "gate_not_found",
        ),
        (post(format!("{UNKNOWN_GATE}/links"), &json!({ "recipient": "a" })), "gate_not_found"),
        (request("DELETE", format!("/v1/runs/{run}/steer/{steer}")), "steer_not_found"),
        (request("DELETE", format!("/v1/runs/{run}/steer/x")), "steer_not_found"),
        (get("/v1/agents/testr"), "agent_not_found"),
        (request("DELETE", "/v1/keys/nobody"), "key_not_found"),
    ] {
        check(&server, http_request, 404, code).await;
    }
    let problem = check(&server, get("/v1/agents/testr"), 404, "agent_not_found").await;
    assert_eq!(problem["suggestion"], "tester");
}

#[tokio::test]
async fn invalid_bodies_are_422() {
    let server = server_with([]).open().await;
    let run = server.submit().await;
    let runs = |body: &Value| post("/v1/runs", body);
    let key = |body: Value| post("/v1/keys", &body);
    for (request, code) in [
        (runs(&json!({ "input": "x" })), "invalid"),
        (runs(&json!({ "agent": "tester" })), "invalid"),
        (runs(&task_with("agent", json!("testr"))), "agent_not_found"),
        (runs(&task_with("model", json!("nobody/none"))), "model_unavailable"),
        (runs(&task_with("model", json!("scripted/torn"))), "invalid_script"),
        (runs(&task_with("lane", json!("x".repeat(5_000)))), "invalid"),
        (runs(&task_with("lane", json!(""))), "invalid"),
        (runs(&task_with("context", json!({ "who": 1 }))), "invalid"),
        (runs(&task_with("budget", json!({ "usd": -1 }))), "invalid"),
        (runs(&task_with("budget", json!({ "usd": 0 }))), "invalid"),
        (runs(&task_with("budget", json!({ "turns": 0 }))), "invalid"),
        (runs(&task_with("budget", json!({ "tokens": 0 }))), "invalid"),
        (runs(&task_with("budget", json!({ "active_ms": 0 }))), "invalid"),
        (runs(&task_with("budget", json!({ "warn_at": 2 }))), "invalid"),
        (runs(&task_with("budget", json!({ "turns": -1 }))), "invalid"),
        (runs(&task_with("priority", json!("high"))), "invalid"),
        (runs(&task_with("start_at", json!("tomorrow"))), "invalid"),
        (runs(&task_with("chain", json!("c"))), "invalid"),
        (runs(&task_with("auto_approve", json!(true))), "invalid"),
        (runs(&task_with("step", json!("x"))), "invalid"),
        (runs(&json!({ "chain": "c", "input": "x" })), "chain_not_found"),
        (runs(&json!({ "chain": 7, "input": "x" })), "invalid"),
        (runs(&json!({ "chain": { "steps": [] }, "input": "x" })), "invalid_task"),
        (
            runs(
                &json!({ "chain": { "steps": vec![json!({ "agent": "tester" }); 11] }, "input": "x" }),
            ),
            "invalid_task",
        ),
        (
            runs(&json!({ "chain": { "steps": [{ "agent": "nobody" }] }, "input": "x" })),
            "agent_not_found",
        ),
        (
            runs(
                &json!({ "chain": { "steps": [{ "agent": "tester", "colour": 1 }] }, "input": "x" }),
            ),
            "invalid",
        ),
        (runs(&json!([])), "invalid"),
        (runs(&json!("x")), "invalid"),
        (post(format!("/v1/runs/{run}/steer"), &json!({ "text": " " })), "empty"),
        (post(format!("/v1/runs/{run}/steer"), &json!({ "text": 1 })), "invalid"),
        (
            post(format!("/v1/runs/{run}/steer"), &json!({ "text": "x", "delivery": "now" })),
            "invalid",
        ),
        (post("/v1/inboxes/post/tasks", &json!({ "payload": 1 })), "invalid_task"),
        (post("/v1/inboxes/%0A/tasks", &json!({ "payload": 1, "agent": "tester" })), "invalid"),
        (key(json!({ "name": "", "role": "viewer" })), "invalid"),
        (key(json!({ "name": "a", "role": "root" })), "invalid"),
        (key(json!({ "name": "a", "role": "viewer", "expires_in_ms": -1 })), "invalid"),
        (key(json!({ "name": "a", "role": "viewer", "expires_in_ms": 0 })), "invalid"),
    ] {
        check(&server, request, 422, code).await;
    }
}

#[tokio::test]
async fn invalid_queries_are_422() {
    let server = server_with([]).open().await;
    let run = server.submit().await;
    for request in [
        get("/v1/runs?limit=0"),
        get("/v1/runs?limit=101"),
        get("/v1/runs?brief=yes"),
        get("/v1/runs?status=done"),
        get("/v1/runs?after=x"),
        get("/v1/runs?limit=1&limit=2"),
        get("/v1/gates?status=shut"),
        get("/v1/lanes?limit=1001"),
        get(format!("/v1/runs/{run}/events?after=-1")),
        get("/v1/events/stream?filter=a;b"),
    ] {
        check(&server, request, 422, "invalid").await;
    }
}

#[tokio::test]
async fn an_unknown_name_comes_with_a_suggestion() {
    let server = server_with([]).open().await;
    for (request, expected_hint) in [
        (post("/v1/runs", &task_with("priorty", json!(1))), "did you mean `priority`?"),
        (post("/v1/runs", &task_with("budget", json!({ "turn": 1 }))), "did you mean `turns`?"),
        (get("/v1/runs?stats=open"), "did you mean `status`?"),
        (post("/v1/keys", &json!({ "nam": "a", "role": "viewer" })), "did you mean `name`?"),
    ] {
        assert_eq!(check(&server, request, 422, "invalid").await["hint"], expected_hint);
    }
}

#[tokio::test]
async fn late_or_repeated_requests_are_409_or_410() {
    let server = server_with_gate().with_sim_clock().start().await;
    let (_, gate) = server.submit_until_gate().await;
    let id = gate["id"].as_str().unwrap();
    let answer = format!("/v1/gates/{id}/answer");
    let decision_body =
        |decision: &str, digest: &Value| json!({ "decision": decision, "digest": digest });
    let other_digest = json!("0".repeat(64));
    for (body, status, code) in [
        (decision_body("approve", &Value::Null), 422, "digest_missing"),
        (decision_body("approve", &other_digest), 409, "digest_changed"),
        (decision_body("answer", &Value::Null), 422, "invalid"),
        (decision_body("complete", &Value::Null), 422, "invalid_decision"),
        (decision_body("edit", &gate["digest"]), 422, "invalid"),
        (decision_body("maybe", &Value::Null), 422, "invalid"),
        (json!({ "decision": "approve", "digest": "x" }), 422, "invalid"),
        (json!({ "decision": "reject", "edited": {} }), 422, "invalid"),
        (
            json!({ "decision": "edit", "edited": { "x": 1 }, "digest": gate["digest"] }),
            422,
            "invalid_task",
        ),
    ] {
        check(&server, post(&answer, &body), status, code).await;
    }
    server.send(post(&answer, &decision_body("reject", &Value::Null))).await.expect(200);
    let late_answer = check(
        &server,
        post(&answer, &decision_body("approve", &gate["digest"])),
        409,
        "already_answered",
    )
    .await;
    assert!(late_answer["detail"].as_str().unwrap().contains("local"), "{late_answer}");
}

#[tokio::test]
async fn commands_to_ended_runs_are_409_or_410() {
    let server = server_with_gate().with_sim_clock().start().await;
    let (run, gate) = server.submit_until_gate().await;
    let rejection = json!({ "decision": "reject" });
    let answer = format!("/v1/gates/{}/answer", gate["id"].as_str().unwrap());
    server.send(post(&answer, &rejection)).await.expect(200);
    server.wait_until_ended(&run).await;
    for path in ["cancel", "close", "pause", "resume"] {
        check(&server, request("POST", format!("/v1/runs/{run}/{path}")), 409, "run_ended").await;
    }
    let steer = post(format!("/v1/runs/{run}/steer"), &json!({ "text": "x" }));
    check(&server, steer, 409, "run_ended").await;
    let key = json!({ "name": "ops", "role": "viewer" });
    server.send(post("/v1/keys", &key)).await.expect(201);
    check(&server, post("/v1/keys", &key), 409, "key_taken").await;
    let (run, gate) = server.submit_until_gate().await;
    server.clock().advance(Millis::from_secs(3_601));
    server.wait_for_event(&run, "gate.expired").await;
    let path = format!("/v1/gates/{}", gate["id"].as_str().unwrap());
    check(&server, post(format!("{path}/answer"), &rejection), 410, "gate_expired").await;
    check(
        &server,
        post(format!("{path}/links"), &json!({ "recipient": "a" })),
        410,
        "gate_expired",
    )
    .await;
}

#[tokio::test]
async fn exceeded_rate_limits_are_429() {
    let low_rate =
        |options: &mut longhaul_server::ServerOptions| options.rate = 3.try_into().unwrap();
    let latch = Latch::closed();
    let server =
        server_with([FakeReply::Text("x").after_latch(&latch)]).options(low_rate).start().await;
    let key = server.create_key("ops", Role::Operator).await;
    let mut rejected = None;
    for _ in 0..30 {
        let answer = server.send(get("/v1/agents").with_key(&key)).await;
        if answer.status == 429 {
            rejected = Some(answer);
            break;
        }
    }
    let rejected = rejected.expect("the rate limit is reached");
    assert_eq!(rejected.problem(), "rate_limited");
    assert_eq!(rejected.header("retry-after"), Some("1"));
    // Another key has its own rate, and the local machine key is not limited.
    let other_key = server.create_key("other", Role::Viewer).await;
    server.send(get("/v1/agents").with_key(&other_key)).await.expect(200);
    for _ in 0..100 {
        server.send(get("/v1/agents")).await.expect(200);
    }
    // Requests with guessed keys are counted too.
    let mut codes = Vec::new();
    for number in 0..200 {
        let guess_request = get("/v1/agents").with_key(&format!("lh_{number}"));
        codes.push(server.send(guess_request).await.status);
    }
    assert!(codes.contains(&401) && codes.contains(&429), "{codes:?}");
    let run = server.submit().await;
    latch.reached(1).await;
    let steer =
        post(format!("/v1/runs/{run}/steer"), &json!({ "text": "x", "delivery": "follow_up" }));
    let mut status = 202;
    let mut attempts = 0;
    while status == 202 && attempts < 2_000 {
        status = server.send(steer.clone()).await.status;
        attempts += 1;
    }
    check(&server, steer, 429, "steers_full").await;
}

#[tokio::test]
async fn internal_errors_are_500_and_isolated() {
    let server = server_with([]).open().await;
    server.models.set_fails(true);
    for request in [post("/v1/runs", &task()), post("/v1/runs", &task()).idempotency_key("k1")] {
        check(&server, request, 500, "internal").await;
    }
    server.models.set_fails(false);
    server.assert_healthy().await;
    // The idempotency key of the failed request is free again immediately.
    server.send(post("/v1/runs", &task()).idempotency_key("k1")).await.expect(201);
}

#[tokio::test]
async fn store_errors_have_a_status_and_a_hint() {
    let server = server_with([]).open().await;
    type MakeError = fn() -> StoreError;
    let cases: [(MakeError, u16, &str); 3] = [
        (|| StoreError::Busy { location: "here".into() }, 503, "busy"),
        (|| StoreError::DiskFull { location: "here".into() }, 507, "disk_full"),
        (|| StoreError::Corrupt { location: "here".into(), reason: "x".into() }, 500, "internal"),
    ];
    for (error, status, code) in cases {
        server.auth.set_failure(Some(error));
        let problem = check(&server, get("/v1/keys"), status, code).await;
        assert!(!problem.to_string().contains("here"), "{problem}");
        assert_eq!(problem.to_string().contains("longhaul db check"), status == 500, "{problem}");
    }
    server.auth.set_failure(None);
    server.get_json("/v1/keys").await;
}

#[tokio::test]
async fn slow_requests_time_out() {
    let server = server_with([]).with_sim_clock().open().await;
    let latch = server.auth.block(BlockPoint::Keys);
    let open_latch = async {
        latch.reached(1).await;
        server.clock().advance(Millis::from_secs(30));
    };
    let (answer, ()) = tokio::join!(server.send(get("/v1/keys")), open_latch);
    assert_eq!((answer.status, &*answer.problem()), (503, "timeout"));
    assert_eq!(answer.header("retry-after"), Some("1"));
    latch.open();
    server.get_json("/v1/keys").await;
}
