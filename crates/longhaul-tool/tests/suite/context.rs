//! Providers of context: a program and an address, and how each of them can fail.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::sync::Arc;

use futures_util::FutureExt as _;
use longhaul_core::id::{AgentName, ResourceKey, RunId, ThreadKey};
use longhaul_core::port::context::{ContextProvider, Glance};
use longhaul_core::port::outbound::Reach;
use longhaul_core::raw::RawJson;
use longhaul_core::time::Millis;
use longhaul_testkit::clock::SimClock;
use longhaul_tool::context::{CommandEye, UrlEye};

use crate::suite::kit::{Server, reply, way_out};

fn glance() -> Glance {
    Glance {
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
fn told(glance: &Glance) -> String {
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
fn plain_glance() -> Glance {
    Glance {
        event: None,
        actor: None,
        resource: None,
        thread: None,
        ..glance()
    }
}

fn eye(root: &Path, clock: &SimClock, script: &str) -> CommandEye {
    fs::write(root.join("look"), format!("#!/bin/sh\n{script}\n")).unwrap();
    fs::set_permissions(root.join("look"), fs::Permissions::from_mode(0o755)).unwrap();
    CommandEye {
        argv: vec!["./look".into(), "--key=hush".into()],
        root: root.into(),
        clock: Arc::new(clock.clone()),
        timeout: Millis::from_secs(30),
    }
}

#[tokio::test]
async fn a_program_reads_who_looks_and_answers_what_is_seen() {
    let dir = tempfile::tempdir().unwrap();
    let clock = SimClock::new();
    let echo = eye(
        dir.path(),
        &clock,
        "printf '{\"world\":'; cat; printf ',\"context\":{\"n\":%s}}' \"$(env | wc -l)\"",
    );
    for glance in [plain_glance(), glance()] {
        let seen = echo.look(&glance).await.unwrap();
        assert_eq!(seen.world.as_str(), told(&glance));
    }
    let seen = echo.look(&glance()).await.unwrap();
    // PATH, and what the shell itself sets.
    let count: usize = seen.context["n"].as_str().parse().unwrap();
    assert!(count <= 4, "{count}");
    let plain = eye(dir.path(), &clock, "echo '{\"sky\": \"blue\"}'");
    assert_eq!(
        plain.look(&glance()).await.unwrap().world.as_str(),
        "{\"sky\": \"blue\"}"
    );
    assert!(!format!("{plain:?}").contains("hush"));
}

#[tokio::test]
async fn a_program_that_fails_says_why() {
    let dir = tempfile::tempdir().unwrap();
    let clock = SimClock::new();
    for (script, why, lasts) in [
        (
            "echo no map here >&2; exit 3",
            "`./look`: it ended with code 3: no map here",
            false,
        ),
        ("exit 1", "said nothing on stderr", false),
        ("kill -9 $$", "was ended by signal 9", false),
        ("echo sunny", "no JSON", true),
        ("true", "answered nothing", true),
        ("yes 1 | head -c 300000", "longer than 262144 bytes", true),
        ("yes 1 | head -c 900000", "longer than 262144 bytes", true),
        // It would go on for ever, and the clock stands still.
        (
            "while :; do echo flood; done",
            "longer than 262144 bytes",
            true,
        ),
    ] {
        let no = eye(dir.path(), &clock, script).look(&glance()).await;
        let no = no.unwrap_err();
        assert_eq!(no.lasts, lasts, "{script}: {no}");
        let no = no.to_string();
        assert!(no.contains(why) && !no.contains("hush"), "{script}: {no}");
    }
    let mut lost = eye(dir.path(), &clock, "");
    lost.argv = vec!["no-such-program".into()];
    let no = lost.look(&glance()).await.unwrap_err();
    assert!(no.lasts && no.why.contains("there is no program"), "{no}");
    lost.argv.clear();
    assert!(lost.look(&glance()).await.is_err());
}

#[tokio::test]
async fn a_program_that_does_not_end_is_stopped() {
    let dir = tempfile::tempdir().unwrap();
    let clock = SimClock::new();
    let slow = eye(dir.path(), &clock, "mkfifo begun; read _ < begun");
    let glance = glance();
    let mut look = slow.look(&glance);
    while !dir.path().join("begun").exists() {
        assert!((&mut look).now_or_never().is_none());
        tokio::task::yield_now().await;
    }
    clock.advance(Millis::from_secs(30));
    let no = look.await.unwrap_err().to_string();
    assert!(no.contains("did not end in 30 s"), "{no}");
}

fn far(url: String) -> UrlEye {
    UrlEye {
        url,
        outbound: way_out(),
        timeout: Millis::from_secs(30),
        reach: Reach::Public,
    }
}

#[tokio::test]
async fn an_address_is_posted_who_looks() {
    let answer = r#"{"world":["rain"],"context":{"recipient":"ann"}}"#;
    let server = Server::saying(reply("200 OK", &[], answer)).await;
    let eye = far(server.url("/look?key=hush"));
    eye.look(&plain_glance()).await.unwrap();
    let seen = eye.look(&glance()).await.unwrap();
    assert_eq!(seen.world.as_str(), "[\"rain\"]");
    assert_eq!(seen.context["recipient"].as_str(), "\"ann\"");
    let asked = &server.asked()[0];
    assert_eq!(
        (asked.method.as_str(), asked.header("content-type")),
        ("POST", Some("application/json"))
    );
    let bodies = server.asked().into_iter().map(|asked| asked.body);
    let bodies = bodies.map(|body| String::from_utf8(body.to_vec()).unwrap());
    let bodies: Vec<String> = bodies.collect();
    assert_eq!(bodies, [told(&plain_glance()), told(&glance())]);
    assert!(!format!("{eye:?}").contains("hush"));
}

#[tokio::test]
async fn an_address_that_fails_says_why() {
    for (status, body, why) in [
        ("500 Oh", "{}".to_owned(), "status 500"),
        ("200 OK", "sunny".to_owned(), "no JSON"),
        ("200 OK", String::new(), "answered nothing"),
        ("200 OK", "1".repeat(262_145), "longer than 262144 bytes"),
    ] {
        let server = Server::saying(reply(status, &[], body)).await;
        let no = far(server.url("/?key=hush")).look(&glance()).await;
        let no = no.unwrap_err().to_string();
        assert!(no.contains(why) && !no.contains("hush"), "{no}");
    }
    let inside = far("http://inside.example/?key=hush".into());
    let no = inside.look(&glance()).await.unwrap_err().to_string();
    assert!(
        no.contains("private or reserved") && !no.contains("hush"),
        "{no}"
    );
}
