//! Remembered approvals over HTTP.

use serde_json::json;

use crate::suite::harness::client::{get, post, request};
use crate::suite::harness::server_with_gate;

#[tokio::test]
async fn a_remembered_approval_is_listed_and_revoked() {
    let server = server_with_gate().start().await;
    let (run, gate) = server.submit_until_gate().await;
    assert_eq!(gate["scopes"], json!(["once", "run", "agent", "project"]));
    let path = format!("/v1/gates/{}/answer", gate["id"].as_str().unwrap());
    let answer = |decision: &str, scope: &str| {
        post(&path, &json!({ "decision": decision, "scope": scope, "digest": gate["digest"] }))
    };
    let problem = server.send(answer("reject", "agent")).await.expect(422);
    assert_eq!(problem["code"], "scope_not_offered");
    assert!(problem["detail"].as_str().unwrap().contains("offered: once"), "{problem}");
    server.send(answer("approve", "everywhere")).await.expect(422);
    server.send(answer("approve", "agent")).await.expect(200);
    server.wait_until_ended(&run).await;
    let list = server.get_json("/v1/rules").await;
    let rule = &list["data"][0];
    for (field, value) in [
        ("scope", json!("agent")),
        ("agent", json!("tester")),
        ("pattern", gate["pattern"].clone()),
        ("run", json!(run)),
        ("gate", gate["id"].clone()),
        ("used", json!(0)),
        ("last_used_at", json!(null)),
        ("revoked", json!(null)),
    ] {
        assert_eq!(rule[field], value, "{field} of {rule}");
    }
    let rule_path = format!("/v1/rules/{}", rule["id"].as_str().unwrap());
    let new_key = json!({ "name": "op", "role": "operator" });
    let key = server.send(post("/v1/keys", &new_key)).await.expect(201);
    let operator = key["secret"].as_str().unwrap();
    server.send(request("DELETE", &rule_path).with_key(operator)).await.expect(403);
    let revoked_rule = server.send(request("DELETE", &rule_path)).await.expect(200);
    assert!(revoked_rule["revoked"]["by"].is_string(), "{revoked_rule}");
    let problem = server.send(request("DELETE", &rule_path)).await.expect(409);
    assert_eq!(problem["code"], "rule_revoked");
    assert_eq!(server.get_json("/v1/rules").await["data"], json!([]));
    assert_eq!(server.get_json("/v1/rules?all=true").await["data"], json!([revoked_rule]));
    for unknown in ["/v1/rules/rule_00000000000000000000000000", "/v1/rules/7"] {
        let problem = server.send(request("DELETE", unknown)).await.expect(404);
        assert_eq!(problem["code"], "rule_not_found");
    }
    for invalid_path in ["/v1/rules?all=maybe", "/v1/rules?limit=0", "/v1/rules?after=7"] {
        server.send(get(invalid_path)).await.expect(422);
    }
}
