//! Tests of the routes for inboxes, dead letters and retries.

use serde_json::{Value, json};

use crate::suite::harness::client::{get, post, request};
use crate::suite::harness::model::FakeReply;
use crate::suite::harness::{TestServer, server_with};

fn mail_agent(options: &mut longhaul_server::ServerOptions) {
    options.inboxes.insert("mail".into(), "tester".into());
}

async fn post_task(server: &TestServer, inbox: &str, body: &Value) -> Value {
    server.send(post(format!("/v1/inboxes/{inbox}/tasks"), body)).await.expect(201)
}

#[tokio::test]
async fn a_task_has_all_its_fields() {
    let server = server_with([]).options(mail_agent).agent(|agent| {
        agent.context = vec!["recipient".to_owned()];
    });
    let server = server.open().await;
    let body = json!({
        "agent": "tester", "type": "order", "payload": { "id": 7 }, "priority": 3, "lane": "l",
        "thread": "t", "resource": "r", "metadata": { "a": [1], "threadId": "ignored" },
        "start_at": "2099-01-01T00:00:00Z", "actor": { "name": "Ada" },
        "context": { "recipient": "ada@example.org" },
    });
    let run = post_task(&server, "mail", &body).await;
    for (field, value) in [
        ("agent", json!("tester")),
        ("type", json!("order")),
        ("input", json!({ "id": 7 })),
        ("priority", json!(3)),
        ("lane", json!("l")),
        ("thread", json!("t")),
        ("resource", json!("r")),
        ("metadata", body["metadata"].clone()),
        ("actor", body["actor"].clone()),
        ("context", body["context"].clone()),
        ("inbox", json!("mail")),
        ("reason", json!("start_at")),
    ] {
        assert_eq!(run[field], value, "{field}");
    }
}

#[tokio::test]
async fn invalid_tasks_are_rejected_with_a_reason() {
    let server = server_with([]).options(mail_agent).open().await;
    let long_lane = "x".repeat(10_000);
    for (inbox, body, detail) in [
        ("news", json!({ "payload": "x" }), "[inboxes.news] agent"),
        ("mail", json!({ "payload": "x", "agent": "nobody" }), "nobody"),
        ("mail", json!({ "payload": "x", "lane": long_lane }), "the field `lane` is invalid"),
        ("mail", json!({ "payload": "x", "thread": "" }), "the field `thread` is invalid"),
        ("two%0Alines", json!({ "payload": "x" }), "inbox"),
        ("odd%20name", json!({ "payload": "x" }), "[inboxes.\"odd name\"] agent"),
        ("mail", json!({ "payload": "x", "idempotency_key": "" }), "1 to 255 printable ASCII"),
        ("mail", json!({ "payload": "x", "idempotency_key": "a\nb" }), "1 to 255 printable"),
        ("mail", json!({ "payload": "x", "idempotency_key": "k".repeat(256) }), "1 to 255"),
        (
            "mail",
            json!({ "payload": "x", "type": "" }),
            "the type of the task must have 1 to 256 bytes",
        ),
        ("mail", json!({ "payload": "x", "type": "\u{1b}" }), "no control characters"),
        ("mail", json!({ "payload": "x", "metadata": { "threadId": 7 } }), "metadata.threadId"),
        (
            "mail",
            json!({ "payload": "x", "start_at": "9999-12-31T23:59:59Z" }),
            "not after 9999-12-30T22:00:00Z",
        ),
    ] {
        let path = format!("/v1/inboxes/{inbox}/tasks");
        let problem = server.send(post(path, &body)).await.expect(422);
        let text = problem["detail"].as_str().unwrap();
        assert!(text.contains(detail), "{text}");
    }
    let inboxes = server.send(get("/v1/inboxes")).await.expect(200);
    let mail_inbox = &inboxes["data"][0];
    assert_eq!((&mail_inbox["pending"], &mail_inbox["served"]), (&json!(0), &json!(false)));
}

#[tokio::test]
async fn inboxes_are_listed_in_pages() {
    let server = server_with([]).options(mail_agent).open().await;
    for inbox in ["a", "b", "b"] {
        post_task(&server, inbox, &json!({ "payload": "x", "agent": "tester" })).await;
    }
    let counts = |page: &Value| -> Vec<(String, u64)> {
        let inboxes = page["data"].as_array().unwrap().iter();
        let count = |inbox: &Value| (inbox["name"].to_string(), inbox["pending"].as_u64().unwrap());
        inboxes.map(count).collect()
    };
    let page = server.send(get("/v1/inboxes?limit=2")).await.expect(200);
    assert_eq!(counts(&page), [("\"a\"".to_owned(), 1), ("\"b\"".to_owned(), 2)]);
    assert_eq!(page["next"], "b");
    let page = server.send(get("/v1/inboxes?limit=2&after=b")).await.expect(200);
    assert_eq!(counts(&page), [("\"mail\"".to_owned(), 0)]);
    assert_eq!(page["next"], Value::Null);
    server.send(get("/v1/inboxes?limit=0")).await.expect(422);
    let runs = server.send(get("/v1/runs?inbox=b")).await.expect(200);
    assert_eq!(runs["data"].as_array().unwrap().len(), 2);
}

#[tokio::test]
async fn a_failed_task_is_a_dead_letter_until_it_is_retried() {
    let server = server_with([FakeReply::Call("look", json!({}))]).options(mail_agent);
    let server = server.agent(|agent| agent.max_turns = Some(1)).start().await;
    let run = post_task(&server, "mail", &json!({ "payload": "x" })).await;
    let run = run["id"].as_str().unwrap().to_owned();
    assert_eq!(server.wait_until_ended(&run).await["status"], "failed");
    let inbox_view = server.send(get("/v1/inboxes/mail")).await.expect(200);
    assert_eq!((&inbox_view["name"], &inbox_view["failed"]), (&json!("mail"), &json!(1)));
    let inboxes = server.send(get("/v1/inboxes")).await.expect(200);
    for inbox in [&inbox_view, &inboxes["data"][0]] {
        assert_eq!(inbox["served"], true);
    }
    assert_eq!(inbox_view["dead_letters"][0]["id"], *run);
    assert_eq!(inbox_view["tasks"][0]["id"], *run);
    let retry = || request("POST", format!("/v1/runs/{run}/retry"));
    let retried = server.send(retry()).await.expect(201);
    assert_eq!((&retried["retry_of"], &retried["attempt"]), (&json!(run), &json!(2)));
    let second_retry = server.send(retry()).await.expect(200);
    assert_eq!(second_retry["id"], retried["id"]);
    let retry_run = retried["id"].as_str().unwrap();
    server.wait_until_ended(retry_run).await;
    let inbox_view = server.send(get("/v1/inboxes/mail")).await.expect(200);
    let dead_letters = inbox_view["dead_letters"].as_array().unwrap();
    assert_eq!((dead_letters.len(), &dead_letters[0]["id"]), (1, &retried["id"]));
    let failed_runs = server.send(get("/v1/runs?status=failed&inbox=mail")).await.expect(200);
    assert_eq!(failed_runs["data"].as_array().unwrap().len(), 2);
}

#[tokio::test]
async fn a_run_that_has_not_failed_is_not_retried() {
    let server = server_with([]).open().await;
    let run = server.send(post("/v1/runs", &json!({ "agent": "tester", "input": "x" })));
    let run = run.await.expect(201)["id"].as_str().unwrap().to_owned();
    let problem = server.send(request("POST", format!("/v1/runs/{run}/retry"))).await.expect(409);
    assert_eq!(problem["code"], "not_failed");
    let shown = server.send(get("/v1/inboxes/unknown")).await.expect(200);
    assert_eq!((&shown["pending"], &shown["tasks"]), (&json!(0), &json!([])));
}
