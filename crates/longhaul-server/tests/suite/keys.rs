//! Who may come in: keys that count and keys that do not, names that only the
//! machine's own key may take, and a loopback that was left open.

use longhaul_core::access::Role;
use longhaul_core::time::Millis;
use serde_json::{Value, json};

use crate::suite::kit::client::{Ask, ask, get, post};
use crate::suite::kit::{Plan, Server, asking, plan, task};

fn open_loopback(plan: Plan) -> Plan {
    plan.options(|options| options.open_loopback = true)
}

async fn status(server: &Server, asked: Ask) -> u16 {
    let answer = server.ask(asked).await;
    if answer.status >= 400 {
        answer.problem();
    }
    answer.status
}

#[tokio::test]
async fn only_a_key_that_counts_opens() {
    let server = plan([]).at_standing_clock().open().await;
    let good = server.make_key("good", Role::Viewer).await;
    let gone = server.make_key("gone", Role::Admin).await;
    server.ask(ask("DELETE", "/v1/keys/gone")).await.expect(200);
    let brief = json!({ "name": "brief", "role": "viewer", "expires_in_ms": 60_000 });
    let brief = server.ask(post("/v1/keys", &brief)).await.expect(201);
    let brief = brief["secret"].as_str().unwrap();
    let upper = good.to_uppercase();
    let cut = &good[..good.len() - 1];
    let asked = || get("/v1/runs").bare();
    let says = |line: String| asked().with("authorization", &line);
    let cases = [
        (asked().shows(&good), 200),
        (says(format!("bearer {good}")), 200),
        (says(format!("BEARER   {good}")), 200),
        (asked().shows(brief), 200),
        (asked(), 401),
        (asked().shows(&gone), 401),
        (asked().shows("lh_wrong"), 401),
        (asked().shows(""), 401),
        (asked().shows(&upper), 401),
        (asked().shows(cut), 401),
        (says(good.clone()), 401),
        (says(format!("Basic {good}")), 401),
        (says("Bearer".to_owned()), 401),
        (asked().with("x-api-key", &good), 401),
        (get(format!("/v1/runs?key={good}")).bare(), 401),
        (
            asked().with(
                "cookie",
                &format!("longhaul_{}={good}", server.address.port()),
            ),
            401,
        ),
    ];
    for (asked, wanted) in cases {
        let what = format!("{asked:?}");
        let answer = server.ask(asked).await;
        assert_eq!(answer.status, wanted, "{what}");
        if wanted == 401 {
            assert_eq!(answer.problem(), "unauthorized");
            let how = answer.header("www-authenticate");
            assert_eq!(how, Some("Bearer realm=\"longhaul\""));
        }
    }
    server.clock().advance(Millis(60_000));
    assert_eq!(status(&server, asked().shows(brief)).await, 401);
    assert_eq!(status(&server, asked().shows(&good)).await, 200);
}

#[tokio::test]
async fn a_key_lives_for_a_hundred_years_at_most() {
    let server = plan([]).open().await;
    let year = 365 * 24 * 60 * 60 * 1_000_u64;
    for (place, (span, expect)) in [(0, 422), (1, 201), (100 * year, 201), (u64::MAX, 422)]
        .into_iter()
        .enumerate()
    {
        let name = format!("k{place}");
        let key = json!({ "name": name, "role": "viewer", "expires_in_ms": span });
        assert_eq!(
            status(&server, post("/v1/keys", &key)).await,
            expect,
            "{span}"
        );
    }
}

/// Every route with the least role that it is for. Each request is one that
/// would change nothing, so that only the role decides what comes back.
fn least() -> Vec<(Ask, Role)> {
    let run = "/v1/runs/run_00000000000000000000000001";
    let gate = "/v1/gates/gate_00000000000000000000000001";
    let steer = format!("{run}/steer/steer_00000000000000000000000001");
    let no = json!({});
    let (viewer, operator) = (Role::Viewer, Role::Operator);
    let (approver, admin) = (Role::Approver, Role::Admin);
    vec![
        (get("/openapi.json"), viewer),
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
        (get("/v1/lanes"), viewer),
        (ask("POST", "/v1/tickets"), viewer),
        (post("/v1/runs", &no), operator),
        (
            post(format!("{run}/steer"), &json!({ "text": "x" })),
            operator,
        ),
        (ask("PATCH", &steer).json(&no), operator),
        (ask("DELETE", &steer), operator),
        (ask("POST", format!("{run}/cancel")), operator),
        (ask("POST", format!("{run}/pause")), operator),
        (ask("POST", format!("{run}/resume")), operator),
        (post("/v1/inboxes/mail/tasks", &no), operator),
        (
            post(format!("{gate}/answer"), &json!({ "decision": "reject" })),
            approver,
        ),
        (
            post(format!("{gate}/links"), &json!({ "recipient": "x" })),
            approver,
        ),
        (
            post(
                format!("{run}/resume"),
                &json!({ "budget": { "turns": 9 } }),
            ),
            approver,
        ),
        (get("/v1/keys"), admin),
        (post("/v1/keys", &no), admin),
        (ask("DELETE", "/v1/keys/nobody"), admin),
    ]
}

#[tokio::test]
async fn each_role_opens_its_own_routes_and_those_below() {
    let server = plan([]).open().await;
    for role in Role::ALL {
        let key = server.make_key(role.as_str(), role).await;
        for (asked, least) in least() {
            let what = format!("{role:?} {asked:?}");
            let answer = server.ask(asked.shows(&key)).await;
            assert_eq!(
                answer.status == 403,
                role < least,
                "{what} {}",
                answer.text()
            );
            if answer.status == 403 {
                assert_eq!(answer.problem(), "forbidden");
            }
        }
    }
}

#[tokio::test]
async fn a_budget_above_the_agents_needs_an_approver() {
    let server = plan([]).open().await;
    let mut dear = task();
    dear["budget"] = json!({ "usd": 1_000.0 });
    for (role, wanted) in [(Role::Operator, 403), (Role::Approver, 201)] {
        let key = server.make_key(role.as_str(), role).await;
        assert_eq!(
            status(&server, post("/v1/runs", &dear).shows(&key)).await,
            wanted
        );
        assert_eq!(
            status(&server, post("/v1/runs", &task()).shows(&key)).await,
            201
        );
    }
}

/// Who a journal says submitted a run.
async fn submitter(server: &Server, asked: Ask) -> Value {
    let run = server.ask(asked).await.expect(201)["id"].clone();
    let path = format!("/v1/runs/{}/events?limit=1", run.as_str().unwrap());
    let first = server.look(path).await["data"][0].to_string();
    let names = ["local", "cli:anna", "key:ops", "loopback", "cli:bödvar"];
    let found = names
        .iter()
        .find(|name| first.contains(&format!("\"submitter\":\"{name}\"")));
    json!(found.unwrap_or_else(|| panic!("nobody in {first}")))
}

#[tokio::test]
async fn only_the_machines_own_key_may_speak_for_others() {
    let server = open_loopback(plan([])).open().await;
    let ops = server.make_key("ops", Role::Admin).await;
    let submit = || post("/v1/runs", &task());
    let long = format!("cli:{}", "a".repeat(100));
    for (asked, name) in [
        (submit(), "local"),
        (submit().with("x-longhaul-as", "cli:anna"), "cli:anna"),
        (submit().with("x-longhaul-as", "cli:bödvar"), "cli:bödvar"),
        (submit().with("x-longhaul-as", "key:ops"), "local"),
        (submit().with("x-longhaul-as", "link:boss"), "local"),
        (submit().with("x-longhaul-as", &long), "local"),
        (
            submit().shows(&ops).with("x-longhaul-as", "cli:anna"),
            "key:ops",
        ),
        (submit().bare(), "loopback"),
        (
            submit().bare().with("x-longhaul-as", "cli:anna"),
            "loopback",
        ),
    ] {
        let what = format!("{asked:?}");
        assert_eq!(submitter(&server, asked).await, name, "{what}");
    }
}

#[tokio::test]
async fn an_open_loopback_submits_and_never_decides() {
    let server = open_loopback(asking()).at_work().await;
    let (_, gate) = server.at_gate().await;
    let path = format!("/v1/gates/{}", gate["id"].as_str().unwrap());
    let yes = json!({ "decision": "approve", "digest": gate["digest"] });
    let key = json!({ "name": "mine", "role": "admin" });
    for (asked, wanted) in [
        (post("/v1/runs", &task()), 201),
        (get("/v1/gates"), 200),
        (post(format!("{path}/answer"), &yes), 403),
        (
            post(format!("{path}/links"), &json!({ "recipient": "me" })),
            403,
        ),
        (get("/v1/keys"), 403),
        (post("/v1/keys", &key), 403),
        (ask("DELETE", "/v1/keys/x"), 403),
        // A session would be the machine's own, and decide.
        (ask("POST", "/v1/tickets"), 403),
    ] {
        let what = format!("{asked:?}");
        assert_eq!(status(&server, asked.bare()).await, wanted, "{what}");
    }
    // Whoever shows a key that does not count is not let in for being near.
    assert_eq!(
        status(&server, get("/v1/runs").shows("lh_wrong")).await,
        401
    );
    for header in [
        "forwarded",
        "x-forwarded-for",
        "x-forwarded-host",
        "x-forwarded-proto",
        "x-forwarded-port",
        "x-real-ip",
        "via",
    ] {
        let asked = get("/v1/runs").bare().with(header, "1.2.3.4");
        assert_eq!(status(&server, asked).await, 401, "{header}");
    }
}

#[tokio::test]
async fn a_request_must_be_meant_for_this_server() {
    let named =
        |options: &mut longhaul_server::Options| options.hosts = vec!["agents.example".into()];
    let server = plan([]).options(named).open().await;
    let port = server.address.port();
    for (host, wanted) in [
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
            let answer = server.ask(get(path).with("host", &host)).await;
            let misdirected = answer.status == 421;
            assert_eq!(
                misdirected,
                wanted == 421,
                "{host} {path} {}",
                answer.status
            );
            assert!(!misdirected || answer.problem() == "wrong_host");
        }
    }
}

#[tokio::test]
async fn no_other_site_speaks_for_its_visitors() {
    let server = plan([]).open().await;
    let host = server.host();
    let own = format!("http://{host}");
    type Headers<'a> = &'a [(&'a str, &'a str)];
    let cases: [(Headers<'_>, u16, u16); 10] = [
        (&[], 200, 201),
        (&[("origin", &own)], 200, 201),
        (&[("origin", "http://evil.example")], 403, 403),
        (&[("origin", "null")], 403, 403),
        // With `Referrer-Policy: no-referrer` browsers hide even our own origin.
        (
            &[("origin", "null"), ("sec-fetch-site", "same-origin")],
            200,
            201,
        ),
        (
            &[("origin", "null"), ("sec-fetch-site", "same-site")],
            403,
            403,
        ),
        (&[("sec-fetch-site", "same-origin")], 200, 201),
        (&[("sec-fetch-site", "cross-site")], 403, 403),
        (
            &[
                ("sec-fetch-site", "cross-site"),
                ("sec-fetch-mode", "navigate"),
            ],
            200,
            403,
        ),
        (
            &[("origin", &own), ("origin", "http://evil.example")],
            403,
            403,
        ),
    ];
    for (headers, looks, acts) in cases {
        let get = get("/v1/runs").with_all(headers);
        assert_eq!(status(&server, get).await, looks, "{headers:?}");
        let post = post("/v1/runs", &task()).with_all(headers);
        let answer = server.ask(post).await;
        assert_eq!(answer.status, acts, "{headers:?}");
        assert_eq!(answer.header("access-control-allow-origin"), None);
    }
    let preflight = ask("OPTIONS", "/v1/runs")
        .with("origin", "http://evil.example")
        .with("access-control-request-method", "POST");
    assert_eq!(status(&server, preflight).await, 403);
}
