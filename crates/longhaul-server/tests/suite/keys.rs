//! Authentication: valid and invalid keys, names that only the local machine key may use, and
//! an open loopback.

use std::sync::Arc;

use longhaul_core::access::Role;
use longhaul_core::chain::{ChainSpec, ChainStepSpec};
use longhaul_core::id::AgentName;
use longhaul_core::time::Millis;
use longhaul_core::usage::MicroUsd;
use longhaul_engine::agent::Agent;
use serde_json::{Value, json};

use crate::suite::harness::client::{TestRequest, get, post, request};
use crate::suite::harness::model::PRICED_MODEL;
use crate::suite::harness::{TestServer, TestServerBuilder, server_with, server_with_gate, task};

fn with_open_loopback(plan: TestServerBuilder) -> TestServerBuilder {
    plan.options(|options| options.open_loopback = true)
}

async fn response_status(server: &TestServer, request: TestRequest) -> u16 {
    let answer = server.send(request).await;
    if answer.status >= 400 {
        answer.problem();
    }
    answer.status
}

#[tokio::test]
async fn only_a_valid_key_is_accepted() {
    let server = server_with([]).with_sim_clock().open().await;
    let valid_key = server.create_key("good", Role::Viewer).await;
    let revoked_key = server.create_key("gone", Role::Admin).await;
    server.send(request("DELETE", "/v1/keys/gone")).await.expect(200);
    let expiring_key = json!({ "name": "brief", "role": "viewer", "expires_in_ms": 60_000 });
    let expiring_key = server.send(post("/v1/keys", &expiring_key)).await.expect(201);
    let expiring_key = expiring_key["secret"].as_str().unwrap();
    let uppercase_key = valid_key.to_uppercase();
    let truncated = &valid_key[..valid_key.len() - 1];
    let http_request = || get("/v1/runs").without_key();
    let with_authorization = |line: String| http_request().header("authorization", &line);
    let cases = [
        (http_request().with_key(&valid_key), 200),
        (with_authorization(format!("bearer {valid_key}")), 200),
        (with_authorization(format!("BEARER   {valid_key}")), 200),
        (http_request().with_key(expiring_key), 200),
        (http_request(), 401),
        (http_request().with_key(&revoked_key), 401),
        (http_request().with_key("lh_wrong"), 401),
        (http_request().with_key(""), 401),
        (http_request().with_key(&uppercase_key), 401),
        (http_request().with_key(truncated), 401),
        (with_authorization(valid_key.clone()), 401),
        (with_authorization(format!("Basic {valid_key}")), 401),
        (with_authorization("Bearer".to_owned()), 401),
        (http_request().header("x-api-key", &valid_key), 401),
        (get(format!("/v1/runs?key={valid_key}")).without_key(), 401),
        (
            http_request()
                .header("cookie", &format!("longhaul_{}={valid_key}", server.address.port())),
            401,
        ),
    ];
    for (http_request, expected) in cases {
        let label = format!("{http_request:?}");
        let answer = server.send(http_request).await;
        assert_eq!(answer.status, expected, "{label}");
        if expected == 401 {
            assert_eq!(answer.problem(), "unauthorized");
            let challenge = answer.header("www-authenticate");
            assert_eq!(challenge, Some("Bearer realm=\"longhaul\""));
        }
    }
    server.clock().advance(Millis(60_000));
    assert_eq!(response_status(&server, http_request().with_key(expiring_key)).await, 401);
    assert_eq!(response_status(&server, http_request().with_key(&valid_key)).await, 200);
}

#[tokio::test]
async fn the_ttl_of_a_key_is_at_most_a_hundred_years() {
    let server = server_with([]).open().await;
    let year = 365 * 24 * 60 * 60 * 1_000_u64;
    for (index, (ttl_ms, expected)) in
        [(0, 422), (1, 201), (100 * year, 201), (u64::MAX, 422)].into_iter().enumerate()
    {
        let name = format!("k{index}");
        let key = json!({ "name": name, "role": "viewer", "expires_in_ms": ttl_ms });
        assert_eq!(response_status(&server, post("/v1/keys", &key)).await, expected, "{ttl_ms}");
    }
}

/// Returns every route with its minimum role. The requests change nothing, so only the role
/// decides the response.
fn routes_with_roles() -> Vec<(TestRequest, Role)> {
    let run = "/v1/runs/run_00000000000000000000000001";
    let gate = "/v1/gates/gate_00000000000000000000000001";
    let steer = format!("{run}/steer/steer_00000000000000000000000001");
    let empty = json!({});
    let (viewer, operator) = (Role::Viewer, Role::Operator);
    let (approver, admin) = (Role::Approver, Role::Admin);
    vec![
        (get("/v1/runs"), viewer),
        (get(run), viewer),
        (get(format!("{run}/why")), viewer),
        (get(format!("{run}/transcript")), viewer),
        (get(format!("{run}/events")), viewer),
        (get(format!("{run}/steer")), viewer),
        (get("/v1/gates"), viewer),
        (get(gate), viewer),
        (get("/v1/agents"), viewer),
        (get("/v1/agents/x"), viewer),
        (get("/v1/batches/batch_00000000000000000000000001"), viewer),
        (post("/v1/runs/batch", &json!({ "runs": [] })), operator),
        (get("/v1/lanes"), viewer),
        (get("/v1/lanes/x"), viewer),
        (request("POST", "/v1/lanes/x/pause"), operator),
        (request("POST", "/v1/lanes/x/resume"), operator),
        (get("/v1/agents/x/stats"), viewer),
        (get("/v1/threads/x/messages"), viewer),
        (post("/v1/threads/x/messages", &empty), operator),
        (request("DELETE", "/v1/threads/x/messages"), operator),
        (get("/v1/spend"), viewer),
        (get("/v1/schedules"), viewer),
        (get("/v1/schedules/x"), viewer),
        (request("POST", "/v1/tickets"), viewer),
        (post("/v1/runs", &empty), operator),
        (post(format!("{run}/steer"), &json!({ "text": "x" })), operator),
        (request("PATCH", &steer).json(&empty), operator),
        (request("DELETE", &steer), operator),
        (request("POST", format!("{run}/cancel")), operator),
        (request("POST", format!("{run}/close")), operator),
        (request("POST", format!("{run}/pause")), operator),
        (request("POST", format!("{run}/resume")), operator),
        (post("/v1/inboxes/mail/tasks", &empty), operator),
        (post("/v1/events", &empty), operator),
        (post("/v1/schedules", &empty), operator),
        (request("DELETE", "/v1/schedules/x"), operator),
        (request("POST", "/v1/schedules/x/run"), operator),
        (request("PATCH", "/v1/schedules/x").json(&empty), operator),
        (request("POST", "/v1/schedules/x/pause"), operator),
        (request("POST", "/v1/schedules/x/resume"), operator),
        (post("/v1/gates", &empty), operator),
        (post("/v1/signals", &json!({ "name": "x" })), operator),
        (post(format!("{gate}/answer"), &json!({ "decision": "reject" })), approver),
        (post(format!("{gate}/links"), &json!({ "recipient": "x" })), approver),
        (post(format!("{run}/resume"), &json!({ "budget": { "turns": 9 } })), approver),
        (post("/v1/spend/x/raise", &json!({ "usd": 9 })), approver),
        (post(format!("{run}/free-key"), &json!({ "call": "t1.1" })), approver),
        (get("/v1/keys"), admin),
        (post("/v1/keys", &empty), admin),
        (request("DELETE", "/v1/keys/nobody"), admin),
    ]
}

#[tokio::test]
async fn each_role_has_its_routes_and_those_of_lower_roles() {
    let server = server_with([]).open().await;
    for role in Role::ALL {
        let key = server.create_key(role.as_str(), role).await;
        for (request, min_role) in routes_with_roles() {
            let label = format!("{role:?} {request:?}");
            let answer = server.send(request.with_key(&key)).await;
            assert_eq!(answer.status == 403, role < min_role, "{label} {}", answer.text());
            if answer.status == 403 {
                assert_eq!(answer.problem(), "forbidden");
            }
        }
    }
}

#[tokio::test]
async fn a_budget_above_the_agents_needs_an_approver() {
    let server = server_with([]).open().await;
    let mut expensive_task = task();
    expensive_task["budget"] = json!({ "usd": 1_000.0 });
    for (role, expected) in [(Role::Operator, 403), (Role::Approver, 201)] {
        let key = server.create_key(role.as_str(), role).await;
        assert_eq!(
            response_status(&server, post("/v1/runs", &expensive_task).with_key(&key)).await,
            expected
        );
        assert_eq!(response_status(&server, post("/v1/runs", &task()).with_key(&key)).await, 201);
    }
}

#[tokio::test]
async fn a_richer_agent_of_a_chain_does_not_raise_the_budget_of_the_others() {
    let server = server_with([]).open().await;
    let mut rich = Agent::new(AgentName::new("rich").unwrap());
    rich.budget.caps.micro_usd = Some(MicroUsd(50_000_000));
    rich.budget.caps.turns = Some(1_000);
    server.longhaul.register(rich);
    let steps = vec![ChainStepSpec::new("tester"), ChainStepSpec::new("rich")];
    let named = ChainSpec { description: None, max_runs: None, steps };
    server.longhaul.replace_chains([("both".to_owned(), Arc::new(named))].into());
    let inline = json!({ "steps": [{ "agent": "tester" }, { "agent": "rich" }] });
    let operator = server.create_key("ops", Role::Operator).await;
    let approver = server.create_key("boss", Role::Approver).await;
    let with_model = |chain: &Value, budget: Value| json!({ "chain": chain, "input": "x", "model": PRICED_MODEL, "budget": budget });
    for (chain, budget, expected) in [
        // The author of a chain file has chosen which agents share a budget.
        (&json!("both"), json!({}), 201),
        (&json!("both"), json!({ "usd": 20 }), 201),
        (&json!("both"), json!({ "usd": 60 }), 403),
        (&json!("both"), json!({ "turns": 900 }), 403),
        (&inline, json!({}), 403),
        (&inline, json!({ "usd": 20 }), 403),
        (&inline, json!({ "usd": 5 }), 201),
    ] {
        let body = with_model(chain, budget);
        let request = post("/v1/runs", &body);
        assert_eq!(response_status(&server, request.with_key(&operator)).await, expected, "{body}");
        let request = post("/v1/runs", &body);
        assert_eq!(response_status(&server, request.with_key(&approver)).await, 201, "{body}");
    }
    let refused =
        server.send(post("/v1/runs", &with_model(&inline, json!({}))).with_key(&operator));
    let problem = refused.await.expect(403);
    assert!(problem["detail"].as_str().unwrap().contains("its agent `tester`"), "{problem}");
    assert!(problem["hint"].as_str().unwrap().contains("`budget`"), "{problem}");
}

#[tokio::test]
async fn an_operator_answers_only_the_gates_that_programs_raise() {
    let server = server_with_gate().start().await;
    let (run, approval) = server.submit_until_gate().await;
    let viewer = server.create_key("viewer", Role::Viewer).await;
    let operator = server.create_key("operator", Role::Operator).await;
    let answer = |gate: &Value, body: Value| {
        post(format!("/v1/gates/{}/answer", gate["id"].as_str().unwrap()), &body)
    };
    for decision in ["complete", "reject", "answer"] {
        let refused = answer(&approval, json!({ "decision": decision, "note": "x" }));
        assert_eq!(response_status(&server, refused.with_key(&operator)).await, 403, "{decision}");
        let body = json!({ "run": run, "ask": "the build" });
        let raised_gate =
            server.send(post("/v1/gates", &body).with_key(&operator)).await.expect(201);
        let body = json!({ "decision": decision, "note": "x" });
        assert_eq!(
            response_status(&server, answer(&raised_gate, body.clone()).with_key(&viewer)).await,
            403
        );
        for other in [json!({ "decision": "approve" }), json!({ "decision": "edit", "edited": 1 })]
        {
            assert_eq!(
                response_status(&server, answer(&raised_gate, other).with_key(&operator)).await,
                403
            );
        }
        assert_eq!(
            response_status(&server, answer(&raised_gate, body).with_key(&operator)).await,
            200
        );
    }
}

/// Returns the submitter of a run according to its journal.
async fn submitter_of_run(server: &TestServer, request: TestRequest) -> Value {
    let run = server.send(request).await.expect(201)["id"].clone();
    let path = format!("/v1/runs/{}/events?limit=1", run.as_str().unwrap());
    let first = server.get_json(path).await["data"][0].to_string();
    let names = ["local", "cli:anna", "key:ops", "loopback", "cli:bödvar"];
    let found = names.iter().find(|name| first.contains(&format!("\"submitter\":\"{name}\"")));
    json!(found.unwrap_or_else(|| panic!("no submitter in {first}")))
}

#[tokio::test]
async fn only_the_local_key_may_act_for_other_callers() {
    let server = with_open_loopback(server_with([])).open().await;
    let ops_key = server.create_key("ops", Role::Admin).await;
    let submit = || post("/v1/runs", &task());
    let long_caller = format!("cli:{}", "a".repeat(100));
    for (request, name) in [
        (submit(), "local"),
        (submit().header("x-longhaul-as", "cli:anna"), "cli:anna"),
        (submit().header("x-longhaul-as", "cli:bödvar"), "cli:bödvar"),
        (submit().header("x-longhaul-as", "key:ops"), "local"),
        (submit().header("x-longhaul-as", "link:boss"), "local"),
        (submit().header("x-longhaul-as", &long_caller), "local"),
        (submit().with_key(&ops_key).header("x-longhaul-as", "cli:anna"), "key:ops"),
        (submit().without_key(), "loopback"),
        (submit().without_key().header("x-longhaul-as", "cli:anna"), "loopback"),
    ] {
        let label = format!("{request:?}");
        assert_eq!(submitter_of_run(&server, request).await, name, "{label}");
    }
}

#[tokio::test]
async fn an_open_loopback_submits_and_never_decides() {
    let server = with_open_loopback(server_with_gate()).start().await;
    let (_, gate) = server.submit_until_gate().await;
    let path = format!("/v1/gates/{}", gate["id"].as_str().unwrap());
    let yes = json!({ "decision": "approve", "digest": gate["digest"] });
    let key = json!({ "name": "mine", "role": "admin" });
    for (http_request, expected) in [
        (post("/v1/runs", &task()), 201),
        (get("/v1/gates"), 200),
        (post(format!("{path}/answer"), &yes), 403),
        (post(format!("{path}/links"), &json!({ "recipient": "me" })), 403),
        (get("/v1/keys"), 403),
        (post("/v1/keys", &key), 403),
        (request("DELETE", "/v1/keys/x"), 403),
        // A session would be one of the local machine key, and could answer gates.
        (request("POST", "/v1/tickets"), 403),
    ] {
        let label = format!("{http_request:?}");
        assert_eq!(response_status(&server, http_request.without_key()).await, expected, "{label}");
    }
    // A request with an invalid key is rejected, even on an open loopback.
    assert_eq!(response_status(&server, get("/v1/runs").with_key("lh_wrong")).await, 401);
    for header in [
        "forwarded",
        "x-forwarded-for",
        "x-forwarded-host",
        "x-forwarded-proto",
        "x-forwarded-port",
        "x-real-ip",
        "via",
    ] {
        let http_request = get("/v1/runs").without_key().header(header, "1.2.3.4");
        assert_eq!(response_status(&server, http_request).await, 401, "{header}");
    }
}

#[tokio::test]
async fn requests_with_another_host_are_rejected() {
    let with_hosts = |options: &mut longhaul_server::ServerOptions| {
        options.hosts = vec!["agents.example".into()]
    };
    let server = server_with([]).options(with_hosts).open().await;
    let port = server.address.port();
    for (host, expected) in [
        ("localhost".to_owned(), 200),
        (format!("LocalHost:{port}"), 200),
        (format!("127.0.0.1:{port}"), 200),
        (format!("[::1]:{port}"), 200),
        ("agents.example".to_owned(), 200),
        ("agents.example:443".to_owned(), 200),
        ("evil.example".to_owned(), 421),
        (format!("localhost.evil.example:{port}"), 421),
        ("localhost:1@evil.example".to_owned(), 421),
        ("evil.example#localhost".to_owned(), 421),
        ("169.254.169.254".to_owned(), 421),
        (String::new(), 421),
    ] {
        for path in ["/livez", "/v1/runs", "/", "/a/x", "/nothing"] {
            let answer = server.send(get(path).header("host", &host)).await;
            let is_misdirected = answer.status == 421;
            assert_eq!(is_misdirected, expected == 421, "{host} {path} {}", answer.status);
            assert!(!is_misdirected || answer.problem() == "wrong_host");
        }
    }
}

#[tokio::test]
async fn cross_site_requests_are_rejected() {
    let server = server_with([]).open().await;
    let host = server.host();
    let own_origin = format!("http://{host}");
    type Headers<'a> = &'a [(&'a str, &'a str)];
    let cases: [(Headers<'_>, u16, u16); 10] = [
        (&[], 200, 201),
        (&[("origin", &own_origin)], 200, 201),
        (&[("origin", "http://evil.example")], 403, 403),
        (&[("origin", "null")], 403, 403),
        // With `Referrer-Policy: no-referrer` browsers hide even our own origin.
        (&[("origin", "null"), ("sec-fetch-site", "same-origin")], 200, 201),
        (&[("origin", "null"), ("sec-fetch-site", "same-site")], 403, 403),
        (&[("sec-fetch-site", "same-origin")], 200, 201),
        (&[("sec-fetch-site", "cross-site")], 403, 403),
        (&[("sec-fetch-site", "cross-site"), ("sec-fetch-mode", "navigate")], 200, 403),
        (&[("origin", &own_origin), ("origin", "http://evil.example")], 403, 403),
    ];
    for (headers, get_status, post_status) in cases {
        let get_request = get("/v1/runs").headers(headers);
        assert_eq!(response_status(&server, get_request).await, get_status, "{headers:?}");
        let post_request = post("/v1/runs", &task()).headers(headers);
        let answer = server.send(post_request).await;
        assert_eq!(answer.status, post_status, "{headers:?}");
        assert_eq!(answer.header("access-control-allow-origin"), None);
    }
    let preflight = request("OPTIONS", "/v1/runs")
        .header("origin", "http://evil.example")
        .header("access-control-request-method", "POST");
    assert_eq!(response_status(&server, preflight).await, 403);
}
