//! The request that creates a sandbox.

use longhaul_core::port::sandbox::{
    NetworkPolicy, SandboxError, SandboxLimits, SandboxSecret, SandboxSpec, Sandboxes as _,
};
use longhaul_sandbox::daytona::{DaytonaOptions, DaytonaSandboxes};
use serde_json::{Value, json};

use super::harness::{CheckedFake, spec};

#[tokio::test]
async fn limits_are_rounded_up_to_the_units_of_daytona() {
    let fake = CheckedFake::start().await;
    let limits = SandboxLimits {
        memory_bytes: Some(1_500 << 20),
        cpus: Some(1.5),
        tasks: Some(100),
        disk_bytes: Some(1),
    };
    let spec = SandboxSpec { limits, ..spec("limited") };
    let options = DaytonaOptions { target: Some("eu".to_owned()), ..fake.options() };
    let provider = DaytonaSandboxes::new(&options).expect("valid options");
    provider.create(&spec).await.expect("create");
    let request = fake.create_request();
    let names = ["name", "cpu", "memory", "disk", "target", "networkBlockAll"];
    let values = names.map(|name| request[name].clone());
    assert_eq!(values, [json!("limited"), json!(2), json!(2), json!(1), json!("eu"), json!(true)]);
}

#[tokio::test]
async fn hosts_become_a_list_of_domains_or_are_refused() {
    let fake = CheckedFake::start().await;
    let provider = fake.provider();
    let create = async |name: &str, network| {
        provider.create(&SandboxSpec { network, ..spec(name) }).await.map(drop)
    };
    let hosts = |hosts: &[&str]| {
        NetworkPolicy::Hosts(hosts.iter().map(|host| (*host).to_owned()).collect())
    };
    create("open", NetworkPolicy::Host).await.expect("create");
    assert_eq!(fake.create_request()["networkBlockAll"], Value::Null);
    create("listed", hosts(&["example.com", "*.example.org"])).await.expect("create");
    assert_eq!(fake.create_request()["domainAllowList"], "example.com,*.example.org");
    create("empty", hosts(&[])).await.expect("create");
    assert_eq!(fake.create_request()["networkBlockAll"], true);
    let refused = [
        "packages",
        "github",
        "example.com:8443",
        "!example.com",
        "10.0.0.1",
        "::1",
        "*",
        "*.",
        "a.*.com",
        "example.com,other.com",
        "",
    ];
    for host in refused {
        let error = create("refused", hosts(&["example.com", host])).await.expect_err(host);
        assert!(matches!(error, SandboxError::Refused(_)), "{host}: {error}");
    }
}

#[tokio::test]
async fn image_is_a_snapshot_or_is_built() {
    let fake = CheckedFake::start().await;
    fake.add_snapshot("team/tools:1");
    let provider = fake.provider();
    let create = async |name: &str, image: &str| {
        let image = Some(image.to_owned());
        provider.create(&SandboxSpec { image, ..spec(name) }).await.map(drop)
    };
    create("snapshot", "team/tools:1").await.expect("create");
    assert_eq!(fake.create_request()["snapshot"], "team/tools:1");
    create("image", "python:3.13-slim").await.expect("create");
    let expected = json!({ "dockerfileContent": "FROM python:3.13-slim\n" });
    assert_eq!(fake.create_request()["buildInfo"], expected);
    for image in ["", "a b", "a\nRUN curl evil.example", "a$(b)"] {
        let error = create("refused", image).await.expect_err(image);
        assert!(matches!(error, SandboxError::Refused(_)), "{image:?}: {error}");
    }
}

#[tokio::test]
async fn secrets_are_refused() {
    let fake = CheckedFake::start().await;
    let secret = SandboxSecret {
        name: "TOKEN".to_owned(),
        value: "value-of-the-secret".to_owned(),
        hosts: vec!["example.com".to_owned()],
    };
    let spec = SandboxSpec { secrets: vec![secret], ..spec("secret") };
    let error = fake.provider().create(&spec).await.expect_err("secrets");
    assert!(
        matches!(&error, SandboxError::Refused(message) if message.contains("TOKEN")),
        "{error}"
    );
    assert!(!error.to_string().contains("value-of-the-secret"));
    assert_eq!(fake.sandbox_count(), 0);
}

#[test]
fn options_are_checked() {
    let check = |change: fn(&mut DaytonaOptions), text: &str| {
        let mut options = DaytonaOptions::new("key".to_owned());
        change(&mut options);
        let error = DaytonaSandboxes::new(&options).expect_err(text);
        assert!(
            matches!(&error, SandboxError::Refused(message) if message.contains(text)),
            "{error}"
        );
    };
    check(|options| options.url = "app.daytona.io".to_owned(), "URL");
    check(|options| options.url = "ftp://app.daytona.io".to_owned(), "https://");
    check(|options| options.api_key = String::new(), "DAYTONA_API_KEY");
    check(|options| options.api_key = "a\nb".to_owned(), "DAYTONA_API_KEY");
    check(|options| options.ca_pem = Some(b"no certificate".to_vec()), "PEM");
}
