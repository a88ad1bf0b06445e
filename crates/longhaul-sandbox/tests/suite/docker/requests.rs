//! What the provider sends to an engine, and what it makes of the answers.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU32, Ordering};

use longhaul_core::change::SandboxState;
use longhaul_core::port::sandbox::{
    ExecStatus, Isolation, NetworkPolicy, Sandbox as _, SandboxCommand, SandboxError,
    SandboxLimits, SandboxSpec, SandboxVolume, Sandboxes as _,
};
use longhaul_core::time::Timestamp;
use longhaul_sandbox::docker::DockerSandboxes;
use serde_json::json;

use super::fake_engine::{FakeEngine, Request, container};
use super::real_engine::options;
use super::spec::EngineSpec;

fn spec() -> SandboxSpec {
    SandboxSpec {
        name: "box-1".to_owned(),
        labels: BTreeMap::from([("run".to_owned(), "r1".to_owned())]),
        image: Some("registry.example/some/image".to_owned()),
        env: BTreeMap::from([("A".to_owned(), "b".to_owned())]),
        volumes: vec![SandboxVolume { name: "cache".to_owned(), path: "/cache".to_owned() }],
        limits: SandboxLimits {
            memory_bytes: Some(64 << 20),
            cpus: Some(1.5),
            tasks: Some(50),
            disk_bytes: None,
        },
        ..SandboxSpec::default()
    }
}

/// Uses everything of the provider that sends a request, and returns the requests.
async fn all_requests() -> Vec<Request> {
    let is_pulled = AtomicU32::new(0);
    let engine = FakeEngine::start(move |request| {
        let is_create = request.is("POST", "/containers/create");
        (is_create && is_pulled.fetch_add(1, Ordering::SeqCst) == 0)
            .then(|| (404, json!({ "message": "No such image" })))
    });
    let provider = engine.provider();
    provider.status().await.isolation.unwrap();
    let sandbox = provider.create(&spec()).await.unwrap();
    let command = SandboxCommand { stdin: b"input".to_vec(), ..SandboxCommand::shell("true") };
    let mut output = Vec::new();
    let exit = sandbox.exec(command, &mut |_, bytes| output.extend_from_slice(bytes)).await;
    assert_eq!((exit.unwrap().status, &*output), (ExecStatus::Exited(0), &b"outerr"[..]));
    sandbox.kill_commands_before(longhaul_core::id::Epoch(4)).await.unwrap();
    sandbox.write("/opt/file", b"content").await.unwrap();
    sandbox.read("/opt/file", 10).await.unwrap_err();
    provider.list(&spec().labels).await.unwrap();
    provider.start("box-1", &spec()).await.unwrap();
    // The engine says that it goes on running, so that the stop is refused after a while.
    provider.delete("box-1").await.unwrap();
    engine.requests()
}

#[tokio::test]
async fn requests_match_the_description_of_the_api() {
    let requests = all_requests().await;
    for request in &requests {
        assert!(request.path.starts_with('/'), "{request:?}");
    }
    for version in ["1.41", "1.44"] {
        let Some(spec) = EngineSpec::load(&format!("docker-engine-v{version}.trimmed.json")) else {
            continue;
        };
        requests.iter().for_each(|request| spec.check(request));
    }
}

#[tokio::test]
async fn a_container_has_no_rights() {
    let requests = all_requests().await;
    let create = requests.iter().find(|request| request.is("POST", "/containers/create")).unwrap();
    let body = create.json().unwrap();
    assert_eq!(create.query("name"), Some("box-1"));
    assert_eq!(body["Labels"], json!({ "run": "r1", "longhaul.sandbox": "box-1" }));
    let host = &body["HostConfig"];
    for (field, expected) in [
        ("CapDrop", json!(["ALL"])),
        ("SecurityOpt", json!(["no-new-privileges"])),
        ("NetworkMode", json!("none")),
        ("Init", json!(true)),
        ("PidsLimit", json!(50)),
        ("Memory", json!(64 << 20)),
        ("MemorySwap", json!(64 << 20)),
        ("NanoCpus", json!(1_500_000_000)),
        ("Privileged", json!(null)),
        ("Binds", json!(null)),
    ] {
        assert_eq!(host[field], expected, "{field}");
    }
    let mounts: Vec<_> = host["Mounts"].as_array().unwrap().iter().collect();
    let targets: Vec<_> = mounts.iter().map(|mount| (&mount["Type"], &mount["Target"])).collect();
    assert_eq!(
        targets,
        [
            (&json!("bind"), &json!("/workspace")),
            (&json!("bind"), &json!("/home/agent")),
            (&json!("volume"), &json!("/cache")),
        ]
    );
    assert_eq!(mounts[2]["Source"], "longhaul-cache");
    let pull = requests.iter().find(|request| request.is("POST", "/images/create")).unwrap();
    assert_eq!(pull.query("fromImage"), Some("registry.example/some/image:latest"));
}

#[tokio::test]
async fn the_machine_of_the_sandbox_gives_its_network() {
    let engine = FakeEngine::start(|_| None);
    let spec = SandboxSpec { network: NetworkPolicy::Host, ..spec() };
    let sandbox = engine.provider().create(&spec).await.unwrap();
    assert_eq!(sandbox.info().isolation, Isolation::Docker);
    assert_eq!(sandbox.info().labels, spec.labels);
    assert_eq!(sandbox.info().state, SandboxState::Running);
    let created_at: Timestamp = "2026-01-02T03:04:05.678901Z".parse().unwrap();
    assert_eq!(sandbox.info().created_at, Some(created_at));
    let requests = engine.requests();
    let create = requests.iter().find(|request| request.is("POST", "/containers/create")).unwrap();
    assert_eq!(create.json().unwrap()["HostConfig"]["NetworkMode"], json!(null));
}

#[tokio::test]
async fn a_spec_that_can_not_be_met_is_refused() {
    let engine = FakeEngine::start(|_| None);
    let provider = engine.provider();
    let volume = |path: &str| SandboxVolume { name: "v".to_owned(), path: path.to_owned() };
    let with_volume = |path| SandboxSpec { volumes: vec![volume(path)], ..spec() };
    let with_image = |image: &str| SandboxSpec { image: Some(image.to_owned()), ..spec() };
    let hosts = NetworkPolicy::Hosts(vec!["example.com".to_owned()]);
    for (refused, hint) in [
        (with_volume("/workspace"), "/cache"),
        (with_volume("/proc/sys"), "/cache"),
        (with_volume("/a/../etc"), "/cache"),
        (with_volume("cache"), "/cache"),
        (with_volume("/"), "/cache"),
        (with_image(""), "debian:12-slim"),
        (with_image("a b"), "debian:12-slim"),
        (SandboxSpec { network: hosts, ..spec() }, "`none` or `host`"),
        (SandboxSpec { min_isolation: Isolation::Remote, ..spec() }, "min_isolation"),
    ] {
        let error = provider.create(&refused).await.unwrap_err();
        let is_explained = matches!(&error, SandboxError::Refused(text) if text.contains(hint));
        assert!(is_explained, "{refused:?}: {error}");
    }
    assert!(!engine.requests().iter().any(|request| request.is("POST", "/containers/create")));
}

#[tokio::test]
async fn a_container_of_somebody_else_is_not_used() {
    let engine = FakeEngine::start(|request| match request.method.as_str() {
        "POST" if request.path == "/containers/create" => {
            Some((409, json!({ "message": "the name is in use" })))
        }
        "GET" if request.path.starts_with("/containers/") => {
            Some((200, json!({ "Id": "x", "Config": { "Labels": { "longhaul.sandbox": "y" } } })))
        }
        _ => None,
    });
    let provider = engine.provider();
    let error = provider.create(&spec()).await.unwrap_err();
    assert!(error.to_string().contains("docker rename box-1"), "{error}");
    assert_eq!(provider.get("box-1").await, Err(SandboxError::NotFound));
    assert_eq!(provider.stop("box-1").await, Err(SandboxError::NotFound));
    assert_eq!(provider.delete("box-1").await, Ok(()));
    assert!(!engine.requests().iter().any(|request| request.method == "DELETE"));
}

#[tokio::test]
async fn a_container_that_was_created_before_is_used() {
    let engine = FakeEngine::start(|request| match request.path.as_str() {
        "/containers/create" => Some((409, json!({ "message": "the name is in use" }))),
        "/containers/box-1/json" => {
            let mut paused = container("box-1");
            paused["State"]["Paused"] = json!(true);
            Some((200, paused))
        }
        _ => None,
    });
    let sandbox = engine.provider().create(&spec()).await.unwrap();
    assert_eq!(sandbox.info().handle, "box-1");
    let requests = engine.requests();
    assert!(requests.iter().any(|request| request.is("POST", "/box-1/unpause")), "{requests:#?}");
}

#[tokio::test]
async fn errors_of_the_engine_are_told_apart() {
    for (status, message, expected) in [
        (400, "bad parameter", SandboxError::Refused(String::new())),
        (500, "internal", SandboxError::Unavailable(String::new())),
        (500, "write: no space left on device", SandboxError::NoCapacity(String::new())),
    ] {
        let engine = FakeEngine::start(move |request| {
            let is_create = request.is("POST", "/containers/create");
            is_create.then(|| (status, json!({ "message": message })))
        });
        let error = engine.provider().create(&spec()).await.unwrap_err();
        let same = std::mem::discriminant(&error) == std::mem::discriminant(&expected);
        assert!(same && error.to_string().contains(message), "{status}: {error:?}");
    }
}

#[tokio::test]
async fn an_image_that_can_not_be_pulled_is_refused_with_the_command() {
    let engine = FakeEngine::start(|request| match request.path.as_str() {
        "/containers/create" => Some((404, json!({ "message": "No such image" }))),
        "/images/create" => Some((500, json!({ "message": "no route to the registry" }))),
        _ => None,
    });
    let error = engine.provider().create(&spec()).await.unwrap_err().to_string();
    assert!(error.contains("docker pull registry.example/some/image"), "{error}");
    assert!(error.contains("no route to the registry"), "{error}");
}

#[tokio::test]
async fn an_image_without_the_needed_programs_is_refused_and_its_container_removed() {
    let engine = FakeEngine::start(|request| {
        let message = "exec: \"tail\": executable file not found in $PATH";
        request.is("POST", "/start").then(|| (400, json!({ "message": message })))
    });
    let error = engine.provider().create(&spec()).await.unwrap_err().to_string();
    assert!(error.contains("debian:12-slim"), "{error}");
    assert!(engine.requests().iter().any(|request| request.is("DELETE", "/containers/box-1")));
}

#[tokio::test]
async fn a_machine_without_an_engine_says_so() {
    let dir = tempfile::tempdir().unwrap();
    let provider = DockerSandboxes::new(options(&dir.path().join("missing.sock"), dir.path()));
    let reason = provider.status().await.isolation.unwrap_err();
    assert!(reason.contains("missing.sock") && reason.contains("systemctl start"), "{reason}");
    assert!(matches!(provider.get("box-1").await, Err(SandboxError::Unavailable(_))));
    assert_eq!(provider.host().as_deref(), Some("test-host"));
}
