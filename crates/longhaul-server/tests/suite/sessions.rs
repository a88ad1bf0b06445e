//! Tickets and the sessions they are traded for: once, in time, and never longer
//! than the key behind them.

use longhaul_core::access::Role;
use longhaul_core::time::Millis;

use crate::suite::kit::client::{Answer, ask, get, post};
use crate::suite::kit::{Server, plan, task};

/// The path of a new ticket of whoever has this key.
async fn ticket(server: &Server, key: &str) -> String {
    let made = server.ask(ask("POST", "/v1/tickets").shows(key)).await;
    let url = made.expect(201)["url"].as_str().unwrap().to_owned();
    let start = format!("http://{}", server.host());
    url.strip_prefix(&start).unwrap().to_owned()
}

/// The session that an answer sets, as a cookie to be sent.
fn session(answer: &Answer) -> String {
    let line = answer.header("set-cookie").expect("a cookie");
    line.split(';').next().unwrap().to_owned()
}

async fn trade(server: &Server, path: &str) -> Answer {
    server.ask(get(path).bare()).await
}

async fn opens(server: &Server, cookie: &str, path: &str) -> u16 {
    server.ask(get(path).cookie(cookie)).await.status
}

#[tokio::test]
async fn a_ticket_is_traded_once_for_a_session() {
    let server = plan([]).open().await;
    let key = server.make_key("eve", Role::Viewer).await;
    let path = ticket(&server, &key).await;
    // Whoever only looks whether the link leads somewhere does not use it up.
    let looked = server.ask(ask("HEAD", &path).bare()).await;
    assert_eq!((looked.status, looked.header("set-cookie")), (401, None));
    let answer = trade(&server, &path).await;
    assert_eq!((answer.status, answer.header("location")), (303, Some("/")));
    let cookie = answer.header("set-cookie").unwrap();
    let name = format!("longhaul_{}=", server.address.port());
    assert!(cookie.starts_with(&name), "{cookie}");
    for part in [
        "; Path=/",
        "; HttpOnly",
        "; SameSite=Strict",
        "; Max-Age=43200",
    ] {
        assert!(cookie.contains(part), "{cookie}");
    }
    assert!(!cookie.contains("; Secure"), "{cookie}");
    let cookie = session(&answer);
    for (path, wanted) in [("/", 200), ("/v1/runs", 200), ("/v1/keys", 403)] {
        assert_eq!(opens(&server, &cookie, path).await, wanted, "{path}");
    }
    let home = server.ask(get("/").cookie(&cookie)).await;
    assert!(home.text().contains("key:eve"), "{}", home.text());
    let second = trade(&server, &path).await;
    assert_eq!((second.status, second.header("set-cookie")), (410, None));
    // Another port's cookie, and a cookie that was made up.
    let value = cookie.split_once('=').unwrap().1;
    for forged in [
        format!("longhaul_1={value}"),
        format!("{name}x"),
        format!("{name}{key}"),
    ] {
        assert_eq!(opens(&server, &forged, "/v1/runs").await, 401, "{forged}");
    }
    let beside = format!("a=b; {cookie}; c=d");
    assert_eq!(opens(&server, &beside, "/v1/runs").await, 200);
}

#[tokio::test]
async fn a_page_takes_the_key_as_well() {
    let server = plan([]).open().await;
    let key = server.make_key("eve", Role::Viewer).await;
    for (asked, wanted) in [
        (get("/").shows(&key), 200),
        (get("/"), 200),
        (get("/").bare(), 401),
        (get("/").shows("lh_wrong"), 401),
        (get("/?t=wrong").bare(), 410),
    ] {
        let what = format!("{asked:?}");
        let answer = server.ask(asked).await;
        assert_eq!(answer.status, wanted, "{what}");
        let kind = answer.header("content-type");
        assert_eq!(kind, Some("text/html; charset=utf-8"), "{what}");
    }
}

#[tokio::test]
async fn behind_tls_a_session_stays_there() {
    let server = plan([]).open().await;
    let path = ticket(&server, &server.key).await;
    let asked = get(path).bare().with("x-forwarded-proto", "https");
    let cookie = server.ask(asked).await;
    assert!(cookie.header("set-cookie").unwrap().contains("; Secure"));
}

#[tokio::test]
async fn of_two_who_trade_one_ticket_one_gets_in() {
    let server = plan([]).open().await;
    for _ in 0..20 {
        let path = ticket(&server, &server.key).await;
        let (one, two) = tokio::join!(trade(&server, &path), trade(&server, &path));
        let mut both = [one.status, two.status];
        both.sort_unstable();
        assert_eq!(both, [303, 410]);
    }
}

#[tokio::test]
async fn tickets_and_sessions_end_with_their_time_and_their_key() {
    let server = plan([]).at_standing_clock().open().await;
    let key = server.make_key("eve", Role::Operator).await;
    let late = ticket(&server, &key).await;
    server.clock().advance(Millis::from_secs(600));
    assert_eq!(trade(&server, &late).await.status, 410);
    let (kept, unused) = (ticket(&server, &key).await, ticket(&server, &key).await);
    server.clock().advance(Millis::from_secs(599));
    let cookie = session(&trade(&server, &kept).await);
    let local = ticket(&server, &server.key).await;
    let local = session(&trade(&server, &local).await);
    assert_eq!(opens(&server, &cookie, "/v1/runs").await, 200);
    server.ask(ask("DELETE", "/v1/keys/eve")).await.expect(200);
    assert_eq!(opens(&server, &cookie, "/v1/runs").await, 401);
    assert_eq!(opens(&server, &cookie, "/").await, 401);
    assert_eq!(trade(&server, &unused).await.status, 410);
    // Another key of the same name is another key.
    server.make_key("eve", Role::Admin).await;
    assert_eq!(opens(&server, &cookie, "/v1/runs").await, 401);
    assert_eq!(opens(&server, &local, "/v1/keys").await, 200);
    server.clock().advance(Millis::from_secs(12 * 3_600));
    assert_eq!(opens(&server, &local, "/v1/keys").await, 401);
}

#[tokio::test]
async fn a_session_acts_only_from_our_own_pages() {
    let server = plan([]).open().await;
    let path = ticket(&server, &server.key).await;
    let cookie = session(&trade(&server, &path).await);
    let own = format!("http://{}", server.host());
    let submit = || post("/v1/runs", &task()).cookie(&cookie);
    for (asked, wanted) in [
        (submit().with("origin", &own), 201),
        (submit().with("origin", "http://evil.example"), 403),
        (submit().with("sec-fetch-site", "cross-site"), 403),
        // A form of another site can send text, and is no JSON.
        (
            ask("POST", "/v1/runs")
                .cookie(&cookie)
                .typed("text/plain", task().to_string()),
            415,
        ),
        (
            ask("POST", "/v1/runs")
                .cookie(&cookie)
                .typed("application/x-www-form-urlencoded", "agent=tester"),
            415,
        ),
    ] {
        let what = format!("{asked:?}");
        let answer = server.ask(asked).await;
        assert_eq!(answer.status, wanted, "{what}");
    }
    // Nobody takes a name by way of a browser.
    let asked = submit().with("x-longhaul-as", "cli:anna");
    let run = server.ask(asked).await.expect(201)["id"].clone();
    let path = format!("/v1/runs/{}/events?limit=1", run.as_str().unwrap());
    assert!(!server.look(path).await.to_string().contains("cli:anna"));
}
