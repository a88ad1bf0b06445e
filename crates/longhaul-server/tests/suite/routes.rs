//! Every documented route with a valid request: its status and the content of its response.

use longhaul_core::policy::LaneBusyPolicy;
use serde_json::{Value, json};

use crate::suite::harness::client::{TestRequest, get, post, request};
use crate::suite::harness::model::FakeReply;
use crate::suite::harness::{TestServer, server_with, server_with_gate, task};
use longhaul_testkit::latch::Latch;

fn json_at(answer: &Value, pointer: &str) -> Value {
    let found = answer.pointer(pointer);
    found.cloned().unwrap_or_else(|| panic!("no {pointer} in {answer}"))
}

async fn check(
    server: &TestServer,
    request: TestRequest,
    status: u16,
    expected_fields: &[(&str, Value)],
) -> Value {
    let answer = server.send(request.clone()).await;
    assert_eq!(answer.status, status, "{request:?}: {}", answer.text());
    assert_eq!(answer.header("content-type"), Some("application/json"));
    for name in ["x-request-id", "x-content-type-options", "cache-control"] {
        assert!(answer.header(name).is_some(), "{name} of {request:?}");
    }
    let body = answer.json();
    for (pointer, value) in expected_fields {
        assert_eq!(json_at(&body, pointer), *value, "{pointer} of {body}");
    }
    body
}

#[tokio::test]
async fn a_history_is_accepted_in_both_formats() {
    let server = server_with([]).start().await;
    let message_history = json!([
        { "role": "user", "content": "I am Ada." },
        { "role": "assistant", "content": "Hello, Ada." },
    ]);
    let reply = json!({ "api": "history", "blocks": [{ "text": { "text": "Hello, Ada." } }] });
    let journal_history = json!([{ "user": [{ "text": "I am Ada." }] }, { "assistant": reply }]);
    for history in [&message_history, &journal_history] {
        let mut body = task();
        body["history"] = history.clone();
        let created = server.send(post("/v1/runs", &body)).await.expect(201);
        let run = created["id"].as_str().unwrap();
        server.wait_until_ended(run).await;
        let transcript = server.get_json(&format!("/v1/runs/{run}/transcript")).await;
        let messages = transcript["messages"].as_array().unwrap();
        assert_eq!(messages[..2], journal_history.as_array().unwrap()[..], "{transcript}");
    }
    let invalid_histories = [
        (json!([{ "role": "system", "content": "a" }]), "`history[0]` is invalid: unknown variant"),
        (
            json!([message_history[0], { "role": "user", "content": " " }]),
            "`history[1]` is invalid: the message is empty",
        ),
        (json!([message_history[1]]), "begins with the assistant"),
        (json!([{ "users": [] }]), "a message is {"),
        (json!(vec![&message_history[0]; 1_001]), "the history has more than 1000 messages"),
        (
            json!([{ "role": "user", "content": "x".repeat(1024 * 1024) }]),
            "the history is longer than 1048576 bytes",
        ),
    ];
    for (history, expected) in invalid_histories {
        let mut body = task();
        body["history"] = history;
        let rejected = server.send(post("/v1/runs", &body)).await.expect(422);
        let detail = rejected["detail"].as_str().unwrap();
        assert!(detail.contains(expected), "{detail}");
    }
    let document = server.get_json("/openapi.json").await;
    let history_schema = &document["components"]["schemas"]["NewRun"]["properties"]["history"];
    let schema = &history_schema["items"]["oneOf"][0];
    assert_eq!(schema["required"], json!(["role", "content"]), "{history_schema}");
    let roles = json!(["user", "assistant"]);
    assert_eq!(schema["properties"]["role"]["enum"], roles, "{history_schema}");
    assert_eq!(history_schema["maxItems"], 1_000, "{history_schema}");
}

#[tokio::test]
async fn a_run_is_created_shown_and_read() {
    let server = server_with([]).start().await;
    let full_task = json!({
        "agent": "tester", "input": { "a": 1 }, "thread": "t1", "resource": "r1",
        "lane": "l1", "inbox": "default", "type": "k", "priority": 3, "tags": ["x"],
        "metadata": { "m": [1] }, "actor": "u1", "links": { "pr": 7 },
        "budget": { "turns": 5, "warn_at": 0.5 },
    });
    let expected_fields = [
        ("/agent", json!("tester")),
        ("/input", json!({ "a": 1 })),
        ("/lane", json!("l1")),
        ("/thread", json!("t1")),
        ("/priority", json!(3)),
        ("/type", json!("k")),
        ("/tags", json!(["x"])),
        ("/metadata", json!({ "m": [1] })),
        ("/budget/turns", json!(5)),
    ];
    let answer = server.send(post("/v1/runs", &full_task)).await;
    let created = answer.expect(201);
    let run = created["id"].as_str().unwrap();
    assert_eq!(answer.header("location"), Some(&*format!("/v1/runs/{run}")));
    for (pointer, value) in expected_fields {
        assert_eq!(json_at(&created, pointer), value, "{pointer}");
    }
    server.wait_until_ended(run).await;
    let expected_view = [
        ("/status", json!("completed")),
        ("/output/text", json!("done")),
        ("/turns", json!(1)),
        ("/attempt", json!(1)),
    ];
    check(&server, get(format!("/v1/runs/{run}")), 200, &expected_view).await;
    let list = [("/data/0/id", json!(run)), ("/next", Value::Null)];
    for query in ["", "?brief=true", "?agent=tester&status=completed&lane=l1"] {
        check(&server, get(format!("/v1/runs{query}")), 200, &list).await;
    }
    let expected = [("/run", json!(run)), ("/model", json!("scripted/actor"))];
    check(&server, get(format!("/v1/runs/{run}/transcript")), 200, &expected).await;
    let expected_reason = [("/run", json!(run)), ("/status", json!("completed"))];
    check(&server, get(format!("/v1/runs/{run}/why")), 200, &expected_reason).await;
    let page =
        [("/data/0/seq", json!(1)), ("/data/0/type", json!("run.created")), ("/next", json!("1"))];
    let request = get(format!("/v1/runs/{run}/events?limit=1"));
    check(&server, request, 200, &page).await;
}

#[tokio::test]
async fn a_run_is_steered_paused_resumed_and_cancelled() {
    let latch = Latch::closed();
    let server = server_with([FakeReply::Text("one").after_latch(&latch)]).start().await;
    let run = server.submit().await;
    latch.reached(1).await;
    let path = format!("/v1/runs/{run}/steer");
    let steer_body = json!({ "text": "left", "delivery": "follow_up" });
    let receipt =
        [("/run", json!(run)), ("/status", json!("queued")), ("/delivery", json!("follow_up"))];
    let steer = check(&server, post(&path, &steer_body), 202, &receipt).await["id"].clone();
    let expected_list = [("/data/0/id", steer.clone()), ("/data/0/text", json!("left"))];
    check(&server, get(&path), 200, &expected_list).await;
    let steer_path = format!("{path}/{}", steer.as_str().unwrap());
    let changed = [("/text", json!("right")), ("/delivery", json!("follow_up"))];
    let change = request("PATCH", &steer_path).json(&json!({ "text": "right" }));
    check(&server, change, 200, &changed).await;
    let expected_status = [("/status", json!("withdrawn"))];
    check(&server, request("DELETE", &steer_path), 200, &expected_status).await;
    let id = [("/id", json!(run))];
    check(&server, request("POST", format!("/v1/runs/{run}/pause")), 200, &id).await;
    latch.open();
    server.wait_for_event(&run, "run.paused").await;
    let resume = post(format!("/v1/runs/{run}/resume"), &json!({ "budget": { "turns": 500 } }));
    check(&server, resume, 200, &id).await;
    server.wait_until_ended(&run).await;
    let (second, reason) = (server.submit().await, json!({ "reason": "enough" }));
    let cancel = post(format!("/v1/runs/{second}/cancel"), &reason);
    let answer = server.send(cancel).await;
    assert!([200, 409].contains(&answer.status), "{}", answer.text());
}

#[tokio::test]
async fn an_undriven_run_is_cancelled_at_once() {
    let server = server_with([]).open().await;
    let run = server.submit().await;
    let cancel = post(format!("/v1/runs/{run}/cancel"), &json!({ "reason": "enough" }));
    check(&server, cancel, 200, &[("/status", json!("cancelled"))]).await;
}

#[tokio::test]
async fn a_gate_is_listed_shown_linked_and_answered() {
    let server = server_with_gate().start().await;
    let (run, gate) = server.submit_until_gate().await;
    let id = gate["id"].as_str().unwrap();
    let expected_fields = [
        ("/id", json!(id)),
        ("/run", json!(run)),
        ("/kind", json!("approval")),
        ("/status", json!("open")),
        ("/tool", json!("send")),
        ("/input/text", json!("hi <b>you</b>")),
        ("/decisions/0", json!("approve")),
    ];
    check(&server, get(format!("/v1/gates/{id}")), 200, &expected_fields).await;
    let expected_list = [("/data/0/id", json!(id)), ("/next", Value::Null)];
    check(&server, get("/v1/gates?status=open"), 200, &expected_list).await;
    let link = post(format!("/v1/gates/{id}/links"), &json!({ "recipient": "anna" }));
    let expected_link = [("/gate", json!(id)), ("/recipient", json!("anna"))];
    let url = check(&server, link, 201, &expected_link).await["url"].clone();
    let url_prefix = format!("http://{}/a/", server.host());
    assert!(url.as_str().unwrap().starts_with(&url_prefix), "{url}");
    let approval = json!({ "decision": "approve", "digest": gate["digest"], "note": "go" });
    let expected = [
        ("/outcome", json!("closed")),
        ("/gate/status", json!("answered")),
        ("/gate/answers/0/by", json!("local")),
        ("/gate/answers/0/note", json!("go")),
    ];
    check(&server, post(format!("/v1/gates/{id}/answer"), &approval), 200, &expected).await;
    assert_eq!(server.wait_until_ended(&run).await["status"], "completed");
}

#[tokio::test]
async fn a_question_is_answered_with_text() {
    let question = json!({ "question": "Which?", "options": ["a", "b"] });
    let server = server_with([FakeReply::Call("ask_human", question)]).start().await;
    for answer_body in [json!({ "payload": "a" }), json!({ "note": "b" })] {
        let (run, gate) = server.submit_until_gate().await;
        let mut answer_body = answer_body.clone();
        answer_body["decision"] = json!("answer");
        let path = format!("/v1/gates/{}/answer", gate["id"].as_str().unwrap());
        check(&server, post(path, &answer_body), 200, &[("/outcome", json!("closed"))]).await;
        assert_eq!(server.wait_until_ended(&run).await["status"], "completed");
    }
}

#[tokio::test]
async fn a_form_is_answered_with_its_fields() {
    let schema = json!({ "properties": { "city": { "type": "string", "minLength": 2 } } });
    let question = json!({ "question": "Where?", "schema": schema });
    let server = server_with([FakeReply::Call("ask_human", question)]).start().await;
    let (run, gate) = server.submit_until_gate().await;
    assert_eq!(gate["schema"], schema);
    let path = format!("/v1/gates/{}/answer", gate["id"].as_str().unwrap());
    for payload in [json!("Bern"), json!({ "city": "B" }), json!({ "town": "Bern" }), json!([])] {
        let body = json!({ "decision": "answer", "payload": payload });
        let refused = server.send(post(&path, &body)).await;
        assert_eq!((refused.status, &refused.json()["code"]), (422, &json!("invalid_answer")));
    }
    let body = json!({ "decision": "answer", "payload": { "city": "Bern" } });
    let expected_payload = [("/gate/answers/0/payload", json!({ "city": "Bern" }))];
    check(&server, post(&path, &body), 200, &expected_payload).await;
    assert_eq!(server.wait_until_ended(&run).await["status"], "completed");
}

#[tokio::test]
async fn a_program_raises_and_completes_a_gate() {
    let server = server_with_gate().start().await;
    let (run, waiting_gate) = server.submit_until_gate().await;
    let body = |ask: &str| {
        json!({
            "run": run, "ask": ask, "tags": ["ci"], "idempotency_key": "build-7", "timeout": "2h",
        })
    };
    let expected_gate = [("/kind", json!("signal")), ("/tags/0", json!("ci"))];
    let gate = check(&server, post("/v1/gates", &body("the build")), 201, &expected_gate).await;
    let second = check(&server, post("/v1/gates", &body("the build")), 200, &expected_gate).await;
    assert_eq!(gate["id"], second["id"]);
    let rejected = server.send(post("/v1/gates", &body("another build"))).await.expect(422);
    assert_eq!(rejected["code"], "idempotency_key_reused");
    for (name, value) in [
        ("ask", json!(" ")),
        ("tags", json!(["submit_again"])),
        ("timeout", json!("soon")),
        ("timeout", json!("0s")),
        ("timeout", json!("3651d")),
        ("timeout", json!("99999999999d")),
        ("idempotency_key", json!("")),
        ("kind", json!("approval")),
    ] {
        let mut invalid_body = body("the build");
        invalid_body["idempotency_key"] = json!("other");
        invalid_body[name] = value;
        server.send(post("/v1/gates", &invalid_body)).await.expect(422);
    }
    let unknown = json!({ "run": "run_00000000000000000000000001", "ask": "x" });
    server.send(post("/v1/gates", &unknown)).await.expect(404);
    let expected_gates = [("/data/0/id", gate["id"].clone())];
    let tagged_gates = check(&server, get("/v1/gates?tag=ci"), 200, &expected_gates).await;
    assert_eq!(tagged_gates["data"].as_array().unwrap().len(), 1);
    let answer = |gate: &Value| format!("/v1/gates/{}/answer", gate["id"].as_str().unwrap());
    let approval = json!({ "decision": "approve", "digest": waiting_gate["digest"] });
    check(&server, post(answer(&waiting_gate), &approval), 200, &[]).await;
    let completion = json!({ "decision": "complete", "payload": { "green": true } });
    check(&server, post(answer(&gate), &completion), 200, &[("/outcome", json!("closed"))]).await;
    assert_eq!(server.wait_until_ended(&run).await["status"], "completed");
}

#[tokio::test]
async fn a_signal_completes_the_gates_with_its_name() {
    let server = server_with_gate().start().await;
    let (run, approval) = server.submit_until_gate().await;
    for (ask, tag) in [("the build", "ci"), ("the tests", "ci"), ("the review", "review")] {
        let body = json!({ "run": run, "ask": ask, "tags": [tag] });
        check(&server, post("/v1/gates", &body), 201, &[]).await;
    }
    let unknown = server.send(post("/v1/signals", &json!({ "name": "other" }))).await;
    assert_eq!((unknown.status, unknown.problem().as_str()), (404, "signal_not_awaited"));
    server.send(post("/v1/signals", &json!({ "name": "ci", "gate": "x" }))).await.expect(422);
    let other_run = json!({ "name": "ci", "run": "run_00000000000000000000000001" });
    server.send(post("/v1/signals", &other_run)).await.expect(404);
    let body = json!({ "name": "ci", "payload": { "green": true } });
    let signal = || post("/v1/signals", &body).header("idempotency-key", "s1");
    let expected = [("/data/0/status", json!("answered")), ("/data/1/tags/0", json!("ci"))];
    let gates = check(&server, signal(), 200, &expected).await;
    assert_eq!(gates["data"].as_array().unwrap().len(), 2, "{gates}");
    // A repeated request gets the same answer.
    assert_eq!(check(&server, signal(), 200, &expected).await, gates);
    let open = check(&server, get("/v1/gates?status=open"), 200, &[]).await;
    assert_eq!(open["data"].as_array().unwrap().len(), 2, "{open}");
    check(&server, post("/v1/signals", &json!({ "name": "review" })), 200, &[]).await;
    let path = format!("/v1/gates/{}/answer", approval["id"].as_str().unwrap());
    let approval = json!({ "decision": "approve", "digest": approval["digest"] });
    check(&server, post(path, &approval), 200, &[]).await;
    assert_eq!(server.wait_until_ended(&run).await["status"], "completed");
}

#[tokio::test]
async fn a_batch_is_submitted_and_shown() {
    let server = server_with([]).start().await;
    let task = |input: &str| json!({ "agent": "tester", "input": input });
    let body = json!({ "runs": [task("one"), task("two")], "mode": "sequential" });
    let expected = [
        ("/mode", json!("sequential")),
        ("/runs/0/status", json!("pending")),
        ("/runs/1/reason", json!("batch")),
    ];
    let batch_request = || post("/v1/runs/batch", &body).header("idempotency-key", "b1");
    let batch = check(&server, batch_request(), 201, &expected).await;
    let second = check(&server, batch_request(), 201, &[]).await;
    assert_eq!(batch["id"], second["id"]);
    for run in batch["runs"].as_array().unwrap() {
        assert_eq!(
            server.wait_until_ended(run["id"].as_str().unwrap()).await["status"],
            "completed"
        );
    }
    let path = format!("/v1/batches/{}", batch["id"].as_str().unwrap());
    let expected_batch = [
        ("/mode", json!("sequential")),
        ("/runs/0/id", batch["runs"][0]["id"].clone()),
        ("/runs/1/id", batch["runs"][1]["id"].clone()),
        ("/runs/1/status", json!("completed")),
    ];
    check(&server, get(path), 200, &expected_batch).await;
    let unknown = "/v1/batches/batch_00000000000000000000000001";
    assert_eq!(server.send(get(unknown)).await.expect(404)["code"], "batch_not_found");
    let many_runs: Vec<_> = (0..1_001).map(|_| task("x")).collect();
    for (runs, detail) in [
        (json!([]), "a submit must have 1 to 1000 tasks, and this one has 0"),
        (json!(many_runs), "a submit must have 1 to 1000 tasks, and this one has 1001"),
        (
            json!([task("x"), { "agent": "nobody", "input": "x" }]),
            "`runs[1]`: there is no agent named `nobody`",
        ),
    ] {
        let invalid_request = post("/v1/runs/batch", &json!({ "runs": runs }));
        assert_eq!(server.send(invalid_request).await.expect(422)["detail"], detail);
    }
}

#[tokio::test]
async fn a_task_of_a_busy_lane_is_added_or_refused() {
    let with_policy = |policy| {
        server_with([]).agent(move |agent| {
            agent.lane = Some("l1".into());
            agent.lane_busy = policy;
        })
    };
    let task = |input: &str| post("/v1/runs", &json!({ "agent": "tester", "input": input }));
    let server = with_policy(LaneBusyPolicy::Steer).open().await;
    let run = check(&server, task("one"), 201, &[]).await;
    assert_eq!(run["added"], Value::Null);
    let expected_added = [("/id", run["id"].clone()), ("/added", json!(true))];
    let task_with_key = || task("two").idempotency_key("k");
    check(&server, task_with_key(), 200, &expected_added).await;
    check(&server, task_with_key(), 200, &expected_added).await;
    let steers = format!("/v1/runs/{}/steer", run["id"].as_str().unwrap());
    let steer_list = check(&server, get(&steers), 200, &[("/data/0/text", json!("two"))]).await;
    assert_eq!(steer_list["data"].as_array().unwrap().len(), 1);
    let server = with_policy(LaneBusyPolicy::Reject).open().await;
    check(&server, task("one"), 201, &[]).await;
    assert_eq!(server.send(task("two")).await.expect(409)["code"], "lane_busy");
    let long_lane_task = json!({ "agent": "tester", "input": "x", "lane": "x".repeat(10_000) });
    server.send(post("/v1/runs", &long_lane_task)).await.expect(422);
}

#[tokio::test]
async fn a_task_of_a_full_lane_is_refused_until_a_run_has_left() {
    let mut server = server_with([]).lane_depth(2).open().await;
    let task =
        |lane: &str| post("/v1/runs", &json!({ "agent": "tester", "input": "Hi.", "lane": lane }));
    let first = check(&server, task("l1"), 201, &[]).await;
    check(&server, task("l1"), 201, &[]).await;
    let rejected = server.send(task("l1")).await;
    assert_eq!(rejected.header("retry-after"), Some("1"));
    let problem = rejected.expect(429);
    assert_eq!(problem["code"], "lane_full");
    assert!(problem["detail"].as_str().unwrap().contains("`l1`"), "{problem}");
    check(&server, task("l2"), 201, &[]).await;
    server.spawn_worker();
    server.wait_until_ended(first["id"].as_str().unwrap()).await;
    check(&server, task("l1"), 201, &[]).await;
}

#[tokio::test]
async fn a_lane_is_paused_and_resumed() {
    let server = server_with([]).start().await;
    for path in ["/v1/lanes/a%2Fb", "/v1/lanes/a%2Fb/resume"] {
        let empty = [("/busy", json!(false)), ("/waiting", json!(0)), ("/paused", json!(false))];
        let lane = match path.ends_with("resume") {
            true => request("POST", path),
            false => get(path),
        };
        check(&server, lane, 200, &empty).await;
    }
    let expected_paused = [("/lane", json!("a/b")), ("/paused", json!(true))];
    check(&server, request("POST", "/v1/lanes/a%2Fb/pause"), 200, &expected_paused).await;
    let task = json!({ "agent": "tester", "input": "Hi.", "lane": "a/b" });
    let run = check(&server, post("/v1/runs", &task), 201, &[("/reason", json!("lane"))]).await;
    let expected_lane = [("/busy", json!(false)), ("/waiting", json!(1)), ("/paused", json!(true))];
    check(&server, get("/v1/lanes/a%2Fb"), 200, &expected_lane).await;
    let why_path = format!("/v1/runs/{}/why", run["id"].as_str().unwrap());
    let expected_paused = [
        ("/message", json!("The lane `a/b` is paused.")),
        ("/command", json!("longhaul lanes resume a/b")),
    ];
    check(&server, get(&why_path), 200, &expected_paused).await;
    check(&server, request("POST", "/v1/lanes/a%2Fb/resume"), 200, &[("/paused", json!(false))])
        .await;
    server.wait_until_ended(run["id"].as_str().unwrap()).await;
    let long_path = format!("/v1/lanes/{}/pause", "x".repeat(10_000));
    server.send(request("POST", long_path)).await.expect(422);
}

#[tokio::test]
async fn inboxes_agents_lanes_keys_and_health_respond() {
    let inboxes = |options: &mut longhaul_server::ServerOptions| {
        options.inboxes.insert("mail".into(), "tester".into());
    };
    let server = server_with([]).options(inboxes).open().await;
    let mail_task = json!({
        "payload": "Hi.", "type": "mail", "lane": "l1", "idempotency_key": "m1",
        "metadata": { "threadId": "t9", "resourceId": "r9" },
    });
    let expected_fields = [
        ("/agent", json!("tester")),
        ("/inbox", json!("mail")),
        ("/thread", json!("t9")),
        ("/resource", json!("r9")),
    ];
    let first =
        check(&server, post("/v1/inboxes/mail/tasks", &mail_task), 201, &expected_fields).await;
    let second =
        check(&server, post("/v1/inboxes/mail/tasks", &mail_task), 201, &expected_fields).await;
    assert_eq!(first["id"], second["id"]);
    let expected = [
        ("/data/0/name", json!("mail")),
        ("/data/0/agent", json!("tester")),
        ("/data/0/pending", json!(1)),
        ("/next", Value::Null),
    ];
    check(&server, get("/v1/inboxes"), 200, &expected).await;
    let lane = [
        ("/data/0/lane", json!("l1")),
        ("/data/0/busy", json!(true)),
        ("/data/0/waiting", json!(0)),
    ];
    check(&server, get("/v1/lanes"), 200, &lane).await;
    let agent = [("/data/0/name", json!("tester"))];
    check(&server, get("/v1/agents"), 200, &agent).await;
    check(&server, get("/v1/agents/tester"), 200, &[("/name", json!("tester"))]).await;
    let new_key = json!({ "name": "ops", "role": "operator", "expires_in_ms": 60_000 });
    let created = [
        ("/key/name", json!("ops")),
        ("/key/role", json!("operator")),
        ("/key/status", json!("active")),
        ("/key/by", json!("local")),
    ];
    let created = check(&server, post("/v1/keys", &new_key), 201, &created).await;
    assert!(created["secret"].as_str().unwrap().starts_with("lh_"));
    let key_list = [("/data/0/name", json!("ops")), ("/next", Value::Null)];
    let key_list = check(&server, get("/v1/keys"), 200, &key_list).await;
    assert!(!key_list.to_string().contains("lh_"), "a secret is shown once");
    let expected = [("/status", json!("revoked"))];
    check(&server, request("DELETE", "/v1/keys/ops"), 200, &expected).await;
    let ticket = check(&server, request("POST", "/v1/tickets"), 201, &[]).await;
    assert!(ticket["url"].as_str().unwrap().contains("/?t="));
    check(&server, get("/livez").without_key(), 200, &[("/status", json!("ok"))]).await;
    check(&server, get("/version").without_key(), 200, &[("/api", json!("v1"))]).await;
    let idle = [("/status", json!("worker")), ("/driven", json!(false))];
    check(&server, get("/readyz").without_key(), 503, &idle).await;
}

#[tokio::test]
async fn readyz_is_ok_while_a_worker_is_live() {
    let server = server_with([]).start().await;
    let run = server.send(post("/v1/runs", &task())).await.expect(201)["id"].clone();
    server.wait_until_ended(run.as_str().unwrap()).await;
    let expected_status = [("/status", json!("ready")), ("/driven", json!(true))];
    check(&server, get("/readyz").without_key(), 200, &expected_status).await;
}
