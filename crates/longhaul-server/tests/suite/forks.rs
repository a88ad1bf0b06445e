//! Tests of the routes that fork runs and compare them.

use serde_json::json;

use crate::suite::harness::client::{get, post};
use crate::suite::harness::server_with;

#[tokio::test]
async fn a_run_is_forked_and_compared_with_its_fork() {
    let server = server_with([]).start().await;
    let run = server.send(post("/v1/runs", &json!({ "agent": "tester", "input": "x" })));
    let run = run.await.expect(201)["id"].as_str().unwrap().to_owned();
    server.wait_until_ended(&run).await;
    let path = format!("/v1/runs/{run}/fork");
    let body = json!({ "before": 4, "edit": { "message": "y" }, "note": "n" });
    let forked = server.send(post(path.clone(), &body)).await.expect(201);
    assert_eq!(forked["forked_from"], json!({ "run": run, "through": 3, "note": "n" }));
    let fork = forked["id"].as_str().unwrap();
    server.wait_until_ended(fork).await;
    let diff = server.send(get(format!("/v1/runs/{run}/diff/{fork}"))).await.expect(200);
    assert_eq!(diff["same_through"], 3);
    assert_eq!(diff["first_difference"]["b"], "reads the edited message: y");
    for (body, code) in [
        (json!({ "before": 99 }), "event_not_found"),
        (json!({ "before": 4, "agent": "nobody" }), "agent_not_found"),
        (
            json!({ "before": 4, "edit": { "result": { "call": "t1.1", "text": "" } } }),
            "invalid_task",
        ),
    ] {
        let answer = server.send(post(path.clone(), &body)).await;
        assert_eq!(answer.json()["code"], code, "{body}");
    }
}
