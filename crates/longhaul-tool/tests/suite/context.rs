//! Providers of context: a program and an address, and how each of them can fail.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::sync::Arc;

use futures_util::FutureExt as _;
use longhaul_core::id::{AgentName, ResourceKey, RunId, ThreadKey};
use longhaul_core::port::context::{ContextProvider, ContextRequest};
use longhaul_core::port::outbound::NetworkScope;
use longhaul_core::raw::RawJson;
use longhaul_core::time::Millis;
use longhaul_testkit::clock::SimClock;
use longhaul_tool::context::{CommandContextProvider, HttpContextProvider};

use crate::suite::harness::{Server, http_response, shared_client};

fn context_request() -> ContextRequest {
    ContextRequest {
        run: RunId::from_bits(7),
        agent: AgentName::new("npc").unwrap(),
        event: Some("idle_tick".into()),
        input: RawJson::parse("{\"town\": 1.10}").unwrap(),
        actor: Some(RawJson::parse("{\"name\": \"Ada\"}").unwrap()),
        resource: Some(ResourceKey::new("ada").unwrap()),
        thread: Some(ThreadKey::new("market").unwrap()),
        turn: 3,
    }
}

/// What is told of it: every name is there, also where there is nothing to tell.
fn request_json(glance: &ContextRequest) -> String {
    let told = match glance.actor {
        Some(_) => {
            r#""event":"idle_tick","input":{"town": 1.10},"actor":{"name": "Ada"},"resource":"ada","thread":"market","turn":3"#
        }
        None => {
            r#""event":null,"input":{"town": 1.10},"actor":null,"resource":null,"thread":null,"turn":3"#
        }
    };
    format!(r#"{{"run":"{}","agent":"npc",{told}}}"#, glance.run)
}

/// A look for a task that says nothing but what is to be done.
fn minimal_request() -> ContextRequest {
    ContextRequest { event: None, actor: None, resource: None, thread: None, ..context_request() }
}

fn command_provider(root: &Path, clock: &SimClock, script: &str) -> CommandContextProvider {
    fs::write(root.join("look"), format!("#!/bin/sh\n{script}\n")).unwrap();
    fs::set_permissions(root.join("look"), fs::Permissions::from_mode(0o755)).unwrap();
    CommandContextProvider {
        argv: vec!["./look".into(), "--key=hush".into()],
        root: root.into(),
        clock: Arc::new(clock.clone()),
        timeout: Millis::from_secs(30),
    }
}

#[tokio::test]
async fn a_command_gets_the_context_request_and_returns_the_perception() {
    let dir = tempfile::tempdir().unwrap();
    let clock = SimClock::new();
    let echo = command_provider(
        dir.path(),
        &clock,
        "printf '{\"world\":'; cat; printf ',\"context\":{\"n\":%s}}' \"$(env | wc -l)\"",
    );
    for glance in [minimal_request(), context_request()] {
        let seen = echo.fetch(&glance).await.unwrap();
        assert_eq!(seen.world.as_str(), request_json(&glance));
    }
    let seen = echo.fetch(&context_request()).await.unwrap();
    // PATH, and what the shell itself sets.
    let count: usize = seen.context["n"].as_str().parse().unwrap();
    assert!(count <= 4, "{count}");
    let plain = command_provider(dir.path(), &clock, "echo '{\"sky\": \"blue\"}'");
    assert_eq!(
        plain.fetch(&context_request()).await.unwrap().world.as_str(),
        "{\"sky\": \"blue\"}"
    );
    assert!(!format!("{plain:?}").contains("hush"));
}

#[tokio::test]
async fn a_failing_command_says_why() {
    let dir = tempfile::tempdir().unwrap();
    let clock = SimClock::new();
    for (script, why, lasts) in [
        ("echo no map here >&2; exit 3", "`./look`: it ended with code 3: no map here", false),
        ("exit 1", "said nothing on stderr", false),
        ("kill -9 $$", "was ended by signal 9", false),
        ("echo sunny", "no JSON", true),
        ("true", "answered nothing", true),
        ("yes 1 | head -c 300000", "longer than 262144 bytes", true),
        ("yes 1 | head -c 900000", "longer than 262144 bytes", true),
        // It would go on for ever, and the clock stands still.
        ("while :; do echo flood; done", "longer than 262144 bytes", true),
    ] {
        let no = command_provider(dir.path(), &clock, script).fetch(&context_request()).await;
        let no = no.unwrap_err();
        assert_eq!(no.is_permanent, lasts, "{script}: {no}");
        let no = no.to_string();
        assert!(no.contains(why) && !no.contains("hush"), "{script}: {no}");
    }
    let mut lost = command_provider(dir.path(), &clock, "");
    lost.argv = vec!["no-such-program".into()];
    let no = lost.fetch(&context_request()).await.unwrap_err();
    assert!(no.is_permanent && no.message.contains("there is no program"), "{no}");
    lost.argv.clear();
    assert!(lost.fetch(&context_request()).await.is_err());
}

#[tokio::test]
async fn a_command_that_hangs_is_stopped() {
    let dir = tempfile::tempdir().unwrap();
    let clock = SimClock::new();
    let slow = command_provider(dir.path(), &clock, "mkfifo begun; read _ < begun");
    let glance = context_request();
    let mut look = slow.fetch(&glance);
    while !dir.path().join("begun").exists() {
        assert!((&mut look).now_or_never().is_none());
        tokio::task::yield_now().await;
    }
    clock.advance(Millis::from_secs(30));
    let no = look.await.unwrap_err().to_string();
    assert!(no.contains("did not end in 30 s"), "{no}");
}

fn http_provider(url: String) -> HttpContextProvider {
    HttpContextProvider {
        url,
        outbound: shared_client(),
        timeout: Millis::from_secs(30),
        reach: NetworkScope::Public,
    }
}

#[tokio::test]
async fn a_url_gets_the_context_request_by_post() {
    let answer = r#"{"world":["rain"],"context":{"recipient":"ann"}}"#;
    let server = Server::answering(http_response("200 OK", &[], answer)).await;
    let eye = http_provider(server.url("/look?key=hush"));
    eye.fetch(&minimal_request()).await.unwrap();
    let seen = eye.fetch(&context_request()).await.unwrap();
    assert_eq!(seen.world.as_str(), "[\"rain\"]");
    assert_eq!(seen.context["recipient"].as_str(), "\"ann\"");
    let asked = &server.requests()[0];
    assert_eq!(
        (asked.method.as_str(), asked.header("content-type")),
        ("POST", Some("application/json"))
    );
    let bodies = server.requests().into_iter().map(|asked| asked.body);
    let bodies = bodies.map(|body| String::from_utf8(body.to_vec()).unwrap());
    let bodies: Vec<String> = bodies.collect();
    assert_eq!(bodies, [request_json(&minimal_request()), request_json(&context_request())]);
    assert!(!format!("{eye:?}").contains("hush"));
}

#[tokio::test]
async fn a_failing_url_says_why() {
    for (status, body, why) in [
        ("500 Oh", "{}".to_owned(), "status 500"),
        ("200 OK", "sunny".to_owned(), "no JSON"),
        ("200 OK", String::new(), "answered nothing"),
        ("200 OK", "1".repeat(262_145), "longer than 262144 bytes"),
    ] {
        let server = Server::answering(http_response(status, &[], body)).await;
        let no = http_provider(server.url("/?key=hush")).fetch(&context_request()).await;
        let no = no.unwrap_err().to_string();
        assert!(no.contains(why) && !no.contains("hush"), "{no}");
    }
    let inside = http_provider("http://inside.example/?key=hush".into());
    let no = inside.fetch(&context_request()).await.unwrap_err().to_string();
    assert!(no.contains("private or reserved") && !no.contains("hush"), "{no}");
}
