//! Tickets, and the sessions they are exchanged for: once, before they expire, and only as long
//! as their key is valid.

use longhaul_core::access::Role;
use longhaul_core::time::Millis;

use crate::suite::harness::client::{TestResponse, get, post, request};
use crate::suite::harness::{TestServer, server_with, task};

/// Returns the path of a new ticket for the owner of this key.
async fn create_ticket(server: &TestServer, key: &str) -> String {
    let response = server.send(request("POST", "/v1/tickets").with_key(key)).await;
    let url = response.expect(201)["url"].as_str().unwrap().to_owned();
    let origin = format!("http://{}", server.host());
    url.strip_prefix(&origin).unwrap().to_owned()
}

/// Returns the session cookie that a response sets.
fn session_cookie(answer: &TestResponse) -> String {
    let line = answer.header("set-cookie").expect("a cookie");
    line.split(';').next().unwrap().to_owned()
}

async fn exchange_ticket(server: &TestServer, path: &str) -> TestResponse {
    server.send(get(path).without_key()).await
}

async fn status_with_cookie(server: &TestServer, cookie: &str, path: &str) -> u16 {
    server.send(get(path).cookie(cookie)).await.status
}

#[tokio::test]
async fn a_ticket_is_exchanged_once_for_a_session() {
    let server = server_with([]).open().await;
    let key = server.create_key("eve", Role::Viewer).await;
    let path = create_ticket(&server, &key).await;
    // A HEAD request, which only checks the link, does not consume the ticket.
    let head_response = server.send(request("HEAD", &path).without_key()).await;
    assert_eq!((head_response.status, head_response.header("set-cookie")), (401, None));
    let answer = exchange_ticket(&server, &path).await;
    assert_eq!((answer.status, answer.header("location")), (303, Some("/")));
    let cookie = answer.header("set-cookie").unwrap();
    let name = format!("longhaul_{}=", server.address.port());
    assert!(cookie.starts_with(&name), "{cookie}");
    for part in ["; Path=/", "; HttpOnly", "; SameSite=Strict", "; Max-Age=43200"] {
        assert!(cookie.contains(part), "{cookie}");
    }
    assert!(!cookie.contains("; Secure"), "{cookie}");
    let cookie = session_cookie(&answer);
    for (path, expected) in [("/", 200), ("/v1/runs", 200), ("/v1/keys", 403)] {
        assert_eq!(status_with_cookie(&server, &cookie, path).await, expected, "{path}");
    }
    let home_page = server.send(get("/").cookie(&cookie)).await;
    assert!(home_page.text().contains("key:eve"), "{}", home_page.text());
    let second = exchange_ticket(&server, &path).await;
    assert_eq!((second.status, second.header("set-cookie")), (410, None));
    // The cookie of another port, and an invented cookie.
    let value = cookie.split_once('=').unwrap().1;
    for forged_cookie in [format!("longhaul_1={value}"), format!("{name}x"), format!("{name}{key}")]
    {
        assert_eq!(
            status_with_cookie(&server, &forged_cookie, "/v1/runs").await,
            401,
            "{forged_cookie}"
        );
    }
    let cookie_header = format!("a=b; {cookie}; c=d");
    assert_eq!(status_with_cookie(&server, &cookie_header, "/v1/runs").await, 200);
}

#[tokio::test]
async fn pages_accept_an_api_key() {
    let server = server_with([]).open().await;
    let key = server.create_key("eve", Role::Viewer).await;
    for (request, expected) in [
        (get("/").with_key(&key), 200),
        (get("/"), 200),
        (get("/").without_key(), 401),
        (get("/").with_key("lh_wrong"), 401),
        (get("/?t=wrong").without_key(), 410),
    ] {
        let label = format!("{request:?}");
        let answer = server.send(request).await;
        assert_eq!(answer.status, expected, "{label}");
        let kind = answer.header("content-type");
        assert_eq!(kind, Some("text/html; charset=utf-8"), "{label}");
    }
}

#[tokio::test]
async fn the_session_cookie_is_secure_behind_tls() {
    let server = server_with([]).open().await;
    let path = create_ticket(&server, &server.key).await;
    let request = get(path).without_key().header("x-forwarded-proto", "https");
    let cookie = server.send(request).await;
    assert!(cookie.header("set-cookie").unwrap().contains("; Secure"));
}

#[tokio::test]
async fn a_ticket_is_exchanged_by_one_of_two_clients() {
    let server = server_with([]).open().await;
    for _ in 0..20 {
        let path = create_ticket(&server, &server.key).await;
        let (first, second) =
            tokio::join!(exchange_ticket(&server, &path), exchange_ticket(&server, &path));
        let mut statuses = [first.status, second.status];
        statuses.sort_unstable();
        assert_eq!(statuses, [303, 410]);
    }
}

#[tokio::test]
async fn tickets_and_sessions_end_with_their_ttl_and_their_key() {
    let server = server_with([]).with_sim_clock().open().await;
    let key = server.create_key("eve", Role::Operator).await;
    let late_ticket = create_ticket(&server, &key).await;
    server.clock().advance(Millis::from_secs(600));
    assert_eq!(exchange_ticket(&server, &late_ticket).await.status, 410);
    let (used_ticket, unused_ticket) =
        (create_ticket(&server, &key).await, create_ticket(&server, &key).await);
    server.clock().advance(Millis::from_secs(599));
    let cookie = session_cookie(&exchange_ticket(&server, &used_ticket).await);
    let local = create_ticket(&server, &server.key).await;
    let local = session_cookie(&exchange_ticket(&server, &local).await);
    assert_eq!(status_with_cookie(&server, &cookie, "/v1/runs").await, 200);
    server.send(request("DELETE", "/v1/keys/eve")).await.expect(200);
    assert_eq!(status_with_cookie(&server, &cookie, "/v1/runs").await, 401);
    assert_eq!(status_with_cookie(&server, &cookie, "/").await, 401);
    assert_eq!(exchange_ticket(&server, &unused_ticket).await.status, 410);
    // Another key with the same name is a different key.
    server.create_key("eve", Role::Admin).await;
    assert_eq!(status_with_cookie(&server, &cookie, "/v1/runs").await, 401);
    assert_eq!(status_with_cookie(&server, &local, "/v1/keys").await, 200);
    server.clock().advance(Millis::from_secs(12 * 3_600));
    assert_eq!(status_with_cookie(&server, &local, "/v1/keys").await, 401);
}

#[tokio::test]
async fn a_session_is_accepted_only_from_same_origin_pages() {
    let server = server_with([]).open().await;
    let path = create_ticket(&server, &server.key).await;
    let cookie = session_cookie(&exchange_ticket(&server, &path).await);
    let own_origin = format!("http://{}", server.host());
    let submit = || post("/v1/runs", &task()).cookie(&cookie);
    for (http_request, expected) in [
        (submit().header("origin", &own_origin), 201),
        (submit().header("origin", "http://evil.example"), 403),
        (submit().header("sec-fetch-site", "cross-site"), 403),
        // A form of another site can send text, but not JSON.
        (request("POST", "/v1/runs").cookie(&cookie).body("text/plain", task().to_string()), 415),
        (
            request("POST", "/v1/runs")
                .cookie(&cookie)
                .body("application/x-www-form-urlencoded", "agent=tester"),
            415,
        ),
    ] {
        let label = format!("{http_request:?}");
        let answer = server.send(http_request).await;
        assert_eq!(answer.status, expected, "{label}");
    }
    // A browser session can't set the caller's name.
    let http_request = submit().header("x-longhaul-as", "cli:anna");
    let run = server.send(http_request).await.expect(201)["id"].clone();
    let path = format!("/v1/runs/{}/events?limit=1", run.as_str().unwrap());
    assert!(!server.get_json(path).await.to_string().contains("cli:anna"));
}
