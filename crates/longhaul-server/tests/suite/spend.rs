//! Spend caps over HTTP.

use longhaul_core::policy::spend_cap::{
    CapReachedAction, CapUnit, CapUsageGrouping, CapWindowLength, SpendCap,
};
use serde_json::json;

use crate::suite::harness::client::{get, post};
use crate::suite::harness::{server_with, task};

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
