//! Context providers: a program and an HTTP endpoint, and their failures.

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
use longhaul_tool::command::Command;
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

/// The expected JSON of a request. Every field is present, `null` if it has no value.
fn request_json(request: &ContextRequest) -> String {
    let fields = match request.actor {
        Some(_) => {
            r#""event":"idle_tick","input":{"town": 1.10},"actor":{"name": "Ada"},"resource":"ada","thread":"market","turn":3"#
        }
        None => {
            r#""event":null,"input":{"town": 1.10},"actor":null,"resource":null,"thread":null,"turn":3"#
        }
    };
    format!(r#"{{"run":"{}","agent":"npc",{fields}}}"#, request.run)
}

/// A request of a task without optional values.
fn minimal_request() -> ContextRequest {
    ContextRequest { event: None, actor: None, resource: None, thread: None, ..context_request() }
}

fn command_provider(root: &Path, clock: &SimClock, script: &str) -> CommandContextProvider {
    fs::write(root.join("look"), format!("#!/bin/sh\n{script}\n")).unwrap();
    fs::set_permissions(root.join("look"), fs::Permissions::from_mode(0o755)).unwrap();
    CommandContextProvider {
        command: Command::new(["./look", "--key=hush"], root),
        clock: Arc::new(clock.clone()),
    }
}

#[tokio::test]
async fn a_command_gets_the_context_request_and_returns_the_perception() {
    let dir = tempfile::tempdir().unwrap();
    let clock = SimClock::new();
    let echo_provider = command_provider(
        dir.path(),
        &clock,
        "printf '{\"world\":'; cat; printf ',\"context\":{\"n\":%s}}' \"$(env | wc -l)\"",
    );
    for request in [minimal_request(), context_request()] {
        let perception = echo_provider.fetch(&request).await.unwrap();
        assert_eq!(perception.world.as_str(), request_json(&request));
    }
    let perception = echo_provider.fetch(&context_request()).await.unwrap();
    // `PATH`, and variables that the shell itself sets.
    let count: usize = perception.context["n"].as_str().parse().unwrap();
    assert!(count <= 4, "{count}");
    let plain_provider = command_provider(dir.path(), &clock, "echo '{\"sky\": \"blue\"}'");
    assert_eq!(
        plain_provider.fetch(&context_request()).await.unwrap().world.as_str(),
        "{\"sky\": \"blue\"}"
    );
    assert!(!format!("{plain_provider:?}").contains("hush"));
}

#[tokio::test]
async fn a_failing_command_says_why() {
    let dir = tempfile::tempdir().unwrap();
    let clock = SimClock::new();
    for (script, expected, is_permanent) in [
        (
            "echo no map here >&2; exit 3",
            "`./look` failed: the process exited with code 3: no map here",
            false,
        ),
        ("exit 1", "printed nothing on stderr", false),
        ("kill -9 $$", "was killed by signal 9", false),
        ("echo sunny", "not valid JSON", true),
        ("true", "response is empty", true),
        ("yes 1 | head -c 300000", "longer than 262144 bytes", true),
        ("yes 1 | head -c 900000", "longer than 262144 bytes", true),
        // It would run forever, and the clock does not advance.
        ("while :; do echo flood; done", "longer than 262144 bytes", true),
    ] {
        let error = command_provider(dir.path(), &clock, script).fetch(&context_request()).await;
        let error = error.unwrap_err();
        assert_eq!(error.is_permanent, is_permanent, "{script}: {error}");
        let error = error.to_string();
        assert!(error.contains(expected) && !error.contains("hush"), "{script}: {error}");
    }
    let mut missing_program = command_provider(dir.path(), &clock, "");
    missing_program.command.argv = vec!["no-such-program".into()];
    let error = missing_program.fetch(&context_request()).await.unwrap_err();
    assert!(error.is_permanent && error.message.contains("not found"), "{error}");
    missing_program.command.argv.clear();
    assert!(missing_program.fetch(&context_request()).await.is_err());
}

#[tokio::test]
async fn a_command_that_hangs_is_stopped() {
    let dir = tempfile::tempdir().unwrap();
    let clock = SimClock::new();
    let slow_provider = command_provider(dir.path(), &clock, "mkfifo begun; read _ < begun");
    let request = context_request();
    let mut fetch = slow_provider.fetch(&request);
    while !dir.path().join("begun").exists() {
        assert!((&mut fetch).now_or_never().is_none());
        tokio::task::yield_now().await;
    }
    clock.advance(Millis::from_secs(30));
    let error = fetch.await.unwrap_err().to_string();
    assert!(error.contains("timed out after 30s"), "{error}");
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
    let server = Server::with_response(http_response("200 OK", &[], answer)).await;
    let provider = http_provider(server.url("/look?key=hush"));
    provider.fetch(&minimal_request()).await.unwrap();
    let perception = provider.fetch(&context_request()).await.unwrap();
    assert_eq!(perception.world.as_str(), "[\"rain\"]");
    assert_eq!(perception.context["recipient"].as_str(), "\"ann\"");
    let received = &server.requests()[0];
    assert_eq!(
        (received.method.as_str(), received.header("content-type")),
        ("POST", Some("application/json"))
    );
    let bodies = server.requests().into_iter().map(|received| received.body);
    let bodies = bodies.map(|body| String::from_utf8(body.to_vec()).unwrap());
    let bodies: Vec<String> = bodies.collect();
    assert_eq!(bodies, [request_json(&minimal_request()), request_json(&context_request())]);
    assert!(!format!("{provider:?}").contains("hush"));
}

#[tokio::test]
async fn a_failing_url_says_why() {
    for (status, body, expected) in [
        ("500 Oh", "{}".to_owned(), "answered 500"),
        ("200 OK", "sunny".to_owned(), "not valid JSON"),
        ("200 OK", String::new(), "response is empty"),
        ("200 OK", "1".repeat(262_145), "longer than 262144 bytes"),
    ] {
        let server = Server::with_response(http_response(status, &[], body)).await;
        let error = http_provider(server.url("/?key=hush")).fetch(&context_request()).await;
        let error = error.unwrap_err().to_string();
        assert!(error.contains(expected) && !error.contains("hush"), "{error}");
    }
    let private_provider = http_provider("http://inside.example/?key=hush".into());
    let error = private_provider.fetch(&context_request()).await.unwrap_err().to_string();
    assert!(error.contains("private or reserved") && !error.contains("hush"), "{error}");
}
