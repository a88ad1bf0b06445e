//! Chains over HTTP: lists, submits by name and with steps, the aliases of the fields, and the role
//! that `auto_approve` needs.

use std::sync::Arc;

use longhaul_core::access::Role;
use longhaul_core::chain::{ChainSpec, ChainStepSpec};
use serde_json::{Value, json};

use crate::suite::harness::client::{get, post, request};
use crate::suite::harness::model::FakeReply;
use crate::suite::harness::server_with;

#[tokio::test]
async fn chains_are_listed_and_run() {
    let server = server_with([FakeReply::Text("Done.")]).start().await;
    let spec = ChainSpec {
        description: Some("Twice".to_owned()),
        max_runs: None,
        steps: vec![ChainStepSpec::new("tester"), ChainStepSpec::new("tester")],
    };
    server.longhaul.replace_chains([("twice".to_owned(), Arc::new(spec))].into());
    let listed = server.send(get("/v1/chains")).await.expect(200);
    assert_eq!(listed["data"][0]["name"], "twice");
    let chain = server.send(get("/v1/chains/twice")).await.expect(200);
    assert_eq!(chain["steps"][1]["condition"], "always");
    let missing_chain = server.send(get("/v1/chains/twise")).await;
    assert_eq!((missing_chain.status, missing_chain.problem().as_str()), (404, "chain_not_found"));
    assert_eq!(missing_chain.json()["suggestion"], "twice");

    let steps = json!({ "steps": [{ "agent": "tester" }, { "agent": "tester" }] });
    for (body, name) in [
        (json!({ "chain": "twice", "input": "Do it." }), json!("twice")),
        (json!({ "chainId": "twice", "input": "Do it." }), json!("twice")),
        (json!({ "chain": steps, "input": "Do it." }), Value::Null),
        (json!({ "chainConfig": steps, "input": "Do it." }), Value::Null),
    ] {
        let run = server.send(post("/v1/runs", &body)).await.expect(201);
        assert_eq!((&run["chain"]["name"], &run["chain"]["of"]), (&name, &json!(2)), "{body}");
        let root = run["id"].as_str().unwrap().to_owned();
        server.wait_until_ended(&root).await;
        let root = server.send(get(format!("/v1/runs/{root}"))).await.expect(200);
        let second = root["chain"]["current"].as_str().unwrap().to_owned();
        assert_ne!(root["id"], second.as_str());
        server.wait_until_ended(&second).await;
        let tree = format!("/v1/runs?root={}", root["id"].as_str().unwrap());
        let tree = server.send(get(tree)).await.expect(200);
        assert_eq!(tree["data"].as_array().unwrap().len(), 2);
        assert_eq!(tree["data"][0]["chain"]["status"], "completed");
    }
    let single_step = json!({ "chain": "twice", "step": "tester", "input": "Do it." });
    let run = server.send(post("/v1/runs", &single_step)).await.expect(201);
    assert_eq!(run["chain"]["of"], 1);
}

#[tokio::test]
async fn an_inline_auto_approve_needs_an_approver() {
    let server = server_with([]).open().await;
    let operator = server.create_key("ops", Role::Operator).await;
    let approver = server.create_key("boss", Role::Approver).await;
    let steps = json!({ "steps": [{ "agent": "tester", "autoApprove": true }] });
    for body in [
        json!({ "chain": steps, "input": "x" }),
        json!({ "chain": { "steps": [{ "agent": "tester" }] }, "autoApprove": true, "input": "x" }),
    ] {
        let refused = server.send(post("/v1/runs", &body).with_key(&operator)).await;
        assert_eq!(refused.status, 403, "{}", refused.text());
        server.send(post("/v1/runs", &body).with_key(&approver)).await.expect(201);
    }
}

#[tokio::test]
async fn a_repository_that_only_the_worker_can_read_needs_an_admin() {
    let server = server_with([]).open().await;
    let approver = server.create_key("boss", Role::Approver).await;
    let admin = server.create_key("root", Role::Admin).await;
    let submit = async |repo: Value, key: &str| {
        let body = json!({ "agent": "tester", "input": "x", "repo": repo });
        server.send(post("/v1/runs", &body).with_key(key)).await
    };
    for url in ["/srv/app", "git@host:app", "https://localhost/app", "http://example.com/app"] {
        let refused = submit(json!(url), &approver).await;
        assert_eq!(refused.status, 403, "{}", refused.text());
    }
    // These are refused only because the agent has no sandbox.
    for (repo, key) in [
        (json!("https://example.com/app"), &approver),
        (json!({ "url": "/srv/app", "rev": "main" }), &admin),
    ] {
        let refused = submit(repo, key).await;
        assert!(refused.text().contains("needs an agent with a sandbox"), "{}", refused.text());
    }
}

#[tokio::test]
async fn commands_for_an_ended_step_apply_to_its_chain() {
    let question = FakeReply::Call("ask_human", json!({ "question": "Which?" }));
    let server = server_with([question]).start().await;
    let steps = json!({ "steps": [{ "agent": "tester" }, { "agent": "tester" }] });
    let body = json!({ "chain": steps, "input": "Do it." });
    let run = server.send(post("/v1/runs", &body)).await.expect(201);
    let root = run["id"].as_str().unwrap().to_owned();
    let gate = server.wait_for_gate(&root).await;
    let answer = json!({ "decision": "answer", "payload": "This." });
    let gate = format!("/v1/gates/{}/answer", gate["id"].as_str().unwrap());
    server.send(post(gate, &answer)).await.expect(200);
    server.wait_until_ended(&root).await;
    let view = server.send(get(format!("/v1/runs/{root}"))).await.expect(200);
    let second = view["chain"]["current"].clone();
    server.wait_for_gate(second.as_str().unwrap()).await;
    let url = |action: &str| format!("/v1/runs/{root}/{action}");
    let text = json!({ "text": "hurry", "delivery": "follow_up" });
    let receipt = server.send(post(url("steer"), &text)).await.expect(202);
    assert_eq!(receipt["run"], second);
    let message = format!("{}/{}", url("steer"), receipt["id"].as_str().unwrap());
    let edited_message = server
        .send(request("PATCH", &message).json(&json!({ "text": "no hurry" })))
        .await
        .expect(200);
    assert_eq!(edited_message["text"], "no hurry");
    let withdrawn_message = server.send(request("DELETE", &message)).await.expect(200);
    assert_eq!(withdrawn_message["status"], "withdrawn");
    for action in ["pause", "resume", "cancel"] {
        let changed = server.send(post(url(action), &json!({}))).await.expect(200);
        assert_eq!(changed["id"], second, "{action}");
    }
    server.wait_until_ended(second.as_str().unwrap()).await;
    let late_response = server.send(post(url("pause"), &json!({}))).await;
    assert_eq!((late_response.status, late_response.problem().as_str()), (409, "run_ended"));
}

#[tokio::test]
async fn two_steps_with_one_name_are_refused() {
    let server = server_with([]).open().await;
    let steps = json!([{ "agent": "tester", "name": "x" }, { "agent": "tester", "name": "x" }]);
    let body = json!({ "chain": { "steps": steps }, "input": "x" });
    let refused = server.send(post("/v1/runs", &body)).await;
    assert_eq!(refused.status, 422);
    let text = refused.text();
    assert!(text.contains("steps 1 and 2 both have the name `x`"), "{text}");
}
