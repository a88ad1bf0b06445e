//! Approval links: they show and do not decide, and what they decide is what
//! was shown, once, under the name of whoever they were made for.

use longhaul_core::time::Millis;
use serde_json::{Value, json};

use crate::suite::kit::client::{Answer, Ask, ask, get, post};
use crate::suite::kit::{Plan, Server, asking, plan};

const FORM: &str = "application/x-www-form-urlencoded";

/// A link to a gate: its path.
async fn link(server: &Server, gate: &Value, recipient: &str) -> String {
    let path = format!("/v1/gates/{}/links", gate["id"].as_str().unwrap());
    let made = server
        .ask(post(path, &json!({ "recipient": recipient })))
        .await;
    let url = made.expect(201)["url"].as_str().unwrap().to_owned();
    let start = format!("http://{}", server.host());
    url.strip_prefix(&start).unwrap().to_owned()
}

async fn show(server: &Server, path: &str) -> Answer {
    server.ask(get(path).bare()).await
}

/// The nonce that a page's form holds.
fn nonce(page: &Answer) -> String {
    let text = page.text();
    let rest = text
        .split_once("name=\"nonce\" value=\"")
        .expect("a form")
        .1;
    rest.split('"').next().unwrap().to_owned()
}

fn form(path: &str, body: &str) -> Ask {
    ask("POST", path).bare().typed(FORM, body)
}

async fn answers(server: &Server, gate: &Value) -> Value {
    let path = format!("/v1/gates/{}", gate["id"].as_str().unwrap());
    server.look(path).await["answers"].clone()
}

fn two_approvers() -> Plan {
    asking().agent(|agent| agent.rules[0].approvers.count = 2)
}

#[tokio::test]
async fn a_link_shows_what_is_asked_and_decides_nothing_by_it() {
    let server = asking().at_work().await;
    let (_, gate) = server.at_gate().await;
    let path = link(&server, &gate, "anna <b>").await;
    for asked in [
        get(&path),
        ask("HEAD", &path),
        get(&path)
            .with("sec-fetch-site", "cross-site")
            .with("sec-fetch-mode", "navigate"),
    ] {
        let page = server.ask(asked.bare()).await;
        assert_eq!(page.status, 200);
        for (name, value) in [
            ("referrer-policy", "no-referrer"),
            ("cache-control", "no-store"),
            ("x-robots-tag", "noindex, nofollow"),
            ("x-frame-options", "DENY"),
            ("x-content-type-options", "nosniff"),
            ("content-type", "text/html; charset=utf-8"),
        ] {
            assert_eq!(page.header(name), Some(value));
        }
        let policy = page.header("content-security-policy").unwrap();
        for part in [
            "default-src 'none'",
            "form-action 'self'",
            "frame-ancestors 'none'",
        ] {
            assert!(policy.contains(part), "{policy}");
        }
    }
    let text = show(&server, &path).await.text();
    for raw in ["<script", "<b>you", "anna <b>"] {
        assert!(!text.contains(raw), "{raw} in {text}");
    }
    for shown in [
        "alert(1)",
        "&#60;b&#62;you",
        "tester",
        gate["digest"].as_str().unwrap(),
    ] {
        assert!(text.contains(shown), "{shown} in {text}");
    }
    let token = path.strip_prefix("/a/").unwrap();
    assert!(!text.contains(token), "the page does not repeat its token");
    assert_eq!(answers(&server, &gate).await, json!([]));
}

#[tokio::test]
async fn only_the_pages_own_form_decides() {
    let server = asking().at_work().await;
    let (_, gate) = server.at_gate().await;
    let path = link(&server, &gate, "anna").await;
    let other = link(&server, &gate, "bert").await;
    let (own, others) = (
        nonce(&show(&server, &path).await),
        nonce(&show(&server, &other).await),
    );
    let yes = format!("nonce={own}&decision=approve");
    let json = json!({ "nonce": own, "decision": "approve" });
    for (asked, wanted) in [
        (form(&path, "decision=approve"), 409),
        (form(&path, "nonce=&decision=approve"), 409),
        (
            form(&path, &format!("nonce={others}&decision=approve")),
            409,
        ),
        (form(&path, &format!("nonce={own}")), 422),
        (form(&path, &format!("nonce={own}&decision=edit")), 422),
        (
            form(&path, &format!("nonce={own}&decision=approve&x=1")),
            422,
        ),
        (post(&path, &json).bare(), 415),
        (
            ask("POST", &path).bare().typed("text/plain", yes.clone()),
            415,
        ),
        (ask("POST", &path).bare(), 415),
        (form(&path, &yes).with("origin", "http://evil.example"), 403),
        (
            form(&path, &yes)
                .with("origin", "null")
                .with("sec-fetch-site", "cross-site"),
            403,
        ),
        (form(&path, "decision=approve").with("origin", "null"), 409),
        (form(&path, &yes).with("sec-fetch-site", "cross-site"), 403),
        (form(&path, &yes).with("host", "evil.example"), 421),
        (form("/a/forged", &yes), 404),
        (form(&format!("{path}x"), &yes), 404),
        (get("/a/forged").bare(), 404),
        (ask("PUT", &path).bare(), 405),
    ] {
        let what = format!("{asked:?}");
        let answer = server.ask(asked).await;
        assert_eq!(answer.status, wanted, "{what} {}", answer.text());
        assert_eq!(answer.header("referrer-policy"), Some("no-referrer"));
        assert_eq!(answer.header("cache-control"), Some("no-store"));
    }
    assert_eq!(answers(&server, &gate).await, json!([]));
}

/// Over plain http on a named host a browser hides where the form comes from.
#[tokio::test]
async fn the_pages_own_form_decides_also_where_the_browser_says_nothing() {
    let server = asking().at_work().await;
    let (_, gate) = server.at_gate().await;
    let path = link(&server, &gate, "anna").await;
    let own = nonce(&show(&server, &path).await);
    let yes = format!("nonce={own}&decision=approve");
    let answer = server.ask(form(&path, &yes).with("origin", "null")).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    assert_eq!(answers(&server, &gate).await[0]["by"], "link:anna");
}

#[tokio::test]
async fn whoever_was_first_decides_and_others_are_told() {
    let server = asking().at_work().await;
    let (run, gate) = server.at_gate().await;
    let path = link(&server, &gate, "anna").await;
    let other = link(&server, &gate, "bert").await;
    let own = nonce(&show(&server, &path).await);
    let others = nonce(&show(&server, &other).await);
    let yes = format!("nonce={own}&decision=approve");
    // As a browser sends it from a page that hides its address.
    let asked = form(&path, &format!("{yes}&note=go+on"))
        .with("origin", "null")
        .with("sec-fetch-site", "same-origin");
    let page = server.ask(asked).await;
    assert_eq!(page.status, 200);
    let given = answers(&server, &gate).await;
    assert_eq!(given[0]["by"], "link:anna");
    assert_eq!(
        (&given[0]["decision"], &given[0]["note"]),
        (&json!("approve"), &json!("go on"))
    );
    let when = given[0]["at"].as_str().unwrap();
    // Whoever comes again, by this link or another, is told who was first and when.
    for (path, nonce) in [(&path, own), (&other, others)] {
        let page = server
            .ask(form(path, &format!("nonce={nonce}&decision=reject")))
            .await;
        assert_eq!(page.status, 200);
        let text = page.text();
        assert!(text.contains("link:anna") && text.contains(when), "{text}");
        assert!(!text.contains("<form"), "{text}");
    }
    assert_eq!(answers(&server, &gate).await.as_array().unwrap().len(), 1);
    assert_eq!(server.ended(&run).await["status"], "completed");
}

#[tokio::test]
async fn a_link_decides_only_what_it_was_made_for() {
    let server = two_approvers().at_work().await;
    let (_, gate) = server.at_gate().await;
    let path = link(&server, &gate, "anna").await;
    let own = nonce(&show(&server, &path).await);
    let id = gate["id"].as_str().unwrap();
    let edit = json!({ "decision": "edit", "edited": { "text": "ho" }, "digest": gate["digest"] });
    let came = server
        .ask(post(format!("/v1/gates/{id}/answer"), &edit))
        .await
        .expect(200);
    assert_eq!(came["verdict"], "counted");
    assert_ne!(came["gate"]["digest"], gate["digest"]);
    let page = show(&server, &path).await;
    assert!(!page.text().contains("<form"), "{}", page.text());
    let late = server
        .ask(form(&path, &format!("nonce={own}&decision=approve")))
        .await;
    assert_eq!(late.status, 409);
    assert_eq!(answers(&server, &gate).await.as_array().unwrap().len(), 1);
    // A new link is for what stands now.
    let path = link(&server, &gate, "anna").await;
    let own = nonce(&show(&server, &path).await);
    let done = server
        .ask(form(&path, &format!("nonce={own}&decision=approve")))
        .await;
    assert_eq!(done.status, 200);
    assert_eq!(
        server.look(format!("/v1/gates/{id}")).await["status"],
        "answered"
    );
}

#[tokio::test]
async fn a_word_that_others_must_agree_to_is_counted_once() {
    let server = two_approvers().at_work().await;
    let (_, gate) = server.at_gate().await;
    let path = link(&server, &gate, "anna").await;
    let again = link(&server, &gate, "anna").await;
    let yes = format!(
        "nonce={}&decision=approve",
        nonce(&show(&server, &path).await)
    );
    let twice = format!(
        "nonce={}&decision=approve",
        nonce(&show(&server, &again).await)
    );
    for (path, body) in [(&path, &yes), (&path, &yes), (&again, &twice)] {
        let page = server.ask(form(path, body)).await;
        assert_eq!(page.status, 200);
        assert_eq!(answers(&server, &gate).await.as_array().unwrap().len(), 1);
    }
}

#[tokio::test]
async fn a_link_dies_with_its_gate() {
    let server = asking().at_standing_clock().at_work().await;
    let (run, gate) = server.at_gate().await;
    let path = link(&server, &gate, "anna").await;
    let own = nonce(&show(&server, &path).await);
    server.clock().advance(Millis::from_secs(3_601));
    server.until(&run, "gate.expired").await;
    let page = server
        .ask(form(&path, &format!("nonce={own}&decision=approve")))
        .await;
    assert!(
        page.text().contains("Nobody answered in time"),
        "{}",
        page.text()
    );
    assert_eq!(answers(&server, &gate).await, json!([]));
    let (run, gate) = server.at_gate().await;
    let path = link(&server, &gate, "anna").await;
    server
        .ask(ask("POST", format!("/v1/runs/{run}/cancel")))
        .await
        .expect(200);
    let page = show(&server, &path).await;
    assert!(page.text().contains("no longer asked"), "{}", page.text());
}

#[tokio::test]
async fn a_question_is_answered_by_its_page() {
    use crate::suite::kit::model::Line;
    let question = json!({ "question": "Which <i>one</i>?", "options": ["left", "<right>"] });
    let server = plan([Line::Call("ask_human", question)]).at_work().await;
    for (body, said) in [
        ("choice=%3Cright%3E", "<right>"),
        ("choice=left&note=neither", "neither"),
    ] {
        let (_, gate) = server.at_gate().await;
        let path = link(&server, &gate, "anna").await;
        let page = show(&server, &path).await;
        assert!(!page.text().contains("<i>") && !page.text().contains("<right>"));
        let body = format!("nonce={}&decision=answer&{body}", nonce(&page));
        assert_eq!(server.ask(form(&path, &body)).await.status, 200);
        let given = answers(&server, &gate).await;
        assert_eq!(
            (&given[0]["note"], &given[0]["by"]),
            (&json!(said), &json!("link:anna"))
        );
    }
}

#[tokio::test]
async fn where_no_answer_helps_none_is_asked_for() {
    let torn = plan([]).agent(|agent| agent.prompt = "Greet {{ context.nobody }}.".into());
    let server = torn.at_work().await;
    let (_, gate) = server.at_gate().await;
    let text = show(&server, &link(&server, &gate, "anna").await)
        .await
        .text();
    assert!(text.contains("No answer helps here"), "{text}");
    assert!(!text.contains("<form"), "{text}");
}

#[tokio::test]
async fn recipients_are_names() {
    let server = asking().at_work().await;
    let (_, gate) = server.at_gate().await;
    let path = format!("/v1/gates/{}/links", gate["id"].as_str().unwrap());
    let long = "a".repeat(201);
    for name in ["", "  ", "a\nb", long.as_str()] {
        let made = server.ask(post(&path, &json!({ "recipient": name }))).await;
        assert_eq!(made.status, 422, "{name:?}");
    }
}
