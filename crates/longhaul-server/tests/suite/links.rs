//! Approval links: showing a page decides nothing. A decision applies to what was shown, counts
//! once, and has the name of the recipient.

use longhaul_core::sanitize::is_invisible;
use longhaul_core::time::Millis;
use serde_json::{Value, json};

use crate::suite::harness::client::{TestRequest, TestResponse, get, post, request};
use crate::suite::harness::{TestServer, TestServerBuilder, server_with, server_with_gate};

const FORM: &str = "application/x-www-form-urlencoded";

/// Creates a link to a gate and returns its path.
async fn create_link(server: &TestServer, gate: &Value, recipient: &str) -> String {
    let path = format!("/v1/gates/{}/links", gate["id"].as_str().unwrap());
    let response = server.send(post(path, &json!({ "recipient": recipient }))).await;
    let url = response.expect(201)["url"].as_str().unwrap().to_owned();
    let origin = format!("http://{}", server.host());
    url.strip_prefix(&origin).unwrap().to_owned()
}

async fn open_page(server: &TestServer, path: &str) -> TestResponse {
    server.send(get(path).without_key()).await
}

/// Returns the nonce in the form of a page.
fn page_nonce(page: &TestResponse) -> String {
    let text = page.text();
    let rest = text.split_once("name=\"nonce\" value=\"").expect("a form").1;
    rest.split('"').next().unwrap().to_owned()
}

fn form_request(path: &str, body: &str) -> TestRequest {
    request("POST", path).without_key().body(FORM, body)
}

async fn list_answers(server: &TestServer, gate: &Value) -> Value {
    let path = format!("/v1/gates/{}", gate["id"].as_str().unwrap());
    server.get_json(path).await["answers"].clone()
}

fn server_with_two_approvers() -> TestServerBuilder {
    server_with_gate().agent(|agent| agent.rules[0].approvers.count = 2)
}

#[tokio::test]
async fn opening_a_link_shows_the_gate_without_deciding_it() {
    let server = server_with_gate().start().await;
    let (_, gate) = server.submit_until_gate().await;
    let path = create_link(&server, &gate, "anna <b>").await;
    for http_request in [
        get(&path),
        request("HEAD", &path),
        get(&path).header("sec-fetch-site", "cross-site").header("sec-fetch-mode", "navigate"),
    ] {
        let page = server.send(http_request.without_key()).await;
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
        for part in ["default-src 'none'", "form-action 'self'", "frame-ancestors 'none'"] {
            assert!(policy.contains(part), "{policy}");
        }
    }
    let text = open_page(&server, &path).await.text();
    for raw in ["<script", "<b>you", "anna <b>", "<a>.md", ".git/<b>"] {
        assert!(!text.contains(raw), "{raw} in {text}");
    }
    for expected in ["alert(1)", "&#60;b&#62;you", "tester", gate["digest"].as_str().unwrap()] {
        assert!(text.contains(expected), "{expected} in {text}");
    }
    assert_eq!(gate["facts"]["files"][0]["path"], "<a>.md");
    for effect in [
        "<dt>Files</dt><dd>change &#60;a&#62;.md (+1 -1 lines)</dd>",
        "<dt>Protected</dt><dd class=\"bad\">.git/&#60;b&#62;</dd>",
        "<dt>Network</dt><dd>not known before the call</dd>",
        "<span class=\"removed\">-old</span>",
    ] {
        assert!(text.contains(effect), "{effect} in {text}");
    }
    let token = path.strip_prefix("/a/").unwrap();
    assert!(!text.contains(token), "the page does not repeat its token");
    assert_eq!(list_answers(&server, &gate).await, json!([]));
}

#[tokio::test]
async fn only_the_form_of_the_page_can_answer() {
    let server = server_with_gate().start().await;
    let (_, gate) = server.submit_until_gate().await;
    let path = create_link(&server, &gate, "anna").await;
    let other_path = create_link(&server, &gate, "bert").await;
    let (own_nonce, other_nonce) = (
        page_nonce(&open_page(&server, &path).await),
        page_nonce(&open_page(&server, &other_path).await),
    );
    let approval = format!("nonce={own_nonce}&decision=approve");
    let json = json!({ "nonce": own_nonce, "decision": "approve" });
    for (http_request, expected) in [
        (form_request(&path, "decision=approve"), 409),
        (form_request(&path, "nonce=&decision=approve"), 409),
        (form_request(&path, &format!("nonce={other_nonce}&decision=approve")), 409),
        (form_request(&path, &format!("nonce={own_nonce}")), 422),
        (form_request(&path, &format!("nonce={own_nonce}&decision=edit")), 422),
        (form_request(&path, &format!("nonce={own_nonce}&decision=approve&x=1")), 422),
        (post(&path, &json).without_key(), 415),
        (request("POST", &path).without_key().body("text/plain", approval.clone()), 415),
        (request("POST", &path).without_key(), 415),
        (form_request(&path, &approval).header("origin", "http://evil.example"), 403),
        (
            form_request(&path, &approval)
                .header("origin", "null")
                .header("sec-fetch-site", "cross-site"),
            403,
        ),
        (form_request(&path, "decision=approve").header("origin", "null"), 409),
        (form_request(&path, &approval).header("sec-fetch-site", "cross-site"), 403),
        (form_request(&path, &approval).header("host", "evil.example"), 421),
        (form_request("/a/forged", &approval), 404),
        (form_request(&format!("{path}x"), &approval), 404),
        (get("/a/forged").without_key(), 404),
        (request("PUT", &path).without_key(), 405),
    ] {
        let label = format!("{http_request:?}");
        let answer = server.send(http_request).await;
        assert_eq!(answer.status, expected, "{label} {}", answer.text());
        assert_eq!(answer.header("referrer-policy"), Some("no-referrer"));
        assert_eq!(answer.header("cache-control"), Some("no-store"));
    }
    assert_eq!(list_answers(&server, &gate).await, json!([]));
}

/// Over plain http to a named host, browsers do not send the origin of a form.
#[tokio::test]
async fn the_form_works_without_fetch_metadata_headers() {
    let server = server_with_gate().start().await;
    let (_, gate) = server.submit_until_gate().await;
    let path = create_link(&server, &gate, "anna").await;
    let own_nonce = page_nonce(&open_page(&server, &path).await);
    let approval = format!("nonce={own_nonce}&decision=approve");
    let answer = server.send(form_request(&path, &approval).header("origin", "null")).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    assert_eq!(list_answers(&server, &gate).await[0]["by"], "link:anna");
}

#[tokio::test]
async fn the_first_answer_decides_and_later_answers_get_an_error() {
    let server = server_with_gate().start().await;
    let (run, gate) = server.submit_until_gate().await;
    let path = create_link(&server, &gate, "anna").await;
    let other_path = create_link(&server, &gate, "bert").await;
    let own_nonce = page_nonce(&open_page(&server, &path).await);
    let other_nonce = page_nonce(&open_page(&server, &other_path).await);
    let approval = format!("nonce={own_nonce}&decision=approve");
    // As a browser sends it from a page with `no-referrer`.
    let request = form_request(&path, &format!("{approval}&note=go+on"))
        .header("origin", "null")
        .header("sec-fetch-site", "same-origin");
    let page = server.send(request).await;
    assert_eq!(page.status, 200);
    let gate_answers = list_answers(&server, &gate).await;
    assert_eq!(gate_answers[0]["by"], "link:anna");
    assert_eq!(
        (&gate_answers[0]["decision"], &gate_answers[0]["note"]),
        (&json!("approve"), &json!("go on"))
    );
    let answered_at = gate_answers[0]["at"].as_str().unwrap();
    // Later answers, by this link or another, show who was first and when.
    for (path, nonce) in [(&path, own_nonce), (&other_path, other_nonce)] {
        let page = server.send(form_request(path, &format!("nonce={nonce}&decision=reject"))).await;
        assert_eq!(page.status, 200);
        let text = page.text();
        assert!(text.contains("link:anna") && text.contains(answered_at), "{text}");
        assert!(!text.contains("<form"), "{text}");
    }
    assert_eq!(list_answers(&server, &gate).await.as_array().unwrap().len(), 1);
    assert_eq!(server.wait_until_ended(&run).await["status"], "completed");
}

#[tokio::test]
async fn a_link_answers_only_its_own_gate() {
    let server = server_with_two_approvers().start().await;
    let (_, gate) = server.submit_until_gate().await;
    let path = create_link(&server, &gate, "anna").await;
    let own_nonce = page_nonce(&open_page(&server, &path).await);
    let id = gate["id"].as_str().unwrap();
    let edit = json!({ "decision": "edit", "edited": { "text": "ho" }, "digest": gate["digest"] });
    let response = server.send(post(format!("/v1/gates/{id}/answer"), &edit)).await.expect(200);
    assert_eq!(response["outcome"], "voted");
    assert_ne!(response["gate"]["digest"], gate["digest"]);
    let page = open_page(&server, &path).await;
    assert!(!page.text().contains("<form"), "{}", page.text());
    let late_response =
        server.send(form_request(&path, &format!("nonce={own_nonce}&decision=approve"))).await;
    assert_eq!(late_response.status, 409);
    assert_eq!(list_answers(&server, &gate).await.as_array().unwrap().len(), 1);
    // A new link is for the current input.
    let path = create_link(&server, &gate, "anna").await;
    let own_nonce = page_nonce(&open_page(&server, &path).await);
    let response =
        server.send(form_request(&path, &format!("nonce={own_nonce}&decision=approve"))).await;
    assert_eq!(response.status, 200);
    assert_eq!(server.get_json(format!("/v1/gates/{id}")).await["status"], "answered");
}

#[tokio::test]
async fn a_vote_by_link_is_counted_once() {
    let server = server_with_two_approvers().start().await;
    let (_, gate) = server.submit_until_gate().await;
    let path = create_link(&server, &gate, "anna").await;
    let second_path = create_link(&server, &gate, "anna").await;
    let approval =
        format!("nonce={}&decision=approve", page_nonce(&open_page(&server, &path).await));
    let second_approval =
        format!("nonce={}&decision=approve", page_nonce(&open_page(&server, &second_path).await));
    for (path, body) in [(&path, &approval), (&path, &approval), (&second_path, &second_approval)] {
        let page = server.send(form_request(path, body)).await;
        assert_eq!(page.status, 200);
        assert_eq!(list_answers(&server, &gate).await.as_array().unwrap().len(), 1);
    }
}

#[tokio::test]
async fn a_link_ends_with_its_gate() {
    let server = server_with_gate().with_sim_clock().start().await;
    let (run, gate) = server.submit_until_gate().await;
    let path = create_link(&server, &gate, "anna").await;
    let own_nonce = page_nonce(&open_page(&server, &path).await);
    server.clock().advance(Millis::from_secs(3_601));
    server.wait_for_event(&run, "gate.expired").await;
    let page =
        server.send(form_request(&path, &format!("nonce={own_nonce}&decision=approve"))).await;
    assert!(page.text().contains("Nobody answered in time"), "{}", page.text());
    assert_eq!(list_answers(&server, &gate).await, json!([]));
    let (run, gate) = server.submit_until_gate().await;
    let path = create_link(&server, &gate, "anna").await;
    server.send(request("POST", format!("/v1/runs/{run}/cancel"))).await.expect(200);
    let page = open_page(&server, &path).await;
    assert!(page.text().contains("was withdrawn"), "{}", page.text());
}

#[tokio::test]
async fn a_question_is_answered_by_its_page() {
    use crate::suite::harness::model::FakeReply;
    let question = json!({ "question": "Which <i>one</i>?", "options": ["left", "<right>"] });
    let server = server_with([FakeReply::Call("ask_human", question)]).start().await;
    for (body, answer_text) in [("choice=%3Cright%3E", "<right>"), ("note=Left", "left")] {
        let (_, gate) = server.submit_until_gate().await;
        let path = create_link(&server, &gate, "anna").await;
        let page = open_page(&server, &path).await;
        assert!(!page.text().contains("<i>") && !page.text().contains("<right>"));
        let body = format!("nonce={}&decision=answer&{body}", page_nonce(&page));
        assert_eq!(server.send(form_request(&path, &body)).await.status, 200);
        let gate_answers = list_answers(&server, &gate).await;
        assert_eq!(
            (&gate_answers[0]["note"], &gate_answers[0]["by"]),
            (&json!(answer_text), &json!("link:anna"))
        );
    }
}

#[tokio::test]
async fn a_form_is_shown_and_checked_by_its_page() {
    use crate::suite::harness::model::FakeReply;
    let question = json!({ "question": "Where to?", "schema": {
        "properties": {
            "city": { "type": "string", "title": "<b>Destination" },
            "people": { "type": "integer", "default": 2, "minimum": 1 },
            "window": { "type": "boolean" },
            "class": { "enum": ["1", "2"], "enumNames": ["first", "second"] },
        },
        "required": ["city"],
    }});
    let server = server_with([FakeReply::Call("ask_human", question)]).start().await;
    let (_, gate) = server.submit_until_gate().await;
    let path = create_link(&server, &gate, "anna").await;
    let page = open_page(&server, &path).await;
    let text = page.text();
    for expected in [
        r#"<input type="text" name="field.city" value="" required>"#,
        r#"<input type="text" name="field.people" value="2">"#,
        r#"<option value="true">yes</option>"#,
        r#"<option value="1">first</option>"#,
    ] {
        assert!(text.contains(expected), "{expected} in {text}");
    }
    assert!(!text.contains("<b>Destination") && !text.contains("<textarea"), "{text}");
    let form_start = format!("nonce={}&decision=answer", page_nonce(&page));
    for (fields, problem) in [
        ("", "Destination is missing."),
        ("&field.city=Bern&field.people=0", "people must be at least 1."),
        ("&field.city=Bern&field.class=3", "class must be one of 1, 2."),
    ] {
        let rejected = server.send(form_request(&path, &format!("{form_start}{fields}"))).await;
        assert_eq!(rejected.status, 422, "{fields}");
        assert!(rejected.text().contains(problem), "{fields}: {}", rejected.text());
        let keeps_value =
            fields.is_empty() || rejected.text().contains(r#"name="field.city" value="Bern""#);
        assert!(keeps_value, "{fields}: {}", rejected.text());
    }
    assert_eq!(list_answers(&server, &gate).await, json!([]));
    let filled_form =
        format!("{form_start}&field.city=Bern&field.people=&field.window=false&field.class=2");
    assert_eq!(server.send(form_request(&path, &filled_form)).await.status, 200);
    let expected = json!({ "city": "Bern", "people": 2, "window": false, "class": "2" });
    assert_eq!(list_answers(&server, &gate).await[0]["payload"], expected);
}

#[tokio::test]
async fn a_permanently_blocked_gate_has_no_form() {
    let server_builder =
        server_with([]).agent(|agent| agent.prompt = "Greet {{ context.nobody }}.".into());
    let server = server_builder.start().await;
    let (_, gate) = server.submit_until_gate().await;
    let text = open_page(&server, &create_link(&server, &gate, "anna").await).await.text();
    assert!(text.contains("An answer does not help here"), "{text}");
    assert!(!text.contains("<form"), "{text}");
}

#[tokio::test]
async fn recipients_are_validated_as_names() {
    let server = server_with_gate().start().await;
    let (_, gate) = server.submit_until_gate().await;
    let path = format!("/v1/gates/{}/links", gate["id"].as_str().unwrap());
    let long_name = "a".repeat(201);
    for name in ["", "  ", "a\nb", long_name.as_str()] {
        let response = server.send(post(&path, &json!({ "recipient": name }))).await;
        assert_eq!(response.status, 422, "{name:?}");
    }
}

#[tokio::test]
async fn a_signal_is_completed_and_not_approved() {
    use crate::suite::harness::model::FakeReply;
    let wait = FakeReply::Call("wait", json!({ "signal": "deployed" }));
    let server = server_with([wait]).start().await;
    let (_, gate) = server.submit_until_gate().await;
    let path = create_link(&server, &gate, "anna").await;
    let page = open_page(&server, &path).await;
    assert!(!page.text().contains(r#"value="approve""#), "{}", page.text());
    let body = format!("nonce={}&decision=complete", page_nonce(&page));
    assert_eq!(server.send(form_request(&path, &body)).await.status, 200);
    assert_eq!(list_answers(&server, &gate).await[0]["decision"], "complete");
}

#[tokio::test]
async fn invisible_characters_are_marked_on_the_page() {
    use crate::suite::harness::model::FakeReply;
    let unsafe_text = "rm\u{202e}txt\u{2066}.\u{200b}exe\u{2028}\u{e0041}";
    let shown_text = "rm·txt·.·exe··";
    let call = FakeReply::Call("send", json!({ "text": unsafe_text }));
    let question = FakeReply::Call(
        "ask_human",
        json!({ "question": unsafe_text, "options": [unsafe_text, "none"] }),
    );
    let field = json!({ "type": "string", "title": unsafe_text, "default": unsafe_text });
    let form = json!({ "question": "?", "schema": { "properties": { "name": field } } });
    let form = FakeReply::Call("ask_human", form);
    for (reply, places) in [(call, 3), (question, 3), (form, 3)] {
        let server = server_with([reply]).start().await;
        let (_, gate) = server.submit_until_gate().await;
        let path = create_link(&server, &gate, &format!("anna{unsafe_text}")).await;
        let page = open_page(&server, &path).await.text();
        // The value of an option is not shown, and is sent as it is.
        let text = page.replace(&format!("value=\"{unsafe_text}\""), "");
        assert!(!text.replace('\n', "").contains(is_invisible), "{text}");
        assert!(text.matches(shown_text).count() >= places, "{text}");
    }
}
