//! Lost connections, limits of the rate of requests, and errors of the API.

use longhaul_core::port::sandbox::{SandboxError, SandboxSpec, SandboxVolume, Sandboxes as _};
use longhaul_sandbox::daytona::{DaytonaOptions, DaytonaSandboxes};
use longhaul_testkit::daytona::Fault;

use super::harness::{CheckedFake, run, spec};

fn status(status: u16, message: &'static str) -> Fault {
    Fault::Status { status, message, retry_after_secs: None }
}

#[tokio::test]
async fn lost_requests_and_responses_are_repaired() {
    let fake = CheckedFake::start().await;
    let provider = fake.provider();
    for (volume, fault) in [("first", Fault::LostRequest), ("second", Fault::LostResponse)] {
        let volume = SandboxVolume { name: volume.to_owned(), path: "/cache".to_owned() };
        let spec = SandboxSpec { volumes: vec![volume], ..spec("repaired") };
        fake.fail_next("POST", "api/volumes", fault.clone());
        fake.fail_next("POST", "api/sandbox", fault.clone());
        fake.fail_next("POST", "process/execute", fault.clone());
        let sandbox = provider.create(&spec).await.expect("create");
        assert_eq!(fake.sandbox_count(), 1);

        for path in ["files/upload-v2", "process/session", "session/lh-", "process/execute"] {
            fake.fail_next("POST", path, fault.clone());
            assert_eq!(run(&*sandbox, "echo ran >> runs; echo done").await, "done\n", "{path}");
        }
        assert_eq!(run(&*sandbox, "cat runs; rm runs").await, "ran\n".repeat(4));
        fake.fail_next("GET", "files/download", fault.clone());
        sandbox.write("file", b"content").await.expect("write");
        assert_eq!(sandbox.read("file", 100).await.expect("read"), b"content");

        let handle = &sandbox.info().handle;
        fake.fail_next("POST", "/stop", fault.clone());
        provider.stop(handle).await.expect("stop");
        fake.fail_next("POST", "/start", fault.clone());
        provider.start(handle, &spec).await.expect("start");
        fake.fail_next("DELETE", "api/sandbox", fault.clone());
        provider.delete(handle).await.expect("delete");
        assert_eq!(fake.sandbox_count(), 0);
    }
}

#[tokio::test]
async fn short_rate_limits_are_waited_for_and_long_ones_are_not() {
    let fake = CheckedFake::start().await;
    let limit = |seconds| Fault::Status {
        status: 429,
        message: "Rate limit exceeded",
        retry_after_secs: Some(seconds),
    };
    for _ in 0..3 {
        fake.fail_next("POST", "api/sandbox", limit(0));
    }
    let provider = fake.provider();
    provider.create(&spec("limited")).await.expect("create");
    fake.fail_next("POST", "api/sandbox", limit(3_600));
    let error = provider.create(&spec("other")).await.expect_err("the limit lasts an hour");
    assert!(matches!(error, SandboxError::Unavailable(_)), "{error}");
}

#[tokio::test]
async fn errors_of_the_api_have_their_kinds() {
    let fake = CheckedFake::start().await;
    let provider = fake.provider();
    let check = async |fault, expected: fn(&SandboxError) -> bool, text: &str| {
        fake.fail_next("POST", "api/sandbox", fault);
        let error = provider.create(&spec("refused")).await.expect_err("a fault");
        assert!(expected(&error) && error.to_string().contains(text), "{error:?}");
    };
    let refused = |error: &SandboxError| matches!(error, SandboxError::Refused(_));
    let no_capacity = |error: &SandboxError| matches!(error, SandboxError::NoCapacity(_));
    let unavailable = |error: &SandboxError| matches!(error, SandboxError::Unavailable(_));
    check(status(400, "Snapshot not found"), refused, "Snapshot not found").await;
    check(status(400, "Total disk limit exceeded"), no_capacity, "disk").await;
    check(status(400, "No available runners"), no_capacity, "runners").await;
    check(status(401, "Unauthorized"), refused, "DAYTONA_API_KEY").await;
    check(status(403, "Forbidden"), refused, "DAYTONA_API_KEY").await;
    check(status(500, "Internal error"), unavailable, "Internal error").await;
    assert_eq!(fake.sandbox_count(), 0);
}

#[tokio::test]
async fn invalid_key_is_reported_without_the_key() {
    let fake = CheckedFake::start().await;
    let options = DaytonaOptions { api_key: "dtn_wrong_key".to_owned(), ..fake.options() };
    let provider = DaytonaSandboxes::new(&options).expect("valid options");
    let status = provider.status().await;
    let reason = status.isolation.expect_err("the key is not valid");
    assert!(reason.contains("DAYTONA_API_KEY"), "{reason}");
    for text in [format!("{options:?}"), format!("{provider:?}"), reason] {
        assert!(!text.contains("dtn_wrong_key"), "{text}");
    }
}

#[tokio::test]
async fn unreachable_service_is_unavailable() {
    let fake = CheckedFake::start().await;
    let provider = fake.provider();
    for _ in 0..5 {
        fake.fail_next("GET", "api/sandbox", Fault::LostRequest);
    }
    let error = provider.get("any").await.expect_err("no connection");
    assert!(matches!(error, SandboxError::Unavailable(_)), "{error}");
    assert!(!error.to_string().contains("127.0.0.1"), "{error}");
}

#[tokio::test]
async fn commands_leave_no_session() {
    let fake = CheckedFake::start().await;
    let (provider, sandbox) = fake.create("tidy").await;
    assert_eq!(run(&*sandbox, "echo ran").await, "ran\n");
    provider.drain().await;
    assert_eq!(fake.sessions(), Vec::<String>::new());
    assert_eq!(run(&*sandbox, "ls -d /tmp/lh-* | wc -l").await.trim(), "1", "only its own files");
}
