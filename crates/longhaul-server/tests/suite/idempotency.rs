//! Idempotent requests: retries take effect once, even if clients disconnect.

use longhaul_core::access::Role;
use longhaul_core::time::Millis;
use serde_json::{Value, json};

use crate::suite::harness::blocking_auth_store::BlockPoint;
use crate::suite::harness::client::{TestConnection, TestRequest, get, post, request};
use crate::suite::harness::{TestServer, server_with, server_with_gate, task};

async fn count_runs(server: &TestServer) -> usize {
    let list = server.get_json("/v1/runs?brief=true&limit=1000").await;
    list["data"].as_array().unwrap().len()
}

#[tokio::test]
async fn a_repeated_request_gets_the_first_response() {
    let server = server_with([]).open().await;
    let request = post("/v1/runs", &task()).idempotency_key("k1");
    let first = server.send(request.clone()).await;
    assert_eq!((first.status, first.header("idempotency-replayed")), (201, None));
    for _ in 0..3 {
        let second = server.send(request.clone()).await;
        assert_eq!(second.header("idempotency-replayed"), Some("true"));
        assert_eq!((second.status, &second.body), (201, &first.body));
        assert_eq!(second.header("location"), first.header("location"));
        assert_eq!(second.header("content-type"), Some("application/json"));
        assert_ne!(second.header("x-request-id"), first.header("x-request-id"));
    }
    assert_eq!(count_runs(&server).await, 1);
    let mut other_task = task();
    other_task["input"] = json!("Do that.");
    let rejected = server.send(post("/v1/runs", &other_task).idempotency_key("k1")).await;
    assert_eq!((rejected.status, &*rejected.problem()), (422, "idempotency_key_reused"));
    // The same body for another route is another request.
    let other_route = server.send(post("/v1/keys", &task()).idempotency_key("k1")).await;
    assert_eq!(other_route.problem(), "idempotency_key_reused");
    assert_eq!(count_runs(&server).await, 1);
}

#[tokio::test]
async fn idempotency_keys_are_per_caller() {
    let server = server_with([]).open().await;
    let [anna, bert] = ["anna", "bert"].map(|name| server.create_key(name, Role::Operator));
    let (anna, bert) = (anna.await, bert.await);
    let request = |key: &str| post("/v1/runs", &task()).idempotency_key("k1").with_key(key);
    let first = server.send(request(&anna)).await.expect(201);
    let second = server.send(request(&bert)).await.expect(201);
    let third = server.send(post("/v1/runs", &task()).idempotency_key("k1")).await.expect(201);
    assert!(first["id"] != second["id"] && second["id"] != third["id"]);
    assert_eq!(server.send(request(&anna)).await.expect(201)["id"], first["id"]);
    assert_eq!(count_runs(&server).await, 3);
}

#[tokio::test]
async fn a_new_api_key_of_the_same_name_is_another_caller() {
    let server = server_with([]).open().await;
    let mail_task = json!({ "agent": "tester", "payload": 1, "idempotency_key": "k2" });
    let mut before: Vec<Value> = Vec::new();
    for _ in 0..2 {
        let key = server.create_key("eve", Role::Operator).await;
        for http_request in [
            post("/v1/runs", &task()).idempotency_key("k1"),
            post("/v1/inboxes/mail/tasks", &mail_task),
        ] {
            let created = server.send(http_request.clone().with_key(&key)).await.expect(201);
            assert!(!before.contains(&created["id"]), "{http_request:?}");
            let repeated = server.send(http_request.with_key(&key)).await.expect(201);
            assert_eq!(repeated["id"], created["id"]);
            before.push(created["id"].clone());
        }
        server.send(request("DELETE", "/v1/keys/eve")).await.expect(200);
    }
}

#[tokio::test]
async fn a_rejected_request_may_be_corrected_under_the_same_key() {
    let server = server_with([]).open().await;
    for round in 0..20 {
        let key = format!("k{round}");
        let rejected = server.send(
            post("/v1/runs", &json!({ "agent": "nobody", "input": 1 })).idempotency_key(&key),
        );
        assert_eq!(rejected.await.problem(), "agent_not_found");
        server.send(post("/v1/runs", &task()).idempotency_key(&key)).await.expect(201);
    }
    let long_key = "k".repeat(256);
    for key in ["", long_key.as_str(), "ä", "a\tb"] {
        let answer = server.send(post("/v1/runs", &task()).idempotency_key(key)).await;
        assert_eq!((answer.status, &*answer.problem()), (400, "invalid_idempotency_key"));
    }
    let two_keys = post("/v1/runs", &task()).idempotency_key("a").idempotency_key("b");
    assert_eq!(server.send(two_keys).await.problem(), "invalid_idempotency_key");
}

#[tokio::test]
async fn a_rejection_is_returned_after_its_key_is_released() {
    for model_fails in [false, true] {
        let server = server_with([]).open().await;
        let latch = server.auth.block(BlockPoint::BeforeAbort);
        server.models.set_fails(model_fails);
        let agent = if model_fails { "tester" } else { "nobody" };
        let rejected_request =
            post("/v1/runs", &json!({ "agent": agent, "input": 1 })).idempotency_key("k1");
        let bytes = rejected_request.bytes(&server.host(), &server.key);
        let mut connection = TestConnection::connect(server.address).await;
        connection.send(&bytes).await;
        latch.reached(1).await;
        // Any early response would have arrived by now.
        for _ in 0..5 {
            server.send(get("/livez").without_key()).await.expect(200);
        }
        let is_early = connection.has_received();
        latch.open();
        assert!(!is_early, "the response came too early, breaks: {model_fails}");
        assert!(connection.read_response().await.unwrap().status >= 400);
    }
}

#[tokio::test]
async fn of_two_concurrent_requests_one_runs_and_one_conflicts() {
    let server = server_with([]).open().await;
    let latch = server.auth.block(BlockPoint::BeforeComplete);
    let request = post("/v1/runs", &task()).idempotency_key("k1");
    let second = async {
        latch.reached(1).await;
        let answer = server.send(request.clone()).await;
        latch.open();
        answer
    };
    let (first, second) = tokio::join!(server.send(request.clone()), second);
    first.expect(201);
    assert_eq!((second.status, &*second.problem()), (409, "request_in_progress"));
    assert_eq!(second.header("retry-after"), Some("1"));
    let third = server.send(request.clone()).await;
    assert_eq!(third.body, first.body);
    for round in 0..20 {
        let request = post("/v1/runs", &task()).idempotency_key(&format!("race{round}"));
        let responses = tokio::join!(server.send(request.clone()), server.send(request.clone()));
        for answer in [&responses.0, &responses.1] {
            let running = answer.status == 409 && answer.problem() == "request_in_progress";
            assert!(running || answer.status == 201, "{}", answer.text());
        }
    }
    assert_eq!(count_runs(&server).await, 21);
}

/// Sends a request and disconnects immediately.
async fn send_and_disconnect(server: &TestServer, request: &TestRequest) {
    let mut connection = TestConnection::connect(server.address).await;
    connection.send(&request.bytes(&server.host(), &server.key)).await;
}

/// Repeats a request until it is no longer in progress.
async fn send_until_answered(server: &TestServer, request: &TestRequest) -> Value {
    for _ in 0..1_000 {
        let answer = server.send(request.clone()).await;
        if answer.status != 409 || answer.problem() != "request_in_progress" {
            return answer.expect(201);
        }
        tokio::task::yield_now().await;
    }
    panic!("the request is still in progress");
}

#[tokio::test]
async fn a_disconnected_caller_that_retries_finds_one_run() {
    let server = server_with([]).open().await;
    for round in 0..50 {
        let request = post("/v1/runs", &task()).idempotency_key(&format!("k{round}"));
        send_and_disconnect(&server, &request).await;
        send_until_answered(&server, &request).await;
    }
    assert_eq!(count_runs(&server).await, 50);
}

#[tokio::test]
async fn a_disconnected_caller_leaves_no_partial_change() {
    for point in [BlockPoint::AfterBegin, BlockPoint::BeforeComplete] {
        let server = server_with([]).open().await;
        let latch = server.auth.block(point);
        let request = post("/v1/runs", &task()).idempotency_key("k1");
        let mut connection = TestConnection::connect(server.address).await;
        connection.send(&request.bytes(&server.host(), &server.key)).await;
        latch.reached(1).await;
        drop(connection);
        // After other responses, the server has noticed the disconnect.
        for _ in 0..5 {
            server.send(get("/livez").without_key()).await.expect(200);
        }
        latch.open();
        send_until_answered(&server, &request).await;
        assert_eq!(count_runs(&server).await, 1, "{point:?}");
    }
}

#[tokio::test]
async fn messages_and_answers_are_idempotent() {
    let server = server_with_gate().start().await;
    let (run, gate) = server.submit_until_gate().await;
    let path = format!("/v1/gates/{}", gate["id"].as_str().unwrap());
    let approval = json!({ "decision": "approve", "digest": gate["digest"] });
    for (index, request) in [
        post(format!("/v1/runs/{run}/steer"), &json!({ "text": "left" })),
        post(format!("{path}/answer"), &approval),
    ]
    .into_iter()
    .enumerate()
    {
        let request = request.idempotency_key(&format!("k{index}"));
        send_and_disconnect(&server, &request).await;
        let mut first = server.send(request.clone()).await;
        while first.status == 409 && first.problem() == "request_in_progress" {
            first = server.send(request.clone()).await;
        }
        assert!(first.status < 300, "{}", first.text());
        let second = server.send(request).await;
        assert_eq!(second.body, first.body);
        assert_eq!(second.header("idempotency-replayed"), Some("true"));
    }
    let steers = server.get_json(format!("/v1/runs/{run}/steer")).await;
    assert_eq!(steers["data"].as_array().unwrap().len(), 1);
    let gate = server.get_json(&path).await;
    assert_eq!(gate["answers"].as_array().unwrap().len(), 1);
}

#[tokio::test]
async fn a_secret_is_shown_once_despite_an_idempotency_key() {
    let server = server_with_gate().start().await;
    let (_, gate) = server.submit_until_gate().await;
    let links_path = format!("/v1/gates/{}/links", gate["id"].as_str().unwrap());
    for (index, request) in [
        post("/v1/keys", &json!({ "name": "ci", "role": "viewer" })),
        post(links_path, &json!({ "recipient": "anna" })),
        post("/v1/tickets", &json!({})),
    ]
    .into_iter()
    .enumerate()
    {
        let request = request.idempotency_key(&format!("s{index}"));
        server.send(request.clone()).await.expect(201);
        let second = server.send(request).await;
        assert_eq!((second.status, &*second.problem()), (409, "secret_not_stored"));
    }
    let keys = server.get_json("/v1/keys").await;
    assert_eq!(keys["data"].as_array().unwrap().len(), 1);
}

#[tokio::test]
async fn the_idempotency_key_of_a_task_reaches_the_store() {
    let server = server_with([]).open().await;
    let task = json!({ "agent": "tester", "payload": "x" });
    let path = "/v1/inboxes/mail/tasks";
    let first = server.send(post(path, &task).idempotency_key("k1")).await.expect(201);
    // The stored key survives a server that crashed before it could respond.
    let task_with_key = json!({ "agent": "tester", "payload": "x", "idempotency_key": "k1" });
    let second = server.send(post(path, &task_with_key)).await.expect(201);
    assert_eq!(second["id"], first["id"]);
}

#[tokio::test]
async fn a_used_idempotency_key_with_another_body_is_rejected_unless_the_api_key_is_new() {
    let server = server_with_gate().start().await;
    let (run, _) = server.submit_until_gate().await;
    let path = format!("/v1/runs/{run}/steer");
    let new_key = json!({ "name": "dup", "role": "operator" });
    for text in ["first", "second"] {
        let created = server.send(post("/v1/keys", &new_key)).await.expect(201);
        let secret = created["secret"].as_str().unwrap();
        let steer_request =
            post(&path, &json!({ "text": text })).idempotency_key("s1").with_key(secret);
        server.send(steer_request).await.expect(202);
        let other_request =
            post(&path, &json!({ "text": "x" })).idempotency_key("s1").with_key(secret);
        assert_eq!(server.send(other_request).await.status, 422);
        server.send(request("DELETE", "/v1/keys/dup")).await.expect(200);
    }
    let steers = server.get_json(&path).await;
    let texts: Vec<&str> = steers["data"]
        .as_array()
        .unwrap()
        .iter()
        .map(|steer| steer["text"].as_str().unwrap())
        .collect();
    assert_eq!(texts, ["first", "second"]);
}

#[tokio::test]
async fn a_request_with_a_lost_response_gets_the_first_response() {
    let server = server_with_gate().with_sim_clock().start().await;
    server.auth.lose_responses();
    let (answered_run, gate) = server.submit_until_gate().await;
    let [cancelled_run, paused_run] =
        [server.submit_until_gate().await.0, server.submit_until_gate().await.0];
    let gate_path = format!("/v1/gates/{}", gate["id"].as_str().unwrap());
    let approval = json!({ "decision": "approve", "digest": gate["digest"] });
    let empty = json!({});
    let cases = [
        (post("/v1/runs", &task()), 201),
        (post(format!("{gate_path}/answer"), &approval), 200),
        (post(format!("/v1/runs/{cancelled_run}/cancel"), &empty), 200),
        (post(format!("/v1/runs/{paused_run}/pause"), &empty), 200),
        (post(format!("/v1/runs/{paused_run}/resume"), &empty), 200),
        (post(format!("/v1/runs/{paused_run}/steer"), &json!({ "text": "left" })), 202),
        (post("/v1/threads/shop/messages", &json!({ "text": "I like milk." })), 200),
    ];
    for (index, (request, status)) in cases.into_iter().enumerate() {
        let request = request.idempotency_key(&format!("k{index}"));
        let first = server.send(request.clone()).await.expect(status);
        for _ in 0..2 {
            // The server that began the request counts as dead.
            server.clock().advance(Millis::from_secs(61));
            let second = server.send(request.clone()).await.expect(status);
            for field in ["id", "seq", "outcome", "gate", "count"] {
                assert_eq!(second[field], first[field], "{request:?}");
            }
        }
    }
    let gate = server.get_json(&gate_path).await;
    assert_eq!(gate["answers"].as_array().unwrap().len(), 1);
    for (run, kind) in [
        (&answered_run, "gate.answered"),
        (&cancelled_run, "run.cancelled"),
        (&paused_run, "run.resumed"),
    ] {
        let events = server.get_json(format!("/v1/runs/{run}/events")).await;
        let events = events["data"].as_array().unwrap();
        let count = events.iter().filter(|event| event["type"] == kind).count();
        assert_eq!(count, 1, "{kind}");
    }
}

#[tokio::test]
async fn an_api_key_whose_secret_was_never_shown_is_replaced() {
    let server = server_with([]).with_sim_clock().open().await;
    server.auth.lose_responses();
    let request = post("/v1/keys", &json!({ "name": "ci", "role": "viewer" })).idempotency_key("k");
    let mut secrets = Vec::new();
    for _ in 0..3 {
        let created = server.send(request.clone()).await.expect(201);
        secrets.push(created["secret"].as_str().unwrap().to_owned());
        server.clock().advance(Millis::from_secs(61));
    }
    for (secret, status) in secrets.iter().zip([401, 401, 200]) {
        let response = server.send(get("/v1/runs").with_key(secret)).await;
        assert_eq!(response.status, status);
    }
}
